// Package search finds entries of the log: the newest first, and by what stands in their arguments and results.
//
// Promises: what it finds is in the log and matches the whole filter, since every entry is read from the log before it is shown; the index is derived from
// the log, in a file of its own, and is made anew where it is absent, damaged, or not of this log; it holds words without their texts, of
// payloads as the log shows them, with secrets redacted, and nothing of the knowledge store's; it is filled behind the writer, and says up to which entry
// it goes. Nothing that decides rests on it.
package search

import (
	"context"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// Store is where entries are read.
type Store interface {
	Size(ctx context.Context) (int64, error)
	// Entries returns the entries that match, the oldest first. next is the last index that was looked at, or -1 where there is nothing more.
	Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error)
	Entry(ctx context.Context, index int64) (audit.Entry, []byte, error)
}

// Log is the log with its index. Make it with New. Safe for concurrent use.
type Log struct {
	store Store
	index *Index
}

// New returns the log of a store. index nil: nothing is found by content.
func New(store Store, index *Index) *Log { return &Log{store, index} }

const (
	maxPage = 1000 // entries of one answer
	// maxTried bounds the entries with all words that one query compares with the rest of its filter. It then says where to go on.
	maxTried = 2000
	// enoughToTell is how many entries tell how many more a part of the log has.
	enoughToTell = 16
)

// off is the answer to who searches by content where that is switched off.
func off() error {
	return fault.New(fault.RequestMalformed, "Searching by content is switched off here.").At("q").Try("Remove audit.search from the configuration, and restart.")
}

// Reach is how far the index goes: To is the first entry that it doesn't have, Size that of the log. ok is false where there is no index.
func (l *Log) Reach(ctx context.Context) (to, size int64, ok bool) {
	if l.index == nil {
		return 0, 0, false
	}
	size, err := l.store.Size(ctx)
	return l.index.to(), size, err == nil
}

// Entries returns the entries that match the filter, the oldest first, as Store does, also by content.
func (l *Log) Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error) {
	if f.Text == "" {
		return l.store.Entries(ctx, f)
	}
	first, end, err := l.span(ctx, f)
	if err != nil {
		return nil, -1, err
	}
	limit := f.Limit
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	page = []audit.Entry{}
	for tried := 0; first < end; {
		found, err := l.find(ctx, f.Text, first, end, false)
		if err != nil {
			return nil, -1, err
		}
		for _, index := range found {
			e, _, err := l.store.Entry(ctx, index)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return nil, -1, err
			}
			first = index + 1
			tried++
			if err == nil && f.Match(e) {
				page = append(page, e)
			}
			if len(page) == limit || tried >= maxTried {
				return page, index, nil
			}
		}
		if len(found) < someFound {
			break
		}
	}
	return page, -1, nil
}

// Range holds the newest entries that match a filter, the oldest first. A search for older ones goes on before From; -1: there are none.
type Range struct {
	Entries []audit.Entry
	From    int64
}

// Newest returns the newest n entries before an index (-1: of all) that match the filter, from at most most entries of the log.
func (l *Log) Newest(ctx context.Context, f audit.Filter, before int64, n int, most int64) (Range, error) {
	first, end, err := l.span(ctx, f)
	if err != nil {
		return Range{}, err
	}
	if before >= 0 {
		end = min(end, before)
	}
	if f.Text != "" {
		return l.newestWith(ctx, f, first, end, n)
	}
	// The log is read forwards only, so it goes back in pieces that grow.
	var found []audit.Entry
	for piece, scanned := max(int64(2*n), 64), int64(0); end > first && len(found) < n && scanned < most; piece *= 4 {
		if len(found) >= enoughToTell { // the rest is about as dense, so that the oldest piece is not four times what is needed; it grows in any case
			piece = max(min(piece, int64(n-len(found))*scanned/int64(len(found))*9/8), scanned/4)
		}
		from := max(first, end-piece)
		older, err := Between(ctx, l.store, f, from, end)
		if err != nil {
			return Range{}, err
		}
		found = append(older, found...)
		scanned, end = scanned+end-from, from
	}
	out := Range{Entries: found, From: end}
	if len(found) > n {
		out.Entries = found[len(found)-n:]
		out.From = out.Entries[0].Index
	} else if end <= first {
		out.From = -1
	}
	return out, nil
}

// newestWith is Newest by content.
func (l *Log) newestWith(ctx context.Context, f audit.Filter, first, end int64, n int) (Range, error) {
	var newest []audit.Entry
	out := Range{From: -1}
	for tried := 0; first < end && out.From < 0; {
		found, err := l.find(ctx, f.Text, first, end, true)
		if err != nil {
			return Range{}, err
		}
		for _, index := range found {
			e, _, err := l.store.Entry(ctx, index)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return Range{}, err
			}
			end = index
			tried++
			if err == nil && f.Match(e) {
				newest = append(newest, e)
			}
			if len(newest) == n || tried >= maxTried {
				out.From = index
				break
			}
		}
		if len(found) < someFound {
			break
		}
	}
	for i := len(newest) - 1; i >= 0; i-- {
		out.Entries = append(out.Entries, newest[i])
	}
	return out, nil
}

// span is where entries that the filter selects can be: from the first on, before end.
func (l *Log) span(ctx context.Context, f audit.Filter) (first, end int64, err error) {
	if end, err = l.store.Size(ctx); err != nil {
		return 0, 0, err
	}
	first, size := max(f.Min, 0), end
	if !f.From.IsZero() {
		if first, err = l.since(ctx, f.From, first, size); err != nil {
			return 0, 0, err
		}
	}
	if !f.To.IsZero() {
		if end, err = l.since(ctx, f.To, first, size); err != nil {
			return 0, 0, err
		}
	}
	return first, end, nil
}

// since is the first entry from first on that is not older than t, or size.
func (l *Log) since(ctx context.Context, t time.Time, first, size int64) (int64, error) {
	f := audit.Filter{Min: first, From: t, Limit: 1}
	for {
		page, next, err := l.store.Entries(ctx, f)
		switch {
		case err != nil:
			return 0, err
		case len(page) > 0:
			return page[0].Index, nil
		case next < 0:
			return size, nil
		}
		f.Min = next + 1
	}
}

// Between reads the entries from index from to end-1 that match the filter, which asks for no content.
func Between(ctx context.Context, store Store, f audit.Filter, from, end int64) ([]audit.Entry, error) {
	if from >= end {
		return nil, nil
	}
	f.Min, f.End, f.From, f.To, f.Limit = from, end, time.Time{}, time.Time{}, maxPage
	var found []audit.Entry
	for {
		page, next, err := store.Entries(ctx, f)
		if err != nil {
			return nil, err
		}
		found = append(found, page...)
		if next < 0 || next+1 >= end {
			return found, nil
		}
		f.Min = next + 1
	}
}

func (l *Log) find(ctx context.Context, text string, first, end int64, newest bool) ([]int64, error) {
	if l.index == nil {
		return nil, off()
	}
	return l.index.find(ctx, text, first, end, newest)
}
