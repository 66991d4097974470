package library

import (
	"context"
	"fmt"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/shelf"
)

// Events are those of documents, where they are read and added.
type Events interface {
	KnowledgeEvents(ctx context.Context) ([]knowledge.Event, error)
	AddKnowledgeEvents(ctx context.Context, events []knowledge.Event, entries []audit.Entry) error
}

// EraseAgain does erasures again in a data directory in which they were not done yet, as in one that was restored of a backup from before: each as an event with its entry, and the destruction of the
// key. It returns the documents that were erased by it. actor is who does it.
func EraseAgain(ctx context.Context, store Events, s *shelf.Shelf, actor string, now time.Time, erasures []knowledge.Erasure) (done []string, err error) {
	events, err := store.KnowledgeEvents(ctx)
	if err != nil {
		return nil, err
	}
	documents, order := map[string]*knowledge.Document{}, int64(0)
	for _, e := range events {
		if documents[e.Document], err = documents[e.Document].Follow(e); err != nil {
			return nil, fault.Wrap(err, fault.StoreUnavailable, "The knowledge store is not what its events say.")
		}
		order = max(order, e.Order)
	}
	for _, erasure := range erasures {
		if erasure.AskedBy == "" || erasure.By == "" || erasure.AskedBy == erasure.By {
			return done, fault.New(fault.ConfigurationInvalid, "The erasure of %.80q is not by two people.", erasure.Document).Try("Use the file that sallyport knowledge erasures -o json wrote.")
		}
		d := documents[erasure.Document]
		if d == nil {
			continue // it was added after the backup
		}
		if state := d.Now(); !state.Erased {
			var events []knowledge.Event
			var entries []audit.Entry
			add := func(kind knowledge.Kind, by, what string, at time.Time) error {
				order++
				e := knowledge.Event{
					Document: erasure.Document, Seq: len(d.Events) + 1, Order: order, Kind: kind, At: now.UTC(), By: by, Reason: fmt.Sprintf("%s on %s, and done again after a backup was restored", what, at.UTC().Format(time.RFC3339)),
				}
				next, err := d.Follow(e)
				if err != nil {
					return err
				}
				entry, err := entryOf(next, &e, "")
				entry.Actor = actor
				d, events, entries = next, append(events, e), append(entries, entry)
				return err
			}
			if state.EraseAsked == "" || state.EraseAsked == erasure.By {
				err = add(knowledge.EraseAsk, erasure.AskedBy, "asked for", erasure.AskedAt)
			}
			if err == nil {
				err = add(knowledge.Erased, erasure.By, "erased", erasure.At)
			}
			if err == nil {
				err = store.AddKnowledgeEvents(ctx, events, entries)
			}
			if err != nil {
				return done, err
			}
			documents[erasure.Document] = d
		}
		done = append(done, erasure.Document)
	}
	return done, s.Destroy(ctx, done)
}
