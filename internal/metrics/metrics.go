// Package metrics serves the gateway's figures in the formats of Prometheus.
//
// Promises: labels are names that an operator gave (agents, servers, models, quotas, kinds of channels) and words of closed lists (outcomes, codes), never
// text of an agent, a server or a stranger, and there are no more of them than monitor keeps apart; counters of what happened begin at 0 with each start
// and never fall; what can't be had in storeTime is left out and counted, so that the figures from memory, such as the kill switch, are there without the store.
package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/standing"
)

// storeTime is how long one look waits for the store. A scrape has ten seconds by default.
const storeTime = 3 * time.Second

// Sources are where the figures come from. Each is needed.
type Sources struct {
	Version     string
	Counters    *monitor.Counters
	Switches    func() standing.Switches
	Quarantined func() map[string]standing.Quarantine
	UnderWay    func() map[string]int // calls, by agent
	Held        func() int            // calls
	Breakers    func() []breaker.State
	Servers     func() map[string]bool // up or not, by id
	Memory      func() (held, limit int64, waiting int)
	Writes      func() (commits int64, took time.Duration, waiting int)
	Ready       func(ctx context.Context) error // calls are taken
	Entries     func(ctx context.Context) (int64, error)
	Sessions    func(ctx context.Context) (int64, error) // open ones
	Approvals   func(ctx context.Context) (int64, error) // that wait for a person
	Plans       func(ctx context.Context) (int64, error) // that wait for a person
	Quotas      func(ctx context.Context) ([]quota.Status, error)
	Messages    func(ctx context.Context) (map[string]Messages, error) // by the kind of their channel
}

// Messages are how many messages to people wait for their channel, and how many it was given up to send.
type Messages struct{ Waiting, GivenUp int64 }

// Handler answers with the figures, and with those of the process.
func Handler(s Sources, log *slog.Logger) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	options := promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := prometheus.NewRegistry()
		own.MustRegister(s.look(r.Context(), log)) // here, and not in a goroutine of the library's, where a panic would end the process
		promhttp.HandlerFor(prometheus.Gatherers{own, process}, options).ServeHTTP(w, r)
	})
}

// look reads all figures. A new one has a line in one of the functions that are called here.
func (s Sources) look(ctx context.Context, log *slog.Logger) figures {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	o := &output{}
	counts, uses := s.Counters.Totals()
	s.gateway(ctx, o)
	s.calls(o, counts)
	s.people(ctx, o)
	s.stops(o)
	s.limits(ctx, o)
	s.store(ctx, o)
	s.models(o, uses)
	if len(o.missing) > 0 {
		log.Warn("/metrics lacks figures", "missing", strings.Join(o.missing, "; "))
	}
	o.gauge("figures_missing", "Figures that could not be had for this answer, most often because the store did not answer in time.")(float64(len(o.missing)))
	return o.figures
}

// figures are those of one answer. They describe themselves.
type figures []prometheus.Metric

// Describe implements prometheus.Collector.
func (f figures) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f figures) Collect(out chan<- prometheus.Metric) {
	for _, one := range f {
		out <- one
	}
}

// output takes the figures of one answer.
type output struct {
	figures figures
	missing []string // what could not be had, and why
}

// gauge begins a figure that rises and falls. What it returns is called for each set of values of the labels.
func (o *output) gauge(name, help string, labels ...string) func(value float64, values ...string) {
	return o.figure(prometheus.GaugeValue, name, help, labels)
}

// counter begins a figure that only rises.
func (o *output) counter(name, help string, labels ...string) func(value float64, values ...string) {
	return o.figure(prometheus.CounterValue, name, help, labels)
}

func (o *output) figure(t prometheus.ValueType, name, help string, labels []string) func(value float64, values ...string) {
	d := describe(name, help, labels)
	return func(value float64, values ...string) {
		m, err := prometheus.NewConstMetric(d, t, value, values...)
		o.add(name, m, err)
	}
}

// times begins a figure of how long things take: how many there were, and how long they took together.
func (o *output) times(name, help string, labels ...string) func(n int64, took time.Duration, values ...string) {
	d := describe(name, help, labels)
	return func(n int64, took time.Duration, values ...string) {
		m, err := prometheus.NewConstSummary(d, uint64(n), took.Seconds(), nil, values...)
		o.add(name, m, err)
	}
}

func (o *output) add(name string, m prometheus.Metric, err error) {
	if o.had(name, err) {
		o.figures = append(o.figures, m)
	}
}

func describe(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc("sallyport_"+name, help, labels, nil)
}

// had tells whether a figure could be had.
func (o *output) had(name string, err error) bool {
	if err != nil {
		o.missing = append(o.missing, name+": "+err.Error())
	}
	return err == nil
}

// count is a gauge of what the store counts.
func (o *output) count(ctx context.Context, name, help string, count func(context.Context) (int64, error)) {
	if n, err := count(ctx); o.had(name, err) {
		o.gauge(name, help)(float64(n))
	}
}

func (s Sources) gateway(ctx context.Context, o *output) {
	o.gauge("build_info", "Always 1; the label says which version runs.", "version")(1, s.Version)
	o.gauge("ready", "1 while calls are taken: the store took a write lately, and the log is being signed.")(yes(s.Ready(ctx) == nil))
	up := o.gauge("server_up", "1 while the MCP server is up.", "server")
	for id, is := range s.Servers() {
		up(yes(is), id)
	}
}

// calls are what became of calls. The trials of sallyport doctor --live are left out: they are refused on purpose.
func (s Sources) calls(o *output, counts map[monitor.Key]int64) {
	ends, answers := map[[3]string]int64{}, map[[2]string]int64{}
	for k, n := range counts {
		who := cmp.Or(k.Agent, "(nobody)")
		switch {
		case agent.IsTrial(k.Agent):
		case k.What == monitor.Ran, k.What == monitor.Refused, k.What == monitor.Failed:
			ends[[3]string{who, string(k.What), codeOf(k.Code)}] += n
		default:
			answers[[2]string{who, string(k.What)}] += n
		}
	}
	ended := o.counter("calls_total", "Calls since the start by what became of them, with the code of a refusal or a failure. Requests that a door turned away are among the refused; the agent (nobody) has those without an agent's credential.", "agent", "outcome", "code")
	for k, n := range ends {
		ended(float64(n), k[:]...)
	}
	answered := o.counter("approvals_total", "Questions to people since the start: asked, approved, rejected, and silent for those that silence permitted.", "agent", "event")
	for k, n := range answers {
		answered(float64(n), k[:]...)
	}
	running := o.gauge("calls_running", "Calls that are under way.", "agent")
	for id, n := range s.UnderWay() {
		if !agent.IsTrial(id) {
			running(float64(n), id)
		}
	}
	o.gauge("calls_held", "Calls whose connection is held open until a person answers.")(float64(s.Held()))
}

// people are what waits for them, and the messages that tell them so.
func (s Sources) people(ctx context.Context, o *output) {
	o.count(ctx, "approvals_waiting", "Questions that wait for a person's answer.", s.Approvals)
	o.count(ctx, "plans_waiting", "Plans that wait for a person's answer.", s.Plans)
	all, err := s.Messages(ctx)
	if !o.had("messages", err) {
		return
	}
	waiting := o.gauge("messages_waiting", "Messages to people that are not sent yet, by the kind of channel.", "channel")
	given := o.gauge("messages_given_up", "Messages to people that were given up, as long as the outbox remembers them.", "channel")
	for kind, m := range all {
		waiting(float64(m.Waiting), kind)
		given(float64(m.GivenUp), kind)
	}
}

// stops are what keeps agents from working.
func (s Sources) stops(o *output) {
	switches := s.Switches()
	o.gauge("kill_switch_active", "1 while the kill switch of all agents is on.")(yes(switches.Global.Active))
	stopped, aside := 0, 0
	for id, one := range switches.Agents {
		if one.Active && !agent.IsTrial(id) {
			stopped++
		}
	}
	for id := range s.Quarantined() {
		if !agent.IsTrial(id) {
			aside++
		}
	}
	o.gauge("agents_stopped", "Agents whose own kill switch is on.")(float64(stopped))
	o.gauge("agents_quarantined", "Agents in quarantine.")(float64(aside))
	unresolved := s.Counters.Unresolved()
	alerts := o.gauge("alerts_unresolved", "Alerts that nobody has resolved.", "kind")
	for _, kind := range monitor.AlertKinds {
		alerts(float64(unresolved[kind]), string(kind))
	}
	open := o.gauge("breaker_open", "1 while the circuit breaker is open, 0 while it counts failures; one that counts nothing is not listed.", "breaker")
	for _, b := range s.Breakers() {
		if !agent.IsTrial(b.Agent) && b.Server != agent.TrialServer {
			open(yes(b.Since != nil), b.Name)
		}
	}
}

// limits are what agents and requests have used of what they may.
func (s Sources) limits(ctx context.Context, o *output) {
	held, limit, waiting := s.Memory()
	o.gauge("memory_held_bytes", "Memory that requests hold of what they may.")(float64(held))
	o.gauge("memory_limit_bytes", "Memory that requests may hold together; 0 where nothing bounds it.")(float64(limit))
	o.gauge("memory_requests_waiting", "Requests that wait for memory.")(float64(waiting))
	all, err := s.Quotas(ctx)
	if !o.had("quotas", err) {
		return
	}
	used := o.gauge("quota_used", "What an agent has used of its quota in the window that runs, with what is set aside for calls under way, in the unit of the resource.", "agent", "resource", "window")
	most := o.gauge("quota_limit", "The quota of an agent in each window, in the unit of the resource.", "agent", "resource", "window")
	for _, q := range all {
		used(q.Used+q.Reserved, q.Agent, string(q.Resource), string(q.Window))
		most(q.Most, q.Agent, string(q.Resource), string(q.Window))
	}
}

func (s Sources) store(ctx context.Context, o *output) {
	o.count(ctx, "sessions_open", "Sessions that are open.", s.Sessions)
	if n, err := s.Entries(ctx); o.had("log_entries_total", err) {
		o.counter("log_entries_total", "Entries of the log, since its beginning.")(float64(n))
	}
	commits, took, waiting := s.Writes()
	o.times("store_commit_seconds", "Commits of the store since the start, and the time that they took together.")(commits, took)
	o.gauge("store_writes_waiting", "Writes that wait for the next commit.")(float64(waiting))
}

// models are the requests to them. What the gateway asks for by itself has no agent, and a purpose.
func (s Sources) models(o *output, uses map[monitor.ModelKey]monitor.ModelUse) {
	labels := []string{"agent", "model", "purpose"}
	requests := o.counter("model_requests_total", "Requests to models since the start by what became of them. Those of the gateway itself have the agent (gateway) and a purpose.", append(labels, "outcome")...)
	tokens := o.counter("model_tokens_total", "Tokens of requests to models since the start.", append(labels, "direction")...)
	cost := o.counter("model_cost_total", "What requests to models cost since the start, in the currency of their prices.", labels...)
	first := o.times("model_first_text_seconds", "Streamed answers since the start, and the time from their requests to their first text together.", labels...)
	for k, u := range uses {
		if agent.IsTrial(k.Agent) {
			continue
		}
		who := []string{cmp.Or(k.Agent, "(gateway)"), k.Model, k.For}
		for outcome, n := range map[string]int64{"answered": u.Answered, "refused": u.Refused, "failed": u.Failed} {
			requests(float64(n), append(who, outcome)...)
		}
		tokens(float64(u.Input), append(who, "input")...)
		tokens(float64(u.Output), append(who, "output")...)
		cost(float64(u.Cost)/1e6, who...)
		first(u.Streamed, u.First, who...)
	}
}

func yes(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// codeOf is a code of the closed list, or "" for none. Whatever else an entry has is no label.
func codeOf(code string) string {
	if code != "" && !fault.Code(code).Known() {
		return "other"
	}
	return code
}
