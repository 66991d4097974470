package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

// Models sends requests to models.
type Models interface {
	Ask(ctx context.Context, r wire.Request, room call.Room) (wire.Response, error)
}

// Request is one request to a model on the gateway's own account. Whatever the gateway asks for itself goes this way: what it asks differs in who is written down, in what has to hold before
// the intent, and in what follows from the end.
type Request struct {
	Models Models
	Clock  func() time.Time
	// Entry says who asks and for what. It has nothing of the text.
	Entry audit.Entry
	// Labels are those of the text, and May tells whether it may go to the model with them. Both are asked before the intent, and again right before the request leaves.
	Labels Labels
	May    func(model string, labels []string) error
	// Stopped is an error once a switch stops whoever asks: before it leaves, and before the answer is used.
	Stopped func() error
	// Refused writes down that the request may not leave; nil: nothing is written.
	Refused func(ctx context.Context, e audit.Entry) error
	// Intend makes the intent durable, and counts what the request takes. It may bound the time; 0: no further bound.
	Intend func(ctx context.Context, e audit.Entry, r wire.Request) (within time.Duration, err error)
	// Settle makes the outcome durable. The answer is used only after that.
	Settle func(ctx context.Context, e audit.Entry, end End) error
	// AtMost bounds what a request can have used where its provider did not say; nil: it counts as nothing.
	AtMost func(wire.Request) wire.Usage
	Price  func(model string) *wire.Price
}

// End is how a request ended.
type End struct {
	Answer wire.Response
	Err    error
	Took   time.Duration
}

// Do makes the request. It has the form of an Ask.
func (q *Request) Do(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error) {
	r, err := wire.Parse(form, nil, body, wire.Allowed{})
	if form.Provider() == wire.Anthropic {
		r.Version = wire.Versions[0]
	}
	labels, gone := q.Labels()
	if gone != nil {
		return nil, gone
	}
	e := q.Entry
	e.Kind, e.Model, e.Operation, e.Labels = audit.Intent, wire.ModelOf(body), "model."+wire.ModelOf(body), labels
	e.CallID, e.Decision = call.NewID("call_", q.Clock()), string(fault.Permit)
	if err == nil {
		err = q.May(e.Model, labels)
	}
	err = cmp.Or(q.Stopped(), err)
	durable := context.WithoutCancel(ctx)
	if err != nil {
		if q.Refused == nil {
			return nil, err
		}
		e.Kind, e.Decision, e.Code, e.Reason = audit.Decision, string(fault.Deny), string(fault.Of(err).Code), audit.Clip(fault.Of(err).Public())
		return nil, cmp.Or(q.Refused(durable, e), err)
	}
	within, err := q.Intend(durable, e, r)
	if err != nil {
		return nil, err
	}
	if within > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, within)
		defer end()
	}
	began := time.Now()
	end, used := q.send(ctx, e.Model, r)
	end.Took = time.Since(began)
	e.Kind, e.Decision, e.DurationMS = audit.Outcome, "ok", end.Took.Milliseconds()
	if used != (wire.Usage{}) { // also of an answer that is discarded
		more := map[string]any{"tokens": used}
		if price := q.Price(e.Model); price != nil {
			more["cost_millionths"] = price.Cost(used)
		}
		e.Detail = AddDetail(e.Detail, more)
	}
	if end.Err != nil {
		e.Decision, e.Code, e.Reason = "error", string(fault.Of(end.Err).Code), audit.Clip(fault.Of(end.Err).Public())
	}
	return end.Answer.Body, cmp.Or(q.Settle(durable, e, end), end.Err)
}

// send sends the request, whose intent is on record: who erases or withdraws the text from here on finds the request there. A text that was erased or withdrawn before does not leave, and
// neither does one that meanwhile got a label which the model may not have.
func (q *Request) send(ctx context.Context, model string, r wire.Request) (end End, used wire.Usage) {
	labels, err := q.Labels()
	if err == nil {
		err = q.May(model, labels)
	}
	if err != nil {
		return End{Err: err}, used
	}
	answer, err := q.Models.Ask(ctx, r, nil)
	stopped := q.Stopped()
	switch {
	case stopped != nil:
		err = stopped
	case errors.Is(err, context.DeadlineExceeded):
		err = fault.Wrap(err, fault.TimeExceeded, "The model did not answer in time.")
	case err == nil && answer.Status != http.StatusOK:
		err = fault.New(fault.UpstreamFailed, "The provider answered with the status %d.", answer.Status)
	}
	used, said := wire.UsageOf(answer.Body)
	var unsent *fault.NotDispatched
	if !said && q.AtMost != nil && !errors.As(err, &unsent) && (answer.Status == 0 || answer.Status == http.StatusOK) { // nobody knows how much of an answer was made
		used = q.AtMost(r)
	}
	return End{Answer: answer, Err: err}, used
}

// AddDetail is a detail of an entry with more in it.
func AddDetail(detail json.RawMessage, more map[string]any) json.RawMessage {
	all := map[string]any{}
	if len(detail) > 0 {
		if json.Unmarshal(detail, &all) != nil {
			return detail
		}
	}
	maps.Copy(all, more)
	b, err := json.Marshal(all)
	if err != nil {
		return detail
	}
	return b
}

// MayHave is an error unless a text with these labels may go to a model that may have those in may.
func MayHave(may, labels []string) error {
	for _, l := range labels {
		if !slices.Contains(may, l) {
			return fault.New(fault.FlowContaminated, "The text has the label %s, which may not go to the model.", l).Try("An operator can add the label to the model's labels, if its provider may have such data.")
		}
	}
	return nil
}

// Places bound the requests that are under way for each who asks, so that none waits for another's. They are kept for good: those who ask are few and declared.
type Places struct {
	atOnce int

	mu sync.Mutex // guards of
	of map[string]chan struct{}
}

// NewPlaces returns places: so many for each who asks.
func NewPlaces(atOnce int) *Places { return &Places{atOnce: atOnce, of: map[string]chan struct{}{}} }

// Take takes one of somebody's places, once one is free. leave gives it back.
func (p *Places) Take(ctx context.Context, of string) (leave func(), err error) {
	p.mu.Lock()
	if p.of[of] == nil {
		p.of[of] = make(chan struct{}, p.atOnce)
	}
	place := p.of[of]
	p.mu.Unlock()
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, fault.Wrap(ctx.Err(), fault.TimeExceeded, "Other requests to models are under way.").Try("Try again in a moment.")
	}
}
