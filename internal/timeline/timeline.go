// Package timeline tells what happened in a session: it puts the entries of the log that belong together into moments, follows labels and phases through them, and says why each
// call that did not simply run was stopped. It is pure, and serves the console, which draws it, and the command line, which prints it.
package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// Lane tells what a moment does with data. Each is a row of the picture.
type Lane string

const (
	LaneSources Lane = "source" // its results bring labels in, and nothing keeps it from being called
	LanePlans   Lane = "plan"   // plans and declarations
	LaneSinks   Lane = "sink"   // refused while the session holds certain labels
	LaneWrites  Lane = "write"  // changes something
	LaneOthers  Lane = "other"  // none of them
	LanePeople  Lane = "people" // acts of people and of the gateway itself
)

// Fate is the outcome of a moment. Its words are style classes.
type Fate string

const (
	FatePermitted Fate = "permitted"
	FateFailed    Fate = "failed"   // permitted, and answered with an error
	FateUnderWay  Fate = "underway" // permitted, and not over yet
	FateWaiting   Fate = "waiting"  // a person is asked and has not answered
	FateAsked     Fate = "asked"    // a person was asked, and it did not run
	FateRefused   Fate = "refused"
	FateDiscarded Fate = "discarded" // ran, and its result was thrown away
	FateUnknown   Fate = "unknown"   // the outcome is not known
	FateDone      Fate = "done"      // not a call
)

// Moment is one thing that happened: a call with everything that is on record about it, or a person's act. Its strings are as recorded, and so
// hostile.
type Moment struct {
	Column    int // place in the timeline, from 0
	First     int64
	Last      int64 // indexes of its first and last audit entry
	At        time.Time
	Lane      Lane
	Fate      Fate
	CallID    string
	Operation string // of a call; what was done otherwise
	Stage     string
	Code      string
	Reason    string
	Risk      string
	Amount    string
	Shadow    bool     // it would have been refused or asked about, but the gateway only observes
	Approval  string   // id of the question to a person
	Answers   []string // what people answered to it
	Brings    []string // labels that it raised
	Takes     []string // labels that it released
	Because   []Tie    // why it was not simply permitted
	Evidence  []string // the sources of its arguments, a sentence each
	Phase     session.Phase
	Who       string   // of a person's act
	Arguments string   // hex SHA-256 of a call's arguments
	Records   []Record // what is on record about it, oldest first

	request string
	settled bool // the question was answered for good
	asked   bool // it begins with a question to people
}

// Band is a label while the session held it. From is the column of the call that brought it, or -1 if that was before the timeline. Since is the
// column from which it was held; it is later than From if other things happened while the call ran. To is the column that ended it, or one
// after the last.
type Band struct {
	Label     string
	From      int
	Since     int
	To        int
	Operation string
	CallID    string
}

// Tie leads from the call that brought a label (column -1: before the timeline) to a call that was refused or asked about because of it.
type Tie struct {
	From, To  int
	Label     string
	Operation string // what brought it
	Fate      Fate
}

// Span is a stretch of one phase.
type Span struct {
	Phase    session.Phase
	From, To int // columns; To is where the next begins, or one after the last
}

// Line is the model of the picture of a session, and of the list below it.
type Line struct {
	Moments []Moment
	Bands   []Band
	Ties    []Tie
	Phases  []Span
	Width   int  // columns
	Earlier bool // there is more before it
}

// History is the input of a timeline.
type History struct {
	Session session.Session
	Entries []audit.Entry // of the session, oldest first
	Whole   bool          // they begin with the session's first
	Newest  bool          // they end with the session's last
	Most    int           // moments that are kept, the newest; 0: all. The labels are followed through all entries
	// Operation describes an operation as the catalogue has it today; false if it is gone.
	Operation func(id string) (effect flow.Effect, emits, blockedBy []flow.Label, ok bool)
	// Questions are the session's, by id, in their present state. Of one that is not there only the entries are known.
	Questions map[string]approval.Approval
}

// builder makes a timeline out of entries.
type builder struct {
	History
	t         Line
	byCall    map[string]int // place in t.Moments, by call id and by request id
	byAsk     map[string]int // by approval id
	held      map[string]int // label -> place in t.Bands
	phase     session.Phase
	phaseFrom int
	plan      int // place of the plan that waits for a person, or -1
}

// Of is a pure function. Entries that fit nowhere become moments of their own.
func Of(in History) Line {
	r := builder{History: in, byCall: map[string]int{}, byAsk: map[string]int{}, held: map[string]int{}, plan: -1}
	r.begin()
	for _, e := range in.Entries {
		r.entry(e)
	}
	return r.end()
}

// begin finds the labels and the phase that the session had before the first entry.
func (r *builder) begin() {
	if r.Whole {
		return
	}
	firstCall, raised := "", map[string]bool{}
	before := func(label, operation, callID string) {
		if _, ok := r.held[label]; !ok && !raised[label] {
			r.held[label] = len(r.t.Bands)
			r.t.Bands = append(r.t.Bands, Band{Label: label, From: -1, Since: -1, Operation: operation, CallID: callID})
		}
	}
	for _, e := range r.Entries {
		if firstCall == "" && isCall(e) {
			firstCall = e.CallID
		}
		switch e.Action {
		case "session.release": // a label that is released but was not raised was held before
			for _, l := range e.Labels {
				before(l, "", "")
			}
		case "session.phase":
			if to := phaseOf(e); r.phase == "" && to != "" {
				r.phase = Other(to)
			}
		case "plan.approve":
			if r.phase == "" {
				r.phase = session.Planning
			}
		default:
			for _, l := range e.Labels {
				raised[l] = true
			}
		}
	}
	for _, h := range r.Session.Labels { // ids of calls grow with time
		if firstCall == "" || h.CallID < firstCall {
			delete(raised, string(h.Label)) // the entry names it again, as every call of that operation does
			before(string(h.Label), h.Operation, h.CallID)
		}
	}
	if r.phase == "" {
		r.phase = r.Session.Phase
	}
}

func Other(p session.Phase) session.Phase {
	if p == session.Planning {
		return session.Execution
	}
	return session.Planning
}

// phaseOf is the phase that the session entered according to an entry, or "".
func phaseOf(e audit.Entry) session.Phase {
	var d struct {
		Phase session.Phase `json:"phase"`
	}
	if json.Unmarshal(e.Detail, &d) != nil {
		return ""
	}
	p, err := session.ParsePhase(string(d.Phase))
	if err != nil {
		return ""
	}
	return p
}

// isCall tells whether the entry is about a call of an operation.
func isCall(e audit.Entry) bool {
	if strings.HasPrefix(e.Action, "approval.") {
		return asks(e)
	}
	switch e.Action {
	case "declare", "plan.submit", "plan.approve", "plan.reject", audit.Folded:
		return false
	}
	return e.Kind == audit.Intent || e.Kind == audit.Outcome || e.Kind == audit.Decision
}

// asks tells whether the entry is a question to people. A question that tests them looks like any other, since the person who sees the timeline
// may be the one who is tested.
func asks(e audit.Entry) bool { return e.Action == "approval.ask" || e.Action == "approval.drill" }

// Record is an entry about a moment as the list shows it.
type Record struct {
	Index             int64
	At                time.Time
	Words, By         string
	Took              int64 // milliseconds
	Arguments, Result *audit.Payload
}

// recordOf leaves out who asked: it would tell a question that tests people.
func recordOf(e audit.Entry) Record {
	r := Record{Index: e.Index, At: e.At, Words: audit.Plain(e), By: e.Actor, Took: e.DurationMS, Arguments: e.Arguments, Result: e.Result}
	if asks(e) {
		r.By = ""
	}
	return r
}

// add makes a moment in the next column.
func (r *builder) add(e audit.Entry, l Lane) *Moment {
	r.t.Moments = append(r.t.Moments, Moment{
		Column: len(r.t.Moments), First: e.Index, Last: e.Index, At: e.At, Lane: l, Operation: e.Operation, CallID: e.CallID, request: e.RequestID,
		Fate: FateDone, Records: []Record{recordOf(e)},
	})
	return &r.t.Moments[len(r.t.Moments)-1]
}

func (r *builder) entry(e audit.Entry) {
	switch {
	case isCall(e):
		r.call(e)
	case e.Action == "session.taint":
		r.raise(r.moment(e), e.Labels)
	case e.Action == "declare", e.Action == "plan.submit":
		m := r.add(e, LanePlans)
		m.Operation, m.Reason, m.Stage, m.Code, m.Risk, m.Fate = e.Action, e.Reason, e.Stage, e.Code, e.Risk, fateOf(e)
		if e.Action == "declare" {
			m.Operation = "declare " + e.Operation
		}
		m.Approval = detail(e, "approval_id")
		if m.Approval != "" && m.Fate == FateAsked {
			r.byAsk[m.Approval] = m.Column
		}
		if e.Action == "plan.submit" && m.Fate != FateRefused { // it takes the place of one that waits
			r.plan = -1
			if m.Fate == FateAsked {
				r.plan = m.Column
			}
		}
		if e.Action == "plan.submit" && e.Decision == "permit" {
			r.enterPhase(m, session.Execution)
		}
	default:
		r.addAct(e)
	}
}

// addAct adds an act of a person, or of the gateway itself.
func (r *builder) addAct(e audit.Entry) {
	if e.Action == "session.phase" && detail(e, "plan_id") != "" {
		return // the plan that brought it is in the picture
	}
	m := r.add(e, LanePeople)
	m.Operation, m.Who, m.Reason, m.Code, m.Stage = e.Action, e.Actor, e.Reason, e.Code, e.Stage
	if e.Decision == "deny" {
		m.Fate = FateRefused
		return
	}
	switch e.Action {
	case "session.open":
		if p := phaseOf(e); p != "" {
			r.enterPhase(m, p)
		}
		r.raise(m, e.Labels)
	case "session.phase":
		if p := phaseOf(e); p != "" {
			r.enterPhase(m, p)
		}
	case "plan.approve":
		r.answerPlan(FatePermitted, answerWords("approve", e.Actor))
		r.enterPhase(m, session.Execution)
	case "plan.reject":
		r.answerPlan(FateRefused, answerWords("reject", e.Actor))
	case "session.close":
		r.plan = -1
	case "session.release":
		for _, l := range e.Labels {
			if i, ok := r.held[l]; ok {
				r.t.Bands[i].To = m.Column
				delete(r.held, l)
			}
			m.Takes = append(m.Takes, l)
		}
	default:
		if answer, ok := strings.CutPrefix(e.Action, "approval."); ok {
			m.Approval = detail(e, "approval_id")
			if i, ok := r.byAsk[m.Approval]; ok {
				about := &r.t.Moments[i]
				words := answerWords(answer, e.Actor)
				if audit.AnswersOwn(e) {
					words += ", own request"
				}
				about.Answers = append(about.Answers, words)
				about.Records = append(about.Records, recordOf(e))
				about.settled = about.settled || answer != "defer" && answer != "approve"
			}
			return
		}
		r.raise(m, e.Labels)
	}
}

// answerPlan ends the waiting of a plan.
func (r *builder) answerPlan(fate Fate, words string) {
	if r.plan >= 0 {
		m := &r.t.Moments[r.plan]
		m.Fate, m.Answers = fate, append(m.Answers, words)
	}
	r.plan = -1
}

// answerWords tells how and by whom a question was answered.
func answerWords(answer, by string) string {
	word, ok := map[string]string{
		"approve": "approved", "reject": "rejected", "defer": "postponed", "supersede": "replaced", "withdraw": "withdrawn", "modify": "changed",
	}[answer]
	if !ok {
		word = answer
	}
	return word + " by " + identity.Shown(by)
}

// detail is one string member of the entry's detail.
func detail(e audit.Entry, key string) string {
	var d map[string]any
	if json.Unmarshal(e.Detail, &d) != nil {
		return ""
	}
	s, _ := d[key].(string)
	return s
}

// maxConfirmed is how many sentences of evidence a moment has.
const maxConfirmed = 5

// confirmed are the sentences of an intent that name the sources of the confirmed arguments.
func confirmed(e audit.Entry) (all []string) {
	var d struct {
		Evidence []struct {
			Confirmed bool   `json:"vouched"`
			Text      string `json:"text"`
		} `json:"evidence"`
	}
	if json.Unmarshal(e.Detail, &d) != nil {
		return nil
	}
	for _, f := range d.Evidence {
		if !f.Confirmed || slices.Contains(all, f.Text) {
			continue
		}
		if len(all) == maxConfirmed {
			return append(all, "and more")
		}
		all = append(all, f.Text)
	}
	return all
}

// fateOf is the fate that a decision alone gives a moment.
func fateOf(e audit.Entry) Fate {
	switch e.Decision {
	case "permit", "ok":
		return FatePermitted
	case "ask":
		return FateAsked
	case "deny":
		return FateRefused
	}
	return FateUnknown
}

// moment finds the moment of the entry's call, by the id of the call or of its request, or adds one.
func (r *builder) moment(e audit.Entry) *Moment {
	for _, key := range []string{"c" + e.CallID, "r" + e.RequestID} {
		if i, ok := r.byCall[key]; ok && len(key) > 1 {
			r.byCall["c"+e.CallID], r.byCall["r"+e.RequestID] = i, i
			m := &r.t.Moments[i]
			if !(m.asked && e.Kind == audit.Decision && e.Decision == "ask") { // it says once more that the call waits, and there is none of a question that tests people
				m.Records = append(m.Records, recordOf(e))
			}
			return m
		}
	}
	m := r.add(e, r.laneOf(e.Operation))
	m.asked = asks(e)
	r.byCall["c"+e.CallID], r.byCall["r"+e.RequestID] = m.Column, m.Column
	return m
}

func (r *builder) laneOf(operation string) Lane {
	if r.Operation != nil {
		if effect, emits, blockedBy, ok := r.Operation(operation); ok {
			switch {
			case effect != flow.Read:
				return LaneWrites
			case len(blockedBy) > 0:
				return LaneSinks
			case len(emits) > 0:
				return LaneSources
			}
		}
	}
	return LaneOthers
}

func (r *builder) call(e audit.Entry) {
	m := r.moment(e)
	m.Last = max(m.Last, e.Index)
	if m.Operation == "" && e.Operation != "" {
		m.Operation, m.Lane = e.Operation, r.laneOf(e.Operation)
	}
	if m.CallID == "" {
		m.CallID = e.CallID
	}
	if id := detail(e, "approval_id"); id != "" {
		m.Approval = id
	}
	if e.Arguments != nil {
		m.Arguments = e.Arguments.SHA256
	}
	if history := r.Questions[m.Approval].Reasons; asks(e) && e.Reason == "" && len(history) > 0 {
		e.Stage, e.Reason = history[0].Stage, history[0].Text
	}
	if e.Stage != "" || e.Code != "" || e.Reason != "" {
		m.Stage, m.Code, m.Reason = e.Stage, e.Code, e.Reason
	}
	if e.Risk != "" {
		m.Risk = e.Risk
	}
	if e.Amount != "" {
		m.Amount = e.Amount
	}
	if len(e.Labels) > 0 {
		r.raise(m, e.Labels)
	}
	switch e.Kind {
	case audit.Intent:
		m.Fate = FateUnderWay
		if detail(e, "permitted_by") == "silence" {
			m.Answers = append(m.Answers, "permitted by silence")
		}
		for _, who := range e.Approvers {
			if a := answerWords("approve", who); !slices.Contains(m.Answers, a) {
				m.Answers = append(m.Answers, a)
			}
		}
		if e.Shadow {
			m.Shadow = true
			r.tieToLabels(m, e)
		} else {
			m.Stage, m.Code, m.Reason = "", "", "" // the reason to ask is not the reason why it runs
			m.Evidence = confirmed(e)
		}
	case audit.Outcome:
		switch e.Decision {
		case "ok":
			m.Fate = FatePermitted
		case "error":
			m.Fate = FateFailed
		case "discarded":
			m.Fate = FateDiscarded
		default:
			m.Fate = FateUnknown
		}
	default:
		m.Fate = fateOf(e)
		if asks(e) && m.Approval != "" {
			r.byAsk[m.Approval] = m.Column
		}
		if m.Fate == FateRefused || m.Fate == FateAsked {
			r.tieToLabels(m, e)
		}
	}
}

// raise begins the bands of labels that are not held yet.
func (r *builder) raise(m *Moment, labels []string) {
	for _, l := range labels {
		if _, ok := r.held[l]; ok {
			continue
		}
		r.held[l] = len(r.t.Bands)
		r.t.Bands = append(r.t.Bands, Band{
			Label: l, From: m.Column, Since: max(m.Column, len(r.t.Moments)-1), To: -1, Operation: m.Operation, CallID: m.CallID,
		})
		m.Brings = append(m.Brings, l)
	}
}

// tieToLabels ties the call to those that brought the labels because of which it was refused or asked about.
func (r *builder) tieToLabels(m *Moment, e audit.Entry) {
	for _, l := range r.labelsToBlame(e) {
		b := r.t.Bands[r.held[l]]
		t := Tie{From: b.From, To: m.Column, Label: l, Operation: b.Operation, Fate: fateOf(e)}
		if m.Shadow {
			t.Fate = FatePermitted
		}
		if !slices.ContainsFunc(m.Because, func(old Tie) bool { return old.Label == l && old.From == t.From }) {
			m.Because = append(m.Because, t)
		}
	}
}

// labelsToBlame returns those of the labels held then that were the reason. An entry has the reason of the verdict as text. So these are the labels
// that the text names, those in the question to the person, and at the flow stage those that block the operation.
func (r *builder) labelsToBlame(e audit.Entry) []string {
	var heldNow, blamed []string
	for l := range r.held {
		heldNow = append(heldNow, l)
	}
	slices.Sort(heldNow)
	history := r.Questions[detail(e, "approval_id")].Reasons
	for _, l := range heldNow {
		if mentions(e.Reason, l) || slices.ContainsFunc(history, func(why approval.Reason) bool { return raisedBy(why, l) }) {
			blamed = append(blamed, l)
		}
	}
	if len(blamed) > 0 || e.Stage != "flow" {
		return blamed
	}
	if r.Operation != nil {
		if _, _, blockedBy, ok := r.Operation(e.Operation); ok {
			for _, l := range heldNow {
				if slices.Contains(blockedBy, flow.Label(l)) {
					blamed = append(blamed, l)
				}
			}
		}
	}
	if len(blamed) == 0 && (e.Code == string(fault.FlowContaminated) || e.Code == string(fault.FlowUntrusted)) {
		return heldNow // the operation has changed since, so it can be any of them
	}
	return blamed
}

// raisedBy tells whether the session was asked about because it holds the label.
func raisedBy(why approval.Reason, label string) bool {
	switch why.Code {
	case "risk.untrusted":
		return label == string(flow.Untrusted)
	case "risk.contaminated":
		return !flow.Label(label).Marks()
	}
	return why.Stage == "flow" && mentions(why.Text, label)
}

// mentions tells whether the text contains the word as a whole word.
func mentions(text, word string) bool {
	if word == "" {
		return false
	}
	inWord := func(s rune) bool {
		return unicode.IsLetter(s) || unicode.IsDigit(s) || s == '_' || s == '-' || s == '.'
	}
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		i += from
		before, after := []rune(text[max(0, i-4):i]), []rune(text[i+len(word):min(len(text), i+len(word)+4)])
		clear := len(before) == 0 || !inWord(before[len(before)-1])
		if clear && (len(after) == 0 || !inWord(after[0]) || after[0] == '.' && (len(after) == 1 || !inWord(after[1]))) {
			return true
		}
		from = i + len(word)
	}
}

// enterPhase begins a phase at the moment.
func (r *builder) enterPhase(m *Moment, p session.Phase) {
	m.Phase = p
	if p == r.phase {
		return
	}
	if r.phase == "" {
		r.phase = Other(p) // the session came from the other one
	}
	if m.Column > r.phaseFrom {
		r.t.Phases = append(r.t.Phases, Span{Phase: r.phase, From: r.phaseFrom, To: m.Column})
	}
	r.phase, r.phaseFrom = p, m.Column
}

// end closes bands and phases that are open, and keeps the newest columns.
func (r *builder) end() Line {
	t := &r.t
	t.Width = len(t.Moments)
	if r.phase == "" {
		r.phase = r.Session.Phase
	}
	if t.Width > r.phaseFrom {
		t.Phases = append(t.Phases, Span{Phase: r.phase, From: r.phaseFrom, To: t.Width})
	}
	if r.Newest { // every label that the session holds is shown, even if no entry raised it
		for _, h := range r.Session.Labels {
			if _, ok := r.held[string(h.Label)]; !ok {
				r.held[string(h.Label)] = len(t.Bands)
				t.Bands = append(t.Bands, Band{Label: string(h.Label), From: -1, Since: -1, Operation: h.Operation, CallID: h.CallID})
			}
		}
	}
	for _, i := range r.held {
		t.Bands[i].To = t.Width
	}
	if r.plan >= 0 && r.Newest {
		t.Moments[r.plan].Fate = FateWaiting
	}
	for i := range t.Moments {
		m := &t.Moments[i]
		if m.Fate == FateAsked && m.Approval != "" {
			open := !m.settled
			if q, ok := r.Questions[m.Approval]; ok {
				open = q.State == approval.Pending || q.State == approval.Deferred
			}
			if open {
				m.Fate = FateWaiting
			}
		}
		for j := range m.Because {
			if m.Because[j].Fate == FateAsked {
				m.Because[j].Fate = m.Fate
			}
		}
	}
	t.Earlier = !r.Whole
	if r.Most > 0 {
		t.cut(t.Width - r.Most)
	}
	for _, m := range t.Moments {
		t.Ties = append(t.Ties, m.Because...)
	}
	return *t
}

// cut drops the first n columns. Bands and ties that began in them then began before the timeline.
func (t *Line) cut(n int) {
	if n <= 0 {
		return
	}
	shift := func(column int) int { return max(-1, column-n) }
	t.Earlier, t.Width = true, t.Width-n
	t.Moments = slices.Clone(t.Moments[n:])
	for i := range t.Moments {
		m := &t.Moments[i]
		m.Column -= n
		for j := range m.Because {
			m.Because[j].From, m.Because[j].To = shift(m.Because[j].From), m.Column
		}
	}
	bands := t.Bands[:0]
	for _, b := range t.Bands {
		if b.To -= n; b.To > 0 || b.To == 0 && t.Width == 0 {
			b.From, b.Since = shift(b.From), shift(b.Since)
			bands = append(bands, b)
		}
	}
	t.Bands = bands
	phases := t.Phases[:0]
	for _, p := range t.Phases {
		if p.To -= n; p.To > 0 {
			p.From = max(0, p.From-n)
			phases = append(phases, p)
		}
	}
	t.Phases = phases
}

// Verdict tells the outcome.
func (m Moment) Verdict() string {
	word, ok := map[Fate]string{
		FatePermitted: "permitted", FateFailed: "permitted, failed", FateUnderWay: "under way", FateWaiting: "waits for a person", FateAsked: "asked, did not run",
		FateRefused: "refused", FateDiscarded: "result thrown away", FateUnknown: "outcome unknown", FateDone: "",
	}[m.Fate]
	if !ok {
		return string(m.Fate)
	}
	if m.Shadow {
		word += " (only observed: it would have been " + map[bool]string{true: "asked about", false: "refused"}[m.Code == string(fault.ApprovalRequired)] + ")"
	}
	return word
}

// Title names the moment in the list.
func (m Moment) Title() string {
	if m.Lane != LanePeople && m.Lane != LanePlans {
		return m.Operation
	}
	if m.Operation == "session.phase" {
		return fmt.Sprintf("Phase: %s", m.Phase)
	}
	if answer, ok := strings.CutPrefix(m.Operation, "approval."); ok {
		verb := answerWords(answer, "")
		return "Request " + strings.TrimSuffix(verb, " by ")
	}
	if operation, ok := strings.CutPrefix(m.Operation, "declare "); ok && m.Lane == LanePlans {
		return "Need declared: " + operation
	}
	words := audit.Named(m.Operation)
	if words == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(words)
	return string(unicode.ToUpper(first)) + words[size:]
}

// Number is its place in the list, from 1, as on the axis of the picture.
func (m Moment) Number() int { return m.Column + 1 }

// Word names its lane in the list.
func (m Moment) Word() string {
	return map[Lane]string{LaneSources: "source", LaneSinks: "sink", LaneWrites: "write", LaneOthers: "", LanePlans: "", LanePeople: ""}[m.Lane]
}

// Key names the moment as it is now: it changes with what is known about it.
func (m Moment) Key() string {
	return fmt.Sprintf("%d-%d-%s", m.First, len(m.Records), m.Fate)
}

// Unfolded tells whether the list shows the moment's particulars from the beginning: where something did not simply run.
func (m Moment) Unfolded() bool {
	return m.Fate != FatePermitted && m.Fate != FateDone || m.Shadow
}

// FromNumber is the place in the list of the call that brought the label.
func (t Tie) FromNumber() int { return t.From + 1 }
