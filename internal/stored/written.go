package stored

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sallyport.example/provenance"
)

// maxHashes bounds what is kept of one server. After that, everything that the server gives back may have been written by anybody.
const maxHashes = 200_000

// Written is what a call of an untrusted session writes to a server: keyed hashes of the values. No value can be read from them.
type Written struct {
	ID     string   `json:"-"` // of the call, or of an answer in it
	Server string   `json:"server"`
	Hashes []string `json:"hashes,omitempty"`
	All    bool     `json:"all,omitempty"`    // it may have been anything
	Launch string   `json:"launch,omitempty"` // the hash of how the server was started or reached
}

// HashStore keeps what untrusted sessions wrote. Intents write it.
type HashStore interface {
	// KeyedHash is a hash of a value under a key that is kept apart from the database.
	KeyedHash(server, value string) string
	// StoredWritten returns all that was written.
	StoredWritten(ctx context.Context) ([]Written, error)
}

// Values are the values that untrusted sessions wrote, in memory as in the store. Safe for concurrent use.
type Values struct {
	store   HashStore
	servers Servers
	former  map[string][]string // by name: those that the server may have had before

	mu    sync.RWMutex // guards the rest
	known map[string]*written
}

type written struct {
	hashes map[string]bool
	all    bool
}

// OpenValues reads the values.
func OpenValues(ctx context.Context, s HashStore, servers Servers) (*Values, error) {
	found, err := s.StoredWritten(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading what untrusted sessions wrote: %w", err)
	}
	v := &Values{store: s, servers: servers, former: map[string][]string{}, known: map[string]*written{}}
	for i := range found {
		w := &found[i]
		v.Add(w)
		for _, now := range servers.renamed(w.Server, w.Launch) {
			if !slices.Contains(v.former[now], w.Server) {
				v.former[now] = append(v.former[now], w.Server)
			}
		}
	}
	return v, nil
}

// Of is what a call writes that nobody has written before, by its arguments and by answers to its server's questions; nil if there is nothing.
func (v *Values) Of(server, id string, p *provenance.Profile, args []byte, answers ...[]byte) *Written {
	if v.all(server) {
		return nil
	}
	w := &Written{ID: id, Server: server}
	values, ok := provenance.Written(p, args)
	for _, answer := range answers {
		more, known := provenance.Written(nil, answer)
		values, ok = append(values, more...), ok && known
	}
	hashes := make([]string, len(values))
	for i, value := range values { // before the lock: this takes long
		hashes[i] = v.store.KeyedHash(server, value)
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	had := v.known[server]
	if had == nil {
		had = &written{}
	}
	for _, hash := range hashes {
		if !had.hashes[hash] {
			w.Hashes = append(w.Hashes, hash)
		}
	}
	if !ok || len(had.hashes)+len(w.Hashes) > maxHashes {
		w.Hashes, w.All = nil, true
	}
	if len(w.Hashes) == 0 && !w.All {
		return nil
	}
	w.Launch = v.servers[server]
	return w
}

// all reports whether what the server gives back may be anything that untrusted sessions wrote.
func (v *Values) all(server string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.known[server] != nil && v.known[server].all
}

// Add takes what is durable. It has to be called before the call runs.
func (v *Values) Add(w *Written) {
	v.mu.Lock()
	defer v.mu.Unlock()
	of := v.known[w.Server]
	if of == nil {
		of = &written{hashes: map[string]bool{}}
		v.known[w.Server] = of
	}
	of.all = of.all || w.All
	for _, hash := range w.Hashes {
		of.hashes[hash] = true
	}
}

// Distrust takes from what a server showed all that an untrusted session wrote to it, under whatever name.
func (v *Values) Distrust(server string, seen *provenance.Observation) {
	v.distrust(server, seen)
	for _, name := range v.former[server] {
		v.distrust(name, seen)
	}
}

func (v *Values) distrust(server string, seen *provenance.Observation) {
	v.mu.RLock()
	of := v.known[server]
	v.mu.RUnlock()
	if of == nil {
		return
	}
	seen.Distrust(func(value string) bool {
		hash := v.store.KeyedHash(server, value)
		v.mu.RLock()
		defer v.mu.RUnlock()
		return of.all || of.hashes[hash]
	})
}
