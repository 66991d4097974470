package library

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// Holding are snapshots that list any of the documents, the oldest first, and documents of the export collection that have what the recommendations in r say.
func (l *Library) Holding(ctx context.Context, of []*knowledge.Document, r Readers) (snapshots, exports []string, err error) {
	snapshots, exports = []string{}, []string{}
	l.mu.RLock()
	for _, s := range l.snapshots {
		if slices.ContainsFunc(of, func(d *knowledge.Document) bool { then, ok := d.AtOrder(s.Order); return ok && !then.Gone() }) {
			snapshots = append(snapshots, s.ID)
		}
	}
	l.mu.RUnlock()
	if len(r.Recommendations) == 0 {
		return snapshots, exports, nil
	}
	for after := ""; ; {
		page := l.Documents(after, knowledge.ExportCollection, 100)
		for _, d := range page {
			if after = d.ID(); d.Now().Erased {
				continue
			}
			for _, e := range d.Events {
				if e.Kind != knowledge.Versioned {
					continue
				}
				text, err := l.Text(ctx, d, &e)
				if err != nil {
					return snapshots, exports, err
				}
				if slices.ContainsFunc(r.Recommendations, func(id string) bool { return strings.Contains(text, id) }) {
					exports = append(exports, d.ID())
					break
				}
			}
		}
		if len(page) < 100 {
			return snapshots, exports, nil
		}
	}
}

// Log is what readers are found in.
type Log interface {
	Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error)
}

// Readers are who read documents, each list sorted. Sent are the calls that these sessions made afterwards, each as its id and operation, whatever became
// of them: what was read may have left in them.
// Models are those that texts of them were sent to: for embeddings, and to judge claims.
type Readers struct{ Sessions, Agents, Runs, Recommendations, Calls, Sent, Models []string }

// JudgeAction is the action of requests to the judge of claims in the log.
const JudgeAction = "claim.judge"

// Recorded is what an outcome says of what was read.
type Recorded struct {
	Snapshot string     `json:"snapshot,omitempty"`
	Read     []Citation `json:"read,omitempty"`
}

// Passage is what a call read of a document. Of one that was withdrawn or erased since, there is no text.
type Passage struct {
	Citation
	Source, Key, Text string
	Gone              bool
}

// maxPassages bounds the documents whose passages are read, in bytes of their texts.
const maxPassages = 32 << 20

// Passages reads what calls read of documents: each text once, and at most maxPassages bytes of all. It is for one goroutine.
type Passages struct{ texts *texts }

// Passages returns a reader of passages.
func (l *Library) Passages() *Passages { return &Passages{l.texts(maxPassages)} }

// Of are what a call read, by the detail of its outcome. Those of documents beyond the bound have no text.
func (r *Passages) Of(ctx context.Context, detail json.RawMessage) (all []Passage, err error) {
	var said Recorded
	if err := json.Unmarshal(detail, &said); err != nil {
		return nil, err
	}
	for _, c := range said.Read {
		d, err := r.texts.l.Document(c.Document)
		if err != nil {
			return nil, err
		}
		p := Passage{Citation: c, Source: d.Source(), Key: d.Key(), Gone: d.Rights(c.Version).Gone}
		if !p.Gone && !r.texts.full() {
			text, err := r.texts.of(ctx, d, c.Version)
			if err != nil {
				return nil, err
			}
			p.Text = text[min(c.Span.Start, len(text)):min(c.Span.End, len(text))]
		}
		all = append(all, p)
	}
	return all, nil
}

// each calls do for the entries of the log that the filter selects, in their order.
func each(ctx context.Context, log Log, f audit.Filter, do func(audit.Entry)) error {
	f.Limit = 500
	for f.Min >= 0 {
		page, next, err := log.Entries(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range page {
			do(e)
		}
		if f.Min = next; next >= 0 {
			f.Min = next + 1
		}
	}
	return nil
}

// ReadersOf finds in the log who read any of the documents.
func ReadersOf(ctx context.Context, log Log, documents []*knowledge.Document) (r Readers, err error) {
	wanted := map[string]bool{}
	for _, d := range documents {
		wanted[d.ID()] = true
	}
	first := map[string]int64{} // by session: the index of its first reading
	for _, operation := range knowledge.Reading {
		err := each(ctx, log, audit.Filter{Operation: operation}, func(e audit.Entry) {
			var said struct {
				Recorded
				Judge struct{ Model, Call string } `json:"judge"` // of results, which screening asked
			}
			if e.Kind != audit.Outcome || len(e.Detail) == 0 || json.Unmarshal(e.Detail, &said) != nil ||
				!slices.ContainsFunc(said.Read, func(c Citation) bool { return wanted[c.Document] }) {
				return
			}
			if at, known := first[e.Session]; !known || e.Index < at {
				first[e.Session] = e.Index
			}
			r.Agents, r.Calls = append(r.Agents, e.Agent), append(r.Calls, e.CallID)
			if said.Judge.Call != "" {
				r.Models = append(r.Models, said.Judge.Model)
			}
		})
		if err != nil {
			return r, err
		}
	}
	for session, from := range first {
		r.Sessions = append(r.Sessions, session)
		if err := r.after(ctx, log, session, from); err != nil {
			return r, err
		}
	}
	for _, action := range []string{EmbedAction, JudgeAction} {
		err = each(ctx, log, audit.Filter{Action: action}, func(e audit.Entry) {
			var of struct {
				Document  string   `json:"document"`
				Documents []string `json:"documents"`
			}
			if e.Kind != audit.Outcome && e.Decision == string(fault.Permit) && json.Unmarshal(e.Detail, &of) == nil &&
				slices.ContainsFunc(append(of.Documents, of.Document), func(id string) bool { return wanted[id] }) {
				r.Models = append(r.Models, e.Model)
			}
		})
		if err != nil {
			return r, err
		}
	}
	for _, list := range []*[]string{&r.Sessions, &r.Agents, &r.Runs, &r.Recommendations, &r.Calls, &r.Sent, &r.Models} {
		slices.Sort(*list)
		*list = append([]string{}, slices.Compact(*list)...)
	}
	return r, nil
}

// after adds what a session was for and what it did once it had read.
func (r *Readers) after(ctx context.Context, log Log, session string, from int64) error {
	return each(ctx, log, audit.Filter{Session: session}, func(e audit.Entry) {
		var said struct {
			Run            string `json:"run"`
			Recommendation string `json:"recommendation"`
		}
		if e.Kind == audit.Outcome {
			if e.Index > from && !slices.Contains(knowledge.Operations, e.Operation) {
				r.Sent = append(r.Sent, e.CallID+" "+e.Operation)
			}
			return
		}
		if !strings.HasPrefix(e.Action, "run.") && !strings.HasPrefix(e.Action, "recommendation.") || json.Unmarshal(e.Detail, &said) != nil {
			return
		}
		if said.Run != "" {
			r.Runs = append(r.Runs, said.Run)
		}
		if said.Recommendation != "" && e.Index > from {
			r.Recommendations = append(r.Recommendations, said.Recommendation)
		}
	})
}
