package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/quota"
)

var dayOfTen = quota.Limit{Resource: quota.APICalls, Window: quota.Day, Most: 10}

func claimOfOne(agent string) *quota.Claim {
	return &quota.Claim{Agent: agent, Limits: []quota.Limit{dayOfTen}, Amount: map[quota.Resource]int64{quota.APICalls: 1}}
}

// TestQuotaIsExact: of many intents at once as many are written as the quota has room for, without a commit more; a new process counts on from there.
func TestQuotaIsExact(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	var marks []int
	var locked sync.Mutex
	db.OnQuota(func(m quota.Mark) { locked.Lock(); defer locked.Unlock(); marks = append(marks, m.Percent) })
	var wait sync.WaitGroup
	var ran, refused int
	for i := range 64 {
		wait.Go(func() {
			id := "call_" + string(rune('A'+i/26)) + string(rune('a'+i%26))
			_, err := db.Intent(t.Context(), s.ID, s.Version, intent(s, id), nil, gateway.Spend{Quota: claimOfOne("a")})
			locked.Lock()
			defer locked.Unlock()
			var spent *gateway.SpendError
			switch {
			case err == nil:
				ran++
			case errors.As(err, &spent) && fault.Is(spent.Err, fault.LimitQuota):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if ran != 10 || refused != 54 {
		t.Errorf("%d ran, %d were refused", ran, refused)
	}
	must(t, db.Close())
	if len(marks) != 2 || marks[0] != 80 || marks[1] != 100 {
		t.Errorf("marks %v", marks)
	}
	db = openDB(t)
	if u, err := db.QuotaUse(t.Context(), "a", dayOfTen); err != nil || u.Used != 10 {
		t.Errorf("%+v %v", u, err)
	}
	if u, err := db.QuotaUse(t.Context(), "b", dayOfTen); err != nil || u != (quota.Use{}) {
		t.Errorf("another agent: %+v %v", u, err)
	}
}

// countingConn counts the statements that run on a connection.
type countingConn struct {
	driver.Conn
	n *int
}

type countingStmt struct {
	driver.Stmt
	n *int
}

func (c countingConn) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	return countingStmt{s, c.n}, err
}

func (s countingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	*s.n++
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	*s.n++
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// countStatements counts the statements of the writer from now on.
func countStatements(t *testing.T, db *DB) *int {
	n := new(int)
	must(t, db.w.aside(func() error {
		c := db.w.c
		for _, st := range c.stmts {
			st.s = countingStmt{st.s, n}
		}
		c.dc = countingConn{c.dc, n}
		return nil
	}))
	return n
}

// TestQuotaStatements: quotas cost their call the one statement that writes the new uses, in the intent's transaction, whether they were used before or not, and
// however many windows there are; to look at one costs none, but for the first look of a process at a use that an earlier one left.
func TestQuotaStatements(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	over, cancel := context.WithCancel(t.Context())
	cancel() // with it, any statement is an error
	free := func(what string, used int64) {
		t.Helper()
		if u, err := db.QuotaUse(over, "a", dayOfTen); err != nil || u.Used != used {
			t.Errorf("%s: %+v %v, want %d and no statement", what, u, err, used)
		}
	}
	for i := range 3 { // what follows is prepared, and the session in memory
		get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, fmt.Sprintf("call_first%d", i)), nil))
	}
	statements := countStatements(t, db)
	call := func(id string, spend ...gateway.Spend) (n int, commits int64) {
		t.Helper()
		before, commits := *statements, db.w.commits.Load()
		get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, id), nil, spend...))
		must(t, db.w.aside(func() error { n = *statements - before; return nil }))
		return n, db.w.commits.Load() - commits
	}
	none, commits := call("call_none")
	free("never used", 0)
	for i := range 3 {
		n, c := call(fmt.Sprintf("call_%d", i), gateway.Spend{Quota: claimOfOne("a")})
		if n != none+1 || c != commits {
			t.Errorf("call %d: %d statements and %d commits, without a quota %d and %d", i, n, c, none, commits)
		}
		free("used", int64(i)+1)
	}
	windows := &quota.Claim{Agent: "b", Amount: map[quota.Resource]int64{quota.APICalls: 1}, Bound: map[quota.Resource]int64{quota.ComputeSeconds: 1, quota.Tokens: 2, quota.Cost: 3}}
	for _, r := range []quota.Resource{quota.APICalls, quota.ComputeSeconds, quota.Tokens, quota.Cost} {
		windows.Limits = append(windows.Limits, quota.Limit{Resource: r, Window: quota.Hour, Most: 10}, quota.Limit{Resource: r, Window: quota.Day, Most: 10})
	}
	if n, c := call("call_windows", gateway.Spend{Quota: windows}); n != none+1 || c != commits {
		t.Errorf("eight windows: %d statements and %d commits, without a quota %d and %d", n, c, none, commits)
	}
	for _, l := range windows.Limits {
		if u, err := db.QuotaUse(over, "b", l); err != nil || u.Used != windows.Amount[l.Resource] || u.Reserved != windows.Bound[l.Resource] {
			t.Errorf("%s: %+v %v", l.Key("b"), u, err)
		}
	}
	must(t, db.Close())
	db = openDB(t)
	if u, err := db.QuotaUse(t.Context(), "a", dayOfTen); err != nil || u.Used != 3 {
		t.Errorf("a new process: %+v %v", u, err)
	}
	free("looked at before", 3)
}

// TestUsesInMemory: what a reader found never replaces what the writer committed meanwhile, and memory is bounded.
func TestUsesInMemory(t *testing.T) {
	q := quotas{byKey: map[string]quota.Use{}}
	old, recent := quota.Use{Used: 1}, quota.Use{Used: 2}
	_, _, cleared := q.get("a")
	q.put(map[string]quota.Use{"a": recent})
	if q.keep("a", old, cleared); q.byKey["a"] != recent {
		t.Errorf("%+v", q.byKey)
	}
	if q.clear(); len(q.byKey) != 0 {
		t.Errorf("%+v", q.byKey)
	}
	if q.keep("a", old, cleared); len(q.byKey) != 0 {
		t.Errorf("read before memory was cleared, and kept: %+v", q.byKey)
	}
	for i := range 2 * maxUses {
		if q.put(map[string]quota.Use{fmt.Sprint(i): recent}); len(q.byKey) > maxUses {
			t.Fatalf("%d uses in memory", len(q.byKey))
		}
	}
}

// TestVerifyCountsQuotas: a use that the entries don't add up to is found, whoever has the key.
func TestVerifyCountsQuotas(t *testing.T) {
	h := held{counted: map[string]*recounted{}, quotaUse: map[string]quota.Use{}}
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	api, compute := dayOfTen.Key("a"), quota.Limit{Resource: quota.ComputeSeconds, Window: quota.Day}.Key("a")
	row := func(key string) []audit.Row { return []audit.Row{{Table: "quota_use", Key: key}} }
	for i := range 3 {
		h.recount(&audit.Entry{Index: int64(i), At: at, Kind: audit.Intent, Rows: append(row(api), row(compute)...)})
	}
	h.recount(&audit.Entry{Index: 3, At: at, Kind: audit.Outcome, DurationMS: 1500, Rows: row(compute)})
	day := at.Truncate(24 * time.Hour)
	h.quotaUse[api], h.quotaUse[compute] = quota.Use{Start: day, Used: 3}, quota.Use{Start: day, Used: 1500, Reserved: 1}
	if h.compareQuotas(0); len(h.problems) > 0 {
		t.Errorf("%v", h.problems)
	}
	h.quotaUse[api] = quota.Use{Start: day, Used: 2}
	if h.compareQuotas(0); len(h.problems) != 1 || !strings.Contains(h.problems[0].What, "add up to 3") {
		t.Errorf("%v", h.problems)
	}
}

// TestTokensAreSetAside: tokens and cost are set aside in whole or not at all, settled by what stands in the outcome, and stay set aside over a crash.
func TestTokensAreSetAside(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	limits := []quota.Limit{
		{Resource: quota.Tokens, Window: quota.Day, Most: 1000}, {Resource: quota.Cost, Window: quota.Day, Most: 5000},
		{Resource: quota.Tokens, Window: quota.Run, Most: 1000, Session: s.ID},
	}
	ask := func(id string) error {
		_, err := db.Intent(t.Context(), s.ID, s.Version, intent(s, id), nil, gateway.Spend{Quota: &quota.Claim{
			Agent: "a", Limits: limits, Bound: map[quota.Resource]int64{quota.Tokens: 300, quota.Cost: 900},
		}})
		return err
	}
	use := func(n int) quota.Use {
		t.Helper()
		u, err := db.QuotaUse(t.Context(), "a", limits[n])
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, id := range []string{"call_1", "call_2", "call_3"} {
		must(t, ask(id))
	}
	var spent *gateway.SpendError
	if err := ask("call_4"); !errors.As(err, &spent) || !strings.Contains(spent.Err.Error(), "used 0 of 1000 tokens, and 900 are set aside for what is under way, this call may use 300") {
		t.Errorf("the fourth: %v", err)
	}
	done := outcome(intent(s, "call_1"), "ok")
	done.Detail = []byte(`{"tokens":{"input":100,"output":20},"cost_millionths":500}`)
	if _, err := db.Outcome(t.Context(), s.ID, done, nil, 0); err != nil {
		t.Fatal(err)
	}
	for n, want := range []quota.Use{{Used: 120, Reserved: 600}, {Used: 500, Reserved: 1800}, {Used: 120, Reserved: 600}} {
		if u := use(n); u.Used != want.Used || u.Reserved != want.Reserved {
			t.Errorf("%+v: %+v", limits[n], u)
		}
	}
	lost := outcome(intent(s, "call_2"), "unknown")
	lost.DurationMS = 0
	if _, err := db.Outcome(t.Context(), s.ID, lost, nil, 0); err != nil {
		t.Fatal(err)
	}
	if u := use(0); u.Used != 120 || u.Reserved != 600 {
		t.Errorf("an outcome that nobody knows gave back what was set aside: %+v", u)
	}
	must(t, db.Close())
	db = openDB(t)
	if u := use(0); u.Used != 120 || u.Reserved != 600 {
		t.Errorf("a new process: %+v", u)
	}
	if err := ask("call_5"); !errors.As(err, &spent) {
		t.Errorf("what was under way at the end is free: %v", err)
	}
}
