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
	rejected int // questions that a person said no to
}

// isCall reports whether an entry is about a call of a tool.
func isCall(e *audit.Entry) bool {
	return e.CallID != "" && e.Operation != "" && (e.Action == "call" || e.Action == "approval.ask")
}

// observe adds the calls of one session since a time, whose entries are these from its first one on. whole is false where the first ones are gone: then
// nobody knows what the session holds.
func observe(uses map[string]*use, entries []audit.Entry, whole bool, since time.Time) {
	labelled, s := !whole, &sitting{seen: map[string]bool{}, waits: map[string]bool{}, clean: map[string]string{}}
	for i := range entries {
		e := &entries[i]
		if isCall(e) || e.Action == "approval.reject" && e.Operation != "" {
			u := uses[e.Operation]
			if u == nil {
				u = &use{clean: map[string]int{}}
				uses[e.Operation] = u
			}
			u.take(e, labelled, since, s)
		}
		if len(e.Labels) > 0 && e.Action != "session.release" { // a label that was released was there: the agent has read what brought it
			labelled = true
		}
	}
}

// sitting is what is known of the calls of one session.
type sitting struct {
	seen  map[string]bool   // calls, by id
	waits map[string]bool   // digests of calls that a person was asked about and that did not run yet
	clean map[string]string // calls that were made while the session held no label, with their definitions
}

// take adds one entry. A call that is repeated while it waits is one.
func (u *use) take(e *audit.Entry, labelled bool, since time.Time, s *sitting) {
	if e.At.Before(since) {
		return
	}
	if e.Action == "approval.reject" {
		u.rejected++
		return
	}
	if !s.seen[e.CallID] {
		s.seen[e.CallID] = true
		if e.Digest == "" || !s.waits[e.Digest] {
			u.calls++
		}
	}
	if e.DefHash != "" && !e.At.Before(u.newest) {
		u.hash, u.newest = e.DefHash, e.At
	}
	switch {
	case e.Kind == audit.Intent:
		s.waits[e.Digest] = false
		if !labelled && len(e.Labels) == 0 && e.DefHash != "" && !carries(e) && policy.Risk(e.Risk).Rank() < policy.High.Rank() {
			s.clean[e.CallID] = e.DefHash
		}
	case e.Decision == "ask":
		s.waits[e.Digest] = true
	case e.Kind == audit.Outcome && e.Decision == "ok" && s.clean[e.CallID] != "":
		u.clean[s.clean[e.CallID]]++
		delete(s.clean, e.CallID)
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
