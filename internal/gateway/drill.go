package gateway

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// A drill is a question that no agent asked: a copy of one that an agent did ask, with a destination that nobody named. It looks like the
// others until it is answered, and should be rejected; what is approved runs nothing, because its call digest is of no call. What share of
// them people reject says whether they read what they approve.

// DrillCounts is what became of drills.
type DrillCounts struct {
	Asked    int64 `json:"asked"`
	Rejected int64 `json:"rejected"`
	Approved int64 `json:"approved"`
}

// Drills is what became of the drills up to now.
func (g *Gateway) Drills(ctx context.Context) (DrillCounts, error) { return g.o.Store.Drills(ctx) }

// drill asks one, now and then, after a question of an agent's that people have to answer.
func (g *Gateway) drill(ctx context.Context, q approval.Approval, roles map[string]string) {
	if g.o.Limits.DrillEvery <= 0 || q.Needed == 0 || g.o.Draw(g.o.Limits.DrillEvery) != 0 {
		return
	}
	next, ok := bait(q, roles)
	if !ok {
		return
	}
	now := g.now()
	next, err := approval.New(next, now, q.ExpiresAt.Sub(q.CreatedAt))
	if err != nil {
		g.log.Error("a drill could not be made", "error", err)
		return
	}
	e := approvalEntry(next, "approval.drill", "rule:drill")
	e.Kind, e.Decision, e.Stage, e.Code = audit.Decision, string(fault.Ask), "approve", string(fault.ApprovalRequired)
	if _, err := g.ask(ctx, Ask{
		Approval: next, Drill: true, At: now, Entry: e,
		Twin: func(t Twin) (bool, Twin, error) { return false, t, nil }, // its digest is of nothing else
	}); err != nil {
		g.log.Info("a drill was not asked", "error", err) // it takes no room from real questions
		return
	}
	g.changed(ApprovalChanged, next.ID)
}

// strangers stand for destinations that nobody asked for, by the form of what they take the place of.
var strangers = []struct {
	form *regexp.Regexp
	as   []string
}{
	{regexp.MustCompile(`^[^@\s]+@[^@\s]+$`), []string{"billing.desk@outlook-invoices.example", "j.harper.private@mailbox.example", "archive@partner-sync.example"}},
	{regexp.MustCompile(`^[A-Z]{2}[0-9]{2}[0-9A-Z ]{10,30}$`), []string{"LT60 3250 0401 2345 6789", "CY17 0020 0128 0000 0012 0052 7600", "EE38 2200 2210 2014 5685"}},
	{regexp.MustCompile(`^https?://`), []string{"https://files-collect.example/upload", "https://paste.example/new"}},
	{regexp.MustCompile(`^#?[\w.-]+$`), []string{"external-guests", "public-announcements", "ext-7741"}},
}

// bait makes a bad request of a real one: another destination, of the same form. ok is false where there is none to change.
func bait(q approval.Approval, roles map[string]string) (bad approval.Approval, ok bool) {
	args := slices.Clone(q.Arguments)
	for _, name := range slices.Sorted(keysOf(roles, "destination")) {
		raw, there := call.Get(args, name)
		var value string
		if !there || json.Unmarshal(raw, &value) != nil {
			continue
		}
		for _, s := range strangers {
			if s.form.MatchString(value) {
				others := slices.DeleteFunc(slices.Clone(s.as), func(as string) bool { return as == value })
				quoted, _ := json.Marshal(others[rand.IntN(len(others))]) // of a string: can't fail
				args, ok = call.SetMember(args, name, quoted), true
				q.Evidence = strange(q.Evidence, name, quoted)
				break
			}
		}
	}
	canonical, err := call.Canonical(args, call.DefaultLimits())
	if !ok || err != nil {
		return q, false
	}
	bad = q
	bad.Reasons = covering(q)
	bad.Arguments, bad.DeclarationID, bad.Destinations = canonical, "", policy.Destinations(roles, canonical)
	bad.CallDigest = call.HashBytes([]byte("drill\x00" + call.NewID("", time.Now()))) // of no call
	return bad, true
}

// covering are a question's reasons with those that say what else a yes covers made anew, by what the question shows. No yes to a drill covers
// another record.
func covering(q approval.Approval) []approval.Reason {
	var all []approval.Reason
	again := false
	for _, r := range q.Reasons {
		switch {
		case r.Code != codeSource:
			all = append(all, r)
		case !again:
			again = true
			var names []string
			for _, f := range q.Evidence {
				if r := provenance.Role(f.Role); !f.Vouched && (r.Core() || r.Soft()) {
					names = append(names, f.Argument)
				}
			}
			all = append(all, usedAgain(q.Operation, names)...)
		}
	}
	return all
}

// strange is where the arguments came from, with another value in place of one: nothing vouches for that.
func strange(evidence []approval.Finding, name string, quoted []byte) []approval.Finding {
	evidence = slices.Clone(evidence)
	for i, f := range evidence {
		if f.Argument != name || json.Unmarshal(quoted, &f.Value) != nil {
			continue
		}
		evidence[i] = approval.Finding{Argument: name, Role: f.Role, Value: f.Value, Text: "nothing vouches for " + name}
	}
	return evidence
}

// keysOf yields the names with a role, of arguments that are not within others.
func keysOf(roles map[string]string, role string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name, r := range roles {
			if r == role && !strings.Contains(name, ".") && !yield(name) {
				return
			}
		}
	}
}
