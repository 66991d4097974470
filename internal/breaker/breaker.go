// Package breaker holds the circuit breakers (TH-8): of each server or model, of each agent at one, and of each agent. A breaker counts failures in a
// row, opens when there are too many, refuses calls while it is open, and lets one call try after a while.
//
// Promises: what an agent can cause alone opens no breaker but its own; everything is in memory and waits for nothing; the state follows from the
// entries of the log (Restore), so it outlives a crash, and an open breaker is open afterwards. Only outcomes of calls count: refusals, stopped calls
// and answers of people never do.
package breaker

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/agent"
)

// Result is how a call ended, as breakers count it.
type Result string

const (
	// Answered: the server did what servers do. It ends a row of failures.
	Answered Result = "answered"
	// Void: the end says nothing of the server, such as that of a call that was stopped.
	Void Result = "void"
	// Unreachable: nothing was sent, since there was no connection, no process or no handshake. No agent can cause that.
	Unreachable Result = "unreachable"
	// Broken: it was sent, and a time-out, a broken answer or a 5xx came of it. The arguments can have caused that.
	Broken Result = "broken"
	// Exited: the server's program or session ended during the call, which can have caused that. It counts for the agent at this server alone.
	Exited Result = "exited"
	// ExitedTogether: it ended during calls of several agents, one of which can have caused it. It counts as Exited does, but it opens only the breaker of the agent that has more failures in a row
	// at the server than any other, or more such ends within ten minutes.
	ExitedTogether Result = "exited_together"
	// Starting: nothing was sent, since the server starts again after its calls can have ended it. It counts for nobody until a start fails, which is Unreachable.
	Starting Result = "starting"
	// Refused: the server answered a write with an error. It counts for the agent at this server alone.
	Refused Result = "refused"
)

// Rules are the thresholds.
type Rules struct {
	Failures int           // in a row, until a breaker opens
	Wait     time.Duration // until a call may try; it doubles with each try that fails
}

// Default is what holds where the configuration says nothing.
var Default = Rules{Failures: 5, Wait: 30 * time.Second}

const (
	// maxWait bounds the doubled wait.
	maxWait = 5 * time.Minute
	// pairsForAgent is at how many servers at once an agent's breaker is open until the agent's own opens.
	pairsForAgent = 2
	// remembered is for how long openings are counted.
	remembered = time.Hour
	// endsCount is for how long it counts that a call ended its server, whatever succeeds between: a row of failures alone would let an agent end a server again and again, with an easy call after each time.
	endsCount = 10 * time.Minute
	// maxEnds bounds how many of them are remembered of an agent at a server: more than fit into the time, as a server that ends soon is started later each time.
	maxEnds = 256
)

// Kind is whose breaker it is.
type Kind string

const (
	Server  Kind = "server"
	Pair    Kind = "agent_at_server"
	OfAgent Kind = "agent"
)

// ModelServer is the name by which a model counts as a server. Ids of servers and agents have no ':'.
func ModelServer(id string) string { return modelPrefix + id }

// Model is the model that counts as a server of this name; false where it is a server.
func Model(server string) (id string, is bool) { return strings.CutPrefix(server, modelPrefix) }

// JudgeServer is the name by which a model counts as a server that judges results. As a judge it has breakers of its own: it is waited for less long than an agent waits for it, and what it fails at are
// texts that the agent did not write.
func JudgeServer(id string) string { return judgePrefix + id }

// Judge is the model that counts as a server of this name; false where it is another server.
func Judge(server string) (id string, is bool) { return strings.CutPrefix(server, judgePrefix) }

const (
	modelPrefix = "model:"
	judgePrefix = "judge:"
)

// serves tells whether an operation is the server's.
func serves(server, operation string) bool {
	if id, is := Model(server); is {
		return operation == "model."+id
	}
	return server != "" && strings.HasPrefix(operation, server+".")
}

// ServerName, PairName and AgentName are the names of breakers. Ids have neither ':' nor '@', but for those of models.
func ServerName(server string) string      { return server }
func PairName(agent, server string) string { return agent + "@" + server }
func AgentName(agent string) string        { return "agent:" + agent }

// State is a breaker as people see it.
type State struct {
	Name       string     `json:"name" doc:"the server's id; model:ID of a model; judge:ID of a model as the judge of results; AGENT@SERVER; agent:AGENT"`
	Kind       Kind       `json:"kind" enum:"server,agent_at_server,agent"`
	Agent      string     `json:"agent,omitempty"`
	Server     string     `json:"server,omitempty"`
	State      string     `json:"state" enum:"closed,open,half_open"`
	Failures   int        `json:"failures" doc:"failures in a row, as far as they count"`
	Since      *time.Time `json:"since,omitempty" doc:"when it opened"`
	RetryAfter *time.Time `json:"retry_after,omitempty" doc:"when one call may try"`
	Cause      string     `json:"cause,omitempty" doc:"what opened it"`
	Opened     int        `json:"opened_last_hour" doc:"how often it opened in the last hour"`
}

// Event is a breaker that opened or closed. It is written down as it is: Restore reads it again.
type Event struct {
	Name       string    `json:"breaker"`
	Open       bool      `json:"open"`
	Agent      string    `json:"-"`
	Server     string    `json:"-"`
	Kind       Kind      `json:"kind"`
	Since      time.Time `json:"since,omitzero"`
	RetryAfter time.Time `json:"retry_after,omitzero"`
	Wait       string    `json:"wait,omitempty"`
	Cause      string    `json:"cause,omitempty"`
	Again      bool      `json:"again,omitempty"`  // a try failed: it stays open
	Opened     int       `json:"opened,omitempty"` // how often it opened in the last hour, with this time
}

// breaker is one of them.
type breaker struct {
	kind          Kind
	agent, server string

	hard int            // failures in a row that no agent caused
	soft map[string]int // those that an agent can have caused, by agent; 0: none yet, but what fails next may be its doing

	open   bool
	since  time.Time
	retry  time.Time
	wait   time.Duration
	cause  string
	trying bool
	tried  time.Time   // when the call that tries began
	opened []time.Time // in the last hour

	ends         []time.Time // of a pair: when its calls ended the server, in the last ten minutes
	endsTooOften bool        // that is due to open it
	own          int         // of a pair: failures in a row that were of the agent's own calls, and not for want of the server
	barred       string      // the agent whose try of a server showed nothing: others go first
	barredUntil  time.Time
}

// Breakers are all of them. The zero value isn't ready: New.
type Breakers struct {
	now func() time.Time

	mu     sync.Mutex // guards the rest
	rules  Rules
	byName map[string]*breaker
	runs   map[string]int // failed runs in a row, by agent
}

// New returns breakers that are all closed.
func New(now func() time.Time, r Rules) *Breakers {
	b := &Breakers{now: now, byName: map[string]*breaker{}, runs: map[string]int{}}
	b.Configure(r)
	return b
}

// Configure puts other thresholds in force. What is open stays open.
func (b *Breakers) Configure(r Rules) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = Rules{Failures: cmp.Or(r.Failures, Default.Failures), Wait: cmp.Or(r.Wait, Default.Wait)}
}

// Blocked is the open breaker that a call meets.
type Blocked struct {
	Name  string
	Kind  Kind
	Since time.Time
	Retry time.Time // when one call may try; not after now where another call is trying
	Cause string
}

// names are those that a call of the agent at the server meets; server is "" where it goes to none.
func names(of, server string) []string {
	of = agent.Base(of)
	if server == "" {
		return []string{AgentName(of)}
	}
	return []string{AgentName(of), ServerName(server), PairName(of, server)}
}

// Look tells which open breaker a call would meet; nil: it may go, or try. It takes nothing.
func (b *Breakers) Look(agent, server string) *Blocked {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.look(agent, names(agent, server))
}

func (b *Breakers) look(of string, names []string) *Blocked {
	var now time.Time
	for _, name := range names {
		k := b.byName[name]
		if k == nil || !k.open {
			continue
		}
		if now.IsZero() {
			now = b.now()
		}
		retry := k.retry
		if k.barred == agent.Base(of) && k.barredUntil.After(retry) {
			retry = k.barredUntil
		}
		if now.Before(retry) || k.trying && now.Before(k.tried.Add(b.rules.Wait)) { // a try that lasts holds up nobody for longer than that
			return &Blocked{Name: name, Kind: k.kind, Since: k.since, Retry: retry, Cause: k.cause}
		}
	}
	return nil
}

// Try is a call that goes through: the tries that it took of breakers that are open.
type Try struct {
	b             *Breakers
	agent, server string
	taken         []string
}

// Take lets a call through, or says which open breaker is in its way. Where one is open and its time has come, this call is the one that tries. End or
// Release has to follow.
func (b *Breakers) Take(of, server string) (*Try, *Blocked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := names(of, server)
	if blocked := b.look(of, all); blocked != nil {
		return nil, blocked
	}
	t := &Try{b: b, agent: agent.Base(of), server: server}
	for _, name := range all {
		if k := b.byName[name]; k != nil && k.open && server != "" { // what goes to no server shows nothing
			k.trying, k.tried = true, b.now()
			t.taken = append(t.taken, name)
		}
	}
	return t, nil
}

// Release gives back what a call took that was not made. After End it does nothing.
func (t *Try) Release() {
	if t == nil || len(t.taken) == 0 {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.release()
}

func (t *Try) release() {
	for _, name := range t.taken {
		if k := t.b.byName[name]; k != nil {
			k.trying = false
		}
	}
	t.taken = nil
}

// End counts how the call ended, and returns the breakers that opened or closed by it, in the order in which they are to be written down.
func (t *Try) End(r Result) []Event {
	if t == nil {
		return nil
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if r == Void || r == Starting {
		for _, name := range t.taken {
			t.b.bar(t.b.byName[name], t.agent)
		}
		t.release()
		return nil
	}
	events := t.tried(r)
	t.taken = nil
	return append(events, t.b.count(t.agent, t.server, r, t.b.now(), true)...)
}

// tried closes the breakers that the call tried, or opens them again.
func (t *Try) tried(r Result) (events []Event) {
	for _, name := range t.taken {
		k := t.b.byName[name]
		if k == nil || !k.open || !k.trying { // a person reset it meanwhile
			continue
		}
		k.trying = false
		if k.kind == Server && (r == Broken || r.exited()) { // its arguments can have caused that
			t.b.bar(k, t.agent)
			continue
		}
		if k.fails(r) {
			k.waitLonger(t.b.now())
			events = append(events, k.event(name, true))
			continue
		}
		k.close()
		events = append(events, k.event(name, false))
	}
	return events
}

// waitLonger is after a try that failed.
func (k *breaker) waitLonger(now time.Time) {
	k.wait = min(2*k.wait, maxWait)
	k.retry = now.Add(k.wait)
}

// bar lets other agents try a server's breaker before this one, whose try showed nothing: it can't hold them up with calls that it breaks itself.
func (b *Breakers) bar(k *breaker, of string) {
	if k == nil || k.kind != Server {
		return
	}
	k.barred, k.barredUntil = of, b.now().Add(2*b.rules.Wait)
}

// Failed tells whether the server did not carry the call out, or nobody knows whether it did.
func (r Result) Failed() bool {
	return slices.Contains([]Result{Unreachable, Broken, Exited, ExitedTogether, Starting}, r)
}

// exited tells whether the server's program or session ended during the call.
func (r Result) exited() bool { return r == Exited || r == ExitedTogether }

// fails tells whether the result is a failure to this breaker.
func (k *breaker) fails(r Result) bool {
	switch r {
	case Unreachable, Broken:
		return true
	case Refused, Exited, ExitedTogether:
		return k.kind != Server
	}
	return false
}

// count counts a result in the rows of failures. openings is false while the log is read, which has the openings itself.
func (b *Breakers) count(of, server string, r Result, at time.Time, openings bool) (events []Event) {
	if server == "" || r == Void || r == Starting {
		return nil
	}
	counted := func(k *breaker) int { return k.counted(b.rules.Failures) }
	for _, kind := range []Kind{Server, Pair} {
		if kind == Server && r.exited() { // no failure of the server, and no success that ends a row of them; what fails next may be this agent's doing
			b.make(kind, of, server).blame(of, 0)
			continue
		}
		k := b.get(kind, of, server, r)
		if k == nil {
			continue
		}
		if !k.fails(r) {
			k.hard, k.soft, k.own = 0, nil, 0
			continue
		}
		if r.exited() {
			ended := func(k *breaker) int { return k.ended(at) }
			due := ended(k) >= b.rules.Failures-1 && (r == Exited || b.exceedsOthers(k, ended))
			k.ends, k.endsTooOften = append(k.ends[max(0, len(k.ends)-maxEnds+1):], at), due && !k.open
		}
		if r != Unreachable && r != ExitedTogether {
			k.own++
		}
		switch _, blamed := k.soft[of]; {
		case r == ExitedTogether && counted(k) >= b.rules.Failures-1 && !b.exceedsOthers(k, counted):
		case r == Unreachable && !blamed:
			k.hard++
		default: // what follows an agent's own failing call may be its doing
			k.blame(of, 1)
		}
		if openings {
			events = append(events, b.openIfDue(k)...)
		}
	}
	return events
}

// ended is how often the agent's calls ended the server in the last ten minutes.
func (k *breaker) ended(now time.Time) int {
	k.ends = slices.DeleteFunc(k.ends, func(at time.Time) bool { return now.Sub(at) > endsCount })
	return len(k.ends)
}

// exceedsOthers tells whether the count is higher for this pair than for every other agent's at the server. Where two are equal it is false for both: the other's call may have ended
// with this one, and not be counted yet.
func (b *Breakers) exceedsOthers(k *breaker, count func(*breaker) int) bool {
	for _, other := range b.byName {
		if other != k && other.kind == Pair && other.server == k.server && count(other) >= count(k) {
			return false
		}
	}
	return true
}

// blame counts so many failures as ones that the agent can have caused.
func (k *breaker) blame(of string, times int) {
	if k.soft == nil {
		k.soft = map[string]int{}
	}
	k.soft[of] += times
}

// openIfDue opens the breaker if it has counted enough, and the agent's with it.
func (b *Breakers) openIfDue(k *breaker) []Event {
	if k.open && k.kind == Pair { // a try of it failed
		return b.openAgentIfDue(k)
	}
	if k.open || !k.endsTooOften && !k.due(b.rules.Failures) {
		return nil
	}
	cause := "calls failed in a row at the server " + k.server
	if id, is := Model(k.server); is {
		cause = "requests failed in a row at the model " + id
	} else if id, is := Judge(k.server); is {
		cause = "requests failed in a row at the judge of results " + id
	}
	if k.kind == Pair {
		cause = "the agent's " + cause
		if !k.due(b.rules.Failures) {
			cause = "the agent's calls ended the server " + k.server + " again and again"
		}
	}
	events := []Event{b.openNow(k, cause)}
	if k.kind != Pair {
		return events
	}
	return append(events, b.openAgentIfDue(k)...)
}

// openAgentIfDue opens the breaker of the pair's agent where the agent's own calls fail at several servers. That a server is away is not its doing. All
// models count as one: several may have one provider, which may be away. What the judge of results fails at is nobody's doing.
func (b *Breakers) openAgentIfDue(k *breaker) []Event {
	open, model := 0, false
	for _, other := range b.byName {
		if other.kind != Pair || other.agent != k.agent || !other.open || other.own < b.rules.Failures {
			continue
		}
		if server := b.byName[ServerName(other.server)]; server != nil && server.open {
			continue
		}
		if _, is := Judge(other.server); is {
			continue
		}
		if _, is := Model(other.server); !is {
			open++
		} else if !model {
			open, model = open+1, true
		}
	}
	if own := b.byName[AgentName(k.agent)]; open < pairsForAgent || own != nil && own.open {
		return nil
	}
	return []Event{b.openNow(b.make(OfAgent, k.agent, ""), "its calls fail at several servers")}
}

// due tells whether so many failures count. One agent's can't open a server's breaker: of what it may have caused, all but two of the needed count,
// and another agent has to have met the same. What the judge of results fails at can be the doing of a text, which
// several agents can be given to read: only that it can't be reached opens its breaker for all.
func (k *breaker) due(needed int) bool {
	if _, judge := Judge(k.server); judge && k.kind == Server {
		return k.hard >= needed
	}
	return k.hard >= needed || k.counted(needed) >= needed && (k.kind != Server || k.failedAgents() > 1)
}

// failedAgents is how many agents' own calls failed. One whose call ended the server has none that counts yet.
func (k *breaker) failedAgents() (n int) {
	for _, soft := range k.soft {
		if soft > 0 {
			n++
		}
	}
	return n
}

// counted is how many failures count.
func (k *breaker) counted(needed int) int {
	n := k.hard
	for _, soft := range k.soft {
		if k.kind == Server {
			soft = min(soft, max(needed-2, 1))
		}
		n += soft
	}
	return n
}

// get returns the breaker, and makes it where there is something to count.
func (b *Breakers) get(kind Kind, of, server string, r Result) *breaker {
	name := ServerName(server)
	if kind == Pair {
		name = PairName(of, server)
	}
	if k := b.byName[name]; k != nil {
		return k
	}
	if probe := (&breaker{kind: kind}); !probe.fails(r) {
		return nil
	}
	return b.make(kind, of, server)
}

func (b *Breakers) make(kind Kind, of, server string) *breaker {
	k := &breaker{kind: kind, server: server}
	name := ServerName(server)
	switch kind {
	case Pair:
		k.agent, name = of, PairName(of, server)
	case OfAgent:
		k.agent, name = of, AgentName(of)
	}
	if was := b.byName[name]; was != nil {
		return was
	}
	b.byName[name] = k
	return k
}

func (b *Breakers) openNow(k *breaker, cause string) Event {
	now := b.now()
	k.open, k.since, k.wait, k.cause, k.trying, k.endsTooOften = true, now, b.rules.Wait, cause, false, false
	k.retry = now.Add(k.wait)
	k.opened = append(slices.DeleteFunc(k.opened, func(at time.Time) bool { return now.Sub(at) > remembered }), now)
	return k.event(k.name(), false)
}

func (k *breaker) name() string {
	switch k.kind {
	case Pair:
		return PairName(k.agent, k.server)
	case OfAgent:
		return AgentName(k.agent)
	}
	return ServerName(k.server)
}

func (k *breaker) close() {
	k.open, k.trying, k.hard, k.soft, k.own, k.endsTooOften, k.barred, k.cause = false, false, 0, nil, 0, false, "", ""
}

func (k *breaker) event(name string, again bool) Event {
	e := Event{Name: name, Kind: k.kind, Open: k.open, Agent: k.agent, Server: k.server}
	if k.open {
		e.Since, e.RetryAfter, e.Wait, e.Cause, e.Again, e.Opened = k.since, k.retry, k.wait.String(), k.cause, again, len(k.opened)
	}
	return e
}

// Opened tells since when the agent's own breaker is open, also while a call may try.
func (b *Breakers) Opened(of string) (since time.Time, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.byName[AgentName(agent.Base(of))]; k != nil && k.open {
		return k.since, true
	}
	return time.Time{}, false
}

// Run counts how a run of the agent ended: failed ones in a row open its breaker.
func (b *Breakers) Run(of string, failed bool) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	of = agent.Base(of)
	due := b.countRun(of, failed)
	if k := b.byName[AgentName(of)]; k != nil && k.open {
		if b.now().Before(k.retry) || k.trying { // it began before the breaker opened
			return nil
		}
		if failed { // the run was the try
			k.waitLonger(b.now())
		} else {
			k.close()
		}
		return []Event{k.event(k.name(), failed)}
	}
	if !due {
		return nil
	}
	return []Event{b.openNow(b.make(OfAgent, of, ""), "its runs failed in a row")}
}

// countRun tells whether enough runs failed in a row; then it counts anew.
func (b *Breakers) countRun(of string, failed bool) bool {
	if !failed {
		delete(b.runs, of)
		return false
	}
	if b.runs[of]++; b.runs[of] < b.rules.Failures {
		return false
	}
	delete(b.runs, of)
	return true
}

// Reset closes a breaker by a person's word; false if none of that name is open or counts failures.
func (b *Breakers) Reset(name string) (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.byName[name]
	if k == nil || !k.open && k.counted(b.rules.Failures) == 0 {
		return Event{}, false
	}
	k.close()
	if k.kind == OfAgent {
		delete(b.runs, k.agent)
	}
	return k.event(name, false), true
}

// Open opens an agent's breaker by a person's word, for the monthly test (AU-7); false if it is open.
func (b *Breakers) Open(of, cause string) (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.make(OfAgent, agent.Base(of), "")
	if k.open {
		return Event{}, false
	}
	e := b.openNow(k, cause)
	k.opened = k.opened[:len(k.opened)-1] // a test is no failure
	e.Opened = len(k.opened)
	return e, true
}

// List returns all that are open, count failures, or opened in the last hour, in the order of their names.
func (b *Breakers) List() []State {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []State{}
	for name, k := range b.byName {
		if s := b.state(name, k); s.State != "closed" || s.Failures > 0 || s.Opened > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (b *Breakers) state(name string, k *breaker) State {
	now := b.now()
	s := State{Name: name, Kind: k.kind, Agent: k.agent, Server: k.server, State: "closed", Failures: k.hard}
	for _, soft := range k.soft {
		s.Failures += soft
	}
	for _, at := range k.opened {
		if now.Sub(at) <= remembered {
			s.Opened++
		}
	}
	if k.open {
		since, retry := k.since, k.retry
		s.State, s.Since, s.RetryAfter, s.Cause = "open", &since, &retry, k.cause
		if !now.Before(retry) {
			s.State = "half_open"
		}
	}
	return s
}
