package approved_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// fleet is a gateway that exports and one that takes over, with the same declaration and people.
type fleet struct {
	t       *testing.T
	from    *world
	to      *world
	trusted []string
	aside   time.Time // when the agent was put aside last
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, from: newWorld(t), to: newWorld(t)}
	f.trusted = []string{f.from.db.Signer().PublicKey()}
	for _, w := range []*world{f.from, f.to} {
		w.signs(func() []string { return f.trusted }, func() time.Time { return f.aside })
	}
	if err := f.from.approve("alice", f.from.decl().Digest); err != nil {
		t.Fatal(err)
	}
	f.later(time.Minute)
	return f
}

// other is the public key of a gateway that signed nothing.
func (f *fleet) other() string {
	s, err := audit.LoadOrCreateKey(f.t.TempDir())
	if err != nil {
		f.t.Fatal(err)
	}
	return s.PublicKey()
}

func (f *fleet) later(d time.Duration) { f.from.now, f.to.now = f.from.now.Add(d), f.to.now.Add(d) }

func (f *fleet) export() string {
	f.t.Helper()
	b, err := f.from.Export(f.t.Context(), "person:alice", nil, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return b.Text
}

// take imports, and returns why the one approval was refused; "": it was not.
func (f *fleet) take(text string) string {
	f.t.Helper()
	in, err := f.to.Import(f.t.Context(), "person:bob", text)
	switch {
	case err != nil:
		return string(fault.Of(err).Code) + ": " + err.Error()
	case len(in.Agents) != 1 || in.Agents[0].Taken == (in.Agents[0].Why != ""):
		f.t.Fatalf("%+v", in)
	}
	return in.Agents[0].Why
}

// change puts another version of the declaration in force at both.
func (f *fleet) change(version string) {
	for _, w := range []*world{f.from, f.to} {
		w.set = agent.NewSet(parse(f.t, "version: 1.0.0", "version: "+version))
	}
}

func TestApprovalsAreCarried(t *testing.T) {
	f := newFleet(t)
	f.to.is(approved.Unapproved)
	if why := f.take(f.export()); why != "" {
		t.Fatal(why)
	}
	f.to.is(approved.Approved)
	s := f.to.Of(f.to.decl())
	name, _, _ := strings.Cut(f.trusted[0], "+")
	if len(s.Votes) != 1 || s.Votes[0].Person != "alice" || !s.Votes[0].At.Equal(noon) || !strings.Contains(s.Text, "signed by "+name) {
		t.Errorf("%+v", s)
	}
	all := f.to.entries()
	if e := all[len(all)-1]; e.Actor != "person:bob" || strings.Join(e.Approvers, " ") != "alice" || !strings.Contains(string(e.Detail), `"signed_by":"`+name) || !strings.Contains(string(e.Detail), "bundle_sha256") {
		t.Errorf("%+v %s", e, e.Detail)
	}
	if out, _, err := f.from.db.Entries(t.Context(), audit.Filter{Action: approved.ExportAction}); err != nil || len(out) != 1 || out[0].Actor != "person:alice" {
		t.Errorf("%+v %v", out, err)
	}
	f.to.open() // as after a restart
	f.to.is(approved.Approved)
	for _, ids := range [][]string{nil, {"research-assistant"}} { // trust in a gateway is not trust in those that it trusts
		if _, err := f.to.Export(t.Context(), "person:bob", ids, 0); !fault.Is(err, fault.Conflict) {
			t.Errorf("what was taken over is handed on: %v", err)
		}
	}
}

// TestCarriedApprovalsThatDoNotHold has each way in which a bundle is no approval here.
func TestCarriedApprovalsThatDoNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fleet, text string) string // before it is imported
		said   string
	}{
		"forged": {func(_ *fleet, text string) string { return strings.Replace(text, `"alice"`, `"bob"`, 1) }, "permission.denied"},
		"another digest in it": {func(f *fleet, text string) string {
			return strings.Replace(text, f.from.decl().Digest, strings.Repeat("0", 64), 1)
		}, "permission.denied"},
		"truncated":    {func(_ *fleet, text string) string { return text[:len(text)/2] }, "request.malformed"},
		"no signature": {func(_ *fleet, text string) string { text, _, _ = strings.Cut(text, "\n\n"); return text + "\n" }, "request.malformed"},
		"empty":        {func(*fleet, string) string { return "" }, "request.malformed"},
		"another key":  {func(f *fleet, text string) string { f.trusted = []string{f.other()}; return text }, "permission.denied"},
		"no key":       {func(f *fleet, text string) string { f.trusted = nil; return text }, "accepts approvals of no other"},
		"another kind": {func(f *fleet, _ string) string {
			signed, err := f.from.db.Signer().SignText("something else", "{}")
			if err != nil {
				f.t.Fatal(err)
			}
			return string(signed)
		}, "request.malformed"},
		"unknown members": {func(f *fleet, _ string) string {
			signed, err := f.from.db.Signer().SignText("sallyport-approvals v1", "[]")
			if err != nil {
				f.t.Fatal(err)
			}
			return string(signed)
		}, "request.malformed"},
		"too long":            {func(_ *fleet, text string) string { return text + strings.Repeat("x", approved.MaxBundle) }, "request.malformed"},
		"expired":             {func(f *fleet, text string) string { f.later(approved.BundleLife); return text }, "approval.expired"},
		"from the future":     {func(f *fleet, text string) string { f.to.now = noon.Add(-time.Hour); return text }, "request.malformed"},
		"another declaration": {func(f *fleet, text string) string { f.change("1.0.1"); return text }, "has the digest"},
		"no such agent":       {func(f *fleet, text string) string { f.to.set = agent.NewSet(); return text }, "is declared here"},
		"two are needed":      {func(f *fleet, text string) string { f.to.needed = 2; return text }, "It takes 2 people"},
		"nobody here":         {func(f *fleet, text string) string { delete(f.to.people, "alice"); return text }, "It takes 1 people"},
		"without the role": {func(f *fleet, text string) string {
			f.to.people["alice"] = approval.Voter{Person: "alice", Roles: []identity.Role{identity.Viewer}}
			return text
		}, "It takes 1 people"},
		"put aside since": {func(f *fleet, text string) string { f.aside = f.to.now; return text }, "put aside"},
		"approved here": {func(f *fleet, text string) string {
			if err := f.to.approve("bob", f.to.decl().Digest); err != nil {
				f.t.Fatal(err)
			}
			return text
		}, "already"},
		"superseded here": {func(f *fleet, text string) string { // another version was approved after it was signed, and the file was changed back
			f.later(time.Minute)
			f.change("1.0.1")
			if err := f.to.approve("bob", f.to.decl().Digest); err != nil {
				f.t.Fatal(err)
			}
			f.change("1.0.0")
			return text
		}, "Something newer"},
		"superseded by another bundle": {func(f *fleet, text string) string {
			f.later(time.Minute)
			f.change("1.0.1")
			if err := f.from.approve("alice", f.from.decl().Digest); err != nil {
				f.t.Fatal(err)
			}
			f.later(time.Minute)
			if why := f.take(f.export()); why != "" {
				f.t.Fatal(why)
			}
			f.change("1.0.0")
			return text
		}, "Something newer"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			text := c.change(f, f.export())
			before := len(f.to.entries())
			if why := f.take(text); !strings.Contains(why, c.said) {
				t.Errorf("%q, want %q", why, c.said)
			}
			if len(f.to.entries()) != before {
				t.Error("it is on record as an approval")
			}
		})
	}
}

// TestNothingToExport: what only a rule approved, and what nobody did, is not signed.
func TestNothingToExport(t *testing.T) {
	f := newFleet(t)
	for _, c := range []struct {
		w    *world
		ids  []string
		life time.Duration
		code fault.Code
	}{
		{f.to, nil, 0, fault.Conflict}, {f.to, []string{"research-assistant"}, 0, fault.Conflict}, {f.from, []string{"nobody"}, 0, fault.NotFound}, {f.from, nil, 91 * 24 * time.Hour, fault.RequestMalformed}, {f.from, nil, -1, fault.RequestMalformed},
	} {
		if _, err := c.w.Export(t.Context(), "person:alice", c.ids, c.life); fault.Of(err).Code != c.code {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := f.to.Adopt(t.Context(), approved.ByUpgrade, f.to.decl()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.to.Export(t.Context(), "person:alice", nil, 0); !fault.Is(err, fault.Conflict) {
		t.Errorf("a rule's approval: %v", err)
	}
	f.later(time.Minute)
	if why := f.take(f.export()); why != "" { // people's stand in for it
		t.Error(why)
	}
}

// signs lets the world export and import.
func (w *world) signs(trusted func() []string, aside func() time.Time) {
	w.trusted, w.aside = trusted, func(context.Context, string) (time.Time, error) { return aside(), nil }
	w.open()
}
