// Package quota holds how much an agent may use of a resource in an hour, a UTC day or a run, as pure functions.
//
// Promises: windows are fixed, so that the time at which one is free again is known; what calls under way may use at most is set aside before they begin and
// counts until what they used is known, so no number of calls at once goes over a limit; a use that is never settled (a crash) stays set aside until its
// window ends. A time that is earlier than the window that is counted opens no new one: a clock that is set back frees nothing.
package quota

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sallyport.example/internal/fault"
)

// Resource is what is used.
type Resource string

const (
	APICalls       Resource = "api_calls"       // calls that run
	ComputeSeconds Resource = "compute_seconds" // time in operations; counted in milliseconds
	Tokens         Resource = "tokens"          // of models
	Cost           Resource = "cost"            // of models; counted in millionths of the currency
)

// unit is how many of what is counted make one of what people are shown.
func (r Resource) unit() int64 {
	switch r {
	case ComputeSeconds:
		return 1000
	case Cost:
		return 1_000_000
	}
	return 1
}

// Show is an amount as people read it.
func (r Resource) Show(amount int64) string {
	if r.unit() == 1 {
		return strconv.FormatInt(amount, 10)
	}
	return strconv.FormatFloat(float64(amount)/float64(r.unit()), 'f', -1, 64)
}

// Window is the span in which use is counted.
type Window string

const (
	Hour Window = "hour"
	Day  Window = "day" // in UTC
	Run  Window = "run" // all of one run
)

func (w Window) span() time.Duration {
	if w == Day {
		return 24 * time.Hour
	}
	return time.Hour
}

// Start is when the window with a moment began. That of a run has no beginning that decides anything.
func (w Window) Start(at time.Time) time.Time {
	if w == Run {
		return time.Unix(0, 0).UTC()
	}
	return at.UTC().Truncate(w.span())
}

// Limit is how much may be used in each window, in what the resource is counted in.
type Limit struct {
	Resource Resource
	Window   Window
	Most     int64
	Session  string // of the run, where the window is one
}

// Key names what is counted of an agent, or of a run.
func (l Limit) Key(agent string) string {
	return cmp.Or(l.Session, agent) + " " + string(l.Resource) + " " + string(l.Window)
}

// LimitOf is the limit of a key, without how much it is.
func LimitOf(key string) (l Limit, ok bool) {
	parts := strings.Split(key, " ")
	if len(parts) != 3 {
		return l, false
	}
	return Limit{Resource: Resource(parts[1]), Window: Window(parts[2])}, true
}

// Use is what was used in the window that began at Start.
type Use struct {
	Start    time.Time
	Used     int64 // known
	Reserved int64 // what calls under way may use at most
}

// At is the use as a moment finds it: nothing, where a new window began.
func (u Use) At(l Limit, now time.Time) Use {
	if start := l.Window.Start(now); start.After(u.Start) {
		return Use{Start: start}
	}
	return u
}

// Frees is when the window ends.
func (u Use) Frees(l Limit) time.Time { return u.Start.Add(l.Window.span()) }

// Left is what may still be set aside.
func (u Use) Left(l Limit) int64 { return max(0, l.Most-u.Used-u.Reserved) }

// Take counts an amount, and sets another aside. It refuses what there is no room for: an *Exceeded. u is of the moment.
func (u Use) Take(l Limit, amount, reserve int64) (Use, error) {
	if amount < 0 || reserve < 0 {
		return u, fault.New(fault.Internal, "an amount below zero")
	}
	if left := u.Left(l); left == 0 || amount+reserve > left {
		return u, &Exceeded{Limit: l, Use: u, Asked: amount + reserve}
	}
	u.Used += amount
	u.Reserved += reserve
	return u, nil
}

// Settle ends what was set aside in the window that began at start: used is what it came to. What was set aside in a window that is over is over with it.
func (u Use) Settle(start time.Time, reserved, used int64) Use {
	if u.Start.Equal(start) {
		u.Reserved = max(0, u.Reserved-reserved)
		u.Used += max(0, used)
	}
	return u
}

// Crossed is which mark the use has passed, 100 or 80 percent of the limit; 0: none.
func Crossed(before, after Use, l Limit) int {
	if l.Window == Run { // whoever started it sees how it ends
		return 0
	}
	for _, mark := range []int64{100, 80} {
		if passed := func(u Use) bool { return u.Used*100 >= l.Most*mark }; l.Most > 0 && passed(after) && !(before.Start.Equal(after.Start) && passed(before)) {
			return int(mark)
		}
	}
	return 0
}

// Exceeded says that a quota has no room.
type Exceeded struct {
	Limit Limit
	Use   Use
	Asked int64 // what the call would use, or set aside
}

// Remedy is what to do about it.
func (e *Exceeded) Remedy() string {
	switch {
	case e.Limit.Window == Run:
		return "Ask for less, or raise maxTokens in the declaration."
	case e.Asked > e.Limit.Most:
		return "Ask for less at a time, as with fewer tokens for the answer."
	}
	return "Wait until " + e.Use.Frees(e.Limit).Format(time.RFC3339) + "."
}

// Error says it to whoever is refused.
func (e *Exceeded) Error() string {
	r := e.Limit.Resource
	text := fmt.Sprintf("used %s of %s %s", r.Show(e.Use.Used), r.Show(e.Limit.Most), r)
	if e.Use.Reserved > 0 {
		text += fmt.Sprintf(", and %s are set aside for what is under way", r.Show(e.Use.Reserved))
	}
	if e.Asked > 1 && e.Use.Left(e.Limit) > 0 {
		text += fmt.Sprintf(", this call may use %s", r.Show(e.Asked))
	}
	if e.Limit.Window == Run {
		return text + " in this run"
	}
	format := "15:04"
	if e.Limit.Window == Day {
		format = "2006-01-02 15:04"
	}
	return text + fmt.Sprintf(", free again at %s UTC", e.Use.Frees(e.Limit).Format(format))
}

// Claim is what one call takes of its agent's quotas. The store fills in Taken and Marks.
type Claim struct {
	Agent  string
	Limits []Limit
	// Amount is what the call uses for certain; Bound is what it may use at most of what is known when it has ended. Of time less is set aside where less is left,
	// so the call must be bounded by Granted.
	Amount, Bound map[Resource]int64

	Taken []Taken
	Marks []Mark
}

// Taken is what was set aside under one limit.
type Taken struct {
	Limit    Limit
	Start    time.Time
	Reserved int64
}

// Mark is a mark of a quota that was passed.
type Mark struct {
	Agent   string
	Limit   Limit
	Use     Use
	Percent int // 80 or 100
}

// Standing is the mark that a use stands at; false: it is below 80 percent.
func Standing(agent string, l Limit, u Use) (m Mark, passed bool) {
	percent := Crossed(Use{Start: u.Start}, u, l)
	return Mark{Agent: agent, Limit: l, Use: u, Percent: percent}, percent > 0
}

// Text says it in words.
func (m Mark) Text() string {
	article := "an"
	if m.Limit.Window == Day {
		article = "a"
	}
	return fmt.Sprintf("%d %% of %s %s %s %s are used", m.Percent, m.Limit.Resource.Show(m.Limit.Most), m.Limit.Resource, article, m.Limit.Window)
}

// Granted is how much of a resource the call may use at most; false where no limit bounds it.
func (c *Claim) Granted(r Resource) (most int64, bounded bool) {
	for _, t := range c.Taken {
		if t.Limit.Resource == r && t.Reserved > 0 && (!bounded || t.Reserved < most) {
			most, bounded = t.Reserved, true
		}
	}
	return most, bounded
}

// Reserve is what the claim sets aside of a resource where so much is left under a limit. Time can be cut short; what a model reads and answers can't.
func (c *Claim) Reserve(l Limit, u Use) int64 {
	if l.Resource == ComputeSeconds {
		return min(c.Bound[l.Resource], u.Left(l))
	}
	return c.Bound[l.Resource]
}

// UsedBy is what a call used of what is set aside, by its outcome: how long it took, and what stands in the detail of its entry.
func UsedBy(ms int64, detail []byte) map[Resource]int64 {
	var of struct {
		Tokens struct {
			Input  int64 `json:"input"`
			Output int64 `json:"output"`
		} `json:"tokens"`
		Cost int64 `json:"cost_millionths"`
	}
	_ = json.Unmarshal(detail, &of) // an entry without them used none
	return map[Resource]int64{ComputeSeconds: ms, Tokens: of.Tokens.Input + of.Tokens.Output, Cost: of.Cost}
}

// Status is one quota as people see it. Amounts are in the resource's own unit.
type Status struct {
	Agent    string    `json:"agent_id"`
	Resource Resource  `json:"resource" enum:"api_calls,compute_seconds,tokens,cost"`
	Window   Window    `json:"window" enum:"hour,day"`
	Used     float64   `json:"used"`
	Reserved float64   `json:"reserved" doc:"Set aside for what is under way."`
	Most     float64   `json:"limit"`
	Percent  int       `json:"percent" doc:"Used, of the limit."`
	Frees    time.Time `json:"frees" doc:"When the window ends."`
}

// StatusOf is the status of one quota at a moment.
func StatusOf(agent string, l Limit, u Use, now time.Time) Status {
	u = u.At(l, now)
	unit := float64(l.Resource.unit())
	s := Status{Agent: agent, Resource: l.Resource, Window: l.Window, Used: float64(u.Used) / unit, Reserved: float64(u.Reserved) / unit, Most: float64(l.Most) / unit, Percent: 100, Frees: u.Frees(l)}
	if l.Most > 0 {
		s.Percent = int(min(u.Used, l.Most*10) * 100 / l.Most)
	}
	return s
}
