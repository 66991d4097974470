package approval

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// pure is the attack cases that the state machine alone must withstand.
var pure = map[string]func(*testing.T){
	"appr-003": func(t *testing.T) {
		for _, arguments := range []string{`{"to":"a","to":"b"}`, `{"to":"a","TO":"b"}`} {
			a := asked()
			a.Arguments = json.RawMessage(arguments)
			_, err := New(a, t0, life)
			wantCode(t, arguments, err, fault.Internal)
		}
	},
	"appr-004": func(t *testing.T) { coversNot(t, "payer", "sess_1", "other.transfer", "hash") },
	"appr-005": func(t *testing.T) {
		coversNot(t, "other", "sess_1", "bank.transfer", "hash")
		coversNot(t, "payer", "sess_2", "bank.transfer", "hash")
	},
	"appr-006": func(t *testing.T) {
		coversNot(t, "payer", "sess_1", "bank.transfer", "changed")
		for _, a := range []Approval{open(t, "HIGH"), approved(t, "HIGH")} {
			void := must(t)(a.Supersede("It changed.", in))
			_, err := void.Approve(bob, void.Digest, "", in)
			wantCode(t, "approve", err, fault.Conflict)
			_, err = void.Spend("call_1", in)
			wantCode(t, "spend", err, fault.ApprovalMismatch)
		}
	},
	"appr-007": func(t *testing.T) { // who evaluates again is the gateway; a row that took another policy or risk covers nothing
		a, b := approved(t, "HIGH"), approved(t, "HIGH")
		a.PolicyVersion, b.Risk = "p2", "CRITICAL"
		wantCode(t, "policy", a.Covers(a.CallDigest, in), fault.ApprovalMismatch)
		wantCode(t, "risk", b.Covers(b.CallDigest, in), fault.ApprovalMismatch)
	},
	"appr-016": func(t *testing.T) {
		var fifty []Approval
		for range 50 {
			fifty = append(fifty, open(t, "HIGH"))
		}
		for _, other := range fifty[1:] {
			_, err := other.Approve(alice, fifty[0].Digest, "", in)
			wantCode(t, "one for all", err, fault.ApprovalMismatch)
		}
	},
	"appr-018": func(t *testing.T) {
		spent := must(t)(approved(t, "HIGH").Spend("call_1", in))
		for range 99 {
			_, err := spent.Spend("call_2", in)
			wantCode(t, "again", err, fault.Conflict)
		}
	},
	"appr-024": func(t *testing.T) { // the same request elsewhere is another request
		a, b := open(t, "HIGH"), open(t, "HIGH")
		b.ID = a.ID
		_, err := b.Approve(alice, a.Digest, "", in)
		wantCode(t, "copied", err, fault.ApprovalMismatch)
	},
	"appr-025": func(t *testing.T) {
		_, err := Approval{}.Approve(alice, "", "", in)
		if err == nil {
			t.Error("nothing was approved")
		}
		_, err = open(t, "HIGH").Approve(alice, asked().digest(), "", in)
		wantCode(t, "a digest made beforehand", err, fault.ApprovalMismatch)
	},
	"appr-026": func(t *testing.T) {
		a := open(t, "CRITICAL")
		a = must(t)(a.Approve(alice, a.Digest, "", in))
		_, err := a.Approve(alice, a.Digest, "", in)
		wantCode(t, "twice", err, fault.Conflict)
		if len(a.Votes) != 1 {
			t.Errorf("%d votes", len(a.Votes))
		}
	},
	"appr-029": func(t *testing.T) {
		a := open(t, "HIGH")
		for _, v := range []Voter{voter("rita"), {Person: "Rita", Roles: []identity.Role{identity.Admin}}, voter("bot", "rita"), voter("owner", "agent:payer"), voter("oscar")} {
			_, err := a.Approve(v, a.Digest, "", in)
			wantCode(t, v.Person, err, fault.RoleMissing)
		}
	},
	"appr-030": func(t *testing.T) {
		a := asked()
		a.Requester, a.OpenedBy = "bob", "person:bob"
		a = must(t)(New(a, t0, life))
		for _, v := range []Voter{voter("alice", "agent:payer"), bob} {
			_, err := a.Approve(v, a.Digest, "", in)
			wantCode(t, v.Person, err, fault.RoleMissing)
		}
	},
	"appr-033": TestRejectRaces,
	"appr-034": TestRecount,
	"appr-037": TestTwoPeopleForCritical,
	"appr-038": func(t *testing.T) {
		a := open(t, "CRITICAL")
		a = must(t)(a.Approve(voter("alice", "bob"), a.Digest, "", in))
		_, err := a.Approve(voter("bob", "alice"), a.Digest, "", in)
		wantCode(t, "for one another", err, fault.Conflict)
	},
	"appr-044": func(t *testing.T) {
		a := open(t, "HIGH")
		a = must(t)(a.Approve(alice, a.Digest, "", a.ExpiresAt.Add(-time.Second)))
		_, err := a.Spend("call_1", a.ExpiresAt.Add(time.Second))
		wantCode(t, "after", err, fault.ApprovalExpired)
	},
	"appr-046": func(t *testing.T) {
		a := open(t, "HIGH")
		wantCode(t, "a day", a.Covers(a.CallDigest, t0.Add(24*time.Hour)), fault.ApprovalExpired)
		wantCode(t, "before", a.Covers(a.CallDigest, in), fault.ApprovalRequired)
	},
	"appr-049": TestJSON,
	"appr-057": TestDigestBindsEverythingShown,
}

// whole is the cases that need more than this package, and what withstands them.
var whole = map[string]string{
	"appr-010": "egress, at dial", "appr-013": "command execution", "appr-019": "store and gateway: intents", "appr-022": "store: restored backups",
	"appr-039": "the whole: nobody bypasses an approval", "appr-041": "people's API and console", "appr-045": "store and daemon: one clock",
	"appr-051": "gateway: how many may wait", "appr-053": "the whole: drills", "appr-054": "console and terminal", "appr-059": "gateway: store down",
	"appr-061": "gateway: audit down", "appr-062": "store: lost acknowledgements", "appr-064": "gateway: who people are comes from the configuration",
}

func coversNot(t *testing.T, agent, session, operation, definition string) {
	t.Helper()
	a := approved(t, "HIGH")
	wantCode(t, agent+" "+session+" "+operation, a.Covers(call.Digest(agent, session, operation, definition, a.Arguments), in), fault.ApprovalMismatch)
}

func TestAttackCases(t *testing.T) {
	for id, test := range pure {
		t.Run(id, test)
	}
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", "attacks", "approvals.json"))
	if err != nil {
		t.Skip("../shared/cases/attacks/approvals.json is absent: whether it lists cases that nobody considered was not checked")
	}
	var file struct {
		Cases []struct{ ID, Scenario string }
	}
	if err := json.Unmarshal(data, &file); err != nil || len(file.Cases) == 0 {
		t.Fatalf("%d cases, %v", len(file.Cases), err)
	}
	for _, c := range file.Cases {
		if pure[c.ID] == nil && whole[c.ID] == "" {
			t.Errorf("%s (%s) is not considered", c.ID, c.Scenario)
		}
	}
}
