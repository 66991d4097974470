package runner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"sallyport.example/internal/run"
)

// Figures are those of an agent's runs of the last 24 hours.
type Figures struct {
	Agent    string      `json:"agent_id"`
	Runs     int         `json:"runs"`
	Done     int         `json:"done"`
	Timeouts int         `json:"timeouts"`
	Invalid  int         `json:"invalid"`
	Returned int         `json:"returned" doc:"Runs whose input, or what they read, brought back what an agent said."`
	Quality  run.Quality `json:"quality"` // of their citations
}

// maxCounted bounds the runs that are looked at for figures.
const maxCounted = 2000

// Lately returns the figures of the last 24 hours, of one agent or with "" of all, by agent.
func (r *Runner) Lately(ctx context.Context, agent string) ([]Figures, error) {
	since := r.o.Clock().Add(-24 * time.Hour)
	by := map[string]*Figures{}
	for after, counted := "", 0; counted < maxCounted; {
		page, err := r.o.Store.Runs(ctx, run.Filter{Agent: agent, After: after, Limit: 100})
		if err != nil {
			return nil, err
		}
		for _, one := range page {
			if one.Started.Before(since) {
				page = nil
				break
			}
			f := by[one.Agent]
			if f == nil {
				f = &Figures{Agent: one.Agent}
				by[one.Agent] = f
			}
			f.add(one)
			after = one.ID
			counted++
		}
		if len(page) < 100 {
			break
		}
	}
	all := make([]Figures, 0, len(by))
	for _, f := range by {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Figures) int { return cmp.Compare(a.Agent, b.Agent) })
	return all, nil
}

func (f *Figures) add(r run.Run) {
	f.Runs++
	switch r.Status {
	case run.Done:
		f.Done++
	case run.Timeout:
		f.Timeouts++
	case run.Invalid:
		f.Invalid++
	}
	if len(r.Returned) > 0 {
		f.Returned++
	}
	f.Quality = f.Quality.Plus(r.Quality)
}
