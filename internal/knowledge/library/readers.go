package library

import (
	"context"
	"encoding/json"
	"slices"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/knowledge"
)

// Log is what readers are found in.
type Log interface {
	Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error)
}

// Readers are who read documents, each list sorted.
type Readers struct{ Sessions, Agents, Runs, Recommendations, Calls []string }

// Operations are the ids of the operations by which agents read documents. What they read stands in the detail of their outcomes, under "read".
var Operations = []string{"knowledge.search", "knowledge.read", "knowledge.validate_claim"}

// Recorded is what an outcome says of what was read.
type Recorded struct {
	Snapshot string     `json:"snapshot,omitempty"`
	Read     []Citation `json:"read,omitempty"`
}

// ReadersOf finds who read any of the documents, in the log.
func ReadersOf(ctx context.Context, log Log, documents []*knowledge.Document) (r Readers, err error) {
	wanted := map[string]bool{}
	for _, d := range documents {
		wanted[d.ID()] = true
	}
	r = Readers{Sessions: []string{}, Agents: []string{}, Runs: []string{}, Recommendations: []string{}, Calls: []string{}}
	for _, operation := range Operations {
		for after := int64(0); after >= 0; {
			page, next, err := log.Entries(ctx, audit.Filter{Operation: operation, Min: after, Limit: 500})
			if err != nil {
				return r, err
			}
			for _, e := range page {
				var said Recorded
				if e.Kind != audit.Outcome || len(e.Detail) == 0 || json.Unmarshal(e.Detail, &said) != nil {
					continue
				}
				if slices.ContainsFunc(said.Read, func(c Citation) bool { return wanted[c.Document] }) {
					r.Sessions, r.Agents, r.Calls = append(r.Sessions, e.Session), append(r.Agents, e.Agent), append(r.Calls, e.CallID)
				}
			}
			if after = next; next >= 0 {
				after = next + 1
			}
		}
	}
	for _, list := range []*[]string{&r.Sessions, &r.Agents, &r.Calls} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return r, nil
}
