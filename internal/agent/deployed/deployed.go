// Package deployed answers the deployment checklists from what a running gateway shows: 13 boxes about agents, and 8 about the gateway around them.
//
// Promises: it is pure; each box has an answer, the reason for it, what it rests on, and the way to a yes where the answer is another. What the gateway
// can't see is said to be unseen, and never counted as a yes. The violations that no file shows are decided from the same facts.
package deployed

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/sentence"
)

// Answer is the answer to a box.
type Answer string

const (
	Yes    Answer = "yes"
	No     Answer = "no"
	Unseen Answer = "unseen" // it can't be seen from here
)

// The two lists.
const (
	OfAgents     = "agents"     // the audit of agents
	OfDeployment = "deployment" // what stands around them
)

// Box is one box of a checklist.
type Box struct {
	ID       string   `json:"id"` // of its list and its number in it, as agents-1
	List     string   `json:"list" enum:"agents,deployment"`
	Question string   `json:"question"`
	Answer   Answer   `json:"answer" enum:"yes,no,unseen" doc:"unseen: it can't be seen from the running gateway"`
	Reason   string   `json:"reason"`
	Evidence []string `json:"evidence" doc:"What the answer rests on."`
	Remedy   string   `json:"remedy,omitempty" doc:"The way to a yes."`
}

// Decided is a violation that only the running gateway can decide.
type Decided struct {
	Code     string         `json:"code"`
	Severity agent.Severity `json:"severity"`
	Title    string         `json:"title"`
	Found    Answer         `json:"found" enum:"yes,no,unseen" doc:"yes: it is violated"`
	Reason   string         `json:"reason"`
}

// Report is the whole answer.
type Report struct {
	At         time.Time `json:"at"`
	Boxes      []Box     `json:"boxes"`
	Violations []Decided `json:"violations" doc:"those that no file shows"`
}

// Agent is what is known of one declared agent.
type Agent struct {
	Declaration *agent.Declaration
	Problems    []agent.Problem // of its declaration, as the deployment check sees them today
	Approved    bool
	Writes      []string // operations of the catalogue that it may write with
	Runs        Runs     // of the last 24 hours
	Alone       []string // its open sessions that nobody but itself opened
	Quota       bool     // a quota bounds it
	Throttled   bool     // its declaration spreads its calls
}

// Runs are figures of an agent's runs.
type Runs struct {
	All, Done, Timeouts, Invalid, Citations, Verified int
	Returned                                          int // brought back what an agent said, in their input or in what they read
}

// Switch is the kill switch.
type Switch struct {
	Epoch   int64
	Durable bool
	Used    time.Time // when it was last pulled or let go; zero: never
}

// Knowledge is the knowledge store.
type Knowledge struct {
	AppendOnly []string // tables that refuse update, delete and replacing inserts by trigger
	Doubts     []string // what is wrong with their triggers
	Documents  int
	Versions   int
	ByAgents   []string // documents of which an agent wrote a version
	Snapshots  int
	Newest     string // the newest snapshot
}

// Breakers are the circuit breakers.
type Breakers struct {
	Failures int // in a row, that open one
	Wait     time.Duration
	Open     []string // the names of those that are open
}

// Facts are everything that the answers rest on.
type Facts struct {
	At         time.Time
	Agents     []Agent
	Undeclared []string // agents with a valid credential and no declaration
	Loading    []agent.Problem
	Operations int // of the catalogue
	Switch     Switch
	Knowledge  Knowledge
	Observes   bool

	Answerers                  int     // people who can answer
	HighAmount, CriticalAmount float64 // in force
	Currency                   string
	Policies                   int      // policies of the operator
	Unconfined                 []string // servers without a sandbox
	LogSize                    int64
	LogWrites                  bool // the store takes writes
	Anchor                     string
	PromptBytes                int // of the instructions that each session gets
	Breakers                   Breakers
	Fallbacks                  []string // servers and models that have one
}

// Check answers both lists.
func Check(f Facts) Report {
	r := Report{At: f.At}
	for i, box := range []func(*Facts) Box{
		declared, readOnly, switchable, structured, pinned, inTime, cited, appendOnly, versioned, snapshots, asked, loops, resolved,
	} {
		r.add(OfAgents, i, box(&f))
	}
	for i, box := range []func(*Facts) Box{prompt, patterns, access, quotas, thresholds, logged, breakers, fallbacks} {
		r.add(OfDeployment, i, box(&f))
	}
	for _, d := range []struct {
		code string
		box  int
	}{{"A-03", 2}, {"A-05", 7}, {"A-07", 11}, {"A-09", 5}} {
		v, _ := agent.ViolationOf(d.code) // a test walks them
		b := r.Boxes[d.box]
		found := Unseen
		switch b.Answer {
		case Yes:
			found = No
		case No:
			found = Yes
		}
		r.Violations = append(r.Violations, Decided{Code: v.Code, Severity: v.Severity, Title: v.Title, Found: found, Reason: b.Reason})
	}
	return r
}

func (r *Report) add(list string, i int, b Box) {
	b.ID, b.List = fmt.Sprintf("%s-%d", list, i+1), list
	if b.Evidence == nil {
		b.Evidence = []string{}
	}
	r.Boxes = append(r.Boxes, b)
}

// Open are the boxes without a yes.
func (r Report) Open() (no, unseen int) {
	for _, b := range r.Boxes {
		switch b.Answer {
		case No:
			no++
		case Unseen:
			unseen++
		}
	}
	return no, unseen
}

// coded are the violations of a code, with the agents that have them.
func (f *Facts) coded(code string) (found []string) {
	for _, a := range f.Agents {
		for _, p := range a.Problems {
			if p.Code == code {
				found = append(found, a.Declaration.AgentID+": "+p.Problem)
			}
		}
	}
	return found
}

// ids are the agents for which which is true.
func (f *Facts) ids(which func(*Agent) bool) (ids []string) {
	for i := range f.Agents {
		if which(&f.Agents[i]) {
			ids = append(ids, f.Agents[i].Declaration.AgentID)
		}
	}
	return ids
}

// all names the agents in a sentence.
func (f *Facts) all() string { return sentence.Count(len(f.Agents), "declared agent") }

func declared(f *Facts) Box {
	b := Box{Question: "All agents have declaration files", Answer: Yes, Reason: "Each agent with a credential is declared in a file, or is the gateway's own."}
	for _, a := range f.Agents {
		where := a.Declaration.File
		if a.Declaration.BuiltIn() {
			where = "built in"
		}
		b.Evidence = append(b.Evidence, fmt.Sprintf("%s: %s, version %s, digest %.12s", a.Declaration.AgentID, where, a.Declaration.Version, a.Declaration.Digest))
	}
	waiting := f.ids(func(a *Agent) bool { return !a.Approved })
	switch missing := f.coded("A-08"); {
	case len(f.Undeclared) > 0:
		b.Answer, b.Reason = No, "There are valid credentials of agents that no file declares: "+sentence.Names(f.Undeclared)+". Their calls are refused."
		b.Remedy = "Write their declarations, or revoke their tokens: sallyport token revoke."
	case len(missing) > 0:
		b.Answer, b.Reason, b.Remedy = No, sentence.Names(missing)+".", "Declare those agents, or remove them from dependsOn."
	case len(f.Agents) == 0:
		b.Answer, b.Reason, b.Remedy = Unseen, "No agent is declared.", "Write a declaration into the agents folder."
	case len(waiting) > 0:
		b.Answer, b.Reason = No, "Nobody approved the declarations of "+sentence.Names(waiting)+" as they are. Their calls are refused."
		b.Remedy = "sallyport agents diff ID, then sallyport agents approve ID --digest DIGEST."
	}
	return b
}

func readOnly(f *Facts) Box {
	b := Box{Question: "All agents are read-only", Answer: Yes, Reason: "Every agent is advisory, and none of them may write with any operation."}
	b.Evidence = append(b.Evidence, fmt.Sprintf("%s held against %s of the catalogue", f.all(), sentence.Count(f.Operations, "operation")))
	var writing []string
	for _, a := range f.Agents {
		if a.Declaration.Mode == agent.Operator || len(a.Writes) > 0 {
			writing = append(writing, a.Declaration.AgentID)
			b.Evidence = append(b.Evidence, fmt.Sprintf("%s (%s) may write with %s", a.Declaration.AgentID, a.Declaration.Mode, few(a.Writes, "nothing that is listed now")))
		}
	}
	if len(writing) > 0 {
		b.Answer, b.Reason = No, sentence.Names(writing)+" may propose writes. What a write takes (a person's yes, labels, limits) is judged at each call."
		b.Remedy = "Remove mode: operator and permissions.write where an agent only has to read and recommend."
	}
	return b
}

func switchable(f *Facts) Box {
	b := Box{Question: "All agents have kill switches", Answer: Yes, Reason: "The switch is asked before each call, run and model request of every agent, whatever its declaration says."}
	b.Evidence = append(b.Evidence, fmt.Sprintf("the switch is at epoch %d", f.Switch.Epoch))
	if f.Switch.Used.IsZero() {
		b.Evidence = append(b.Evidence, "nobody has used it yet: sallyport doctor --live tries it")
	} else {
		b.Evidence = append(b.Evidence, "it was last used at "+f.Switch.Used.UTC().Format(time.RFC3339))
	}
	if without := f.ids(func(a *Agent) bool { return !a.Declaration.KillSwitchEnabled }); len(without) > 0 {
		b.Answer, b.Reason, b.Remedy = No, "The declarations of "+sentence.Names(without)+" say killSwitchEnabled: false.", "Write killSwitchEnabled: true."
	} else if !f.Switch.Durable {
		b.Answer, b.Reason, b.Remedy = No, "A switching is not written down yet: a restart would forget it.", "See to the store, and look again."
	}
	return b
}

func structured(f *Facts) Box {
	b := Box{Question: "All agents return structured output", Answer: Yes, Reason: "Every declaration has an output schema for a JSON object, and the gateway checks each output of a run against it."}
	for _, a := range f.Agents {
		if a.Runs.All > 0 {
			b.Evidence = append(b.Evidence, fmt.Sprintf("%s: %d runs in 24 hours, %d outputs refused as invalid", a.Declaration.AgentID, a.Runs.All, a.Runs.Invalid))
		}
	}
	if found := f.coded("A-04"); len(found) > 0 {
		b.Answer, b.Reason, b.Remedy = No, few(found, "")+".", "Describe the output as an object with required properties: sallyport lint says where."
	}
	return b
}

func pinned(f *Facts) Box {
	b := Box{Question: "All agents use pinned model versions", Answer: Yes, Reason: "Every model that a declaration names is pinned."}
	models := 0
	for _, a := range f.Agents {
		models += len(a.Declaration.DataSources.Models)
	}
	b.Evidence = append(b.Evidence, sentence.Count(models, "model")+" in "+sentence.Count(len(f.Agents), "declaration"))
	if found := f.coded("A-06"); len(found) > 0 {
		b.Answer, b.Reason, b.Remedy = No, few(found, "")+".", "Name exact versions."
	} else if models == 0 {
		b.Answer, b.Reason, b.Remedy = Unseen, "No declaration names a model, so which models the agents use can't be seen.", "Name their models under dataSources.models."
	}
	return b
}

func inTime(f *Facts) Box {
	b := Box{Question: "All agents complete within time limits", Answer: Yes, Reason: "No run of the last 24 hours came to its time limit."}
	measured := 0
	var late, planned []string
	for _, a := range f.Agents {
		if a.Runs.All == 0 {
			continue
		}
		measured += a.Runs.All
		b.Evidence = append(b.Evidence, fmt.Sprintf("%s: %d of %d runs ended at the limit of %d ms", a.Declaration.AgentID, a.Runs.Timeouts, a.Runs.All, a.Declaration.MaxExecutionTime))
		switch {
		case a.Runs.Timeouts == 0:
		case mitigated(a.Declaration, "A-09", f.At):
			planned = append(planned, a.Declaration.AgentID)
		default:
			late = append(late, a.Declaration.AgentID)
		}
	}
	switch {
	case len(late) > 0:
		b.Answer, b.Reason = No, "Runs of "+sentence.Names(late)+" came to their time limit in the last 24 hours."
		b.Remedy = "Make them faster, raise maxExecutionTime (it takes a new approval), or plan it under mitigations with the code A-09."
	case len(planned) > 0:
		b.Answer, b.Reason = No, "Runs of "+sentence.Names(planned)+" came to their time limit, and a plan for it holds (mitigations, A-09)."
		b.Remedy = "Carry out the plan."
	case measured == 0:
		b.Answer, b.Reason = Unseen, "No agent had a run in the last 24 hours, so nothing was measured. Calls and runs end at their limits all the same."
		b.Remedy = "Let an agent run (sallyport agents run), and look again."
	}
	return b
}

func mitigated(d *agent.Declaration, code string, now time.Time) bool {
	return slices.ContainsFunc(d.Mitigations, func(m agent.Mitigation) bool { return m.Covers(code, now) })
}

func cited(f *Facts) Box {
	b := Box{Question: "All agents provide citations", Answer: Yes, Reason: "Every output schema requires citations, and the gateway checks those of runs against what was read."}
	for _, a := range f.Agents {
		if a.Runs.Citations > 0 {
			b.Evidence = append(b.Evidence, fmt.Sprintf("%s: %d of %d citations verified in 24 hours", a.Declaration.AgentID, a.Runs.Verified, a.Runs.Citations))
		}
	}
	if found := f.coded("A-10"); len(found) > 0 {
		b.Answer, b.Reason, b.Remedy = No, few(found, "")+".", "Add citations to the output schema, and x-fact: true to what is stated as a fact."
	}
	return b
}

func appendOnly(f *Facts) Box {
	b := Box{Question: "RAG system is append-only", Answer: Yes, Reason: "The tables of the knowledge store refuse update, delete and replacing inserts by triggers that are as the program made them."}
	b.Evidence = []string{"tables: " + strings.Join(f.Knowledge.AppendOnly, ", ")}
	if writers := f.coded("A-05"); len(f.Knowledge.Doubts)+len(writers) > 0 || len(f.Knowledge.AppendOnly) == 0 {
		b.Answer, b.Reason = No, few(append(slices.Clone(f.Knowledge.Doubts), writers...), "no table of the knowledge store is guarded")+"."
		b.Remedy = "Find out who can write the database (sallyport audit verify), and remove permissions to write knowledge."
	}
	return b
}

func versioned(f *Facts) Box {
	k := f.Knowledge
	return Box{
		Question: "RAG system is versioned", Answer: Yes, Reason: "A change of a document is a new version; those before stay, and a search names the version that it found.",
		Evidence: []string{sentence.Count(k.Documents, "document") + " with " + sentence.Count(k.Versions, "version")},
	}
}

func snapshots(f *Facts) Box {
	k := f.Knowledge
	b := Box{
		Question: "RAG system is snapshot-backed", Answer: Yes, Reason: "Searches read an index that is built from an unchangeable snapshot, and the answer names it.",
		Evidence: []string{sentence.Count(k.Snapshots, "snapshot")},
	}
	if k.Newest != "" {
		b.Evidence[0] += ", the newest is " + k.Newest
	} else if k.Documents > 0 {
		b.Answer, b.Reason, b.Remedy = Unseen, "There are documents, and no snapshot yet: nothing has searched them.", "sallyport knowledge snapshot."
	}
	return b
}

func asked(f *Facts) Box {
	b := Box{Question: "No autonomous execution without human approval", Answer: Yes, Reason: "Runs are started by people and hosts alone, and no open session works for nobody."}
	b.Evidence = []string{"a credential of an agent or of a session starts no run"}
	var alone, self []string
	for _, a := range f.Agents {
		if len(a.Alone) == 0 {
			continue
		}
		b.Evidence = append(b.Evidence, fmt.Sprintf("%s: %s opened by nobody but itself", a.Declaration.AgentID, sentence.Count(len(a.Alone), "open session")))
		if a.Declaration.Sessions == agent.BySelf && a.Approved {
			self = append(self, a.Declaration.AgentID)
		} else {
			alone = append(alone, a.Declaration.AgentID)
		}
	}
	switch found := f.coded("A-02"); {
	case len(found) > 0:
		b.Answer, b.Reason, b.Remedy = No, few(found, "")+".", "Write humanApprovalRequired: true."
	case f.Observes:
		b.Answer, b.Reason, b.Remedy = No, "The gateway only observes: what would be asked about runs unasked.", "Write mode: enforce."
	case len(alone) > 0:
		b.Answer, b.Reason = No, "Sessions of "+sentence.Names(alone)+" were opened by nobody but the agent, and no approved declaration says sessions: self (A-02)."
		b.Remedy = "Start the agent with sallyport run, or by a host; close the session: sallyport sessions close. If the agent is to work by itself, say sessions: self and approve that."
	case len(self) > 0:
		b.Reason = "Runs are started by people and hosts alone. " + sentence.Names(self) + " may open sessions by itself: its approved declaration says sessions: self."
	}
	return b
}

func loops(f *Facts) Box {
	b := Box{Question: "No feedback loops detected", Answer: Yes, Reason: "No declaration takes facts from what agents say, no document was written by an agent, and no run of the last 24 hours was given or read what an agent said."}
	b.Evidence = []string{
		"no credential of an agent or session writes to the knowledge store, and none of a host that the configuration does not name for it",
		"outputs of runs and recommendations are tagged as synthetic, and recognised by tag and words where they come back; words that somebody put differently are not",
	}
	measured := 0
	var returned []string
	for _, a := range f.Agents {
		measured += a.Runs.All
		if a.Runs.Returned > 0 {
			returned = append(returned, a.Declaration.AgentID)
			b.Evidence = append(b.Evidence, fmt.Sprintf("%s: %d of %d runs in 24 hours were given or read what an agent said", a.Declaration.AgentID, a.Runs.Returned, a.Runs.All))
		}
	}
	switch found := append(f.coded("A-07"), f.Knowledge.ByAgents...); {
	case len(found) > 0:
		b.Answer, b.Reason, b.Remedy = No, few(found, "")+".", "Remove what agents said from the sources."
	case len(returned) > 0:
		b.Answer, b.Reason = No, "Runs of "+sentence.Names(returned)+" were given or read what an agent said in the last 24 hours."
		b.Remedy = "Look at these runs (sallyport agents runs): each names the output that came back. Remove it from the source that has it."
	case measured == 0:
		b.Answer, b.Reason = Unseen, "No declaration takes facts from what agents say, and no document was written by an agent. No agent had a run in the last 24 hours, so nothing that one read was compared."
		b.Remedy = "Let an agent run (sallyport agents run), and look again."
	}
	return b
}

func resolved(f *Facts) Box {
	b := Box{Question: "All violations resolved or mitigated", Answer: Yes, Reason: "No declaration has a violation that blocks a deployment."}
	var open []string
	n := 0
	count := func(id string, problems []agent.Problem) {
		for _, p := range problems {
			if p.Code != "" {
				n++
			}
			if p.Stops {
				open = append(open, strings.TrimSpace(id+" "+p.Code)+": "+p.Problem)
			} else if p.Mitigation != "" {
				b.Evidence = append(b.Evidence, id+" "+p.Code+" is mitigated by "+p.Mitigation)
			}
		}
	}
	for _, a := range f.Agents {
		count(a.Declaration.AgentID, a.Problems)
	}
	count("", f.Loading)
	b.Evidence = append(b.Evidence, sentence.Count(n, "violation")+" in "+f.all())
	if len(open) > 0 {
		b.Answer, b.Reason, b.Remedy = No, few(open, "")+".", "Mend what blocks, or plan P1 under mitigations: sallyport lint says how."
	}
	return b
}

func prompt(f *Facts) Box {
	b := Box{Question: "System message framework configured with safety constraints", Answer: Yes,
		Reason:   "Each session's instructions carry the planning constraint and how fenced content is to be treated. In front of each request to a model that goes through the gateway stands the whole layered message. Whether a client gives MCP's instructions to a model that it asks itself can't be seen.",
		Evidence: []string{fmt.Sprintf("%d bytes of instructions for a new session", f.PromptBytes)}}
	if f.PromptBytes == 0 {
		b.Answer, b.Reason, b.Remedy = Unseen, "No agent is declared, so there are no instructions to look at.", "Write a declaration."
	}
	return b
}

func patterns(f *Facts) Box {
	return Box{Question: "Threat detection patterns up to date", Answer: Unseen,
		Reason:   "What calls send and bring back is looked through for injections and sensitive data, with the patterns of this version. Whether there are newer ones can't be seen from here.",
		Evidence: []string{"the patterns are part of the program: sallyport version; what they find and miss: docs/screening.md"},
		Remedy:   "Keep the program up to date. Labels, provenance and approvals hold without recognising an injection."}
}

func access(f *Facts) Box {
	b := Box{Question: "Access control policies defined (RBAC)", Answer: Yes, Reason: "Every agent's permissions are named, and what they don't name is refused."}
	b.Evidence = []string{sentence.Count(f.Policies, "policy file") + " of the operator", sentence.Count(f.Answerers, "person") + " can answer"}
	all := f.ids(func(a *Agent) bool {
		return slices.Contains(a.Declaration.Permissions.Read, "*") || slices.Contains(a.Declaration.Permissions.Write, "*")
	})
	if len(all) > 0 && f.Policies == 0 {
		b.Answer, b.Reason = No, sentence.Names(all)+" may use every operation (\"*\"), and no policy narrows that."
		b.Remedy = "Name operations under permissions, or write policies (docs/first-policy.md)."
	}
	return b
}

func quotas(f *Facts) Box {
	b := Box{Question: "Resource quotas configured", Answer: Yes, Reason: "Every agent has a quota."}
	without := f.ids(func(a *Agent) bool { return !a.Quota })
	b.Evidence = []string{fmt.Sprintf("%d of %s with a quota", len(f.Agents)-len(without), sentence.Count(len(f.Agents), "declared agent")), "calls a minute, time and results are bounded for each session besides"}
	if unspread := f.ids(func(a *Agent) bool { return !a.Throttled }); len(unspread) < len(f.Agents) {
		b.Evidence = append(b.Evidence, fmt.Sprintf("%d of them spread over their sessions by apiCalls.minute, which is no quota", len(f.Agents)-len(unspread)))
	}
	if len(without) > 0 || len(f.Agents) == 0 {
		b.Answer, b.Reason, b.Remedy = No, "There is no quota for "+few(without, "any agent")+".", "Write quotas: {apiCalls: {hour: 1000, day: 10000}, computeSeconds: {day: 3600}} in the declarations."
	}
	return b
}

// The amounts that the source of the checklist names.
const (
	highest  = 1000
	critical = 10000
)

func thresholds(f *Facts) Box {
	b := Box{Question: "HITL thresholds set (HIGH >= $1000, CRITICAL >= $10000)", Answer: Yes, Reason: "From these amounts on people are asked, and somebody can answer."}
	b.Evidence = []string{strings.TrimSpace(fmt.Sprintf("HIGH from %g, CRITICAL from %g %s", f.HighAmount, f.CriticalAmount, f.Currency)), sentence.Count(f.Answerers, "person") + " can answer"}
	switch {
	case f.HighAmount > highest || f.CriticalAmount > critical:
		b.Answer, b.Reason, b.Remedy = No, "The amounts are higher than the checklist's.", "Lower approvals.high_amount and approvals.critical_amount."
	case f.Answerers == 0:
		b.Answer, b.Reason, b.Remedy = No, "Nobody can answer.", "List people with the role approver under people."
	case f.Observes:
		b.Answer, b.Reason, b.Remedy = No, "The gateway only observes, and asks about nothing up to HIGH.", "Write mode: enforce."
	}
	return b
}

func logged(f *Facts) Box {
	b := Box{Question: "Audit logging enabled", Answer: Yes, Reason: "Nothing runs before its entry is durable; there is no switch for that."}
	b.Evidence = []string{sentence.Count(int(f.LogSize), "entry"), f.Anchor}
	if !f.LogWrites {
		b.Answer, b.Reason, b.Remedy = No, "The store takes no writes now, so calls are refused.", "See to the disk and the database: sallyport doctor."
	}
	return b
}

func breakers(f *Facts) Box {
	b := Box{Question: "Circuit breakers configured", Answer: Yes, Reason: "Every server and every model has a circuit breaker, every agent at each of them, and every agent."}
	b.Evidence = []string{fmt.Sprintf("opens at %s in a row, and lets a call try after %s", sentence.Count(f.Breakers.Failures, "failure"), f.Breakers.Wait), sentence.Count(len(f.Breakers.Open), "circuit breaker") + " open now"}
	if f.Breakers.Failures < 1 {
		b.Answer, b.Reason, b.Remedy = Unseen, "The thresholds of the circuit breakers are not known.", "See sallyport breaker list."
	}
	return b
}

func fallbacks(f *Facts) Box {
	b := Box{Question: "Fallback operations defined", Answer: Yes, Reason: "Where one of these fails, another takes its calls, under all rules: " + few(f.Fallbacks, "none") + "."}
	if len(f.Fallbacks) == 0 {
		b.Answer, b.Reason = No, "No server and no model has a fallback: when one fails, no other takes its place."
		b.Remedy = "Name a second server (fallback, under upstreams) or model (fallback, under models), and permit agents its operations."
	}
	return b
}

// few names some of many things; none says what stands where there are none.
func few(all []string, none string) string {
	const most = 5
	switch {
	case len(all) == 0:
		return none
	case len(all) > most:
		return strings.Join(all[:most], "; ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	return strings.Join(all, "; ")
}
