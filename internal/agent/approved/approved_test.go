package approved_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// brittle is the real store, whose writes can be made to fail.
type brittle struct {
	*store.DB
	fails bool
}

func (b *brittle) SaveAgentApprovals(ctx context.Context, all []approved.Record, entries ...audit.Entry) error {
	if b.fails {
		return fault.New(fault.StoreUnavailable, "")
	}
	return b.DB.SaveAgentApprovals(ctx, all, entries...)
}

// world is a book on the real store, with one declared agent.
type world struct {
	t        *testing.T
	db       *brittle
	set      agent.Set
	needed   int
	loadedBy string
	people   map[string]approval.Voter
	changed  []string
	now      time.Time
	trusted  func() []string // for export and import
	aside    func(context.Context, string) (time.Time, error)
	*approved.Book
}

func parse(t *testing.T, change ...string) agent.Declaration {
	t.Helper()
	d, problems := agent.Parse("a.yaml", []byte(strings.NewReplacer(change...).Replace(agent.Example())))
	if slices.ContainsFunc(problems, agent.Problem.Blocks) {
		t.Fatal(problems)
	}
	return d
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, db: &brittle{DB: gatewaytest.Store(t)}, set: agent.NewSet(parse(t)), needed: 1, loadedBy: "gateway:start", now: noon}
	person := func(id string, aliases ...string) approval.Voter {
		return approval.Voter{Person: id, Roles: []identity.Role{identity.Approver}, Aliases: aliases}
	}
	w.people = map[string]approval.Voter{
		"alice": person("alice", "alice@example.com"), "bob": person("bob"), "alice2": person("alice2", "ALICE@example.com"),
		"viewer": {Person: "viewer", Roles: []identity.Role{identity.Viewer}},
	}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	w.Book, err = approved.New(w.t.Context(), approved.Options{
		Signer: w.db.Signer(), Trusted: w.trusted, LastAside: w.aside, Store: w.db, Agents: func() agent.Set { return w.set }, Needed: func(*agent.Declaration) int { return w.needed },
		LoadedBy: func(string) string { return w.loadedBy }, Now: func() time.Time { return w.now }, Expires: func() time.Duration { return 30 * time.Minute }, People: func() (all []approval.Voter) {
			for _, p := range w.people {
				all = append(all, p)
			}
			return all
		}, Changed: func(id string) { w.changed = append(w.changed, id) },
		Voter: func(id string) (approval.Voter, bool) {
			v, ok := w.people[id]
			v.Others = func() (others []approval.Voter) {
				for other, o := range w.people {
					if other != id {
						others = append(others, o)
					}
				}
				return others
			}
			return v, ok
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) decl() *agent.Declaration {
	d, _ := w.set.Get("research-assistant")
	return d
}

func (w *world) approve(person, digest string) error {
	v := approval.Voter{Person: person, Roles: w.people[person].Roles}
	_, err := w.Approve(w.t.Context(), "research-assistant", digest, "because", v)
	return err
}

func (w *world) is(state approved.State) {
	w.t.Helper()
	if got := w.Of(w.decl()); got.State != state || w.Approved(w.decl()) != (state == approved.Approved) {
		w.t.Fatalf("%s: %s, want %s", got.State, got.Text, state)
	}
	reason, remedy := w.Refusal(w.decl())
	if (reason == "") != (state == approved.Approved) || reason != "" && !strings.Contains(remedy, w.decl().Digest) {
		w.t.Fatalf("refusal: %q %q", reason, remedy)
	}
}

func (w *world) entries() []audit.Entry {
	w.t.Helper()
	all, _, err := w.db.Entries(w.t.Context(), audit.Filter{Action: approved.Action})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// TestApprove: a declaration counts once its digest was approved, over a restart, and any change needs approving again.
func TestApprove(t *testing.T) {
	w := newWorld(t)
	w.is(approved.Unapproved)
	if err := w.approve("alice", "another"); !fault.Is(err, fault.ApprovalMismatch) {
		t.Error(err)
	}
	first := w.decl().Digest
	if err := w.approve("alice", first); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Approved)
	if !slices.Equal(w.changed, []string{"research-assistant"}) {
		t.Error(w.changed)
	}
	if err := w.approve("bob", first); !fault.Is(err, fault.Conflict) {
		t.Error("approved twice:", err)
	}
	w.open()
	w.is(approved.Approved)

	w.set = agent.NewSet(parse(t, "[mail.search_email, web.web_search]", "[mail.search_email]"))
	w.is(approved.Changed)
	diff, err := w.Difference(w.decl())
	if err != nil || len(diff.Fields) != 1 || diff.Fields[0].Field != "permissions.read" || !slices.Equal(diff.Fields[0].Removed, []string{"web.web_search"}) {
		t.Errorf("%+v %v", diff, err)
	}
	if err := w.approve("bob", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Approved)
	w.set = agent.NewSet(parse(t)) // back again is a change, too
	w.is(approved.Changed)

	all := w.entries()
	if len(all) != 2 || all[0].Actor != "person:alice" || all[1].Actor != "person:bob" || len(all[0].Rows) != 1 || all[0].Rows[0].Table != "agent_approvals" {
		t.Errorf("%+v", all)
	}
}

// TestWhoMayApprove has each person who may not.
func TestWhoMayApprove(t *testing.T) {
	w := newWorld(t)
	digest := w.decl().Digest
	if err := w.approve("viewer", digest); !fault.Is(err, fault.RoleMissing) {
		t.Error(err)
	}
	if err := w.approve("stranger", digest); !fault.Is(err, fault.RoleMissing) {
		t.Error(err)
	}
	approver := approval.Voter{Person: "alice", Roles: []identity.Role{identity.Approver}}
	if _, err := w.Approve(t.Context(), "nobody", digest, "", approver); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if _, err := w.Approve(t.Context(), agent.Trial("research-assistant"), digest, "", approver); !fault.Is(err, fault.NotFound) {
		t.Error("a trial agent:", err)
	}
	if _, err := w.Approve(t.Context(), "research-assistant", digest, strings.Repeat("x", 2001), approver); !fault.Is(err, fault.RequestMalformed) {
		t.Error(err)
	}
	w.is(approved.Unapproved)
}

// TestTwoApprovers: two people are two by all their names, and a change in between starts anew.
func TestTwoApprovers(t *testing.T) {
	w := newWorld(t)
	w.needed = 2
	digest := w.decl().Digest
	if err := w.approve("alice", digest); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Waiting)
	for _, again := range []string{"alice", "alice2"} {
		if err := w.approve(again, digest); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", again, err)
		}
	}
	w.is(approved.Waiting)
	w.set = agent.NewSet(parse(t, "version: 1.0.0", "version: 1.0.1"))
	w.is(approved.Unapproved)
	if err := w.approve("bob", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Waiting)
	w.open()
	w.is(approved.Waiting)
	if err := w.approve("alice", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Approved)
	if votes := w.Of(w.decl()).Votes; len(votes) != 2 || votes[0].Person != "bob" || votes[1].Person != "alice" {
		t.Errorf("%+v", votes)
	}
}

// TestOwn: who loaded the file approves their own, and so does the only one who can approve.
func TestOwn(t *testing.T) {
	for _, c := range []struct {
		loadedBy, person string
		alone, want      bool
	}{
		{"person:alice", "alice", false, true},
		{"person:alice", "alice2", false, false},
		{"person:ALICE@example.com", "alice2", false, true},
		{"person:bob", "alice", false, false},
		{"gateway:start", "alice", false, false},
		{"gateway:start", "alice", true, true},
		{"", "alice", true, true},
	} {
		w := newWorld(t)
		w.loadedBy = c.loadedBy
		if c.alone {
			w.people = map[string]approval.Voter{"alice": w.people["alice"], "viewer": w.people["viewer"]}
		}
		if err := w.approve(c.person, w.decl().Digest); err != nil {
			t.Fatal(err)
		}
		var said struct{ Own bool }
		if err := json.Unmarshal(w.entries()[0].Detail, &said); err != nil || said.Own != c.want || w.Of(w.decl()).Votes[0].Own != c.want {
			t.Errorf("%+v: own %v on record, %v", c, said.Own, err)
		}
	}
}

// TestBreakingSchema: an output schema that breaks its readers is not approved under the same major version.
func TestBreakingSchema(t *testing.T) {
	w := newWorld(t)
	if err := w.approve("alice", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	const was, is = "enum: [ESCALATE, INVESTIGATE, CLOSE, WAIT]", "enum: [ESCALATE, INVESTIGATE]"
	w.set = agent.NewSet(parse(t, was, is))
	if err := w.approve("bob", w.decl().Digest); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "outputSchemaVersion") {
		t.Error(err)
	}
	diff, err := w.Difference(w.decl())
	if err != nil || len(diff.Breaking) != 2 || diff.Blocked == "" {
		t.Errorf("%+v %v", diff, err)
	}
	w.set = agent.NewSet(parse(t, was, is, "outputSchemaVersion: 1.0.0", "outputSchemaVersion: 2.0.0"))
	if err := w.approve("bob", w.decl().Digest); err != nil {
		t.Error(err)
	}
	w.is(approved.Approved)
}

// TestBreakingSchemaWithoutAVersion: who approved a declaration without outputSchemaVersion has a way to break its schema, by writing one.
func TestBreakingSchemaWithoutAVersion(t *testing.T) {
	w := newWorld(t)
	const was, is, version = "enum: [ESCALATE, INVESTIGATE, CLOSE, WAIT]", "enum: [ESCALATE, INVESTIGATE]", "outputSchemaVersion: 1.0.0"
	w.set = agent.NewSet(parse(t, version, ""))
	if err := w.approve("alice", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	w.set = agent.NewSet(parse(t, was, is, version, ""))
	if err := w.approve("bob", w.decl().Digest); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "write one with a new major") {
		t.Error(err)
	}
	w.set = agent.NewSet(parse(t, was, is))
	if err := w.approve("bob", w.decl().Digest); err != nil {
		t.Error(err)
	}
	w.is(approved.Approved)
}

// TestRules: the built-in agent and what ran before are approved by rule, which says so, and a person can approve the latter, too.
func TestRules(t *testing.T) {
	w := newWorld(t)
	local := agent.Local()
	if said := w.Of(&local); said.State != approved.Approved || said.Rule != approved.ByBuiltIn {
		t.Errorf("%+v", said)
	}
	if err := w.Adopt(t.Context(), approved.ByUpgrade, w.decl(), &local); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Approved)
	if said := w.Of(w.decl()); said.Rule != approved.ByUpgrade || len(said.Votes) != 0 {
		t.Errorf("%+v", said)
	}
	if all := w.entries(); len(all) != 1 || all[0].Actor != approved.ByUpgrade {
		t.Errorf("%+v", all)
	}
	if err := w.approve("alice", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	if said := w.Of(w.decl()); said.Rule != "" || len(said.Votes) != 1 {
		t.Errorf("%+v", said)
	}
	w.set = agent.NewSet(parse(t, "version: 1.0.0", "version: 1.0.1"))
	if err := w.Adopt(t.Context(), approved.ByUpgrade, w.decl()); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Changed) // a rule approves nothing where people have
}

// TestTrialAgents stand as the agents that they are of.
func TestTrialAgents(t *testing.T) {
	w := newWorld(t)
	trial, ok := w.set.Get(agent.Trial("research-assistant"))
	if !ok || w.Approved(trial) {
		t.Fatal("a trial agent of one that nobody approved")
	}
	if err := w.approve("alice", w.decl().Digest); err != nil || !w.Approved(trial) {
		t.Error(err)
	}
}

// TestStoreFails: what could not be written down does not count.
func TestStoreFails(t *testing.T) {
	w := newWorld(t)
	w.db.fails = true
	if err := w.approve("alice", w.decl().Digest); !fault.Is(err, fault.StoreUnavailable) {
		t.Error(err)
	}
	w.is(approved.Unapproved)
	w.db.fails = false
	if err := w.approve("alice", w.decl().Digest); err != nil {
		t.Error(err)
	}
	w.is(approved.Approved)
}
