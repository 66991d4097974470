package gateway

import (
	"cmp"
	"context"
	"encoding/json"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/screen"
)

// screenArguments screens what an agent sends, with its answers to a server's questions. A request to a model has its messages screened as they come (see listen): nobody is asked about
// them, as it has all that the agent has read, results with hits among it.
func (c *crossing) screenArguments() *screen.Found {
	if c.op.Model != nil {
		return nil
	}
	if c.answers == nil {
		return c.set.Screens.Find(screen.Arguments, c.agent, c.args)
	}
	return c.set.Screens.Find(screen.Arguments, c.agent, append(append(append([]byte{}, c.args...), '\n'), c.answers...))
}

// requestScreened is the flag of a question in whose session the person's request has a hit.
const requestScreened = "request_screened"

// screenRequest screens what is on record as a person's request. The session opens all the same: its questions to people say what was found.
func (g *Gateway) screenRequest(words, from string) *screen.Found {
	return g.settings.Load().Screens.Find(screen.Request, from, []byte(words))
}

// screenResult screens what came back, and reports whether it is untrusted for what was found, whatever its label: its values confirm nothing then. What the
// gateway itself says is not screened, nor what a model answers. A hit marks the session, too.
func (c *crossing) screenResult(ctx context.Context, out *outcome, result []byte) (doubtful bool) {
	if c.effect.Traits().OwnWords || c.op.Model != nil {
		return false
	}
	out.screened = c.screenedResult(ctx, out, result)
	out.sampled = c.set.Screens != nil && out.screened == nil && c.screened == nil && !c.unscreened && screen.Sampled(c.id)
	if out.screened == nil || c.screensResults() == judge.ScreenObserve {
		return false
	}
	c.distrust(out)
	if out.screened.Hit() {
		out.raise = flow.Raise(out.raise, flow.Operation{ID: c.op.ID}, c.id, flow.Flagged)
	}
	return true
}

// withholds screens what a model's answer gives to functions of the agent's own program, and reports whether the answer is withheld for it: nobody here sees what such a
// function does, so nothing later can be asked or refused. Where a hit in arguments asks, nobody can answer in time for an answer that waits for its reader; so it marks the
// session, whose calls that others see are riskier from then on. Where it denies, arguments that could not be screened whole are withheld, too. Calls of this gateway's tools are screened when they are made.
func (c *crossing) withholds(out *outcome, result *effect.Result) bool {
	if len(c.ungoverned(result.Calls)) == 0 {
		return false
	}
	for _, given := range result.Given {
		out.screened = out.screened.Worse(c.set.Screens.Find(screen.Arguments, c.op.ID, []byte(given)))
	}
	if out.screened == nil || c.screens() == judge.ScreenObserve {
		return false
	}
	if out.screened.Hit() {
		out.raise = flow.Raise(out.raise, flow.Operation{ID: c.op.ID}, c.id, flow.Flagged)
	}
	return c.screens() != judge.ScreenAsk
}

// talksOrders says why what a server says or asks while the call runs looks like orders to an agent, or could not be screened whole: then it is held back, whatever the server's label. It
// is on record. "": it may pass, as it does where results are only observed.
func (c *crossing) talksOrders(params []byte) (why string) {
	s := c.set.Screens.Find(c.channel(), c.op.ID, params)
	if s == nil {
		return ""
	}
	e, detail := c.entry(audit.Decision), map[string]any{}
	e.Action, e.Decision, e.Code = "threat.hit", string(fault.Deny), string(fault.ThreatInjection)
	noteScreened(s, &e, detail)
	if c.screensResults() == judge.ScreenObserve {
		e.Decision = string(fault.Permit)
	}
	if why = "could not be screened whole"; s.Hit() {
		why = "looks like orders to an agent"
	}
	e.Reason = "What the server said while the call ran " + why + "."
	e.Detail, _ = json.Marshal(detail) // of strings and numbers: can't fail
	c.g.refusals.RecordCallLater(e)
	c.readHit(s)
	if c.screensResults() == judge.ScreenObserve {
		return ""
	}
	return why
}

// refusesAnswer reports whether what a client says to a server's question while the call runs is held back for what was found in it: nobody can be asked about it by then.
func (c *crossing) refusesAnswer(found *screen.Found) bool {
	does := c.screens()
	return found != nil && does == judge.ScreenDeny || found.Hit() && does != judge.ScreenObserve && !c.set.rules.Observe
}

// screens is what a hit in the arguments of the operation does, and screensResults what one in its results does.
func (c *crossing) screens() judge.Screening {
	if c.op.Class.ScreenNotes {
		return judge.ScreenObserve
	}
	return c.set.rules.Screen
}

func (c *crossing) screensResults() judge.Screening {
	if c.op.Class.ScreenNotes {
		return judge.ScreenObserve
	}
	return c.set.HitInResults
}

// noteScreened puts what screening found on record.
func noteScreened(s *screen.Found, e *audit.Entry, detail map[string]any) {
	if s == nil {
		return
	}
	detail["threat"] = s
	if s.Hit() {
		e.Event = audit.ThreatHit
	}
}

// noteSent puts on record what was found in what the call sends: by screening, and characters that show nothing.
func (c *crossing) noteSent(e *audit.Entry, detail map[string]any) {
	if c.unseen > 0 {
		detail["invisible"] = c.unseen
	}
	if c.said != nil {
		detail["wrote"] = true
	}
	noteScreened(cmp.Or(c.screened, c.messages), e, detail)
}

// channel is by what way the result comes.
func (c *crossing) channel() screen.Channel {
	switch c.op.ID {
	case catalogue.CommServer + ".fetch":
		return screen.Page
	case catalogue.CommServer + ".search":
		return screen.Snippet
	case catalogue.CommServer + ".exec":
		return screen.Output
	}
	if c.op.Server == catalogue.KnowledgeServer {
		return screen.Document
	}
	return screen.Result
}
