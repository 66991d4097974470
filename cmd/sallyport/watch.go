package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/display"
	"sallyport.example/internal/sentence"
)

func (c *cli) watch() *cobra.Command {
	return c.asPerson(about{
		use: "watch", short: "Show requests as they come, and answer them line by line",
		long: `The newest request that waits is shown whole, with everything that its digest covers. Type an answer and press Enter:
  approve [COMMENT]   asks once more, then approves exactly what was shown
  reject [REASON]     asks for the reason if there is none
  defer [TIME]        until a time such as 10m, or until somebody takes it up
  modify [ARGUMENTS]  asks about other arguments, a JSON object or @FILE, for another person to approve
  skip                shows the next one; this one goes on waiting
  show                prints it again
  quit                leaves; so do Ctrl-C and the end of the input
The first letter is enough, but for show. What changes meanwhile is said. Where the request is another by then, it is shown again, and no line that was begun
before is an answer to it. When the gateway goes away it tries again by itself.

With --output json or yaml, or with /dev/null as its input, it asks nothing: it prints a document, or a line, for each request that waits and
for each that was answered.`,
		example: "sallyport approvals watch\nsallyport approvals watch --output json | jq -r 'select(.risk == \"CRITICAL\") | .approval_id'", prints: true,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		ctx, cancel := signal.NotifyContext(ctx, syscall.SIGHUP)
		lines := make(chan string)
		reach := func() (*client.Client, error) {
			cl, err := c.reach(adminSide)
			if err == nil && terminal(c.in) { // all lines of which are read here
				cl = cl.Confirming(func(ctx context.Context) (string, error) { return numberFrom(ctx, lines) })
			}
			return cl, err
		}
		if c.output == "table" {
			var err error
			if cl, err = reach(); err != nil {
				return err
			}
		}
		f, ended := newFeed(), make(chan struct{})
		go func() {
			defer close(ended)
			f.run(ctx, cl, reach, pause)
		}()
		defer func() { cancel(); <-ended }()
		var err error
		if c.output != "table" || c.in == nil || isNull(c.in) {
			err = (&printer{cli: c, cl: cl, open: map[string]string{}}).run(ctx, f)
		} else {
			go readLines(ctx, c.in, lines) // ends with the program: reading can't be broken off
			err = (&watcher{cl: cl, out: c.out, echoes: terminal(c.in), lines: lines, feed: f, columns: c.columns, now: time.Now, settle: settleTime, queue: queue{skipped: map[string]bool{}, plans: map[string]bool{}}}).run(ctx)
		}
		if ctx.Err() != nil {
			return nil // a signal is the ordinary end
		}
		return err
	})
}

// pageOfWatch bounds the requests that are read at once, because each has the agent's text with it.
const pageOfWatch = 20

// mostListed bounds the waiting requests that are printed at the start; a line says if there are more.
const mostListed = 2000

// printer prints requests as they come, and answers none.
type printer struct {
	*cli
	cl   *client.Client
	open map[string]string // what was printed of those that wait
}

func (p *printer) run(ctx context.Context, f *feed) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.bell:
		}
		n := f.take()
		switch {
		case n.over != nil:
			return n.over
		case n.lost != nil:
			fmt.Fprintf(p.err, "sallyport: %s\n", printable(lost(n)))
		case n.fresh != nil:
			p.cl = n.fresh
			fmt.Fprintln(p.err, "sallyport: the gateway is there again")
		}
		err := p.showChanges(ctx, n)
		var refused *client.Problem
		var silent *client.Unreachable
		switch {
		case err == nil, ctx.Err() != nil:
		case errors.As(err, &silent), errors.As(err, &refused) && refused.Status >= 500: // the feed notices, and begins with everything when it is back
			fmt.Fprintf(p.err, "sallyport: %s\n", printable(err.Error()))
		default:
			return err
		}
	}
}

// showChanges prints the changes.
func (p *printer) showChanges(ctx context.Context, n changes) error {
	if n.all {
		waiting, more, err := pendingOnes(ctx, p.cl, func(all []client.Approval) bool { return len(all) >= mostListed })
		if err != nil {
			return err
		}
		if more {
			fmt.Fprintf(p.err, "sallyport: over %d wait; these are the newest\n", len(waiting))
		}
		for _, a := range slices.Backward(waiting) {
			if err := p.approval(ctx, &a); err != nil {
				return err
			}
		}
		for id := range p.open { // what was open and does not wait any more
			if !slices.Contains(n.ids, id) {
				n.ids = append(n.ids, id)
			}
		}
		n.ids = slices.DeleteFunc(n.ids, func(id string) bool {
			return slices.ContainsFunc(waiting, func(a client.Approval) bool { return a.ApprovalID == id })
		})
	}
	for _, id := range n.ids {
		a, err := p.cl.Approval(ctx, id)
		if err == nil {
			err = p.approval(ctx, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// approval prints a request, unless it was printed in this state.
func (p *printer) approval(ctx context.Context, a *client.Approval) error {
	state := a.State + " " + votes(a)
	if p.open[a.ApprovalID] == state {
		return nil
	}
	if a.ArgumentsSize > 0 && p.output != "table" { // a list leaves large arguments out, a document has them
		whole, err := p.cl.Approval(ctx, a.ApprovalID)
		if err != nil {
			return err
		}
		a = whole
	}
	if p.open[a.ApprovalID] = state; a.State != "pending" && a.State != "deferred" && a.State != "approved" {
		delete(p.open, a.ApprovalID)
	}
	return p.printOne(a)
}

func lost(n changes) string { return fmt.Sprintf("%v; trying again in %v", n.lost, n.wait) }

// pendingOnes returns the requests that wait, newest first, up to a bound. more says that there are others.
func pendingOnes(ctx context.Context, cl *client.Client, enough func([]client.Approval) bool) (all []client.Approval, more bool, err error) {
	q := client.ApprovalQuery{State: "pending", Limit: pageOfWatch}
	for {
		page, err := cl.Approvals(ctx, q)
		if errors.Is(err, client.ErrTooLarge) && q.Limit > 1 { // an agent must not hide what waits behind what is large
			q.Limit = 1
			continue
		}
		if err != nil {
			return nil, false, err
		}
		for _, a := range page.Approvals {
			if a.Problem == "" { // nobody can answer one that is damaged; the list names it
				all = append(all, a)
			}
		}
		if q.After = page.Next; q.After == "" || enough(all) {
			return all, q.After != "", nil
		}
	}
}

// printOne prints a request on one line, or as one document.
func (c *cli) printOne(a *client.Approval) error {
	var b bytes.Buffer
	switch c.output {
	case "table":
		t := &table{now: reading(c.out)}
		var cells []string
		for _, cell := range []any{a.CreatedAt, a.ApprovalID, stateWords(a.State), a.Risk, a.Operation, a.AgentID, votes(a), a.Amount, briefly(a)} {
			if s := display.Terminal(t.show(cell), cellWidth); s != "" {
				cells = append(cells, s)
			} else {
				cells = append(cells, "-")
			}
		}
		b.WriteString(strings.Join(cells, "  ") + "\n")
	case "json":
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(a); err != nil {
			return err
		}
	case "yaml":
		if _, err := io.WriteString(c.out, "---\n"); err != nil {
			return err
		}
		return c.print(a, nil)
	}
	_, err := c.out.Write(display.EscapeData(b.Bytes(), false))
	return err
}

// readLines sends each line that is whole: what the end of the input cuts off is none.
func readLines(ctx context.Context, in io.Reader, lines chan<- string) {
	defer close(lines)
	for r := bufio.NewReader(in); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		select {
		case lines <- strings.TrimRight(line, "\r\n"):
		case <-ctx.Done():
			return
		}
	}
}

const (
	// settleTime is for how long a line counts for nothing after a question came up: it was typed for something else.
	settleTime = 400 * time.Millisecond
	// lookAgain is the time between two reads without an event: requests expire, and deferrals end, without one.
	lookAgain = 30 * time.Second
	// silenceWarning is the time before silence permits a call at which a line says so.
	silenceWarning = 5 * time.Second
)

// watcher asks about what waits, one request after another, and takes answers line by line. All of it belongs to the goroutine of run. What it
// writes is rows that are printable, and line ends.
type watcher struct {
	cl      *client.Client
	out     io.Writer
	echoes  bool // what is typed stands in the output too, with its line end
	lines   <-chan string
	feed    *feed
	columns func() int
	now     func() time.Time
	settle  time.Duration
	wake    <-chan time.Time // read again without an event
	asked   bool             // the prompt stands on the last line
	failed  error            // to write
	queue
	dialog
}

// queue holds the requests that wait.
type queue struct {
	waiting []client.Approval // newest first
	more    bool              // and others
	skipped map[string]bool   // digests that this person is done with, for now
	plans   map[string]bool   // digests of plans that were said to wait
}

// dialog holds the question that the person is asked.
type dialog struct {
	shown  *client.Approval                       // nil: nothing
	whole  bool                                   // all of its arguments were shown
	warned bool                                   // that silence is about to permit it
	noted  bool                                   // that others wait
	stale  bool                                   // the line that is being typed may have been begun for something else
	prompt string                                 // "": to be asked anew
	early  <-chan time.Time                       // until it fires, a line was typed before the prompt
	then   func(ctx context.Context, line string) // takes the next line; nil: it is an answer to what is shown
}

// run shows requests and takes answers until the person ends it (nil), the context ends, or the gateway can't be reached any more.
func (w *watcher) run(ctx context.Context) error {
	defer w.newLine()
	w.prompt, w.asked = "Asking the gateway …", true
	w.write(w.prompt)
	var lines <-chan string // read once something is known of the gateway, so that a failure to reach it is shown even if the input ended
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, more := <-lines:
			if !more || w.line(ctx, line) {
				return nil
			}
		case <-w.early:
			w.early = nil
		case <-w.wake:
			w.look(ctx)
		case <-w.feed.bell:
			lines = w.lines
			switch n := w.feed.take(); {
			case n.over != nil:
				return n.over
			case n.lost != nil:
				w.say("%s", lost(n))
			default:
				if n.fresh != nil {
					w.cl = n.fresh
					w.say("the gateway is there again")
				}
				w.look(ctx)
			}
		}
		if w.prompt == "" {
			w.ask(w.question(), nil)
		}
		if w.early == nil && !w.asked {
			w.write(w.prompt)
			w.asked = true
		}
		if w.failed != nil {
			return w.failed
		}
	}
}

func (w *watcher) write(s string) {
	if _, err := io.WriteString(w.out, s); err != nil && w.failed == nil {
		w.failed = err
	}
}

// newLine ends the line of the prompt. The prompt is written again after the lines that follow.
func (w *watcher) newLine() {
	if w.asked {
		w.write("\n")
	}
	w.asked = false
}

// say writes a line. What does not fit on it goes on behind an indent, so that no row begins with text from outside.
func (w *watcher) say(format string, args ...any) {
	w.newLine()
	for i, row := range display.Wrap(display.Counted(fmt.Sprintf(format, args...)), w.columns()-len("    "), true) {
		if i > 0 {
			row = "    " + row
		}
		w.write(row + "\n")
	}
}

// ask puts a question, whose answer the function takes. Lines that are there before the question are no answers.
func (w *watcher) ask(prompt string, then func(ctx context.Context, line string)) {
	w.prompt, w.then, w.early = prompt, then, time.After(w.settle)
}

// question is the prompt for what is shown.
func (w *watcher) question() string {
	others := ""
	if n := len(w.unseen()); n > 0 {
		others = w.count() + ". "
	}
	switch {
	case w.shown != nil && w.stale:
		return others + "Something else stood here before: press Enter, then answer: "
	case w.shown != nil && w.whole:
		return others + "Answer (approve, reject, defer, modify, skip, quit): "
	case w.shown != nil:
		return others + "Answer (reject, defer, modify, skip, quit): "
	case len(w.skipped) > 0 && len(w.waiting) > 0:
		return "Nothing else waits (skip: show those that you skipped; quit): "
	}
	return "Nothing waits for an answer (quit): "
}

// unseen returns the requests that wait besides the one that is shown.
func (w *watcher) unseen() (others []client.Approval) {
	for _, a := range w.waiting {
		if !w.skipped[a.Digest] && (w.shown == nil || a.ApprovalID != w.shown.ApprovalID) {
			others = append(others, a)
		}
	}
	return others
}

// count says how many others wait.
func (w *watcher) count() string {
	n, over := len(w.unseen()), ""
	if w.more {
		over = "over "
	}
	if n == 1 {
		return over + "1 more waits"
	}
	return fmt.Sprintf("%s%d more wait", over, n)
}

// look reads the requests that wait, and whether the one that is shown is unchanged. It stays on the screen as long as it waits.
func (w *watcher) look(ctx context.Context) {
	again := lookAgain
	defer func() { w.wake = time.After(again) }()
	waiting, more, err := pendingOnes(ctx, w.cl, func(all []client.Approval) bool {
		return slices.ContainsFunc(all, func(a client.Approval) bool { return !w.skipped[a.Digest] })
	})
	if err != nil {
		w.problem(ctx, "what waits is not known", err)
		return
	}
	w.waiting, w.more = waiting, more
	maps.DeleteFunc(w.skipped, func(digest string, _ bool) bool {
		return !more && !slices.ContainsFunc(waiting, func(a client.Approval) bool { return a.Digest == digest })
	})
	w.sayPlans(ctx)
	if w.shown != nil {
		w.current(ctx)
	}
	if w.shown == nil {
		w.next(ctx)
	}
	if w.shown == nil {
		if w.prompt != w.question() {
			w.newLine()
			w.prompt = ""
		}
		return
	}
	if len(w.unseen()) > 0 && !w.noted && w.prompt != "" {
		w.say("%s", w.count())
	}
	if w.noted = len(w.unseen()) > 0; w.then == nil && w.prompt != "" {
		w.prompt = w.question()
	}
	left := w.shown.SilenceAt.Sub(w.now())
	if left > 0 && left <= silenceWarning && !w.warned {
		w.warned = true
		w.say("%s will run automatically in %v, unless a person rejects or postpones it", w.shown.ApprovalID, left.Round(time.Second))
	}
	for _, d := range []time.Duration{w.shown.ExpiresAt.Sub(w.now()), left, left - silenceWarning} {
		if d > 0 {
			again = min(again, d+200*time.Millisecond)
		}
	}
}

// sayPlans says which plans wait, each once. They are answered by another command, because an operator has to read all their steps. Requests can
// be answered all the same where it can't be told.
func (w *watcher) sayPlans(ctx context.Context) {
	plans, err := waitingPlans(ctx, w.cl)
	if err != nil {
		return
	}
	for _, s := range plans {
		if w.plans[s.Plan.Digest] {
			continue
		}
		w.plans[s.Plan.Digest] = true
		w.say("A plan of %s waits for an operator (%s): sallyport sessions show %s", s.AgentID, sentence.Count(len(s.Plan.Steps), "step"), s.SessionID)
	}
}

// current checks whether the request that is shown still waits unchanged. If not, it says what happened, and shows the request as it is now. A line
// that is being typed does not answer that one.
func (w *watcher) current(ctx context.Context) {
	now, err := w.cl.Approval(ctx, w.shown.ApprovalID)
	switch {
	case err != nil:
		w.problem(ctx, "whether this still waits is not known", err) // an answer would be refused if it doesn't
	case now.State != "pending":
		w.say("%s: it is %s now%s", now.ApprovalID, stateWords(now.State), whatHappened(now))
		w.dialog = dialog{stale: true}
	case now.Digest != w.shown.Digest || votes(now) != votes(w.shown) || !slices.Equal(now.SessionLabels, w.shown.SessionLabels):
		w.say("%s changed meanwhile; this is what it is now", now.ApprovalID)
		w.stale = true
		w.show(now)
	}
}

func whatHappened(a *client.Approval) string {
	s := ""
	for _, v := range a.Votes {
		if v.Decision == "approve" && a.State == "approved" || v.Decision == "reject" && a.State == "rejected" || v.Decision == "defer" && a.State == "deferred" {
			s += ", by " + v.Person
		}
	}
	if s == "" && a.State == "approved" && !a.SilenceAt.IsZero() {
		s = ", since nobody said no in time"
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	if a.ReplacedBy != "" {
		s += "; " + a.ReplacedBy + " took its place"
	}
	return s
}

// next shows the newest that was not skipped.
func (w *watcher) next(ctx context.Context) {
	for _, a := range w.unseen() {
		whole, err := w.cl.Approval(ctx, a.ApprovalID)
		switch {
		case err != nil:
			w.problem(ctx, a.ApprovalID+" can't be shown", err)
		case whole.State == "pending":
			w.show(whole)
			return
		}
	}
}

// show writes a request with everything that a person has to know before answering it.
func (w *watcher) show(a *client.Approval) {
	w.dialog = dialog{shown: a, stale: w.stale, noted: true}
	rows, whole := question(a, w.columns(), w.now())
	w.whole = whole
	w.newLine()
	w.write("\n" + strings.Join(rows, "\n") + "\n")
	if !whole {
		w.say("It is too large to be read here, so that it can't be approved here: sallyport approvals approve --yes --digest does, once you have read it.")
	}
}

// problem says what went wrong. The client's errors tell the way out.
func (w *watcher) problem(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		w.say("%s: %v", what, err)
	}
}

// line runs the command that was typed. It returns true if the person wants to end.
func (w *watcher) line(ctx context.Context, line string) (enough bool) {
	line = strings.TrimSpace(line)
	if w.echoes {
		w.asked = false
	}
	w.newLine()
	if word := strings.ToLower(line); w.then == nil && (word == "q" || word == "quit") {
		return true
	}
	switch {
	case w.early != nil:
		if line != "" {
			w.say("That line was there before the question, so it is no answer: nothing was sent.")
		}
	case w.stale:
		w.stale, w.prompt = false, ""
		if line != "" {
			w.say("That line may have been meant for what stood here before, so it is no answer: nothing was sent.")
		}
	case !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
		w.prompt, w.then = "", nil
		w.say("That line holds characters that can't be seen, as keys like arrows send them: nothing was sent.")
	case w.then != nil:
		then := w.then
		w.prompt, w.then = "", nil
		then(ctx, line)
	default:
		w.prompt = ""
		word, rest, _ := strings.Cut(line, " ")
		w.command(ctx, strings.ToLower(word), strings.TrimSpace(rest))
	}
	return false
}

// command runs a command about the request that is shown.
func (w *watcher) command(ctx context.Context, word, rest string) {
	switch {
	case word == "":
	case word == "skip" || word == "s":
		if w.shown != nil {
			w.skipped[w.shown.Digest] = true
			w.say("%s: skipped; it still waits", w.shown.ApprovalID)
		} else {
			clear(w.skipped)
		}
		w.shown = nil
		w.look(ctx)
	case w.shown == nil:
		w.say("Nothing waits that could be answered.")
	case (word == "approve" || word == "a") && !w.whole:
		w.say("Not all of it is shown, so that it can't be approved here.")
	case word == "approve" || word == "a":
		w.checked(unconfirmed(w.shown), func() {
			w.ask(w.confirm(), func(ctx context.Context, line string) {
				if !isYes(line) {
					w.say("not approved: nothing was sent")
					return
				}
				w.answer(ctx, "approved", func(id, digest string) (*client.Approval, error) { return w.cl.Approve(ctx, id, digest, rest) })
			})
		})
	case word == "reject" || word == "r":
		w.given(ctx, rest, "Reason for rejecting (sent to the agent): ", w.reject)
	case word == "defer" || word == "d":
		if rest == "" {
			w.ask("Until when (10m, 2h, a time; nothing: until somebody takes it up)? ", w.putOff)
			return
		}
		w.putOff(ctx, rest)
	case word == "modify" || word == "m":
		w.given(ctx, rest, "All of the new arguments, as a JSON object or @FILE: ", w.modify)
	case word == "show":
		w.show(w.shown)
	default:
		w.say("That is no answer. Answers are approve, reject, defer, modify, skip, show and quit, and a reason or the like may stand behind them.")
	}
}

func isYes(line string) bool {
	yes := strings.ToLower(line)
	return yes == "y" || yes == "yes"
}

// mostChecked bounds the values that are asked about one by one.
const mostChecked = 5

// checked asks of each value that nothing confirms whether it was checked, and goes on when all were.
func (w *watcher) checked(values []string, then func()) {
	if len(values) == 0 {
		then()
		return
	}
	first, rest := values[0], values[1:]
	if len(values) > mostChecked {
		first, rest = fmt.Sprintf("%s and %d more values", first, len(values)-1), nil
	}
	w.ask(display.Counted("Nothing confirms "+first+". Did you check it?")+" [y/N] ", func(_ context.Context, line string) {
		if !isYes(line) {
			w.say("not approved: nothing was sent")
			return
		}
		w.checked(rest, then)
	})
}

// given passes on the text behind a command, or asks for it.
func (w *watcher) given(ctx context.Context, rest, prompt string, then func(ctx context.Context, line string)) {
	if rest == "" {
		w.ask(prompt, then)
		return
	}
	then(ctx, rest)
}

// confirm asks for a yes to exactly the request that is shown. The question stays in sight, however long the name is.
func (w *watcher) confirm() string {
	short := *w.shown
	most := w.columns() - len("Approve , risk CRITICAL, digest 01234567? [y/N]  ")
	if pieces := display.Wrap(display.Counted(short.Operation), max(most, 5), false); len(pieces) > 1 {
		short.Operation = pieces[0] + "…"
	}
	return display.Counted(approving(&short)) + " [y/N] "
}

func (w *watcher) reject(ctx context.Context, reason string) {
	if reason == "" {
		w.say("not rejected: a no needs a reason")
		return
	}
	w.answer(ctx, "rejected", func(id, digest string) (*client.Approval, error) { return w.cl.Reject(ctx, id, digest, reason) })
}

func (w *watcher) putOff(ctx context.Context, until string) {
	at, err := untilTime(until, w.now())
	if err != nil {
		w.say("not postponed: %v", err)
		return
	}
	w.answer(ctx, "postponed", func(id, digest string) (*client.Approval, error) { return w.cl.Defer(ctx, id, digest, at) })
}

// modify asks about other arguments. The new request is shown, and waits for another person.
func (w *watcher) modify(_ context.Context, arguments string) {
	raw, err := argumentsOf(arguments)
	if err != nil {
		w.say("not changed: %v", err)
		return
	}
	w.ask("Reason for the change (sent to the agent): ", func(ctx context.Context, reason string) {
		if reason == "" {
			w.say("not changed: a change needs a reason")
			return
		}
		w.answer(ctx, "changed", func(id, digest string) (*client.Approval, error) {
			next, err := w.cl.Modify(ctx, id, digest, raw, reason)
			if err == nil {
				w.show(next)
			}
			return next, err
		})
	})
}

// answer sends an answer to exactly the request that was shown. If it is refused, it says why, and shows the request as it is now.
func (w *watcher) answer(ctx context.Context, done string, send func(id, digest string) (*client.Approval, error)) {
	a, err := send(w.shown.ApprovalID, w.shown.Digest)
	if err != nil {
		w.problem(ctx, "your answer was not taken", err)
		var p *client.Problem
		if errors.As(err, &p) && p.Code == "approval.mismatch" { // shown again, whatever else is new
			w.shown = &client.Approval{ApprovalID: w.shown.ApprovalID}
		}
		w.look(ctx)
		return
	}
	if a.State == "pending" {
		w.skipped[a.Digest] = true
		w.say("%s: %s by you, %s; it takes another person", a.ApprovalID, done, votes(a))
	} else {
		w.say("%s: %s", a.ApprovalID, done)
	}
	if a.Drill {
		w.say("It was a drill: %s.", drill)
	}
	w.shown = nil
	w.look(ctx)
}
