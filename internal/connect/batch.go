package connect

import (
	"context"
	"fmt"

	"sallyport.example/internal/mcpwire"
)

// answers gathers the answers to a batch, each behind a comma. One goroutine has it.
type answers struct{ json []byte }

// add adds an answer. Together they may be as large as one answer alone.
func (a *answers) add(answer mcpwire.Message) {
	was := len(a.json)
	if a.json = answer.Append(append(a.json, ',')); len(a.json) > maxAnswer {
		short := mistake(answer.ID, mcpwire.CodeInternal, fmt.Sprintf("The answers to the batch are larger than %d bytes together. What the request did is in the audit (sallyport audit query).", maxAnswer))
		a.json = short.Append(append(a.json[:was], ','))
	}
}

// batch forwards the messages of a batch one after the other, in their order, as the gateway would serve them, and answers them in one array. Each
// is sent by itself, so each can be cancelled, and is sent again where a message that came alone would be.
func (b *bridge) batch(body []byte) {
	parsed, e := mcpwire.ParseBatch(body, lineLimits)
	messages, requests := make([]message, len(parsed)), 0
	gathered := &answers{}
	for i, p := range parsed {
		m, wrong := parse(p.Append(nil))
		if wrong == nil && mcpwire.Modern(m.version) {
			wrong = &mcpwire.Error{Code: mcpwire.CodeInvalidRequest, Message: "A request of revision " + mcpwire.Revision0728 + " does not stand in a batch."}
		}
		if wrong != nil {
			e = wrong
			break
		}
		m.batch = gathered
		messages[i] = m
		if !m.Response() && !m.notification() {
			requests++
		}
	}
	if e != nil {
		b.fail(nil, e.Code, e.Message)
		return
	}
	contexts := make([]context.Context, len(messages))
	var ends []func()
	for i, m := range messages { // all before the first one is sent, so that the client can cancel each
		if m.Response() || m.notification() {
			continue
		}
		ctx, done := b.register(m)
		if contexts[i] = ctx; ctx != nil {
			ends = append(ends, done)
		}
	}
	forward := func() {
		for i, m := range messages {
			switch ctx := contexts[i]; {
			case m.Response(), m.notification():
				b.oneWay(m)
			case ctx != nil:
				b.request(ctx, m)
			}
		}
		for _, end := range ends {
			end()
		}
		if len(gathered.json) == 0 {
			return
		}
		gathered.json[0] = '['
		if err := b.line(append(gathered.json, "]\n"...)); err != nil {
			b.log.Warn("the answers to a batch could not be handed over", "error", err)
		}
	}
	if requests == 0 {
		forward() // no message after it may overtake it
		return
	}
	b.work.Go(forward)
}
