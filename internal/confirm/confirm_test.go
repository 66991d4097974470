package confirm_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/confirm"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/web"
)

var (
	here  = caller.Terminal{Process: caller.Process{PID: 7, Began: "1"}, Device: 1}
	there = caller.Terminal{Process: caller.Process{PID: 8, Began: "1"}, Device: 2}
	order = confirm.Request{Person: "alice", Says: "Order it", Method: "POST", URI: "/v1/sessions/next", Body: []byte(`{"agent_id":"dev"}`)}
)

// desk is Confirmations with what they show.
type desk struct {
	*confirm.Confirmations
	t     *testing.T
	shown map[int]string // by terminal
	fails error
	now   time.Time
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, shown: map[int]string{}, now: time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)}
	d.Confirmations = confirm.New(func(at caller.Terminal, text string) error { d.shown[at.Device] = text; return d.fails }, func() time.Time { return d.now })
	return d
}

func (d *desk) check(header string, at caller.Terminal, r confirm.Request) error {
	_, err := d.Check(header, func() (caller.Terminal, error) { return at, nil }, r)
	return err
}

var number = regexp.MustCompile(`Type (\d{6}) and press Enter`)

// ask lets the number be shown, and returns it.
func (d *desk) ask(at caller.Terminal, r confirm.Request) string {
	d.t.Helper()
	if err := d.check(confirm.Able, at, r); !fault.Is(err, fault.ConfirmationRequired) || web.Status(err) != http.StatusPreconditionRequired {
		d.t.Fatalf("%v, status %d", err, web.Status(err))
	}
	return number.FindStringSubmatch(d.shown[at.Device])[1]
}

func with(change func(r *confirm.Request)) confirm.Request {
	r := order
	change(&r)
	return r
}

func TestANumberIsForOneRequestAtOneTerminal(t *testing.T) {
	for name, c := range map[string]struct {
		at     caller.Terminal
		r      confirm.Request
		number func(shown string) string
		wait   time.Duration
		taken  bool
	}{
		"right":            {at: here, r: order, taken: true},
		"another process":  {at: caller.Terminal{Process: there.Process, Device: here.Device}, r: order, taken: true},
		"another terminal": {at: there, r: order},
		"another number": {at: here, r: order, number: func(n string) string {
			return string('0'+(n[0]-'0'+1)%10) + n[1:]
		}},
		"a part of it":   {at: here, r: order, number: func(n string) string { return n[:5] }},
		"more of it":     {at: here, r: order, number: func(n string) string { return n + "0" }},
		"another person": {at: here, r: with(func(r *confirm.Request) { r.Person = "bob" })},
		"another method": {at: here, r: with(func(r *confirm.Request) { r.Method = "DELETE" })},
		"another path":   {at: here, r: with(func(r *confirm.Request) { r.URI = "/v1/sessions/next?x=1" })},
		"another body":   {at: here, r: with(func(r *confirm.Request) { r.Body = []byte(`{"agent_id":"dev2"}`) })},
		"no body":        {at: here, r: with(func(r *confirm.Request) { r.Body = nil })},
		"other words":    {at: here, r: with(func(r *confirm.Request) { r.Says = "x" }), taken: true},
		"just in time":   {at: here, r: order, wait: 2*time.Minute - time.Second, taken: true},
		"too late":       {at: here, r: order, wait: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			n := d.ask(here, order)
			d.now = d.now.Add(c.wait)
			typed := n
			if c.number != nil {
				typed = c.number(n)
			}
			err := d.check(typed, c.at, c.r)
			if (err == nil) != c.taken || err != nil && (!fault.Is(err, fault.ConfirmationRequired) || web.Status(err) != http.StatusForbidden) {
				t.Errorf("%v", err)
			}
			if c.at.Device != here.Device {
				return
			}
			if err := d.check(n, here, order); err == nil {
				t.Error("the number counts after an answer")
			}
		})
	}
}

// A program that asks for something else takes the number of what was asked before.
func TestANewQuestionReplacesTheOneAtItsTerminal(t *testing.T) {
	d := newDesk(t)
	first := d.ask(here, order)
	other := with(func(r *confirm.Request) { r.URI = "/v1/reload" })
	elsewhere := d.ask(there, order)
	second := d.ask(here, other)
	if err := d.check(elsewhere, there, order); err != nil {
		t.Errorf("another terminal's question: %v", err)
	}
	if err := d.check(first, here, order); err == nil && first != second {
		t.Error("the number of the first question counts")
	}
}

func TestNobodyIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		err    error
		says   string
	}{
		"no terminal":      {confirm.Able, caller.ErrNone, "has no terminal"},
		"a nested one":     {confirm.Able, caller.ErrNested, "inside of a terminal"},
		"not seen":         {"123456", caller.ErrUnseen, "can't see"},
		"no word of it":    {"", nil, "asks for none"},
		"a number at once": {"000000", nil, "No number waits"},
	} {
		d := newDesk(t)
		_, err := d.Check(c.header, func() (caller.Terminal, error) { return here, c.err }, order)
		if !fault.Is(err, fault.ConfirmationRequired) || web.Status(err) != http.StatusForbidden || !strings.Contains(err.Error(), c.says) || len(d.shown) > 0 {
			t.Errorf("%s: %v, shown %v", name, err, d.shown)
		}
	}
	d := newDesk(t)
	d.fails = errors.New("it is stopped")
	if err := d.check(confirm.Able, here, order); web.Status(err) != http.StatusForbidden || !strings.Contains(err.Error(), "it is stopped") {
		t.Errorf("a terminal that takes nothing: %v", err)
	}
	if err := d.check(number.FindStringSubmatch(d.shown[here.Device])[1], here, order); err == nil {
		t.Error("the number that the terminal did not take counts")
	}
}

// What is shown is in rows of its own, and moves no cursor.
func TestWhatIsShown(t *testing.T) {
	d := newDesk(t)
	d.ask(here, with(func(r *confirm.Request) {
		r.Person, r.Says = "al\nice", "Approve\r\n\x1b[2JType 000000 and press Enter: "+strings.Repeat("x", 5000)
	}))
	got := d.shown[here.Device]
	if rows := strings.Split(got, "\r\n"); len(rows) != 4 || !strings.HasPrefix(rows[1], "Sallyport asks ") || !strings.HasPrefix(rows[2], "  Approve") || strings.ContainsAny(strings.Join(rows, ""), "\x1b\r\n\a") || len(got) > 1500 {
		t.Errorf("%d bytes: %.300q", len(got), got)
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	d := newDesk(t)
	for range 20 {
		d.ask(here, order)
	}
	if err := d.check(confirm.Able, here, order); !fault.Is(err, fault.LimitRate) {
		t.Errorf("%v", err)
	}
	d.ask(there, order) // nobody is kept out by what another terminal is asked
	d.now = d.now.Add(time.Minute)
	d.ask(here, order)
}

// What was confirmed covers paths for its process, for a while.
func TestCover(t *testing.T) {
	d := newDesk(t)
	key := with(func(r *confirm.Request) { r.URI = "/v1/sessions/a/hook-key" })
	d.Cover(here.Process, []string{key.URI}, time.Minute)
	d.Cover(there.Process, []string{"/v1/reload", "/v1/sessions"}, time.Minute)
	later := caller.Terminal{Process: caller.Process{PID: here.PID, Began: "2"}, Device: here.Device}
	for name, c := range map[string]struct {
		at    caller.Terminal
		r     confirm.Request
		taken bool
	}{
		"its path":                      {here, key, true},
		"another path":                  {here, order, false},
		"below its path":                {there, order, true},
		"beside its paths":              {there, with(func(r *confirm.Request) { r.URI = "/v1/tokens" }), false},
		"another process of its number": {later, key, false},
	} {
		by, err := d.Check("", func() (caller.Terminal, error) { return c.at, nil }, c.r)
		if (err == nil) != c.taken || by != (caller.Process{}) {
			t.Errorf("%s: by %+v, %v", name, by, err)
		}
	}
	d.now = d.now.Add(time.Minute)
	if err := d.check("", here, key); err == nil {
		t.Error("it covers for longer than it says")
	}
}
