package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"sallyport.example/client"
	"sallyport.example/internal/diff"
	"sallyport.example/internal/display"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/review"
	"sallyport.example/internal/threat"
)

const (
	shownArguments = 64 << 10 // bytes of pretty arguments; of larger ones the rest is named, and nobody can say yes to it at a prompt
	shownSteps     = 50       // of a plan
	shownDoubts    = 10       // about words that look like others
	shownFindings  = 100      // about where values came from
	shownValue     = 120      // bytes of a value there; the arguments have it whole
	longLine       = 1000     // characters of a line of JSON from which on they are counted
	nameWidth      = 18       // of the column of names
	pipeWidth      = 100      // where the output is no terminal
	leastWidth     = 40
)

// drill explains a request that tested whether people read.
const drill = "no agent asked for this: it was to be rejected"

// sheet is text in rows that a terminal shows as they are: no row is wider than the terminal, none holds a control character, and none begins with
// text from outside, however an agent's text breaks.
type sheet struct {
	width int
	now   time.Time // as of a table
	rows  []string
	noted bool // the row about letters from right to left is there
}

// columns is the width of c.out.
func (c *cli) columns() int {
	if f, ok := c.out.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return max(int(size.Col), leastWidth)
		}
	}
	return pipeWidth
}

func (s *sheet) when(at time.Time) string { return when(at, s.now) }

// field adds a name of ours and a value, which may be hostile, in as many rows as it takes. An empty value has none.
func (s *sheet) field(name, value string) {
	if value == "" {
		return
	}
	for i, piece := range display.Wrap(display.Counted(value), s.width-nameWidth, true) {
		if i > 0 {
			name = ""
		}
		s.rows = append(s.rows, fmt.Sprintf("%-*s%s", nameWidth, name, piece))
	}
	s.escaped(value)
}

// escaped adds, once, the reason why letters of some scripts stand as escapes.
func (s *sheet) escaped(text string) {
	if !s.noted && strings.ContainsFunc(text, display.RightToLeft) {
		s.rows = append(s.rows, "    (right-to-left letters are escaped)")
		s.noted = true
	}
}

// lines adds text that may be hostile, each row behind the mark.
func (s *sheet) lines(mark string, lines ...string) {
	mark = "  " + mark + " "
	for _, line := range lines {
		body := strings.TrimLeft(line, " ") // the spaces before it are json.Indent's
		line = line[:len(line)-len(body)] + display.Counted(body)
		for _, piece := range display.Wrap(line, s.width-len(mark), false) {
			s.rows = append(s.rows, mark+piece)
		}
		if n := utf8.RuneCountInString(body); n >= longLine {
			s.rows = append(s.rows, fmt.Sprintf("    (%d characters in this line)", n))
		}
		s.escaped(body)
	}
}

// pretty is JSON with a line for each member and element.
func pretty(raw json.RawMessage) []string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return []string{string(raw)}
	}
	return strings.Split(b.String(), "\n")
}

// question shows an approval with everything that is approved by its digest and what helps to decide. whole is false where it does not show
// all of the arguments, which it says.
func question(a *client.Approval, width int, now time.Time) (rows []string, whole bool) {
	s := &sheet{width: max(width, leastWidth), now: now}
	s.field("approval", a.ApprovalID+", "+stateWords(a.State))
	if a.Drill {
		s.field("a drill", drill)
	}
	s.review(a.Review)
	s.field("risk", a.Risk+", "+votes(a)+" approved")
	if a.Role != "" {
		s.field("who answers", "only people with the role "+a.Role)
	}
	if slices.ContainsFunc(a.Reasons, unexplained) {
		s.field("NO REASON GIVEN", "the agent did not say why")
	}
	for _, r := range a.Reasons {
		if rule(r) {
			s.field("  by the rule", r.Code+": "+r.Text)
		}
	}
	s.field("amount", a.Amount)
	s.field("could go wrong", a.Consequence)
	s.field("operation", a.Operation)
	s.tool(a)
	s.field("agent", a.AgentID)
	s.field("destination", strings.Join(a.Destinations, ", "))
	s.doubts(a)

	whole = s.arguments(a)
	s.inputs(a.Inputs)
	s.origins(a)
	if a.ModifiedFrom != "" {
		s.field("changed", "by "+a.ModifiedBy+reasonText(a.ModifiedReason)+" (it takes the place of "+a.ModifiedFrom+")")
		s.difference(pretty(a.Before), pretty(a.Arguments))
	}
	s.surroundings(a)
	s.field("declaration", a.DeclarationID)
	for _, v := range a.Votes {
		s.field("answer", s.when(v.At)+" "+v.Person+ownMark(v.Own)+": "+v.Decision+reasonText(v.Comment))
	}
	s.field("reason", a.Reason)
	s.field("replaced by", a.ReplacedBy)
	s.field("postponed until", s.when(a.DeferredUntil))
	s.field("used by", a.SpentBy)
	s.field("asked", s.when(a.CreatedAt))
	if a.State == "pending" && !a.SilenceAt.IsZero() {
		s.field("runs unasked at", s.when(a.SilenceAt)+", unless a person rejects or postpones it")
	}
	s.field("expires", s.when(a.ExpiresAt))
	s.digest(a.Digest)
	return s.rows, whole
}

// review adds what decides: the sentence, what speaks against it, and where each value came from.
func (s *sheet) review(r *client.Review) {
	if r == nil {
		return
	}
	does := []string{r.Does}
	if len(r.To) > 0 {
		does = append(does, review.ToWord(r.Does), strings.Join(r.To, ", "))
	}
	s.field("it does", strings.Join(slices.DeleteFunc(does, func(part string) bool { return part == "" }), " "))
	for _, o := range r.Objections {
		if o.Code != "unexplained" { // said below
			s.field("LOOK", o.Title+": "+o.Text)
		}
	}
	for _, v := range r.Values {
		if v.Core {
			s.field("  "+v.Verdict, v.Argument+" "+shortly(v.Text)+": "+v.Says)
		}
	}
	for _, c := range r.Covers {
		s.field("and", c)
	}
}

// unconfirmed are the values that a person has to say they checked, each in a few words.
func unconfirmed(a *client.Approval) (all []string) {
	if a.Review == nil {
		return nil
	}
	for _, v := range a.Review.Values {
		if v.Core && v.Verdict == "unconfirmed" {
			all = append(all, v.Argument+" "+shortly(v.Text))
		}
	}
	return all
}

// arguments shows as much of the arguments as may be, and tells whether that is all.
func (s *sheet) arguments(a *client.Approval) (whole bool) {
	lines, rest := pretty(a.Arguments), 0
	for i, left := 0, shownArguments; i < len(lines); i++ {
		if left -= len(lines[i]) + 1; left < 0 {
			for _, line := range lines[i:] {
				rest += len(line)
			}
			lines = lines[:i]
		}
	}
	if whole = rest == 0; whole {
		s.field("arguments", fmt.Sprintf("%d bytes, all of them here", len(a.Arguments)))
	} else {
		s.field("arguments", fmt.Sprintf("%d bytes: too many to be shown here", len(a.Arguments)))
	}
	s.lines("|", lines...)
	if !whole {
		s.field("NOT SHOWN", fmt.Sprintf("%d bytes more: sallyport approvals show %s --output json has them all", rest, a.ApprovalID))
	}
	return whole
}

// inputs adds what the call reads of the workspace.
func (s *sheet) inputs(in *client.Inputs) {
	if in == nil {
		return
	}
	for _, f := range in.Files {
		s.field("file", fmt.Sprintf("%s, %d bytes, SHA-256 %s", f.Path, f.Size, f.SHA256))
	}
	if w := in.Workspace; w != nil {
		s.field("workspace", fmt.Sprintf("all of it: %d files, folders and links, %d bytes, SHA-256 %s", w.Entries, w.Size, w.SHA256))
	}
}

// surroundings adds the agent's reasons, and what the gateway knows of the session, its plan and earlier decisions.
func (s *sheet) surroundings(a *client.Approval) {
	s.reasons(a.Justification)
	for _, r := range a.Reasons {
		if !rule(r) && !unexplained(r) {
			s.field("asked by", r.Stage+": "+r.Text)
		}
	}
	s.field("on record", a.UserRequest)
	s.field("added to by", strings.Join(a.WordsBy, ", "))
	s.field("requester", a.Requester)
	s.field("session", a.SessionID+", opened by "+identity.Shown(a.OpenedBy)+", in "+cmp.Or(a.SessionPhase, "no known phase"))
	s.field("it has read", cmp.Or(show(a.Labels), "nothing confidential or untrusted"))
	if !slices.Equal(a.Labels, a.SessionLabels) {
		s.field("and by now", cmp.Or(show(a.SessionLabels), "nothing confidential or untrusted"))
	}
	for _, h := range a.Held {
		from := "was there from the start"
		if h.Cause != "" {
			from = "because of " + h.Cause
		} else if h.Operation != "" {
			from = "came from " + h.Operation + ", " + h.CallID
		}
		s.field("  label", h.Label+" "+from)
	}
	s.plan(a)
	for _, e := range a.Earlier {
		by := ""
		if len(e.By) > 0 {
			by = " by " + show(e.By)
		}
		s.field("earlier", s.when(e.At)+" "+stateWords(e.State)+by+ownMark(e.Own)+": "+e.Operation+" of "+e.AgentID+" to "+e.Destination+reasonText(e.Reason))
	}
}

// doubts adds look-alikes in the destinations and the arguments: a terminal shows the letters of several scripts alike. Destinations come
// first and count by themselves, so that no look-alike elsewhere pushes one out.
func (s *sheet) doubts(a *client.Approval) {
	for _, d := range a.Destinations { // the gateway lists few
		if why := threat.NameLookalike(d); why != "" {
			s.field("  LOOK TWICE", "destination "+display.Terminal(d, shownValue)+": "+why)
		}
	}
	found, more := threat.LookalikesIn(a.Arguments, shownDoubts)
	for _, d := range found {
		s.field("  LOOK TWICE", shortly(d.Text)+": "+d.Why)
	}
	if more {
		s.field("  LOOK TWICE", fmt.Sprintf("and more than these %d words in the arguments can pass for others", shownDoubts))
	}
}

// digest is in one piece if there is room, to be copied.
func (s *sheet) digest(digest string) {
	if digest := display.Counted(digest); len(digest) > s.width-nameWidth && len("digest ")+len(digest) <= s.width {
		s.rows = append(s.rows, "digest "+digest)
		return
	}
	s.field("digest", digest)
}

// rule tells whether a reason is one of the rules that gave the risk.
func rule(r client.ApprovalReason) bool {
	return r.Stage == "risk" && strings.HasPrefix(r.Code, "risk.")
}

// unexplained tells whether a reason says that the agent gave none.
func unexplained(r client.ApprovalReason) bool { return r.Code == "justification.missing" }

// tool says what the tool does, in whose words.
func (s *sheet) tool(a *client.Approval) {
	says := map[string]string{"server": "its server says", "operator": "operator says", "gateway": "built in"}
	switch {
	case a.Tool != nil:
		s.field("  "+cmp.Or(says[a.Tool.By], "it is said"), a.Tool.Text)
	case a.Risk == "HIGH" || a.Risk == "CRITICAL":
		s.field("  what it does", "not known: its definition doesn't say it, or is another one by now")
	}
}

// reasons adds the agent's reasons, under names for people in place of the field names.
func (s *sheet) reasons(raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	s.field("the agent says", "its own words; nobody has checked them")
	var parts map[string]string
	if json.Unmarshal(raw, &parts) != nil {
		s.lines("|", pretty(raw)...)
		return
	}
	for _, part := range [][2]string{{"user_request", "it was asked"}, {"missing_knowledge", "it lacks"}, {"expected_use", "it wants it for"}, {"plan_step", "in its plan"}} {
		s.field("  "+part[1], parts[part[0]])
		delete(parts, part[0])
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		s.lines("|", strconv.Quote(name)+": "+strconv.Quote(parts[name]))
	}
}

// origins says where the values of the arguments came from: first the unconfirmed ones.
func (s *sheet) origins(a *client.Approval) {
	if len(a.Evidence) == 0 {
		return
	}
	s.rows = append(s.rows, "where it came from")
	all := slices.Clone(a.Evidence)
	slices.SortStableFunc(all, func(a, b client.Finding) int {
		switch {
		case a.Confirmed == b.Confirmed:
			return 0
		case b.Confirmed:
			return -1
		}
		return 1
	})
	for i, f := range all {
		if i == shownFindings {
			s.field("  NOT SHOWN", fmt.Sprintf("%d more: sallyport approvals show %s --output json has them all", len(all)-i, a.ApprovalID))
			break
		}
		name, by := "  NOT CONFIRMED", ""
		if f.Confirmed {
			name, by = "  confirmed", ", by "+cmp.Or(confirmedBy[f.By], display.Terminal(f.By, shownValue), "an unnamed source")
		}
		s.field(name, fmt.Sprintf("%s (%s) = %s%s", shortly(f.Argument), cmp.Or(display.Terminal(f.Role, shownValue), "no role"), shortly(f.Value), by))
		s.escaped(f.Argument + f.Role + f.Value)
		s.field("    why", f.Text)
		if f.Operation != "" {
			from := f.Operation
			if f.Record > 0 {
				from = fmt.Sprintf("record %d of %s", f.Record, from)
			}
			if f.Field != "" {
				from += ", field " + shortly(f.Field)
			}
			s.field("    source", strings.TrimSuffix(from+", "+f.CallID, ", "))
		}
		if f.Covers {
			s.field("    a yes covers", "other values that the system set in this record too, for this argument")
		}
	}
}

// shortly is text in quotes that it can't end itself, shortened.
func shortly(s string) string { return display.Terminal(strconv.Quote(s), shownValue) }

// confirmedBy names the sources, by Finding.By.
var confirmedBy = map[string]string{
	"words": "the request", "plan": "the approved plan", "own": "the person's own identity", "approval": "an earlier approval", "trusted": "trusted output",
	"system": "what the system set", "delegated": "a record that the request names", "payee": "the request, which says who gets it",
}

// plan marks the steps that are calls of the operation.
func (s *sheet) plan(a *client.Approval) {
	if a.Plan == nil {
		return
	}
	s.field("plan", fmt.Sprintf("%s, %s, %d steps; > marks those with %s", a.Plan.PlanID, planWords(a.Plan.State), len(a.Plan.Steps), a.Operation))
	for i, step := range a.Plan.Steps {
		if i == shownSteps {
			s.field("", fmt.Sprintf("and %d steps more: sallyport sessions show %s", len(a.Plan.Steps)-i, a.SessionID))
			break
		}
		mark, arguments := " ", ""
		if step.Operation == a.Operation {
			mark, arguments = ">", " "+string(step.Arguments)
			for _, line := range sources(step) {
				arguments += "; " + line
			}
		}
		s.field(fmt.Sprintf("  %s step %d", mark, i), step.Tool+arguments+reasonText(step.Justification))
	}
}

// steps shows all of a plan that is answered by its digest. whole is false where it is larger than what is shown, which it says.
func (s *sheet) steps(p *client.Plan) (whole bool) {
	left := shownArguments
	for i, step := range p.Steps {
		lines := []string{}
		if len(step.Arguments) > 0 {
			lines = pretty(step.Arguments)
		}
		left -= len(step.Tool) + len(step.Operation) + len(step.Justification)
		rest := sources(step)
		for _, line := range slices.Concat(lines, rest) {
			left -= len(line) + 1
		}
		if left < 0 {
			s.field("NOT SHOWN", fmt.Sprintf("%d of %d steps: with them the plan is too large to be shown here", len(p.Steps)-i, len(p.Steps)))
			return false
		}
		s.field(fmt.Sprintf("step %d", i), step.Tool+", the operation "+cmp.Or(step.Operation, "that nobody knows"))
		s.field("  after step", strings.Trim(fmt.Sprint(step.After), "[]"))
		s.field("  it says", step.Justification)
		switch {
		case len(lines) > 0:
			s.field("  arguments", fmt.Sprintf("%d bytes, all of them here", len(step.Arguments)))
			s.lines("|", lines...)
		case len(rest) == 0:
			s.field("  arguments", "not fixed: each call is checked when it is made")
		default:
			s.field("  arguments", "none but these")
		}
		for _, line := range rest {
			s.field("", line)
		}
	}
	return true
}

// sources says which arguments of a step come from results or are left open, and how often it is called, a line each.
func sources(step client.PlanStep) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(step.From)) {
		from := step.From[name]
		where := "the field " + strconv.Quote(from.Field)
		if from.Field == "" {
			where = "what may serve as " + from.Role
		}
		lines = append(lines, fmt.Sprintf("%s from step %d: %s of one record", strconv.Quote(name), from.Step, where))
	}
	for _, name := range step.Open {
		lines = append(lines, strconv.Quote(name)+" open: the agent chooses it")
	}
	if step.Each != nil {
		lines = append(lines, fmt.Sprintf("called once for each record of step %d", *step.Each))
	}
	return lines
}

// difference shows the lines that are on one side only: - before, + now.
func (s *sheet) difference(before, after []string) {
	diff.Lines(before, after, func(a, b string) bool { return a == b }, func(kind diff.Kind, line string) {
		switch kind {
		case diff.Before:
			s.lines("- |", line)
		case diff.After:
			s.lines("+ |", line)
		}
	})
}

// ownMark stands behind the name of a person who answered their own request.
func ownMark(own bool) string {
	if own {
		return " (own request)"
	}
	return ""
}
