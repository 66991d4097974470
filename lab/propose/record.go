package propose

import (
	"encoding/json"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/policy"
)

// use is what is on record of one operation.
type use struct {
	calls    int            // since the time asked for
	clean    map[string]int // calls that ran well in a session that held no label, by the hash of the definition that they were made under
	hash     string         // of the definition of the newest call, which was made at newest
	newest   time.Time
	rejected int            // questions that a person said no to
}

// isCall reports whether an entry is about a call of a tool.
func isCall(e *audit.Entry) bool {
	return e.CallID != "" && e.Operation != "" && (e.Action == "call" || e.Action == "approval.ask")
}

// observe adds the calls of one session since a time, whose entries are these from its first one on. whole is false where the first ones are gone: then
// nobody knows what the session holds.
func observe(uses map[string]*use, entries []audit.Entry, whole bool, since time.Time) {
	labelled, seen, clean := !whole, map[string]bool{}, map[string]string{}
	for i := range entries {
		e := &entries[i]
		if isCall(e) || e.Action == "approval.reject" && e.Operation != "" {
			u := uses[e.Operation]
			if u == nil {
				u = &use{clean: map[string]int{}}
				uses[e.Operation] = u
			}
			u.take(e, labelled, since, seen, clean)
		}
		if len(e.Labels) > 0 && e.Action != "session.release" { // a label that was released was there: the agent has read what brought it
			labelled = true
		}
	}
}

// take adds one entry. seen are the calls of the session that were counted, clean those that were made while it held no label, with their definitions.
func (u *use) take(e *audit.Entry, labelled bool, since time.Time, seen map[string]bool, clean map[string]string) {
	if e.At.Before(since) {
		return
	}
	if e.Action == "approval.reject" {
		u.rejected++
		return
	}
	if !seen[e.CallID] {
		seen[e.CallID] = true
		u.calls++
	}
	if e.DefHash != "" && !e.At.Before(u.newest) {
		u.hash, u.newest = e.DefHash, e.At
	}
	switch {
	case e.Kind == audit.Intent && !labelled && len(e.Labels) == 0 && e.DefHash != "" && !carries(e) && policy.Risk(e.Risk).Rank() < policy.High.Rank():
		clean[e.CallID] = e.DefHash
	case e.Kind == audit.Outcome && e.Decision == "ok" && clean[e.CallID] != "":
		u.clean[clean[e.CallID]]++
		delete(clean, e.CallID)
	}
}

// carries reports whether the arguments of a call carried text that was delivered before. What can't be read did.
func carries(e *audit.Entry) bool {
	if len(e.Detail) == 0 {
		return false
	}
	var d struct {
		Carries []json.RawMessage `json:"carries"`
	}
	return json.Unmarshal(e.Detail, &d) != nil || len(d.Carries) > 0
}
