package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/review"
	"sallyport.example/internal/threat"
)

// Bounds of the first screen: an approver on a phone reads some eighty words in the time that they have.
const (
	wordsOfRequest = 120 // bytes of the person's words beside the agent's name
	longValue      = 90  // characters from which on a text is drawn below the list
	singleTicks    = 5   // unconfirmed values with a tick of their own; the others share one
)

// shownValue is one value of the arguments on the page of a request.
type shownValue struct {
	review.Value
	Compared               string // the value as people compare it
	Odd                    string // why it can be taken for something else
	SaidAbove              bool   // the objection at the top says where it came from
	Tick, TickID, TickSays string // of the box that says it was checked; "": none
}

// letter is a long text of the arguments.
type letter struct {
	Argument string
	Exact    []piece
}

// tick is a box that an approver ticks: it stands for values that nothing confirms.
type tick struct {
	token  string // names them
	values []int  // of the review
}

// ticksOf are the boxes for the unconfirmed values of a review that decide.
func ticksOf(r *review.Review) (all []tick) {
	for i, v := range r.Values {
		if !v.MustCheck() {
			continue
		}
		if len(all) < singleTicks {
			all = append(all, tick{values: []int{i}})
		} else {
			last := &all[len(all)-1]
			last.values = append(last.values, i)
		}
	}
	for i := range all {
		var named strings.Builder
		for _, at := range all[i].values {
			fmt.Fprintf(&named, "%q=%q\n", r.Values[at].Argument, r.Values[at].Text)
		}
		all[i].token = call.HashBytes([]byte(named.String()))[:16]
	}
	return all
}

// checkTicks refuses a form that does not say of each unconfirmed value that it was checked.
func checkTicks(form func(string) string, q desk.Question) error {
	for _, t := range ticksOf(q.Review) {
		if form("checked."+t.token) == "" {
			return fault.New(fault.RequestMalformed, "Nothing confirms %s.", display.Line(q.Review.Values[t.values[0]].Argument, 80)).
				At("checked").Try("Check it, and tick that you did.")
		}
	}
	return nil
}

// reviewed fills in what the review of the question says.
func (d *approvalPage) reviewed() {
	r := d.Review
	for _, to := range r.To {
		d.To = append(d.To, review.Grouped(to))
	}
	if len(d.To) > 3 {
		d.To = append(d.To[:3:3], fmt.Sprintf("%d more", len(r.To)-3))
	}
	d.ToWord = review.ToWord(r.Does)
	d.Words = display.Clip(strings.Join(strings.Fields(d.UserRequest), " "), wordsOfRequest)
	d.Opened = call.TimeOf(d.Session)
	for _, o := range r.Objections {
		switch {
		case o.Code == review.Unexplained: // stands beside the agent's name
		case d.First == nil:
			d.First = &o
		default:
			d.OtherObjections = append(d.OtherObjections, o)
		}
	}
	ticks := ticksOf(r)
	confirmed, others := 0, 0
	for i, v := range r.Values {
		s := shownValue{Value: v, Compared: review.Grouped(v.Text), Odd: threat.NameLookalike(v.Text)}
		if slices.Contains(r.To, v.Text) { // it stands above, whole
			s.Compared = review.Short(v.Text)
		}
		s.SaidAbove = d.First != nil && d.First.Argument == v.Argument
		s.TickSays, s.TickID = "I checked this "+v.Thing(), fmt.Sprintf("tick-%d", i)
		for _, t := range ticks {
			if t.values[0] != i {
				continue
			}
			if s.Tick = t.token; len(t.values) > 1 {
				s.TickSays = fmt.Sprintf("I checked this and %d more unconfirmed values", len(t.values)-1)
			}
		}
		d.Sources = append(d.Sources, s)
		if v.Core && v.Verdict == review.Confirmed {
			confirmed++
		} else if v.Core {
			others++
		}
		if v.Role == "currency" && strings.HasSuffix(r.Does, " "+v.Text) { // the sentence has it
			continue
		}
		if s.Tick == "" && !d.MustRead && len([]rune(v.Text)) > longValue {
			quoted, _ := json.Marshal(v.Text) // a string always encodes
			d.Letters = append(d.Letters, letter{v.Argument, exactly(quoted)})
			continue
		}
		d.Shown = append(d.Shown, s)
	}
	d.AllConfirmed = confirmed > 0 && others == 0 && len(d.Reasons) > 0
	d.Picture = originsPicture(r)
	d.OpenArguments = d.MustRead || len(r.Values) == 0 || d.Lookalikes.Any() || d.Inputs != nil
}
