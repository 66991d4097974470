package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/knowledge/shelf"
	"sallyport.example/internal/threat"
)

// openLibrary opens the knowledge store.
func (d *Daemon) openLibrary(ctx context.Context, detector *threat.Detector) (*library.Library, error) {
	s, err := shelf.Open(d.o.Data)
	if err != nil {
		return nil, err
	}
	l, err := library.Open(ctx, library.Options{
		Store: d.store, Shelf: s, Clock: time.Now, Log: d.o.Log, Detect: detector.Labels,
		KnownLabel: func(label string) bool {
			all, err := d.config().labels() // those of today: a reload may have changed them
			return err == nil && slices.Contains(all, flow.Label(label))
		},
		Page: func(html string) (string, error) {
			text, cut := fetch.Readable(html, knowledge.MaxContent)
			if cut {
				return "", fault.New(fault.RequestMalformed, "The page is too large or too deep to be read whole.").At("content").Try("Give its text, as text/markdown.")
			}
			return text, nil
		},
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}
