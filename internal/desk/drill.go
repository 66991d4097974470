package desk

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
)

// A drill is a question that no agent asked: a copy of one that an agent did ask, with a destination that no person named. It looks like the
// others until it is answered, and should be rejected. Approving it runs nothing, because no call has its call digest. The share of drills
// that people reject shows whether they read what they approve.

// DrillCounts counts drills by their answer.
type DrillCounts struct {
	Asked    int64 `json:"asked"`
	Rejected int64 `json:"rejected"`
	Approved int64 `json:"approved"`
}

// Drills counts the drills up to now.
func (d *Desk) Drills(ctx context.Context) (DrillCounts, error) { return d.o.Store.Drills(ctx) }

// drill asks one, now and then, after a question of an agent's that people have to answer.
func (d *Desk) drill(ctx context.Context, asked approval.Approval, q Draft) {
	if every := d.o.DrillEvery(); every <= 0 || asked.Needed == 0 || agent.IsTrial(asked.Agent) || d.o.Draw(every) != 0 {
		return
	}
	next, ok := withOtherDestination(asked, q)
	if !ok {
		return
	}
	now := d.o.Now()
	next, err := approval.New(next, now, asked.ExpiresAt.Sub(asked.CreatedAt))
	if err != nil {
		d.o.Log.Error("a drill could not be made", "error", err)
		return
	}
	_, err = d.write(ctx, next, "", now, func(f Found) (Written, error) {
		w, err := d.place(f, next, now)
		w.Drill, w.Entry = true, d.entry(next, "approval.drill", "rule:drill")
		w.Entry.Kind, w.Entry.Decision, w.Entry.Stage, w.Entry.Code = audit.Decision, string(fault.Ask), "approve", string(fault.ApprovalRequired)
		return w, err
	})
	if err != nil {
		d.o.Log.Info("a drill was not asked", "error", err) // it takes no room from real questions
		return
	}
	d.Changed(next.ID)
}

// decoys are destinations that nobody asked for, by the form of what they take the place of.
var decoys = []struct {
	form         *regexp.Regexp
	destinations []string
}{
	{regexp.MustCompile(`^[^@\s]+@[^@\s]+$`), []string{"billing.desk@outlook-invoices.example", "j.harper.private@mailbox.example", "archive@partner-sync.example"}},
	{regexp.MustCompile(`^[A-Z]{2}[0-9]{2}[0-9A-Z ]{10,30}$`), []string{"LT60 3250 0401 2345 6789", "CY17 0020 0128 0000 0012 0052 7600", "EE38 2200 2210 2014 5685"}},
	{regexp.MustCompile(`^https?://`), []string{"https://files-collect.example/upload", "https://paste.example/new"}},
	{regexp.MustCompile(`^#?[\w.-]+$`), []string{"external-guests", "public-announcements", "ext-7741"}},
}

// withOtherDestination makes a bad request of a real one: another destination, of the same form. ok is false where there is none to change.
func withOtherDestination(asked approval.Approval, q Draft) (bad approval.Approval, ok bool) {
	bad = asked
	arguments := slices.Clone(asked.Arguments)
	for _, name := range slices.Sorted(destinations(q.Roles)) {
		raw, there := call.Get(arguments, name)
		var value string
		if !there || json.Unmarshal(raw, &value) != nil {
			continue
		}
		for _, decoy := range decoys {
			if decoy.form.MatchString(value) {
				others := slices.DeleteFunc(slices.Clone(decoy.destinations), func(other string) bool { return other == value })
				quoted, _ := json.Marshal(others[rand.IntN(len(others))]) // of a string: can't fail
				arguments, ok = call.SetMember(arguments, name, quoted), true
				bad.Evidence = unconfirmed(bad.Evidence, name, quoted)
				break
			}
		}
	}
	canonical, err := call.Canonical(arguments, call.DefaultLimits())
	if !ok || err != nil {
		return asked, false
	}
	bad.Reasons = q.Reasons(bad)
	bad.Arguments, bad.DeclarationID, bad.Destinations = canonical, "", policy.Destinations(q.Roles, canonical)
	bad.CallDigest = call.HashBytes([]byte("drill\x00" + call.NewID("", time.Now()))) // of no call
	return bad, true
}

// unconfirmed returns the findings with another value for one argument, which nothing confirms.
func unconfirmed(evidence []approval.Finding, name string, quoted []byte) []approval.Finding {
	evidence = slices.Clone(evidence)
	for i, f := range evidence {
		if f.Argument != name || json.Unmarshal(quoted, &f.Value) != nil {
			continue
		}
		evidence[i] = approval.Finding{Argument: name, Role: f.Role, Value: f.Value, Text: name + " is not confirmed: the person did not name it, and no trusted record has it"}
	}
	return evidence
}

// destinations yields the names of the arguments that are destinations, and not within others.
func destinations(roles map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name, role := range roles {
			if role == "destination" && !strings.Contains(name, ".") && !yield(name) {
				return
			}
		}
	}
}
