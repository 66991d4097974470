package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/standing"
)

// memoryLog is a log in memory.
type memoryLog []audit.Entry

func (l *memoryLog) Size(context.Context) (int64, error) { return int64(len(*l)), nil }

func (l *memoryLog) Entries(_ context.Context, f audit.Filter) ([]audit.Entry, int64, error) {
	return (*l)[f.Min:], -1, nil
}

func (l *memoryLog) Record(context.Context, ...audit.Entry) error { return nil }

func (l *memoryLog) add(e audit.Entry) {
	e.Index, e.At = int64(len(*l)), time.Now()
	*l = append(*l, e)
}

// sources are those of a gateway that has something to say about everything.
func sources(t *testing.T, entries ...audit.Entry) Sources {
	t.Helper()
	l := &memoryLog{}
	counters := monitor.New(l, time.Now, slog.New(slog.DiscardHandler))
	for _, e := range entries {
		l.add(e)
	}
	if err := counters.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	number := func(n int64) func(context.Context) (int64, error) {
		return func(context.Context) (int64, error) { return n, nil }
	}
	since := time.Now()
	return Sources{
		Version: "test", Counters: counters,
		Switches: func() standing.Switches {
			return standing.Switches{Global: standing.Switch{Active: true}, Agents: map[string]standing.Switch{"a": {Active: true}, "b": {}, agent.Trial("a"): {Active: true}}}
		},
		Quarantined: func() map[string]standing.Quarantine {
			return map[string]standing.Quarantine{"b": {}, agent.Trial("a"): {}}
		},
		UnderWay: func() map[string]int { return map[string]int{"a": 2, agent.Trial("a"): 1} },
		Held:     func() int { return 3 },
		Breakers: func() []breaker.State {
			return []breaker.State{{Name: "mail", Server: "mail", Since: &since}, {Name: "a@files", Agent: "a", Server: "files"}, {Name: agent.TrialServer, Server: agent.TrialServer, Since: &since}}
		},
		Servers:   func() map[string]bool { return map[string]bool{"mail": false, "files": true} },
		Memory:    func() (int64, int64, int) { return 10, 100, 4 },
		Writes:    func() (int64, time.Duration, int) { return 7, 3500 * time.Millisecond, 5 },
		Ready:     func(context.Context) error { return nil },
		Entries:   number(int64(len(entries))),
		Sessions:  number(6),
		Approvals: number(8),
		Plans:     number(9),
		Quotas: func(context.Context) ([]quota.Status, error) {
			return []quota.Status{{Agent: "a", Resource: quota.Tokens, Window: quota.Day, Used: 50, Reserved: 10, Most: 200}}, nil
		},
		Messages: func(context.Context) (map[string]Messages, error) {
			return map[string]Messages{"mail": {Waiting: 1, GivenUp: 2}}, nil
		},
	}
}

// scrape is what a scrape gets.
func scrape(t *testing.T, s Sources, accept string) (body, media string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	Handler(s, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String(), w.Header().Get("Content-Type")
}

func ended(agentID, decision, code string) audit.Entry {
	return audit.Entry{Kind: audit.Outcome, Action: "call", Agent: agentID, Decision: decision, Code: code}
}

func refused(agentID, code string) audit.Entry {
	return audit.Entry{Kind: audit.Decision, Action: "call", Agent: agentID, Decision: "deny", Code: code}
}

// everything are entries of each kind that is counted.
func everything() []audit.Entry {
	asked := audit.Entry{Kind: audit.Outcome, Action: "models/request", Agent: "a", Model: "m", Decision: "ok", Detail: json.RawMessage(`{"tokens":{"input":30,"output":9},"cost_millionths":2500000,"first_ms":500}`)}
	judged := asked
	judged.Agent, judged.Action = "", "claim.judge"
	return []audit.Entry{
		ended("a", "ok", ""), ended("a", "ok", ""), ended("a", "error", "upstream.failed"), refused("a", "permission.denied"), refused("", "credential.missing"),
		{Kind: audit.Decision, Action: "approval.ask", Agent: "a"}, {Kind: audit.Change, Action: "approval.approve", Agent: "a"}, asked, judged,
		refused(agent.Trial("a"), "permission.denied"),
	}
}

// Every figure stands there as a person would expect it, and Prometheus' own linter has nothing to say.
func TestFigures(t *testing.T) {
	s := sources(t, everything()...)
	body, media := scrape(t, s, "")
	if !strings.HasPrefix(media, "text/plain") {
		t.Error(media)
	}
	for _, want := range []string{
		`build_info{version="test"} 1`, `ready 1`, `server_up{server="files"} 1`, `server_up{server="mail"} 0`,
		`calls_total{agent="a",code="",outcome="ran"} 3`, // a request to a model is a call
		`calls_total{agent="(nobody)",code="",outcome="ran"} 1`,
		`calls_total{agent="a",code="upstream.failed",outcome="failed"} 1`, `calls_total{agent="a",code="permission.denied",outcome="refused"} 1`,
		`calls_total{agent="(nobody)",code="credential.missing",outcome="refused"} 1`,
		`approvals_total{agent="a",event="asked"} 1`, `approvals_total{agent="a",event="approved"} 1`,
		`calls_running{agent="a"} 2`, `calls_held 3`, `approvals_waiting 8`, `plans_waiting 9`, `messages_waiting{channel="mail"} 1`, `messages_given_up{channel="mail"} 2`,
		`kill_switch_active 1`, `agents_stopped 1`, `agents_quarantined 1`, `breaker_open{breaker="mail"} 1`, `breaker_open{breaker="a@files"} 0`,
		`memory_held_bytes 10`, `memory_limit_bytes 100`, `memory_requests_waiting 4`,
		`quota_used{agent="a",resource="tokens",window="day"} 60`, `quota_limit{agent="a",resource="tokens",window="day"} 200`,
		`sessions_open 6`, `log_entries_total 10`, `store_commit_seconds_count 7`, `store_commit_seconds_sum 3.5`, `store_writes_waiting 5`,
		`model_requests_total{agent="a",model="m",outcome="answered",purpose=""} 1`, `model_requests_total{agent="(gateway)",model="m",outcome="answered",purpose="claim.judge"} 1`,
		`model_tokens_total{agent="a",direction="input",model="m",purpose=""} 30`, `model_tokens_total{agent="a",direction="output",model="m",purpose=""} 9`,
		`model_cost_total{agent="a",model="m",purpose=""} 2.5`, `model_first_text_seconds_sum{agent="a",model="m",purpose=""} 0.5`, `figures_missing 0`,
	} {
		if !strings.Contains(body, "\nsallyport_"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(body, agent.TrialServer) {
		t.Error("trials are counted")
	}
	for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if !strings.HasPrefix(name, "sallyport_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("a name of another form: %s", line)
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "sallyport_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if err != nil || !strings.Contains(body, "\ngo_goroutines ") {
		t.Error(err, "or the process has no figures")
	}
	if t.Failed() {
		t.Log(body)
	}
	if body, media := scrape(t, s, "application/openmetrics-text; version=1.0.0"); !strings.HasPrefix(media, "application/openmetrics-text") || !strings.HasSuffix(body, "\n# EOF\n") {
		t.Error(media)
	}
}

// docs/operations.md lists every figure, and none that is not there.
func TestFiguresAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n| figure | labels |")
	table, _, _ := strings.Cut(section, "\n\n")
	documented := map[string]bool{}
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, "|"); len(cells) > 1 {
			for _, name := range regexp.MustCompile(`sallyport_[a-z_]+`).FindAllString(cells[1], -1) {
				documented[name] = true
			}
		}
	}
	body, _ := scrape(t, sources(t, everything()...), "")
	there := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (sallyport_\S+)`).FindAllStringSubmatch(body, -1) {
		there[found[1]] = true
	}
	if len(there) < 20 || !maps.Equal(there, documented) {
		t.Errorf("there are %v\ndocumented %v", slices.Sorted(maps.Keys(there)), slices.Sorted(maps.Keys(documented)))
	}
}

// Whatever stands as a code in an entry, labels are codes of the closed list. Agents above the bound are one, and nothing is lost of the sum.
func TestLabelsAreBounded(t *testing.T) {
	const agents = 5000
	entries := []audit.Entry{refused("agent-0", "what \"a server\" said"), refused("agent-0", "and said again"), refused(agent.Trial("a"), "permission.denied")}
	for i := range agents {
		entries = append(entries, refused(fmt.Sprint("agent-", i), "permission.denied"))
	}
	body, _ := scrape(t, sources(t, entries...), "")
	if strings.Contains(body, "said") || !strings.Contains(body, `calls_total{agent="(others)",code="",outcome="refused"}`) {
		t.Error("a code that is none is a label, or nobody is among the others")
	}
	lines, sum := 0, 0
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "sallyport_calls_total{") {
			n := 0
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &n); err != nil {
				t.Fatal(err)
			}
			lines, sum = lines+1, sum+n
		}
	}
	if lines > 2100 || sum < agents {
		t.Errorf("%d series, %d calls", lines, sum)
	}
}

// Two codes that are none are one series, which Prometheus would refuse twice.
func TestUnknownCodesAreOne(t *testing.T) {
	body, _ := scrape(t, sources(t, refused("a", "x y"), refused("a", "z")), "")
	if !strings.Contains(body, `calls_total{agent="a",code="other",outcome="refused"} 2`) {
		t.Error(body)
	}
}

// Without the store the figures from memory are there all the same, and how many are missing is one of them; a store that hangs holds a scrape up no
// longer than storeTime.
func TestWithoutTheStore(t *testing.T) {
	gone := func(context.Context) (int64, error) { return 0, errors.New("gone") }
	hangs := func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() }
	for name, count := range map[string]func(context.Context) (int64, error){"it fails": gone, "it hangs": hangs} {
		synctest.Test(t, func(t *testing.T) {
			s := sources(t, everything()...)
			s.Ready = func(ctx context.Context) error { _, err := count(ctx); return err }
			s.Entries, s.Sessions, s.Approvals, s.Plans = count, count, count, count
			s.Quotas = func(ctx context.Context) ([]quota.Status, error) { _, err := count(ctx); return nil, err }
			s.Messages = func(ctx context.Context) (map[string]Messages, error) { _, err := count(ctx); return nil, err }
			began := time.Now()
			body, _ := scrape(t, s, "")
			for _, want := range []string{"ready 0", "kill_switch_active 1", "figures_missing 6", `calls_total{agent="a",code="",outcome="ran"} 3`} {
				if !strings.Contains(body, "\nsallyport_"+want+"\n") {
					t.Errorf("%s: %s is missing: %s", name, want, body)
				}
			}
			if took := time.Since(began); took > storeTime || strings.Contains(body, "sallyport_sessions_open") {
				t.Errorf("%s: %s, and what nobody knows is said", name, took)
			}
		})
	}
}

// A panic of a source is the request's own, where the server recovers it, and does not end the process in a goroutine of the library's.
func TestPanicOfASource(t *testing.T) {
	s := sources(t)
	s.Servers = func() map[string]bool { panic("broken") }
	defer func() {
		if recover() != "broken" {
			t.Error("the panic did not come here")
		}
	}()
	scrape(t, s, "")
}
