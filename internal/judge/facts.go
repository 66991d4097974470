package judge

import (
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// Facts are everything that one judgement rests on. The caller loads them anew for each judgement and does not change them while it runs.
type Facts struct {
	Caller      Caller
	Session     Session
	Operation   Operation
	Arguments   Arguments
	Declaration Declared
	Evidence    Evidence
	Answer      Answer
	Time        time.Time
	Rules       *Rules
}

// Rules are the operator's configuration. They never change in place: a reload puts others in force, for later judgements.
type Rules struct {
	Observe     bool // what the stages say that they lift is only recorded
	Policies    *policy.Set
	Risk        policy.Rules
	Labels      []flow.Label  // the confidentiality labels
	MediumDelay time.Duration // how long a call of risk MEDIUM waits to be stopped (HI-2)
	Screen      Screening     // what a hit in arguments does
	FreeLevel1  bool          // writes that only the person sees and can undo run unasked after untrusted content came in
}

// KnownLabel reports whether the configuration has the label, or every session can hold it.
func (r *Rules) KnownLabel(l flow.Label) bool {
	if l.Marks() {
		return true
	}
	for _, k := range r.Labels {
		if k == l {
			return true
		}
	}
	return false
}

// Screening says what a hit of screening does.
type Screening string

// What it does. Nothing else is known: what is not one of these is ScreenDeny.
const (
	ScreenAsk     Screening = "ask"     // a person decides
	ScreenDeny    Screening = "deny"    // the call is refused
	ScreenObserve Screening = "observe" // it is on record
)

// Caller is the agent that calls, the requester it works for, and its standing now.
type Caller struct {
	Agent       string
	Requester   string // the person or program for whom the session works; "" if there is none
	Door        string // "mcp", "http" or "recommendation"
	Declaration *agent.Declaration
	Stopped     bool      // the kill switch is pulled, for all or for this agent
	Quarantined time.Time // since when the agent is quarantined; zero: it is not
	Approved    bool      // its declaration is approved
	// Degraded says which agent that it depends on is aside; nil: none. Then it may do what its declaration keeps for that.
	Degraded     *agent.Degraded
	Unapproved   Unapproved      // if not: why
	AskFrom      policy.Risk     // a person decides on declared calls of this trust tier from this risk on
	OverQuota    *quota.Exceeded // a quota of the agent has no room; nil: all have
	QuotaUnknown error           // why it is not known
	Pace         Pace
	Own          []string // the requester's own addresses and accounts
}

// Pace is how fast the agent may call, in all of its sessions.
type Pace struct {
	CallsPerMinute int
	CallIn         time.Duration // how long until a call may start; 0: now
}

// Breaker is an open circuit breaker that the call meets.
type Breaker struct {
	Name  string // as in sallyport breaker list
	What  string // whose calls it stops
	Cause string
	Since time.Time
	Retry time.Time // when one call may try; in the past while another call is trying
}

// Unapproved says why an agent's declaration does not count, and what a person can do about it.
type Unapproved struct{ Reason, Remedy string }

// recommended tells whether an agent recommended the call, and nobody's agent makes it: silence never carries one out, and no observing does.
func (c *Caller) recommended() bool { return agent.IsRecommendations(c.Agent) }

// Session is the version of the session that is judged.
type Session struct {
	Open  bool
	Phase session.Phase
	// OpenedByRule says that nothing but a rule opened the execution phase: no person did, and no word of the operator's.
	OpenedByRule bool
	Labels       []flow.Held            // once the call runs: including the labels of text that the arguments carry
	Request      *provenance.Request    // the person's request; nil: not parsed
	Plan         *session.Plan          // nil: none
	Sealed       *provenance.SealedPlan // the plan as provenance reads it; nil: not approved
	BudgetSpent  bool                   // it has no time left for operations
	OutcomeOwed  bool                   // the outcome of an earlier call is not recorded yet
	Room         Room
	OfRun        bool // it was opened for a run of the agent
}

// holds reports whether the session holds the label.
func (s *Session) holds(l flow.Label) bool {
	for _, h := range s.Labels {
		if h.Label == l {
			return true
		}
	}
	return false
}

// LabelWords are the labels as strings.
func (s *Session) LabelWords() []string {
	var words []string
	for _, h := range s.Labels {
		words = append(words, string(h.Label))
	}
	return words
}

// Room is what the session may still start in this minute.
type Room struct {
	CallsPerMinute    int
	RequestsPerMinute int           // external requests of built-in operations
	CallIn            time.Duration // how long until a call may start; 0: now
	RequestIn         time.Duration // how long until an external request may start; 0: now
}

// Operation is the operation of the call, as the catalogue has it.
type Operation struct {
	ID           string // "<server>.<tool>"
	Server       string
	Name         string // the name that the agent sees
	Quarantined  bool   // a person has not accepted its definition yet
	Gone         bool   // the server no longer offers it
	ExternalIO   bool
	InPhase      bool   // it may run in the phase that the session is in
	InPlanning   bool   // it may run in planning, and so in both
	NeedsReasons bool   // its calls have to be declared: it is one of comm.*, or the operator says so
	Requests     bool   // it counts as an external request
	AskFirst     bool   // the configuration does not name it, and the operator chose to be asked about such operations
	Denied       bool   // the configuration does not name it, and such operations are denied; only a gateway that observes judges one
	Acts         string // of a read: why each call of it counts as a write; "" if it does not
	Action       string // its name in the risk rules
	RiskFloor    policy.Risk
	ScreenNotes  bool // what screening finds in its arguments is noted only
	AdminAnswers bool // a person with the role admin decides about each call, whatever the risk
	Unclassified bool // nobody has said what it changes, if it does: no action, risk or level
	Level        int  // 0 reads, 1 a write that only the person sees and can undo, 2 the rest
	Roles        map[string]string
	Places       map[string]string // of a built-in operation: the parameters that name the place it reads
	Flow         flow.Operation
	Profile      *provenance.Profile
	Traced       bool // provenance decides about its calls
	// Model is the model that is asked; "" for everything else. It is how the agent thinks: what it says is in no plan and names no destination, so its one
	// rule of flow is that of labels.
	Model string
	// Choices are the values that the accepted definition of a read lists for an argument; nil if they don't matter.
	Choices map[string][]string
	// Stored is the operation whose stored results the call reads; nil: it reads none.
	Stored *Operation
	// Breaker is the open circuit breaker in the way of the call; nil: none.
	Breaker *Breaker
}

// Arguments are the arguments of the call, parsed once.
type Arguments struct {
	Canonical    []byte
	Digest       string // of the whole call
	Partial      bool   // a step of a plan, some of whose arguments are not known yet
	Problem      error  // why the operation itself refuses them
	Writes       bool   // the call changes something
	Acts         string // why the call of a tool that is labelled a read counts as a write; "" if it does not
	Selects      []byte // the arguments that select the data to read, if they are not all of Canonical
	ReadsNothing bool   // a subscription: nothing is read
	Answers      bool   // the call also sends answers to a server's questions
	Carries      []Carried
	Screened     *screen.Found // what screening found in them; nil: nothing
}

// Carried is text that was delivered to a session and came back as an argument, with its source.
type Carried struct {
	Source    string `json:"source"`
	Operation string `json:"operation,omitempty"`
	Session   string `json:"session,omitempty"`
	CallID    string `json:"call_id,omitempty"`
}

// Declared says how the call is declared.
type Declared struct {
	Problem       error             // why the declaration does not count
	Invalid       []declare.Problem // the problems of its justification
	Made          *declare.Declaration
	Justification *declare.Justification // in the call
	Digest        string                 // of the declaration that call and justification make
	InPlan        bool                   // the plan step that is judged declares the call
}

// Evidence is what the store knows: where the arguments came from, and what happened before. It is loaded only if no earlier stage denied. The zero
// value denies.
type Evidence struct {
	Loaded      bool
	Problem     error // why a look-up failed; the risk stage reports it
	Untraceable error // why the arguments could not be traced; the flow stage reports it

	Ruling  *provenance.Ruling // the ruling of provenance; nil: labels alone decide
	Unasked string             // of a read: why its result counts as unasked

	Follows bool                // the call follows a step of the sealed plan that still has room
	Step    provenance.Followed // that step

	NewTool        bool // a person accepted its definition later, and the agent has not used it since
	NewDestination bool // the agent has not used one of the destinations with this operation

	// StoppedLately says that a person recently rejected, deferred or changed a similar call, or that more calls wait for silence than people could stop.
	StoppedLately bool
	// CoveredBy is the approval of an earlier call that covers the operation in this session (unlisted_operations: ask_once); "".
	CoveredBy string
}

// Answer is a person's answer, or their silence.
type Answer struct {
	Approval *approval.Approval // it covers this very call; nil: there is none
}

// ByPerson reports whether a person approved this very call. Silence is no approval.
func (a Answer) ByPerson() bool { return a.Approval != nil && a.Approval.State == approval.Approved }

// PlanStep is the step of the sealed plan, however it was approved, that has this very call: all of its arguments are fixed, or come from where the
// plan says. Nil if there is none.
func (f *Facts) PlanStep() *session.Step {
	if e := &f.Evidence; e.Follows && (e.Step.Fixed || e.Step.FullyConfirmed) {
		return &f.Session.Plan.Steps[e.Step.Step]
	}
	return nil
}

// planned reports whether a person approved a plan with this very step.
func (f *Facts) planned() bool {
	return f.Session.Sealed != nil && f.Session.Plan.ByPerson() && f.Evidence.Follows
}

// offPlan reports whether a person must decide because the plan that opened the execution phase does not have the call, and only a rule approved
// that plan (PH-5). What may run in planning needs no plan.
func (f *Facts) offPlan() bool {
	return f.Session.OpenedByRule && !f.Operation.InPlanning && !f.Evidence.Follows
}

// consequential reports whether the call makes a change that others see, too.
func (f *Facts) consequential() bool { return f.Arguments.Writes && f.Operation.Level != levelOwn }

// levelOwn is the level of writes that only the person sees and can undo: context does not make them riskier.
const levelOwn = 1
