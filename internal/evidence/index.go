package evidence

import (
	"context"
	"sync"
	"sync/atomic"

	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// Store is where evidence is kept.
type Store interface {
	// Evidence returns what a session has kept after the one with that number, in order.
	Evidence(ctx context.Context, sessionID string, after int64) ([]Kept, error)
	// KeyedHash is a hash of a value under a key that is kept apart from the database.
	KeyedHash(of, value string) string
}

// Hash is what is kept of a value in which a secret stands.
func Hash(s Store, value string) string { return s.KeyedHash("secret in evidence", value) }

// Index is what a session has seen, as far as memory has it: an index of what the store keeps. It is brought up to date before it is asked,
// so replicas see one another's evidence. The zero Index has seen nothing yet. It must not be copied.
type Index struct {
	request atomic.Pointer[readRequest]

	size atomic.Int64 // about how many bytes the index takes

	mu    sync.Mutex // guards the rest
	index provenance.Evidence
	last  int64             // number of the newest evidence in the index
	under map[string]string // operation -> digest of the profile under which its evidence is in the index, or was left out
}

// readRequest is the person's request, and the words that it was read from.
type readRequest struct {
	words string
	read  *provenance.Request
}

// Request is what the person said in these words. It is read again only when they have grown.
func (x *Index) Request(words string) *provenance.Request {
	if r := x.request.Load(); r != nil && r.words == words {
		return r.read
	}
	r := &readRequest{words: words, read: provenance.ParseRequest(words)}
	x.request.Store(r)
	return r.read
}

// times is how much more memory the index of a piece takes than the piece, at most: measured on mails, pages, logs and records.
const times = 8

// Size is about how many bytes the index takes.
func (x *Index) Size() int64 { return x.size.Load() }

// Forget empties the index, unless it is in use right now: it is made anew from what the store keeps when it is needed.
func (x *Index) Forget() {
	if x.mu.TryLock() {
		defer x.mu.Unlock()
		x.clear()
	}
}

// clear empties the index. It holds mu.
func (x *Index) clear() {
	x.index, x.last, x.under = provenance.Evidence{}, 0, nil
	x.size.Store(0)
}

// Use takes in what was kept since, and hands the index to f, which must not keep it. rules is the digest of the profile that an operation
// has today; "" of one that nobody knows any more.
func (x *Index) Use(ctx context.Context, store Store, sessionID string, rules func(operation string) string, f func(*provenance.Evidence)) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.catchUp(ctx, store, sessionID, rules); err != nil {
		return err
	}
	f(&x.index)
	return nil
}

var readers = sync.Pool{New: func() any { return new(provenance.Reader) }}

// catchUp takes in what was kept since. Evidence that was taken under other labels than today's is left out, but for what the session gave
// away, which confirms nothing. It holds mu.
func (x *Index) catchUp(ctx context.Context, store Store, sessionID string, rules func(operation string) string) error {
	for op, digest := range x.under {
		if rules(op) != digest { // the operator's word has changed since: read it all again
			x.clear()
			break
		}
	}
	kept, err := store.Evidence(ctx, sessionID, x.last)
	if err != nil {
		return err
	}
	x.index.HashWith(func(value string) string { return Hash(store, value) })
	r := readers.Get().(*provenance.Reader)
	defer readers.Put(r)
	defer r.Clear()
	for _, ev := range kept {
		seen, err := r.Read(ev.Body) // the index takes no more than texts of it
		if err != nil {
			return fault.Wrap(err, fault.StoreUnavailable, "What the session has seen can't be read.")
		}
		x.last = ev.Seq
		x.size.Add(times * int64(len(ev.Body)))
		if seen.GivenAway == nil {
			if x.under == nil {
				x.under = map[string]string{}
			}
			digest, known := x.under[seen.Operation]
			if !known {
				digest = rules(seen.Operation)
				x.under[seen.Operation] = digest
			}
			if digest != ev.Rules {
				continue
			}
		}
		x.index.Add(seen)
	}
	return nil
}
