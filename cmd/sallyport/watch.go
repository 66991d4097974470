package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sallyport.example/client"
)

func (c *cli) watch() *cobra.Command {
	return c.asPerson(about{
		use: "watch", short: "Show requests as they come, and answer them with a key",
		long: `The newest request that waits is shown whole, with everything that its digest covers. Keys: space for the next page, a approve (it asks once
more), r reject with a reason, d put off, s skip to the next, q quit. a works when you have seen all of the arguments, and approves exactly
what was shown; where the request changed meanwhile, it says so and shows it again. When the gateway goes away it tries again by itself.

Where input or output is no terminal, and with --output json or yaml, it only prints what comes: a line, or document, for each request that
waits and for each that was answered.`,
		example: "sallyport approvals watch\nsallyport approvals watch --output json | jq -r 'select(.risk == \"CRITICAL\") | .approval_id'", prints: true,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		in, out := c.keyboard()
		if in == nil {
			return c.watchLines(ctx, cl)
		}
		return c.watchKeys(ctx, cl, in, out)
	})
}

// keyboard returns the terminal that somebody sits at, or nothing if nobody does.
func (c *cli) keyboard() (in, out *os.File) {
	in, readable := c.in.(*os.File)
	out, writable := c.out.(*os.File)
	if !readable || !writable || c.output != "table" || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil, nil
	}
	return in, out
}

// pageOfWatch is how many requests are asked for at once: each has the agent's words with it.
const pageOfWatch = 20

// mostListed is how many waiting requests are printed at the start; of more it is said that there are.
const mostListed = 2000

// watchLines prints what comes, and answers nothing.
func (c *cli) watchLines(ctx context.Context, cl *client.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	f, ended := newFeed(), make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx, cl, func() (*client.Client, error) { return c.reach(adminSide) }, pause)
	}()
	defer func() { cancel(); <-ended }()
	open := map[string]string{} // what was printed of those that wait
	print := func(a *client.Approval) error {
		state := a.State + " " + votes(a)
		if open[a.ApprovalID] == state {
			return nil
		}
		if a.ArgumentsSize > 0 && c.output != "table" { // a list leaves large arguments out, a document has them
			whole, err := cl.Approval(ctx, a.ApprovalID)
			if err != nil {
				return err
			}
			a = whole
		}
		if open[a.ApprovalID] = state; a.State != "pending" && a.State != "deferred" && a.State != "approved" {
			delete(open, a.ApprovalID)
		}
		return c.printOne(a)
	}
	look := func(id string) error {
		a, err := cl.Approval(ctx, id)
		if err != nil {
			return err
		}
		return print(a)
	}
	for {
		select {
		case <-ctx.Done():
			return nil // asked to end: that is how it is meant to end
		case <-f.bell:
		}
		n := f.take()
		switch {
		case n.over != nil:
			return n.over
		case n.lost != nil:
			fmt.Fprintf(c.err, "sallyport: %s\n", printable(lost(n)))
		case n.fresh != nil:
			cl = n.fresh
			fmt.Fprintln(c.err, "sallyport: the gateway is there again")
		}
		var err error
		if n.all {
			var waiting []client.Approval
			var more bool
			if waiting, more, err = pendingOnes(ctx, cl, func(all []client.Approval) bool { return len(all) >= mostListed }); err == nil {
				if more {
					fmt.Fprintf(c.err, "sallyport: over %d wait; these are the newest\n", len(waiting))
				}
				slices.Reverse(waiting)
				for _, a := range waiting {
					if err = print(&a); err != nil {
						break
					}
				}
				for id := range open { // what was open and does not wait any more
					if !slices.Contains(n.ids, id) {
						n.ids = append(n.ids, id)
					}
				}
				n.ids = slices.DeleteFunc(n.ids, func(id string) bool {
					return slices.ContainsFunc(waiting, func(a client.Approval) bool { return a.ApprovalID == id })
				})
			}
		}
		for _, id := range n.ids {
			if err == nil {
				err = look(id)
			}
		}
		var p *client.Problem
		var silent *client.Unreachable
		switch {
		case err == nil, ctx.Err() != nil:
		case errors.As(err, &silent), errors.As(err, &p) && p.Status >= 500: // the feed notices, and begins with everything when it is back
			fmt.Fprintf(c.err, "sallyport: %s\n", printable(err.Error()))
		default:
			return err
		}
	}
}

func lost(n news) string { return fmt.Sprintf("%v; trying again in %v", n.lost, n.wait) }

// pendingOnes are the requests that wait, newest first, until it is enough. more says that there are others.
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
		all = append(all, page.Approvals...)
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
		var cells []string
		for _, cell := range []any{a.CreatedAt, a.ApprovalID, a.State, a.Risk, a.Operation, a.AgentID, votes(a), a.Amount, briefly(a)} {
			if s := visible(show(cell), cellWidth); s != "" {
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
	_, err := c.out.Write(escapeHidden(b.Bytes(), false))
	return err
}

// watchKeys is the same for somebody at a terminal. The terminal is as it was on every way out.
func (c *cli) watchKeys(ctx context.Context, cl *client.Client, in, out *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	restore := sync.OnceFunc(func() {
		_, _ = io.WriteString(out, "\r\x1b[K")
		_ = term.Restore(int(in.Fd()), before)
	})
	defer restore()
	guarded := func(work func()) { // a panic elsewhere ends the program without the functions deferred here
		defer func() {
			if p := recover(); p != nil {
				restore()
				panic(p)
			}
		}()
		work()
	}
	typed := make(chan []rune)
	go guarded(func() { read(ctx, in, typed, cancel) }) // ends with the program: a read of a terminal can't be broken off
	f, ended := newFeed(), make(chan struct{})
	go guarded(func() {
		defer close(ended)
		f.run(ctx, cl, func() (*client.Client, error) { return c.reach(adminSide) }, pause)
	})
	defer func() { cancel(); <-ended }()
	w := &watcher{cl: cl, out: out, keys: typed, feed: f, now: time.Now, settle: settleTime, skipped: map[string]bool{}, size: func() (int, int) {
		w, h, err := term.GetSize(int(out.Fd()))
		if err != nil || w <= 0 || h <= 0 {
			return 80, 24
		}
		return w, h
	}}
	err = w.run(ctx)
	if ctx.Err() != nil {
		return nil // asked to end
	}
	return err
}

const (
	interrupt = 0x03 // Ctrl-C
	endOfText = 0x04 // Ctrl-D
	escape    = 0x1b
	backspace = 0x7f
)

// read sends what is typed, as it comes together; what keys like the arrows send is left out. Ctrl-C ends everything at once.
func read(ctx context.Context, in io.Reader, keys chan<- []rune, end func()) {
	buf, held := make([]byte, 1024), 0
	for {
		n, err := in.Read(buf[held:])
		if err != nil {
			end()
			return
		}
		b := buf[:held+n]
		if bytes.IndexByte(b, interrupt) >= 0 {
			end()
			return
		}
		var typed []rune
		for len(b) > 0 && utf8.FullRune(b) {
			if n := sequence(b); n > 0 {
				b = b[n:]
				continue
			}
			r, size := utf8.DecodeRune(b)
			typed, b = append(typed, r), b[size:]
		}
		held = copy(buf, b)
		if len(typed) == 0 {
			continue
		}
		select {
		case keys <- typed:
		case <-ctx.Done():
			return
		}
	}
}

// sequence is the length of what a key like an arrow sends, if b begins with that; a lone escape is a key of its own.
func sequence(b []byte) int {
	if b[0] != escape || len(b) == 1 {
		return 0
	}
	n := 2
	if b[1] == '[' || b[1] == 'O' {
		for n < len(b) && b[n] < '@' { // parameters
			n++
		}
		n++
	}
	return min(n, len(b))
}

// state is what a key means.
type state int

const (
	idle       state = iota // nothing waits
	settling                // something was just shown: what is typed was meant for something else
	paging                  // it is not all on the screen yet
	ready                   // it is
	confirming              // a yes to what is shown
	reasoning               // why not
	deferring               // until when
)

const (
	// settleTime is for how long keys count for nothing after a request came up.
	settleTime = 400 * time.Millisecond
	// lookAgain is when to look without being told: requests expire, and come back when they were put off, without anybody's doing.
	lookAgain = 30 * time.Second
	// longestReason bounds what is typed; the gateway takes no more.
	longestReason = 2000
)

// watcher is the terminal's side. All of it belongs to the goroutine of run. What it writes besides rows made printable is \r\n and \r\x1b[K.
type watcher struct {
	cl     *client.Client
	out    io.Writer
	keys   <-chan []rune
	feed   *feed
	size   func() (width, height int)
	now    func() time.Time
	settle time.Duration

	waiting []client.Approval // newest first
	more    bool              // and others
	skipped map[string]bool   // digests that this person is done with, for now

	mode   state
	shown  *client.Approval // nil: nothing
	rows   []string         // of it
	at     int              // how many of them were on the screen
	whole  bool             // they are all that there is
	typed  []rune
	timer  <-chan time.Time // ends settling
	wake   <-chan time.Time
	prompt string // what stands on the last line
	failed error
}

// run shows and answers until the person has enough (nil), the context ends, or there is no use in going on.
func (w *watcher) run(ctx context.Context) error {
	w.status("Asking the gateway … q quit ")
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case typed := <-w.keys:
			if w.key(ctx, typed) {
				return nil
			}
		case <-w.timer:
			w.timer = nil
			w.back()
			w.status("")
		case <-w.wake:
			w.look(ctx)
		case <-w.feed.bell:
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

// say writes a line above the prompt.
func (w *watcher) say(format string, args ...any) {
	width, _ := w.size()
	w.write("\r\x1b[K")
	for _, row := range wrapped(plain(fmt.Sprintf(format, args...)), max(width-1, leastWidth), true) {
		w.write(row + "\r\n")
	}
	w.write(w.prompt)
}

// status writes the prompt anew; "" is the one of the mode.
func (w *watcher) status(text string) {
	if text == "" {
		text = w.ask()
	}
	width, _ := w.size()
	if pieces := wrapped(text, max(width-1, leastWidth), false); len(pieces) > 1 {
		text = pieces[0]
	}
	w.prompt = text
	w.write("\r\x1b[K" + text)
}

// ask is the prompt of the mode.
func (w *watcher) ask() string {
	others := ""
	if n := len(w.unseen()); n > 0 {
		others = fmt.Sprintf("%d more wait", n)
		if n == 1 {
			others = "1 more waits"
		}
		if w.more {
			others = "over " + others
		}
		others += " - "
	}
	switch w.mode {
	case settling:
		return ""
	case paging:
		return fmt.Sprintf("%sspace: %d more rows  r reject  d defer  s skip  q quit ", others, len(w.rows)-w.at)
	case ready:
		approve := "a approve  "
		if !w.whole {
			approve = ""
		}
		return others + approve + "r reject  d defer  s skip  q quit "
	case confirming:
		width, _ := w.size()
		name, most := plain(w.shown.Operation), max(width, leastWidth)-len("Approve , risk CRITICAL, digest 01234567? [y/N]  ")
		if pieces := wrapped(name, max(most, 5), false); len(pieces) > 1 { // what is asked stays in sight
			name = pieces[0] + "…"
		}
		return fmt.Sprintf("Approve %s, risk %s, digest %.8s? [y/N] ", name, plain(w.shown.Risk), plain(w.shown.Digest))
	case reasoning:
		width, _ := w.size()
		text := []rune(plain(string(w.typed)))
		const before = "Why not? (Esc: back) "
		if most := max(width, leastWidth) - len(before) - 2; len(text)*2 > most { // its end is what is being typed
			text = text[max(0, len(text)-most/2):]
		}
		return before + string(text)
	case deferring:
		text := ""
		for _, o := range w.delays() {
			text += string(o.key) + " " + o.name + "  "
		}
		return "Ask again: " + text + "(other keys: back) "
	}
	if n := len(w.skipped); n > 0 && len(w.waiting) > 0 {
		return "Nothing else waits. s: those that you skipped  q quit "
	}
	return "Nothing waits for an answer. q quit "
}

// unseen are those that wait besides what is shown.
func (w *watcher) unseen() (others []client.Approval) {
	for _, a := range w.waiting {
		if !w.skipped[a.Digest] && (w.shown == nil || a.ApprovalID != w.shown.ApprovalID) {
			others = append(others, a)
		}
	}
	return others
}

// look asks what waits and whether what is shown is still what is asked. What is being read stays on the screen as long as it waits.
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
	if w.shown != nil && !w.current(ctx) {
		w.shown = nil
	}
	if w.shown == nil {
		w.next(ctx)
	} else if w.mode != reasoning {
		w.status("")
	}
	if w.shown != nil {
		for _, at := range []time.Time{w.shown.ExpiresAt, w.shown.SilenceAt} {
			if d := at.Sub(w.now()); d > 0 {
				again = min(again, d+200*time.Millisecond)
			}
		}
	}
}

// current tells whether what is shown still waits as it was shown. If not, it says what happened.
func (w *watcher) current(ctx context.Context) bool {
	now, err := w.cl.Approval(ctx, w.shown.ApprovalID)
	if err != nil {
		w.problem(ctx, "whether this still waits is not known", err)
		return true // an answer would be refused if it doesn't
	}
	switch {
	case now.State != "pending":
		w.prompt = ""
		w.say("%s: it is %s now%s", now.ApprovalID, now.State, whatHappened(now))
		return false
	case now.Digest != w.shown.Digest || votes(now) != votes(w.shown) || !slices.Equal(now.SessionLabels, w.shown.SessionLabels):
		w.prompt = ""
		w.say("%s changed meanwhile; this is what it is now", now.ApprovalID)
		w.show(now)
	}
	return true
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
	w.shown, w.mode, w.timer = nil, idle, nil
	for _, a := range w.unseen() {
		whole, err := w.cl.Approval(ctx, a.ApprovalID)
		if err != nil {
			w.problem(ctx, a.ApprovalID+" can't be shown", err)
			continue
		}
		if whole.State != "pending" {
			continue
		}
		w.show(whole)
		return
	}
	w.status("")
}

// show puts a request on the screen, as much of it as fits.
func (w *watcher) show(a *client.Approval) {
	width, _ := w.size()
	w.shown, w.at, w.typed = a, 0, nil
	w.rows, w.whole = question(a, width-1, w.now())
	w.write("\r\x1b[K\r\n")
	w.page()
	if !w.whole {
		w.say("It is too large to be read here, so that it can't be approved here: sallyport approvals approve --yes --digest does, once you have read it.")
	}
	w.mode, w.timer = settling, time.After(w.settle)
	w.status("")
}

// page writes as many rows as fit on the screen.
func (w *watcher) page() {
	_, height := w.size()
	to := min(len(w.rows), w.at+max(height-2, 5))
	w.write("\r\x1b[K")
	for _, row := range w.rows[w.at:to] {
		w.write(row + "\r\n")
	}
	w.at = to
}

// problem says what went wrong. The client's errors tell the way out.
func (w *watcher) problem(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		w.say("%s: %v", what, err)
	}
}

// key does what was typed. It returns true if the person has enough. Only a reason is longer than a key: of what comes with another key in one
// piece, as type-ahead and what is pasted do, the rest counts for nothing.
func (w *watcher) key(ctx context.Context, typed []rune) (enough bool) {
	if w.mode == reasoning {
		w.reason(ctx, typed)
		return false
	}
	k := unicode.ToLower(typed[0])
	switch w.mode {
	case confirming:
		w.mode = ready
		if k != 'y' || len(typed) > 1 {
			w.say("not approved: nothing was sent")
			w.status("")
			return false
		}
		w.answer(ctx, "approved", func(id, digest string) (*client.Approval, error) { return w.cl.Approve(ctx, id, digest, "") })
		return false
	case deferring:
		w.back()
		for _, o := range w.delays() {
			if o.key == k && len(typed) == 1 {
				w.answer(ctx, "put off", func(id, digest string) (*client.Approval, error) {
					var until time.Time
					if o.after > 0 {
						until = w.now().Add(o.after)
					}
					return w.cl.Defer(ctx, id, digest, until)
				})
				return false
			}
		}
		w.status("")
		return false
	}
	switch {
	case k == 'q' || k == endOfText:
		return true
	case w.mode == settling:
	case k == 's':
		if w.shown != nil {
			w.skipped[w.shown.Digest] = true
			w.prompt = ""
			w.say("%s: skipped; it still waits", w.shown.ApprovalID)
		} else {
			clear(w.skipped)
		}
		w.shown = nil
		w.look(ctx)
	case w.shown == nil:
	case k == ' ' && w.mode == paging:
		w.page()
		w.back()
		w.status("")
	case k == 'a' && w.mode == paging:
		w.say("See all of it first: space shows the next page.")
	case k == 'a' && !w.whole:
		w.say("Not all of it is shown, so that it can't be approved here.")
	case k == 'a':
		w.mode = confirming
		w.status("")
	case k == 'r':
		w.mode, w.typed = reasoning, nil
		w.status("")
	case k == 'd':
		w.mode = deferring
		w.status("")
	}
	return false
}

type delay struct {
	key   rune
	name  string
	after time.Duration // 0: until somebody takes it up
}

// delays are the times that what is shown can be put off for: it expires all the same.
func (w *watcher) delays() (all []delay) {
	for _, d := range []delay{{'1', "in 10m", 10 * time.Minute}, {'2', "in 1h", time.Hour}, {'3', "when somebody takes it up", 0}} {
		if w.now().Add(d.after).Before(w.shown.ExpiresAt) {
			all = append(all, d)
		}
	}
	return all
}

// reason takes what is typed as the reason of a no.
func (w *watcher) reason(ctx context.Context, typed []rune) {
	for _, r := range typed {
		switch {
		case r == '\r' || r == '\n':
			reason := strings.TrimSpace(string(w.typed))
			w.back()
			if reason == "" {
				w.say("not rejected: a no needs a reason")
				w.status("")
				return
			}
			w.answer(ctx, "rejected", func(id, digest string) (*client.Approval, error) { return w.cl.Reject(ctx, id, digest, reason) })
			return
		case r == escape || r == endOfText:
			w.back()
			w.say("not rejected: nothing was sent")
			w.status("")
			return
		case r == backspace || r == '\b':
			w.typed = w.typed[:max(0, len(w.typed)-1)]
		case unicode.IsPrint(r) && len(string(w.typed))+utf8.RuneLen(r) <= longestReason:
			w.typed = append(w.typed, r)
		}
	}
	w.status("")
}

// back leaves a question of ours for the request: ready once all of it was on the screen.
func (w *watcher) back() {
	w.mode = ready
	if w.at < len(w.rows) {
		w.mode = paging
	}
}

// answer sends an answer to exactly what was shown. If it is not taken it says why, and shows what is asked now.
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
	if w.prompt = ""; a.State == "pending" {
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
