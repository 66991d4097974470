package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
)

// maxMoments bounds what one timeline shows; the newest are. The labels are followed through all entries that it is given.
const maxMoments = 240

// lane tells what a moment does with data. Each is a row of the picture.
type lane string

const (
	laneSources lane = "source" // its results bring labels in, and nothing keeps it from being called
	lanePlans   lane = "plan"   // plans and declarations
	laneSinks   lane = "sink"   // refused while the session holds certain labels
	laneWrites  lane = "write"  // changes something
	laneOthers  lane = "other"  // none of them
	lanePeople  lane = "people" // acts of people and of the gateway itself
)

// fate is the outcome of a moment. Its words are style classes.
type fate string

const (
	fatePermitted fate = "permitted"
	fateFailed    fate = "failed"   // permitted, and answered with an error
	fateUnderWay  fate = "underway" // permitted, and not over yet
	fateWaiting   fate = "waiting"  // a person is asked and has not answered
	fateAsked     fate = "asked"    // a person was asked, and it did not run
	fateRefused   fate = "refused"
	fateDiscarded fate = "discarded" // ran, and its result was thrown away
	fateUnknown   fate = "unknown"   // the outcome is not known
	fateDone      fate = "done"      // not a call
)

// moment is one thing that happened: a call with everything that is on record about it, or a person's act. Its strings are as recorded, and so
// hostile.
type moment struct {
	Column    int // place in the timeline, from 0
	First     int64
	Last      int64 // indexes of its first and last audit entry
	At        time.Time
	Lane      lane
	Fate      fate
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
	Because   []tie    // why it was not simply permitted
	Evidence  []string // the sources of its arguments, a sentence each
	Phase     session.Phase
	Who       string   // of a person's act
	Arguments string   // hex SHA-256 of a call's arguments
	Records   []record // what is on record about it, oldest first

	request string
	settled bool // the question was answered for good
	asked   bool // it begins with a question to people
}

// band is a label while the session held it. From is the column of the call that brought it, or -1 if that was before the timeline. Since is the
// column from which it was held; it is later than From if other things happened while the call ran. To is the column that ended it, or one
// after the last.
type band struct {
	Label     string
	From      int
	Since     int
	To        int
	Operation string
	CallID    string
}

// tie leads from the call that brought a label (column -1: before the timeline) to a call that was refused or asked about because of it.
type tie struct {
	From, To  int
	Label     string
	Operation string // what brought it
	Fate      fate
}

// span is a stretch of one phase.
type span struct {
	Phase    session.Phase
	From, To int // columns; To is where the next begins, or one after the last
}

// timeline is the model of the picture of a session, and of the list below it.
type timeline struct {
	Moments []moment
	Bands   []band
	Ties    []tie
	Phases  []span
	Width   int  // columns
	Earlier bool // there is more before it
}

// history is the input of a timeline.
type history struct {
	Session session.Session
	Entries []audit.Entry // of the session, oldest first
	Whole   bool          // they begin with the session's first
	Newest  bool          // they end with the session's last
	// Operation describes an operation as the catalogue has it today; false if it is gone.
	Operation func(id string) (effect flow.Effect, emits, blockedBy []flow.Label, ok bool)
	// Questions are the session's, by id, in their present state. Of one that is not there only the entries are known.
	Questions map[string]approval.Approval
}

// timelineBuilder makes a timeline out of entries.
type timelineBuilder struct {
	history
	t         timeline
	byCall    map[string]int // place in t.Moments, by call id and by request id
	byAsk     map[string]int // by approval id
	held      map[string]int // label -> place in t.Bands
	phase     session.Phase
	phaseFrom int
}

// newTimeline is a pure function. Entries that fit nowhere become moments of their own.
func newTimeline(in history) timeline {
	r := timelineBuilder{history: in, byCall: map[string]int{}, byAsk: map[string]int{}, held: map[string]int{}}
	r.begin()
	for _, e := range in.Entries {
		r.entry(e)
	}
	return r.end()
}

// begin finds the labels and the phase that the session had before the first entry.
func (r *timelineBuilder) begin() {
	if r.Whole {
		return
	}
	firstCall, raised := "", map[string]bool{}
	before := func(label, operation, callID string) {
		if _, ok := r.held[label]; !ok && !raised[label] {
			r.held[label] = len(r.t.Bands)
			r.t.Bands = append(r.t.Bands, band{Label: label, From: -1, Since: -1, Operation: operation, CallID: callID})
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
				r.phase = other(to)
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

func other(p session.Phase) session.Phase {
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

// record is an entry about a moment as the list shows it.
type record struct {
	Index             int64
	At                time.Time
	Words, By         string
	Took              int64 // milliseconds
	Arguments, Result *audit.Payload
}

// recordOf leaves out who asked: it would tell a question that tests people.
func recordOf(e audit.Entry) record {
	r := record{Index: e.Index, At: e.At, Words: audit.Plain(e), By: e.Actor, Took: e.DurationMS, Arguments: e.Arguments, Result: e.Result}
	if asks(e) {
		r.By = ""
	}
	return r
}

// add makes a moment in the next column.
func (r *timelineBuilder) add(e audit.Entry, l lane) *moment {
	r.t.Moments = append(r.t.Moments, moment{
		Column: len(r.t.Moments), First: e.Index, Last: e.Index, At: e.At, Lane: l, Operation: e.Operation, CallID: e.CallID, request: e.RequestID,
		Fate: fateDone, Records: []record{recordOf(e)},
	})
	return &r.t.Moments[len(r.t.Moments)-1]
}

func (r *timelineBuilder) entry(e audit.Entry) {
	switch {
	case isCall(e):
		r.call(e)
	case e.Action == "session.taint":
		r.raise(r.moment(e), e.Labels)
	case e.Action == "declare", e.Action == "plan.submit":
		m := r.add(e, lanePlans)
		m.Operation, m.Reason, m.Stage, m.Code, m.Risk, m.Fate = e.Action, e.Reason, e.Stage, e.Code, e.Risk, fateOf(e)
		if e.Action == "declare" {
			m.Operation = "declare " + e.Operation
		}
		m.Approval = detail(e, "approval_id")
		if m.Approval != "" && m.Fate == fateAsked {
			r.byAsk[m.Approval] = m.Column
		}
		if e.Action == "plan.submit" && e.Decision == "permit" {
			r.enterPhase(m, session.Execution)
		}
	default:
		r.addAct(e)
	}
}

// addAct adds an act of a person, or of the gateway itself.
func (r *timelineBuilder) addAct(e audit.Entry) {
	if e.Action == "session.phase" && detail(e, "plan_id") != "" {
		return // the plan that brought it is in the picture
	}
	m := r.add(e, lanePeople)
	m.Operation, m.Who, m.Reason, m.Code, m.Stage = e.Action, e.Actor, e.Reason, e.Code, e.Stage
	if e.Decision == "deny" {
		m.Fate = fateRefused
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
		r.enterPhase(m, session.Execution)
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

// answerWords tells how and by whom a question was answered.
func answerWords(answer, by string) string {
	word, ok := map[string]string{
		"approve": "approved", "reject": "rejected", "defer": "postponed", "supersede": "replaced", "withdraw": "withdrawn", "modify": "changed",
	}[answer]
	if !ok {
		word = answer
	}
	return word + " by " + by
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
func fateOf(e audit.Entry) fate {
	switch e.Decision {
	case "permit", "ok":
		return fatePermitted
	case "ask":
		return fateAsked
	case "deny":
		return fateRefused
	}
	return fateUnknown
}

// moment finds the moment of the entry's call, by the id of the call or of its request, or adds one.
func (r *timelineBuilder) moment(e audit.Entry) *moment {
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

func (r *timelineBuilder) laneOf(operation string) lane {
	if r.Operation != nil {
		if effect, emits, blockedBy, ok := r.Operation(operation); ok {
			switch {
			case effect != flow.Read:
				return laneWrites
			case len(blockedBy) > 0:
				return laneSinks
			case len(emits) > 0:
				return laneSources
			}
		}
	}
	return laneOthers
}

func (r *timelineBuilder) call(e audit.Entry) {
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
		m.Fate = fateUnderWay
		if detail(e, "permitted_by") == "silence" {
			m.Answers = append(m.Answers, "permitted by silence")
		}
		for _, who := range e.Approvers {
			if a := answerWords("approve", "person:"+who); !slices.Contains(m.Answers, a) {
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
			m.Fate = fatePermitted
		case "error":
			m.Fate = fateFailed
		case "discarded":
			m.Fate = fateDiscarded
		default:
			m.Fate = fateUnknown
		}
	default:
		m.Fate = fateOf(e)
		if asks(e) && m.Approval != "" {
			r.byAsk[m.Approval] = m.Column
		}
		if m.Fate == fateRefused || m.Fate == fateAsked {
			r.tieToLabels(m, e)
		}
	}
}

// raise begins the bands of labels that are not held yet.
func (r *timelineBuilder) raise(m *moment, labels []string) {
	for _, l := range labels {
		if _, ok := r.held[l]; ok {
			continue
		}
		r.held[l] = len(r.t.Bands)
		r.t.Bands = append(r.t.Bands, band{
			Label: l, From: m.Column, Since: max(m.Column, len(r.t.Moments)-1), To: -1, Operation: m.Operation, CallID: m.CallID,
		})
		m.Brings = append(m.Brings, l)
	}
}

// tieToLabels ties the call to those that brought the labels because of which it was refused or asked about.
func (r *timelineBuilder) tieToLabels(m *moment, e audit.Entry) {
	for _, l := range r.labelsToBlame(e) {
		b := r.t.Bands[r.held[l]]
		t := tie{From: b.From, To: m.Column, Label: l, Operation: b.Operation, Fate: fateOf(e)}
		if m.Shadow {
			t.Fate = fatePermitted
		}
		if !slices.ContainsFunc(m.Because, func(old tie) bool { return old.Label == l && old.From == t.From }) {
			m.Because = append(m.Because, t)
		}
	}
}

// labelsToBlame returns those of the labels held then that were the reason. An entry has the reason of the verdict as text. So these are the labels
// that the text names, those in the question to the person, and at the flow stage those that block the operation.
func (r *timelineBuilder) labelsToBlame(e audit.Entry) []string {
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
func (r *timelineBuilder) enterPhase(m *moment, p session.Phase) {
	m.Phase = p
	if p == r.phase {
		return
	}
	if r.phase == "" {
		r.phase = other(p) // the session came from the other one
	}
	if m.Column > r.phaseFrom {
		r.t.Phases = append(r.t.Phases, span{Phase: r.phase, From: r.phaseFrom, To: m.Column})
	}
	r.phase, r.phaseFrom = p, m.Column
}

// end closes bands and phases that are open, and keeps the newest columns.
func (r *timelineBuilder) end() timeline {
	t := &r.t
	t.Width = len(t.Moments)
	if r.phase == "" {
		r.phase = r.Session.Phase
	}
	if t.Width > r.phaseFrom {
		t.Phases = append(t.Phases, span{Phase: r.phase, From: r.phaseFrom, To: t.Width})
	}
	if r.Newest { // every label that the session holds is shown, even if no entry raised it
		for _, h := range r.Session.Labels {
			if _, ok := r.held[string(h.Label)]; !ok {
				r.held[string(h.Label)] = len(t.Bands)
				t.Bands = append(t.Bands, band{Label: string(h.Label), From: -1, Since: -1, Operation: h.Operation, CallID: h.CallID})
			}
		}
	}
	for _, i := range r.held {
		t.Bands[i].To = t.Width
	}
	for i := range t.Moments {
		m := &t.Moments[i]
		if m.Fate == fateAsked && m.Approval != "" {
			open := !m.settled
			if q, ok := r.Questions[m.Approval]; ok {
				open = q.State == approval.Pending || q.State == approval.Deferred
			}
			if open {
				m.Fate = fateWaiting
			}
		}
		for j := range m.Because {
			if m.Because[j].Fate == fateAsked {
				m.Because[j].Fate = m.Fate
			}
		}
	}
	t.Earlier = !r.Whole
	t.cut(t.Width - maxMoments)
	for _, m := range t.Moments {
		t.Ties = append(t.Ties, m.Because...)
	}
	return *t
}

// cut drops the first n columns. Bands and ties that began in them then began before the timeline.
func (t *timeline) cut(n int) {
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
func (m moment) Verdict() string {
	word, ok := map[fate]string{
		fatePermitted: "permitted", fateFailed: "permitted, failed", fateUnderWay: "under way", fateWaiting: "waits for a person", fateAsked: "asked, did not run",
		fateRefused: "refused", fateDiscarded: "result thrown away", fateUnknown: "outcome unknown", fateDone: "",
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
func (m moment) Title() string {
	if m.Lane != lanePeople {
		return m.Operation
	}
	word, ok := map[string]string{
		"session.open": "Session opened", "session.definitions": "Definitions listed", "session.close": "Session closed", "session.release": "Labels released", "plan.approve": "Plan approved",
		"plan.reject": "Plan rejected", "session.remove_files": "Files removed", "token.create": "Token made", "stored.label": "Labels kept with a record",
	}[m.Operation]
	if ok {
		return word
	}
	if m.Operation == "session.phase" {
		return fmt.Sprintf("Phase: %s", m.Phase)
	}
	if answer, ok := strings.CutPrefix(m.Operation, "approval."); ok {
		verb := answerWords(answer, "")
		return "Request " + strings.TrimSuffix(verb, " by ")
	}
	return m.Operation
}

// Number is its place in the list, from 1, as on the axis of the picture.
func (m moment) Number() int { return m.Column + 1 }

// Word names its lane in the list.
func (m moment) Word() string {
	return map[lane]string{laneSources: "source", laneSinks: "sink", laneWrites: "write", laneOthers: "", lanePlans: "", lanePeople: ""}[m.Lane]
}

// Key names the moment as it is now: it changes with what is known about it.
func (m moment) Key() string {
	return fmt.Sprintf("%d-%d-%s", m.First, len(m.Records), m.Fate)
}

// Unfolded tells whether the list shows the moment's particulars from the beginning: where something did not simply run.
func (m moment) Unfolded() bool {
	return m.Fate != fatePermitted && m.Fate != fateDone || m.Shadow
}

// FromNumber is the place in the list of the call that brought the label.
func (t tie) FromNumber() int { return t.From + 1 }
