package gateway_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
)

// proved says which tests show that an attack on approvals fails: folder below internal, and name. TestApprovalCases finds them.
var proved = map[string][]string{
	"appr-003": {"approval TestAttackCases"},
	"appr-004": {"approval TestAttackCases"},
	"appr-005": {"approval TestAttackCases"},
	"appr-006": {"approval TestAttackCases", "gateway TestChangedDefinitionVoidsTheQuestion"},
	"appr-007": {"approval TestAttackCases", "gateway TestApprovedCallIsJudgedByTodaysRules"},
	"appr-010": {"egress TestDialJudgesAgain", "gateway TestApprovedFetchIsJudgedAtTheDial"},
	"appr-013": {"comm/exec TestNotAllowed", "comm/exec TestChangedProgram", "comm/exec TestAttackCases"}, // programs are an allow-list of names resolved once, and no text is matched
	"appr-016": {"approval TestAttackCases", "gateway TestSimilarQuestionsAreAnsweredTogether"},
	"appr-018": {"approval TestAttackCases", "gateway TestRacingRedeemsRunOnce", "store TestRacingSpends"},
	"appr-019": {"gateway TestCrashAfterRedeemRunsNothingAgain"},
	"appr-022": {"gateway TestRestoredRowIsNotRedeemedAgain", "store TestSpentForGood", "store TestAnchor"},
	"appr-024": {"approval TestAttackCases", "gateway TestApprovalIsForOneEnvironment"},
	"appr-025": {"approval TestAttackCases"},
	"appr-026": {"approval TestAttackCases", "gateway TestCriticalHeldForTwo"},
	"appr-029": {"approval TestAttackCases"},
	"appr-030": {"approval TestAttackCases"},
	"appr-033": {"approval TestAttackCases", "gateway TestRejectionAndDispatchHaveOneWinner"},
	"appr-034": {"approval TestAttackCases", "gateway TestApproverWhoLostTheRoleDoesNotCount"},
	"appr-037": {"approval TestAttackCases"},
	"appr-038": {"approval TestAttackCases", "gateway TestTwoAccountsOfOnePersonAreOneVote"},
	"appr-039": {"gateway TestNobodyPassesAlone"},
	"appr-041": {"httpapi TestWhoSeesWhat", "httpapi TestSignIn"},
	"appr-044": {"approval TestAttackCases"},
	"appr-045": {"gateway TestClockThatStepsBackRevivesNothing"},
	"appr-046": {"approval TestAttackCases"},
	"appr-049": {"approval TestAttackCases", "gateway TestRestartWhileAQuestionWaits"},
	"appr-051": {"gateway TestFloodOfQuestionsIsBounded"},
	"appr-053": {"gateway TestDrills", "gateway TestNoDrills"},
	"appr-054": {"httpapi TestHostileArguments", "httpapi TestMustRead"},
	"appr-057": {"approval TestAttackCases", "gateway TestWhatWasShownIsRedeemedAndSent"},
	"appr-059": {"gateway TestNothingIsApprovedWithTheStoreDown"},
	"appr-061": {"gateway TestNoAnswerCountsWithoutItsRecord", "store TestVoteNeedsItsEntry"},
	"appr-062": {"gateway TestLostAcknowledgementRunsNothingTwice"},
	"appr-064": {"console TestOIDCProviderDown"},
}

func TestApprovalCases(t *testing.T) {
	sources := map[string]string{}
	for id, tests := range proved {
		for _, test := range tests {
			folder, name, _ := strings.Cut(test, " ")
			if sources[folder] == "" {
				files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(folder), "*_test.go"))
				if err != nil || len(files) == 0 {
					t.Fatalf("no tests in %s, %v", folder, err)
				}
				for _, file := range files {
					b, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					sources[folder] += string(b)
				}
			}
			if !regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`).MatchString(sources[folder]) {
				t.Errorf("%s: there is no %s in %s", id, name, folder)
			}
		}
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
		if _, ok := proved[c.ID]; !ok {
			t.Errorf("%s (%s) is not considered", c.ID, c.Scenario)
		}
	}
	for id := range proved {
		if !slices.ContainsFunc(file.Cases, func(c struct{ ID, Scenario string }) bool { return c.ID == id }) {
			t.Errorf("%s is no case any more", id)
		}
	}
}

// Between the question and the answer, and between the answer and the run.
func TestChangedDefinitionVoidsTheQuestion(t *testing.T) {
	for name, before := range map[string]bool{"while it waits": false, "after it was approved": true} {
		t.Run(name, func(t *testing.T) {
			w := newPeopleWorld(t)
			p := w.open("worker", "erin", widgets)
			id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
			if before {
				w.mustRespond("bob", id, approval.Approve, "")
			}
			changed := definition("slack", "publish", "Now it publishes elsewhere.")
			w.offerAll(w.g, changed)
			w.mustRefuse(w.do(p, "slack_publish", `{"x":1}`, ""), fault.ToolQuarantined)
			if err := w.g.Catalogue().AcceptTool(t.Context(), "slack.publish", changed.Hash, "person:alice"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.modify("bob", id, `{"x":2}`, "less"); !fault.Is(err, fault.Conflict) {
				t.Errorf("its arguments are changed all the same: %v", err)
			}
			if !before { // whoever says yes now says it to what was
				w.respond("bob", &id, approval.Approve, "")
			}
			next := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
			if q := w.question(next); next == id || q.DefinitionHash != changed.Hash || len(q.Votes) != 0 || w.sent("publish") != 0 {
				t.Errorf("asked anew: %v, %+v", next != id, q.Approval)
			}
			w.mustRespond("bob", next, approval.Approve, "")
			w.mustPermit(w.do(p, "slack_publish", `{"x":1}`, ""))
			if w.sent("publish") != 1 || w.question(id).State == approval.Spent {
				t.Error("the old answer was used")
			}
		})
	}
}

func policies(t *testing.T, text string) *policy.Set {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := policy.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// What was approved under other rules is judged by today's, and asked anew: also where they would permit as much as before.
func TestApprovedCallIsJudgedByTodaysRules(t *testing.T) {
	const all = "permit (principal, action, resource);"
	rises := func(o *gateway.Options, to policy.Risk) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if tool == "publish" {
				c.RiskFloor = to
			}
			return c
		}
	}
	for name, c := range map[string]struct {
		change func(o *gateway.Options)
		code   fault.Code
		needed int
	}{
		"stricter": {func(o *gateway.Options) {
			o.Policies = policies(t, all+` forbid (principal, action, resource) when { resource == Operation::"slack.publish" };`)
		}, fault.PermissionDenied, 0},
		"another version": {func(o *gateway.Options) { o.Policies = policies(t, all+" // the same") }, fault.ApprovalRequired, 1},
		"the tier rose":   {func(o *gateway.Options) { rises(o, policy.Critical) }, fault.ApprovalRequired, 2},
		"the tier fell":   {func(o *gateway.Options) { rises(o, policy.Medium) }, "", 0},
		"it became a sink": {func(o *gateway.Options) { // for what the session held all along
			inner := o.Classify
			o.Classify = func(server, tool string) catalogue.Classification {
				c := inner(server, tool)
				c.Flow.BlockedBy = nil
				return c
			}
		}, fault.FlowContaminated, 0},
		"everything killed": {nil, fault.KillSwitch, 0},
	} {
		for what, answer := range map[string]bool{"while it waits": false, "after it was approved": true} {
			t.Run(name+" "+what, func(t *testing.T) {
				w := newPeopleWorld(t, func(o *gateway.Options) { o.Policies = policies(t, all) })
				p := w.open("worker", "erin", widgets)
				w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
				id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
				if answer {
					w.mustRespond("bob", id, approval.Approve, "")
				}
				if c.change == nil {
					w.g.Standing().Disable("", "person:alice", "stop")
				} else {
					c.change(&w.o)
					w.g = w.again(t)
				}
				a := w.do(p, "slack_publish", `{"x":1}`, "")
				switch {
				case c.code == "" && answer:
					w.mustPermit(a)
					return
				case c.code == "": // no riskier: the same question still stands
					return
				case a.Verdict.Code != c.code || w.sent("publish") != 0:
					t.Fatalf("%+v", a.Verdict)
				case c.code != fault.ApprovalRequired:
					return
				}
				next := w.question(w.mustAsk(a))
				if old := w.question(id); next.ID == id || next.Needed != c.needed || len(next.Votes) != 0 || old.State != approval.Superseded {
					t.Errorf("the old one is %s; asked anew for %d", old.State, next.Needed)
				}
				if err := w.respond("carol", &id, approval.Approve, ""); !fault.Is(err, fault.Conflict) {
					t.Errorf("the old one is answered: %v", err)
				}
			})
		}
	}
}

// lookups answers names as a test says, and counts who asked.
type lookups struct {
	mu    sync.Mutex
	to    netip.Addr
	asked int
}

func (l *lookups) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	return []netip.Addr{l.to}, nil
}

func (l *lookups) answer(addr string) (asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = netip.MustParseAddr(addr)
	return l.asked
}

// The name that a person approved leads elsewhere by the time that the call runs: what is dialled is judged then.
func TestApprovedFetchIsJudgedAtTheDial(t *testing.T) {
	var reached atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "widgets cost 7")
	}))
	defer web.Close()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(web.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	names := &lookups{}
	names.answer("127.0.0.1")
	built, err := comm.New(comm.Options{
		Data:      filepath.Join(t.TempDir(), "data"),
		Egress:    egress.Policy{Domains: []string{"prices.pub:" + port, "127.0.0.1:" + port}, Protocols: []string{"http"}},
		Listeners: egress.Options{Resolver: names}, NetworkTimeout: 5 * time.Second, FileTimeout: time.Second, ExecTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer built.Close()
	w := newCommWorld(t, func(o *gateway.Options) {
		o.Commands = built.Commands()
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "comm" {
				c.RiskFloor = policy.High
			}
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	fetch := func(path string) string {
		return fmt.Sprintf(`{"url":"http://prices.pub:%s/%s",%s}`, port, path, because)
	}
	// It runs where the name leads to the server that was opened.
	id := w.mustAsk(w.do(p, "comm_fetch", fetch("a"), ""))
	if asked := names.answer("127.0.0.1"); asked != 0 || reached.Load() != 0 {
		t.Fatalf("before anybody decided, %d lookups and %d requests", asked, reached.Load())
	}
	w.mustRespond("bob", id, approval.Approve, "")
	w.mustPermit(w.do(p, "comm_fetch", fetch("a"), ""))
	if reached.Load() != 1 {
		t.Fatalf("%d requests", reached.Load())
	}
	// And not where it leads to since, although a person approved it.
	for i, elsewhere := range []string{"169.254.169.254", "10.0.0.1", "127.0.0.2", "::1", "192.168.0.1"} {
		arguments := fetch(fmt.Sprint("b", i))
		id := w.mustAsk(w.do(p, "comm_fetch", arguments, ""))
		w.mustRespond("bob", id, approval.Approve, "")
		before := names.answer(elsewhere)
		a := w.mustRefuse(w.do(p, "comm_fetch", arguments, ""), fault.EgressBlocked)
		if after := names.answer("127.0.0.1"); after != before+1 || reached.Load() != 1 {
			t.Errorf("%s: %d lookups, %d requests", elsewhere, after-before, reached.Load())
		}
		es := w.entriesOf(a.CallID)
		if len(es) != 2 || es[0].Kind != audit.Intent || es[1].Kind != audit.Outcome {
			t.Errorf("%s: on record: %+v", elsewhere, es)
		}
		if q := w.question(id); q.State != approval.Spent { // it was tried: another try is another question
			t.Errorf("%s: the approval is %s", elsewhere, q.State)
		}
	}
}

// snapshot copies the data directory as it is on the disk, with the store open: what a killed process leaves. Another program does it: to
// close a file of SQLite's in this process would drop its locks.
func (w *commWorld) snapshot() string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "data")
	if out, err := exec.Command("cp", "-R", w.dir, dir).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// from is another process that finds the files.
func (w *commWorld) from(dir string) *commWorld {
	w.t.Helper()
	other := &commWorld{world: &world{t: w.t, dir: dir, up: w.up, o: w.o}, cmd: w.cmd, clock: w.clock}
	other.start()
	w.t.Cleanup(other.end)
	other.offerAll(other.g)
	return other
}

// between does something after the store has taken an intent, and before the gateway knows.
type between struct {
	gateway.Store
	do func() error
}

func (b *between) Intent(ctx context.Context, id string, v int64, e audit.Entry, raise []flow.Held, spend ...gateway.Spend) (session.Session, error) {
	s, err := b.Store.Intent(ctx, id, v, e, raise, spend...)
	if err == nil {
		err = b.do()
	}
	return s, err
}

func TestCrashAfterRedeemRunsNothingAgain(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	var left string
	w.o.Store = &between{Store: w.store, do: func() error { left = w.snapshot(); return errors.New("killed") }}
	w.g = w.again(t)
	if a := w.do(p, "slack_publish", `{"x":1}`, ""); a.Verdict.Decision == fault.Permit || w.sent("publish") != 0 {
		t.Fatalf("%+v", a.Verdict)
	}
	after := w.from(left)
	if q := after.question(id); q.State != approval.Spent {
		t.Errorf("the approval is %s", q.State)
	}
	var kinds []string
	for _, e := range after.entries() {
		if e.CallID != "" && e.CallID == after.question(id).SpentBy {
			kinds = append(kinds, string(e.Kind)+" "+e.Decision)
		}
	}
	if !slices.Equal(kinds, []string{"intent permit", "outcome unknown"}) {
		t.Errorf("on record: %v", kinds)
	}
	next := after.mustAsk(after.do(p, "slack_publish", `{"x":1}`, ""))
	if next == id || after.sent("publish") != 0 {
		t.Error("dispatched on what was used")
	}
	after.mustRespond("bob", next, approval.Approve, "")
	after.mustPermit(after.do(p, "slack_publish", `{"x":1}`, ""))
	if after.sent("publish") != 1 {
		t.Errorf("%d sent", after.sent("publish"))
	}
}

// outside changes the database as another program would.
func (w *commWorld) outside(query string, args ...any) error {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "sallyport.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec(query, args...)
	return err
}

func (w *commWorld) row(id string) (state string, body []byte) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "sallyport.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT state, body FROM approvals WHERE id = ?", id).Scan(&state, &body); err != nil {
		w.t.Fatal(err)
	}
	return state, body
}

// trigger is the statement that makes a trigger.
func (w *commWorld) trigger(name string) (statement string) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "sallyport.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT sql FROM sqlite_schema WHERE name = ?", name).Scan(&statement); err != nil {
		w.t.Fatal(err)
	}
	return statement
}

// spentRow is the row of audit_spent, column by column.
func (w *commWorld) spentRow(id string) []any {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "sallyport.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	row := make([]any, 4)
	if err := db.QueryRow("SELECT id, call_id, entry, mac FROM audit_spent WHERE id = ?", id).Scan(&row[0], &row[1], &row[2], &row[3]); err != nil {
		w.t.Fatal(err)
	}
	return row
}

func (w *commWorld) mustOutside(query string, args ...any) {
	w.t.Helper()
	if err := w.outside(query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

func TestRestoredRowIsNotRedeemedAgain(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	state, body := w.row(id)
	w.mustPermit(w.do(p, "slack_publish", `{"x":1}`, ""))
	_, spent := w.row(id)
	kept := w.spentRow(id)
	const restore = "UPDATE approvals SET state = ?, body = ? WHERE id = ?"
	if err := w.outside(restore, state, body, id); err == nil || !strings.Contains(err.Error(), "final") {
		t.Errorf("a spent row was put back: %v", err)
	}
	final, appendOnly := w.trigger("approvals_final"), w.trigger("audit_spent_delete")
	w.mustOutside("DROP TRIGGER approvals_final") // whoever restores a table has no triggers in the way
	w.mustOutside(restore, state, body, id)
	for range 2 {
		if a := w.do(p, "slack_publish", `{"x":1}`, ""); a.Verdict.Decision == fault.Permit || w.sent("publish") != 1 {
			t.Errorf("it was used twice: %+v", a.Verdict)
		}
	}
	for _, form := range []string{"DELETE FROM audit_spent WHERE id = ?", "UPDATE audit_spent SET id = 'other' WHERE id = ?", "INSERT OR REPLACE INTO audit_spent SELECT id, 'other', entry, mac FROM audit_spent WHERE id = ?"} {
		if err := w.outside(form, id); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", form, err)
		}
	}
	w.mustOutside("DROP TRIGGER audit_spent_delete")
	w.mustOutside("DELETE FROM audit_spent WHERE id = ?", id)
	w.mustOutside(appendOnly)
	w.mustOutside(final)
	if a := w.do(p, "slack_publish", `{"x":1}`, ""); a.Verdict.Decision == fault.Permit || w.sent("publish") != 1 {
		t.Errorf("it was used twice: %+v", a.Verdict)
	}
	w.end()
	if db, err := store.Open(w.dir, store.Options{}); !fault.Is(err, fault.StoreUnavailable) || !strings.Contains(err.Error(), id) {
		t.Errorf("a start with the restored row: %v, %v", db, err)
	}
	w.mustOutside("DROP TRIGGER approvals_final")
	w.mustOutside("UPDATE approvals SET state = 'spent', body = ? WHERE id = ?", spent, id)
	w.mustOutside(final)
	if db, err := store.Open(w.dir, store.Options{}); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("a start without the row of what was spent: %v, %v", db, err)
	}
	w.mustOutside("INSERT INTO audit_spent SELECT ?, ?, ?, ?", kept...)
	w.start()
}

// A copy of the store is another gateway's: what people answered here is no answer there, also if somebody rewrites where it was given.
func TestApprovalIsForOneEnvironment(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) { o.Environment = "staging" })
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	silent := w.asks(p, "slack_mail", `{}`)
	w.clock.advance(delay)
	dir := w.snapshot()
	w.o.Environment = "production"
	other := w.from(dir)
	if next := other.mustAsk(other.do(p, "slack_publish", `{"x":1}`, "")); next == id || other.question(id).State != approval.Superseded {
		t.Errorf("%s, %s", next, other.question(id).State)
	}
	if q := other.asks(p, "slack_mail", `{}`); q.ID == silent.ID || q.Environment != "production" {
		t.Errorf("silence of another environment: %+v", q.Approval)
	}
	if other.up.count() != 0 {
		t.Error("it ran")
	}
	forged := w.from(w.snapshot())
	_, body := forged.row(id)
	forged.mustOutside("UPDATE approvals SET body = ? WHERE id = ?", []byte(strings.Replace(string(body), `"environment":"staging"`, `"environment":"production"`, 1)), id)
	if a := forged.do(p, "slack_publish", `{"x":1}`, ""); a.Verdict.Decision != fault.Deny || a.Verdict.Code != fault.StoreUnavailable || forged.up.count() != 0 {
		t.Errorf("a forged environment was taken: %+v", a.Verdict)
	}
}

// A no that comes before the dispatch holds: whatever happens at the same time, the log says which was first, and what ran.
func TestRejectionAndDispatchHaveOneWinner(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	ran, stopped := 0, 0
	for i := range 40 {
		arguments := fmt.Sprintf(`{"n":%d}`, i)
		id := w.mustAsk(w.do(p, "slack_wipe", arguments, ""))
		w.mustRespond("bob", id, approval.Approve, "")
		before := w.sent("wipe")
		var wg sync.WaitGroup
		var yes, no error
		var answer gateway.Answer
		wg.Go(func() { yes = w.respond("alice", &id, approval.Approve, "") })
		wg.Go(func() { no = w.respond("carol", &id, approval.Reject, "stop") })
		wg.Go(func() { answer = w.do(p, "slack_wipe", arguments, "") })
		wg.Wait()
		if answer.Verdict.Decision != fault.Permit {
			answer = w.do(p, "slack_wipe", arguments, "")
		}
		q := w.question(id)
		switch n := w.sent("wipe") - before; {
		case no == nil && n == 0 && q.State == approval.Rejected && answer.Verdict.Code == fault.ApprovalRejected:
			stopped++
		case no != nil && n == 1 && yes == nil && q.State == approval.Spent && answer.Verdict.Decision == fault.Permit:
			ran++
		default:
			t.Fatalf("yes %v, no %v, %d ran, %s, %+v", yes, no, n, q.State, answer.Verdict)
		}
	}
	t.Logf("%d ran, %d were stopped", ran, stopped)
}

func TestApproverWhoLostTheRoleDoesNotCount(t *testing.T) {
	var mu sync.Mutex
	roles := map[string]approval.Voter{}
	for name, v := range voters {
		roles[name] = v
	}
	set := func(name string, v approval.Voter, known bool) {
		mu.Lock()
		defer mu.Unlock()
		if delete(roles, name); known {
			roles[name] = v
		}
	}
	w := newPeopleWorld(t, func(o *gateway.Options) {
		o.Voter = func(p string) (approval.Voter, bool) { mu.Lock(); defer mu.Unlock(); v, ok := roles[p]; return v, ok }
	})
	p := w.open("worker", "erin", widgets)
	for name, c := range map[string]struct {
		v     approval.Voter
		known bool
	}{
		"gone": {approval.Voter{}, false}, "no role": {approval.Voter{Person: "bob"}, true},
		"is the requester": {approval.Voter{Person: "bob", Roles: voters["bob"].Roles, Aliases: []string{"erin"}}, true},
		"is the other":     {approval.Voter{Person: "bob", Roles: voters["bob"].Roles, Aliases: []string{"alice"}}, true},
		"is the agent's":   {approval.Voter{Person: "bob", Roles: voters["bob"].Roles, Aliases: []string{"agent:worker"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			set("bob", voters["bob"], true)
			arguments := fmt.Sprintf(`{"why":%q}`, name)
			id := w.mustAsk(w.do(p, "slack_wipe", arguments, ""))
			w.mustRespond("bob", id, approval.Approve, "")
			w.mustRespond("alice", id, approval.Approve, "")
			set("bob", c.v, c.known)
			before := w.sent("wipe")
			if got := w.mustAsk(w.do(p, "slack_wipe", arguments, "")); got != id || w.sent("wipe") != before {
				t.Errorf("%s, was %s, %d sent", got, id, w.sent("wipe")-before)
			}
			w.mustRespond("carol", id, approval.Approve, "") // takes the place
			w.mustPermit(w.do(p, "slack_wipe", arguments, ""))
		})
	}
}

// There is no way round an approval: no role, no flag, no call that runs what nobody else approved. An admin is a person like others.
func TestNobodyPassesAlone(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "alice", widgets) // alice is the admin, and asks
	id := w.mustAsk(w.do(p, "slack_publish", `{}`, ""))
	if err := w.respond("alice", &id, approval.Approve, "it is urgent"); !fault.Is(err, fault.RoleMissing) {
		t.Errorf("an admin approves what she asked for: %v", err)
	}
	other := w.open("worker", "erin", widgets)
	critical := w.mustAsk(w.do(other, "slack_wipe", `{}`, ""))
	w.mustRespond("alice", critical, approval.Approve, "it is urgent")
	if err := w.respond("alice", &critical, approval.Approve, "very urgent"); !fault.Is(err, fault.Conflict) {
		t.Errorf("an admin is two people: %v", err)
	}
	if _, err := w.g.Desk().RespondTogether(t.Context(), voters["alice"], []desk.Response{{Approval: critical, Digest: w.question(critical).Digest, Decision: approval.Approve}}); !fault.Is(err, fault.Conflict) {
		t.Errorf("in a batch: %v", err)
	}
	w.mustAsk(w.do(p, "slack_publish", `{}`, ""))
	w.mustAsk(w.do(other, "slack_wipe", `{}`, ""))
	if w.up.count() != 0 {
		t.Error("it ran")
	}
}

// steps is a clock that somebody sets back while time passes.
type steps struct {
	mu      sync.Mutex
	began   time.Time // with its monotonic reading
	passed  time.Duration
	setBack time.Duration
}

func (s *steps) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.began.Add(s.passed)
	// Of a time.Time with a monotonic reading the first word has the wall seconds above bit 30. There is no other way to have a wall clock
	// that goes back while the monotonic one goes on.
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(s.setBack/time.Second) << 30
	return at
}

func (s *steps) move(passed, setBack time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed += passed
	s.setBack += setBack
}

// A clock that is set back by five minutes makes nothing live longer: neither a question nor a yes nor a declaration, and no silence shorter.
func TestClockThatStepsBackRevivesNothing(t *testing.T) {
	c := &steps{began: time.Now()}
	a, b := c.now(), time.Time{}
	c.move(time.Second, 5*time.Minute)
	if b = c.now(); b.Sub(a) != time.Second || b.Round(0).Sub(a.Round(0)) != time.Second-5*time.Minute {
		t.Skipf("this Go keeps its times in another way: %s, %s", b.Sub(a), b.Round(0).Sub(a.Round(0)))
	}
	c.move(0, -5*time.Minute)
	w := newPeopleWorld(t, func(o *gateway.Options) { o.Clock, o.Limits.ApprovalExpires = c.now, 10*time.Minute })
	p := w.open("worker", "erin", widgets)
	pending := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	approved := w.mustAsk(w.do(p, "slack_publish", `{"x":2}`, ""))
	w.mustRespond("bob", approved, approval.Approve, "")
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	silent := w.asks(p, "slack_mail", `{}`)
	c.move(9*time.Minute, 5*time.Minute) // nine minutes on, and set back by five
	if q := w.question(pending); q.State != approval.Pending {
		t.Errorf("after 9 of 10 minutes it is %s", q.State)
	}
	if q := w.question(silent.ID); q.State != approval.Approved {
		t.Errorf("after 9 minutes of silence it is %s", q.State)
	}
	c.move(time.Minute, 0)
	for name, id := range map[string]string{"pending": pending, "approved": approved, "declaration": d.ApprovalID, "silence": silent.ID} {
		if q := w.question(id); q.State != approval.Expired {
			t.Errorf("%s: after 10 minutes it is %s", name, q.State)
		}
		if err := w.respond("carol", &id, approval.Approve, ""); !fault.Is(err, fault.ApprovalExpired) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if next := w.mustAsk(w.do(p, "slack_publish", `{"x":2}`, "")); next == approved || w.sent("publish") != 0 {
		t.Error("it ran on a yes whose time was up")
	}
	w.mustRefuse(w.do(p, "comm_send", "{}", d.DeclarationID), fault.ApprovalExpired)
	if next := w.asks(p, "slack_mail", `{}`); next.ID == silent.ID || w.sent("mail") != 0 {
		t.Error("it ran on a silence whose time was up")
	}
}

func TestRestartWhileAQuestionWaits(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	pending := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	critical := w.mustAsk(w.do(p, "slack_wipe", `{}`, ""))
	w.mustRespond("bob", critical, approval.Approve, "")
	silent := w.asks(p, "slack_mail", `{}`)
	before := map[string]desk.Question{}
	for _, id := range []string{pending, critical, silent.ID} {
		before[id] = w.question(id)
	}
	check := func(name string, w *commWorld) {
		t.Helper()
		for id, b := range before {
			q := w.question(id)
			if q.Digest != b.Digest || !q.ExpiresAt.Equal(b.ExpiresAt) || !q.SilenceAt.Equal(b.SilenceAt) || q.State != b.State || len(q.Votes) != len(b.Votes) || string(q.Arguments) != string(b.Arguments) {
				t.Errorf("%s: %+v, was %+v", name, q.Approval, b.Approval)
			}
		}
		if got := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, "")); got != pending {
			t.Errorf("%s: asked twice about one call", name)
		}
		if got := w.asks(p, "slack_mail", `{}`); got.ID != silent.ID {
			t.Errorf("%s: asked twice about one call", name)
		}
		all, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", "", 100)
		if err != nil || len(all) != 3 {
			t.Errorf("%s: %d questions wait, %v", name, len(all), err)
		}
		w.mustRespond("alice", critical, approval.Approve, "") // the yes of before counts
		w.mustPermit(w.do(p, "slack_wipe", `{}`, ""))
	}
	check("killed", w.from(w.snapshot()))
	w.end()
	w.start()
	w.offerAll(w.g)
	check("stopped", w)
}

// What people can't read they would wave through: there is a bound for a session and one for an agent, and what is similar comes together.
func TestFloodOfQuestionsIsBounded(t *testing.T) {
	w := newPeopleWorld(t)
	const perSession, perAgent = 100, 500
	n := 0
	var last gateway.Answer
	for s := range 8 {
		p := w.open("worker", "erin", widgets)
		of := 0
		for i := range 2 * perSession {
			if last = w.do(p, "slack_publish", fmt.Sprintf(`{"n":%d,"url":"https://%d.example/"}`, i, i%4), ""); last.Verdict.Decision != fault.Ask {
				break
			}
			of++
			n++
		}
		w.mustRefuse(last, fault.LimitQuota)
		if want := min(perSession, max(0, perAgent-s*perSession)); of != want {
			t.Errorf("session %d has %d open questions, want %d", s, of, want)
		}
	}
	if n != perAgent {
		t.Errorf("the agent has %d open questions", n)
	}
	if a := w.do(w.open("selfish", "erin", widgets), "slack_publish", `{}`, ""); a.Verdict.Decision != fault.Ask {
		t.Errorf("another agent's question: %+v", a.Verdict)
	}
	if a := w.do(w.open("worker", "erin", widgets), "slack_plain", `{}`, ""); a.Verdict.Decision != fault.Permit {
		t.Errorf("what needs nobody: %+v", a.Verdict)
	}
	groups := map[string]int{}
	after := ""
	var p string
	for {
		page, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, q := range page {
			if q.Agent == "worker" {
				groups[q.Similar]++
				p = q.Session
			}
		}
		after = page[len(page)-1].ID
	}
	if len(groups) != 5*4 { // by session and destination
		t.Errorf("%d groups: %v", len(groups), groups)
	}
	if _, err := w.g.CloseSession(t.Context(), p, "person:alice", "it floods us"); err != nil { // one stroke
		t.Fatal(err)
	}
	if left, _, err := w.g.Desk().Waiting(t.Context()); err != nil || left != perAgent-perSession+1 {
		t.Errorf("%d wait, %v", left, err)
	}
}

// For each call that a person decided on: what was shown is what was spent, and is the bytes that the server got.
func TestWhatWasShownIsRedeemedAndSent(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	shown := map[string]desk.Question{}
	for _, arguments := range []string{
		`{}`, `{"b":1,"a":[2,{"z":0,"y":1}]}`, ` { "to" : "\u0041\u00e9\ud83d\ude00" , "n" : 1.50e2 } `, `{"html":"<b>&amp;</b>","bidi":"\u202e","nul":"\u0000","nl":"a\r\nb"}`,
		`{"long":"` + strings.Repeat("x", 30_000) + `"}`, `{"n":-0.0,"big":9007199254740991}`,
	} {
		for tool, people := range map[string][]string{"slack_publish": {"bob"}, "slack_wipe": {"bob", "carol"}, "slack_pay": {"alice", "carol"}} {
			a := w.do(p, tool, arguments, "")
			q := w.question(w.mustAsk(a))
			for _, person := range people[:q.Needed] {
				if _, err := w.g.Desk().Respond(t.Context(), voters[person], desk.Response{Approval: q.ID, Digest: q.Digest, Decision: approval.Approve}); err != nil {
					t.Fatal(err)
				}
			}
			w.mustPermit(w.do(p, tool, arguments, ""))
			shown[q.ID] = q
		}
	}
	// Two that a person changed first.
	for _, to := range []string{`{"x":2}`, `{"\u00fc":"<"}`} {
		id := w.mustAsk(w.do(p, "slack_publish", `{"x":1,"v":`+to+`}`, ""))
		q := w.mustModify("bob", id, to)
		w.mustRespond("carol", q.ID, approval.Approve, "")
		w.mustPermit(w.do(p, "slack_publish", to, ""))
		shown[q.ID] = q
	}
	spent, sent := 0, slices.Clone(w.up.calls)
	for _, e := range w.entries() {
		if e.Kind != audit.Intent || e.Risk != "HIGH" && e.Risk != "CRITICAL" {
			continue
		}
		var detail struct {
			ID string `json:"approval_id"`
		}
		if err := json.Unmarshal(e.Detail, &detail); err != nil {
			t.Fatal(err)
		}
		q, after := shown[detail.ID], w.question(detail.ID)
		if q.ID == "" || after.State != approval.Spent || after.SpentBy != e.CallID || after.Digest != q.Digest || e.Digest != q.CallDigest {
			t.Fatalf("%s: shown %s, spent %s by %s", e.Operation, q.Digest, after.Digest, after.SpentBy)
		}
		got := sent[spent] // one after the other, in the order of the log
		params, ok := strings.CutPrefix(got, "slack tools/call ")
		arguments, there := call.Get([]byte(params), "arguments")
		if digest := call.Digest("worker", p.ID, e.Operation, e.DefHash, arguments); !ok || !there || digest != q.CallDigest || string(arguments) != string(q.Arguments) {
			t.Errorf("%s: the server got %.200s, shown was %.200s", e.Operation, got, q.Arguments)
		}
		spent++
	}
	if spent != len(shown) || len(sent) != len(shown) {
		t.Errorf("%d shown, %d spent, %d sent", len(shown), spent, len(sent))
	}
}

func TestNothingIsApprovedWithTheStoreDown(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	h := w.hold(p, "slack_publish", `{"x":1}`, time.Hour)
	h.waits()
	h.hangUp()
	h.ends()
	w.mustRespond("bob", id, approval.Approve, "")
	w.store.set(func(b *brittle) { b.intent = fault.New(fault.StoreUnavailable, "") })
	w.mustRefuse(w.do(p, "slack_publish", `{"x":1}`, ""), fault.AuditUnavailable)
	w.store.set(func(b *brittle) { b.intent = nil })
	if err := w.db.Close(); err != nil { // the real one
		t.Fatal(err)
	}
	if a := w.do(p, "slack_publish", `{"x":1}`, ""); a.Verdict.Decision == fault.Permit || a.Verdict.Code != fault.AuditUnavailable && a.Verdict.Code != fault.StoreUnavailable {
		t.Errorf("%+v", a.Verdict)
	}
	if w.sent("publish") != 0 {
		t.Fatal("it ran without a store")
	}
	w.end()
	w.start()
	w.offerAll(w.g)
	if q := w.question(id); q.State != approval.Approved {
		t.Errorf("%s", q.State)
	}
	w.mustPermit(w.do(p, "slack_publish", `{"x":1}`, ""))
	if w.sent("publish") != 1 {
		t.Errorf("%d sent", w.sent("publish"))
	}
}

// A vote that can't be written down is none.
func TestNoAnswerCountsWithoutItsRecord(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	digest := w.question(id).Digest
	// Another program holds the log; the store's patience ends.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "sallyport.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	defer db.Close()
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, d := range []approval.Decision{approval.Approve} {
		if _, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: id, Digest: digest, Decision: d, Reason: "no"}); !fault.Is(err, fault.AuditUnavailable) {
			t.Errorf("%s: %v", d, err)
		}
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	t.Logf("refused after %s", time.Since(began).Round(time.Millisecond))
	if q := w.question(id); q.State != approval.Pending || len(q.Votes) != 0 {
		t.Errorf("%+v", q.Approval)
	}
	w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	if err := w.db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []approval.Decision{approval.Approve, approval.Reject, approval.Deferral} {
		if _, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: id, Digest: digest, Decision: d, Reason: "no"}); !fault.Is(err, fault.AuditUnavailable) && !fault.Is(err, fault.StoreUnavailable) {
			t.Errorf("%s: %v", d, err)
		}
	}
	if _, err := w.g.Desk().Modify(t.Context(), voters["bob"], desk.Modification{Approval: id, Digest: digest, Arguments: json.RawMessage(`{"x":2}`), Reason: "less"}); err == nil {
		t.Error("modified without a store")
	}
	w.end()
	w.start()
	w.offerAll(w.g)
	if q := w.question(id); q.State != approval.Pending || len(q.Votes) != 0 {
		t.Errorf("%+v", q.Approval)
	}
}

// The store did commit, and nobody was told: nothing is dispatched on it, now or later.
func TestLostAcknowledgementRunsNothingTwice(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	lost := &between{Store: w.store, do: func() error { return fault.New(fault.AuditUnavailable, "") }}
	w.o.Store = lost
	w.g = w.again(t)
	w.mustRefuse(w.do(p, "slack_publish", `{"x":1}`, ""), fault.AuditUnavailable)
	lost.do = func() error { return nil }
	next := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	if q := w.question(id); next == id || q.State != approval.Spent || w.sent("publish") != 0 {
		t.Errorf("%s is %s, %d sent", id, q.State, w.sent("publish"))
	}
	w.mustRespond("bob", next, approval.Approve, "")
	w.mustPermit(w.do(p, "slack_publish", `{"x":1}`, ""))
	lostCall := w.question(id).SpentBy
	w.end() // what has no outcome by then is unknown
	w.start()
	w.offerAll(w.g)
	es := w.entriesOf(lostCall)
	if len(es) == 0 || es[len(es)-1].Kind != audit.Outcome || es[len(es)-1].Decision != "unknown" || w.sent("publish") != 1 {
		t.Errorf("%d sent; on record: %+v", w.sent("publish"), es)
	}
}
