package judge

import (
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// Facts is everything that one judgement rests on. Whoever judges loads them anew for each judgement, so that nothing of an earlier one
// lingers, and changes nothing of them while it is judged.
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

// Rules are what the operator configured. They are fixed as long as the program runs.
type Rules struct {
	Shadow      bool // verdicts of the flow and risk stages are only noted
	Policies    *policy.Set
	Risk        policy.Rules
	Labels      []flow.Label  // the confidentiality labels
	MediumDelay time.Duration // how long a call of risk MEDIUM waits to be stopped (HI-2)
	FreeLevel1  bool          // writes that only the person sees and can undo run unasked after untrusted content came in
}

// KnownLabel tells whether the configuration has the label, or every session can hold it.
func (r *Rules) KnownLabel(l flow.Label) bool {
	if l == flow.Untrusted || l == flow.Unasked {
		return true
	}
	for _, k := range r.Labels {
		if k == l {
			return true
		}
	}
	return false
}

// Caller is who calls, for whom, and how that agent stands now.
type Caller struct {
	Agent       string
	Requester   string // the person or program for whom the session works; ""
	Door        string // "mcp" or "http"
	Declaration *agent.Declaration
	Stopped     bool        // the kill switch is pulled, for all or for this agent
	Quarantined time.Time   // since when the agent is quarantined; zero: it is not
	AskFrom     policy.Risk // the risk from which a person decides on what agents of this trust tier declare
	Own         []string    // the requester's own addresses and accounts
}

// Session is the version of the session that is judged.
type Session struct {
	Open        bool
	Phase       session.Phase
	Labels      []flow.Held        // as it holds them once the call runs: with those of what the arguments carry
	Words       *provenance.Words  // the person's request; nil: nobody has read it
	Plan        *session.Plan      // nil: none
	Sealed      *provenance.Sealed // the plan as the flow rules read it, where it was approved; nil: it was not
	BudgetSpent bool               // its time in operations is used up
	OutcomeOwed bool               // the outcome of an earlier call is not written down yet
	Room        Room
}

// holds tells whether the session holds the label.
func (s *Session) holds(l flow.Label) bool {
	for _, h := range s.Labels {
		if h.Label == l {
			return true
		}
	}
	return false
}

// LabelWords are the labels as words.
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

// Operation is what is called, as the catalogue has it.
type Operation struct {
	ID          string // "<server>.<tool>"
	Server      string
	Name        string // what the agent sees
	Quarantined bool   // its definition waits to be accepted
	Gone        bool   // the server no longer offers it
	ExternalIO  bool
	InPhase     bool   // it may run in the phase that the session is in
	BuiltIn     bool   // it is one of comm.*, which run on a declaration alone
	Requests    bool   // it counts as an external request
	AskFirst    bool   // no entry of the configuration names it, and the operator chose to be asked
	Acts        string // of a read: why each call of it counts as a write; ""
	Action      string // what it does, by its name in the risk rules
	RiskFloor   policy.Risk
	Level       int // 0 reads, 1 a write that only the person sees and can undo, 2 the rest
	Roles       map[string]string
	Places      map[string]string // of a built-in operation: the parameters that say where it reads
	Flow        flow.Operation
	Profile     *provenance.Profile
	Traced      bool // provenance decides about its calls
	// Choices are the texts that the accepted definition of a read lists for an argument; nil where they don't matter.
	Choices map[string][]string
	// Stored is the operation whose stored results the call reads; nil: it reads none.
	Stored *Operation
}

// Arguments is what the call says, parsed once.
type Arguments struct {
	Canonical    []byte
	Digest       string // of the whole call
	Partial      bool   // a step of a plan, some of whose arguments are not known yet
	Problem      error  // what the operation itself says is wrong with them
	Writes       bool   // the call changes something
	Acts         string // why the call of a tool that is said to read counts as a write; ""
	Selects      []byte // the arguments that say what is read, where they are not all of Canonical
	ReadsNothing bool   // a subscription: nothing is read
	Answers      bool   // answers to a server's questions go out beside them
	Carries      []Carried
}

// Carried is delivered content that came back as an argument, and where it was from.
type Carried struct {
	Source    string `json:"source"`
	Operation string `json:"operation,omitempty"`
	Session   string `json:"session,omitempty"`
	CallID    string `json:"call_id,omitempty"`
}

// Declared is how the call is declared.
type Declared struct {
	Problem       error             // what is wrong with how it is declared
	Invalid       []declare.Problem // what is wrong with its justification
	Made          *declare.Declaration
	Justification *declare.Justification // in the call
	Digest        string                 // of the declaration that call and justification make
	InPlan        bool                   // the step of a plan that is judged declares the call
}

// Evidence is what the store knows: where the arguments came from, and what happened before. It is loaded only where the stages before have
// not denied. The zero value denies.
type Evidence struct {
	Loaded      bool
	Problem     error // what kept a look-up from being made; the risk stage says so
	Untraceable error // what kept the arguments from being traced; the flow stage says so

	Ruling  *provenance.Ruling // where the arguments came from; nil: labels alone decide
	Unasked string             // of a read: why what it brings counts as unasked for

	Follows bool                // the call follows a step of the sealed plan that still has room
	Step    provenance.Followed // that step

	NewTool        bool // a person accepted its definition later, and the agent has not used it since
	NewDestination bool // the agent has not used one of the destinations with this operation

	// StoppedLately says that a person has said anything but yes about the like, or that more calls wait for silence than people could stop.
	StoppedLately bool
	// CoveredBy is the approval of an earlier call that covers the operation in this session (unlisted_operations: ask_once); "".
	CoveredBy string
}

// Answer is what a person said, or their silence.
type Answer struct {
	Approval *approval.Approval // that covers this very call; nil: none
}

// ByPerson tells whether a person has said yes to this very call; silence is no yes.
func (a Answer) ByPerson() bool { return a.Approval != nil && a.Approval.State == approval.Approved }

// PlanStep is the step of the sealed plan, however it was approved, that has this very call: all of its arguments are fixed, or come from
// where the plan says. Nil if there is none.
func (f *Facts) PlanStep() *session.Step {
	if e := &f.Evidence; e.Follows && (e.Step.Fixed || e.Step.Exact) {
		return &f.Session.Plan.Steps[e.Step.Step]
	}
	return nil
}

// planned tells whether a person approved a plan with this very step.
func (f *Facts) planned() bool {
	return f.Session.Sealed != nil && f.Session.Plan.ByPerson() && f.Evidence.Follows
}

// consequential tells whether the call changes something that more than the person sees.
func (f *Facts) consequential() bool { return f.Arguments.Writes && f.Operation.Level != levelOwn }

// levelOwn is the level of writes that only the person sees and can undo: context does not make them riskier.
const levelOwn = 1
