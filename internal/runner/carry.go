package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/models/wire"
	"sallyport.example/internal/run"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// carried is a run that is under way. Its goroutine owns it, but for stop.
type carried struct {
	r       *Runner
	run     run.Run
	decl    *agent.Declaration
	session atomic.Pointer[string] // its session; nil until it is open
	token   string                 // of its session
	data    bool                   // its input has more in it than a person's words, and the gateway itself puts it into a prompt
	epoch   int64                  // the stops that had reached the agent when the run was asked for
	ctx     context.Context
	stop    context.CancelCauseFunc // safe for concurrent use
	done    chan struct{}           // closed when its end is on record
}

// Cancel ends the run: the kill switch was pulled.
func (c *carried) Cancel(cause error) { c.stop(cause) }

// carry runs the agent, closes its session, looks at the output, and ends the run.
func (c *carried) carry() {
	ctx := context.Background() // the end of a run waits for nobody
	defer c.r.give(c)
	defer c.r.o.Gateway.Standing().Leave(c)
	end := c.work()
	if end.Status == run.Done {
		end.Recommends = c.recommend(ctx, &end)
	}
	if _, err := c.r.finish(ctx, c.run.ID, end); err != nil {
		c.r.o.Log.Error("the end of a run is not on record; at the next start it ends as failed", "run", c.run.ID, "error", err)
		return
	}
	if end.Output != nil {
		c.r.known.Add(c.run.ID, end.Print)
	}
	if end.Status == run.Timeout {
		c.run.Status = end.Status
		c.r.o.Alert(c.run)
	}
}

// work is the run up to its end, which is not written down yet.
func (c *carried) work() run.End {
	began := time.Now()
	limit, cancel := context.WithTimeoutCause(c.ctx, time.Duration(c.decl.MaxExecutionTime)*time.Millisecond, errTime)
	defer cancel()
	var raw []byte
	var err error
	switch kind := c.decl.Run.Kind; {
	case c.r.o.Gateway.Standing().Killed(c.decl.AgentID): // pulled before Enter
		c.stop(standing.ErrKilled)
	case c.r.o.Gateway.Standing().StopEpoch(c.decl.AgentID) != c.epoch: // stopped before Enter, if only for a moment
		c.stop(errAside)
	case kind == agent.RunHTTP:
		raw, err = c.post(limit)
	case kind == agent.RunModel:
		raw, err = c.think(limit)
	default:
		raw, err = c.execute(limit)
	}
	took := time.Since(began)
	cause := context.Cause(limit)
	// No call of the run begins from here on, and those that run are ended with their session.
	closed, cerr := c.r.o.Gateway.CloseSession(context.Background(), c.run.Session, byRunner, "the run ended")
	if fault.Is(cerr, fault.SessionClosed) {
		if cause == nil {
			cause = errSessionClosed
		}
	} else if cerr != nil {
		c.r.o.Log.Error("the session of a run can't be closed", "run", c.run.ID, "error", cerr)
		err = errors.Join(err, cerr)
	}
	end := run.End{Labels: labelsOf(closed)}
	reads, rerr := c.r.reads(context.Background(), c.run.Session, c.run.Started, &end)
	if raw != nil {
		end.OutputHash = call.HashBytes(raw)
	}
	switch stopped := c.stopped(cause); {
	case stopped != nil:
		end.Status, end.Verdict, end.By = stopped.Status, stopped.Verdict, stopped.By
		return end
	case err != nil:
		v := fault.RefuseErr("run", err)
		end.Status, end.Verdict = run.Failed, &v
		return end
	case rerr != nil:
		v := fault.RefuseErr("validate", rerr)
		end.Status, end.Verdict = run.Failed, &v
		return end
	}
	c.validate(&end, raw, reads, run.Measured{Took: took, Tokens: end.Tokens, Model: c.decl.Run.Model, Started: c.run.Started, Ended: c.r.o.Clock()})
	return end
}

// errTime is the cause of a run whose time is over.
var errTime = errors.New("the run's time was over")

// stopped is how a run ended that did not end by itself; nil if it did. A stop that came while the answer was on its way counts: what a stopped agent
// says is shown to nobody.
func (c *carried) stopped(cause error) *run.End {
	refused := func(status run.Status, code fault.Code, reason string) *run.End {
		v := fault.Refuse("run", code, reason)
		return &run.End{Status: status, Verdict: &v}
	}
	st := c.r.o.Gateway.Standing()
	_, aside := st.Quarantined(c.decl.AgentID)
	var by cancelled
	switch {
	case errors.Is(cause, standing.ErrKilled) || st.Killed(c.decl.AgentID):
		v := fault.Killed(c.r.o.Clock().UTC())
		v.Status = "" // it had begun
		return &run.End{Status: run.Killed, Verdict: &v}
	case errors.Is(cause, errAside) || aside || st.StopEpoch(c.decl.AgentID) != c.epoch:
		return refused(run.Killed, fault.AgentQuarantined, "The agent was stopped while it ran. What it had was discarded.")
	case errors.As(cause, &by):
		e := refused(run.Cancelled, fault.Conflict, "A person ended the run. What it had was discarded.")
		e.By = by.by
		return e
	case errors.Is(cause, errSessionClosed):
		return refused(run.Cancelled, fault.SessionClosed, "The run's session was closed while it ran. What it had was discarded.")
	case errors.Is(cause, errStopping):
		return refused(run.Failed, fault.Internal, "The gateway stopped while it ran. What it had was discarded; ask for it again.")
	case errors.Is(cause, errTime):
		return refused(run.Timeout, fault.TimeExceeded, fmt.Sprintf("The run was over its limit of %d ms. What it had was discarded, and nothing is retried: ask for it again.", c.decl.MaxExecutionTime))
	}
	return nil
}

// validate looks at the output, and at the citations in it. The declaration that counts is the one that the run began under, if it still holds.
func (c *carried) validate(end *run.End, raw []byte, reads []run.Read, m run.Measured) {
	refuse := func(err error) {
		v := fault.RefuseErr("validate", err)
		end.Status, end.Verdict, end.Citations = run.Invalid, &v, nil
	}
	if now, ok := c.r.o.Gateway.Agents().Get(c.decl.AgentID); !ok || now.Digest != c.decl.Digest {
		refuse(fault.New(fault.OutputInvalid, "The agent's declaration changed while it ran.").Try("Ask for it again."))
		return
	}
	output, err := run.ReadOutput(raw, c.decl)
	if err == nil {
		err = run.CheckMetadata(output, c.decl, m)
	}
	if err != nil {
		refuse(err)
		return
	}
	cited, quality, err := run.CheckCitations(output, c.decl, reads, c.r.o.Clock())
	end.Quality = quality
	if err != nil {
		refuse(err)
		return
	}
	confirmed, err := c.r.confirm(c.r.ended, c.decl, c.run.Session, end.Labels, output) // the run's own context ended with its session
	if stopped := c.stopped(nil); stopped != nil {                                      // while its claims were checked
		end.Status, end.Verdict, end.By = stopped.Status, stopped.Verdict, stopped.By
		return
	}
	if err != nil {
		refuse(err)
		return
	}
	end.Status, end.Output, end.Citations, end.Claims, end.Print = run.Done, output, cited, confirmed, printOf(output, reads, c.run.Input).Sample()
}

// confirmTime bounds the check of all claims of one output.
const confirmTime = time.Minute

// confirm checks the claims of an output; the first that is not valid refuses it. Its sources are read with the labels that the session holds: whether they confirm tells the agent no more
// than it may know already.
func (r *Runner) confirm(ctx context.Context, d *agent.Declaration, session string, labels []string, output json.RawMessage) (all []run.Confirmed, err error) {
	claims, err := run.ClaimsOf(output, d)
	if err != nil || len(claims) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	for _, claim := range claims {
		var c run.Confirmed
		if r.o.Confirm != nil {
			if c, err = r.o.Confirm(ctx, d, audit.Entry{Agent: d.AgentID, Session: session, Actor: byRunner}, labels, claim.Says); err != nil {
				return nil, fault.Wrap(err, fault.OutputInvalid, "It is marked as a claim, and can't be checked: %s", fault.Of(err).Public()).At(claim.Field)
			}
		}
		c.Field = claim.Field
		if err := c.Refusal(); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// reads are the calls of a session that brought something. What changed something is named in end, and all that ran are counted, as are the tokens of models:
// what a model says is the agent's own thinking, and no source.
func (r *Runner) reads(ctx context.Context, session string, since time.Time, end *run.End) (all []run.Read, err error) {
	type started struct {
		entry audit.Entry
		ended bool
	}
	documents := r.o.Documents()
	calls := map[string]*started{}
	var order []string
	for f := (audit.Filter{Session: session, From: since.Add(-time.Minute)}); ; {
		page, next, err := r.o.Store.Entries(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if e.Action == string(call.AskModel) {
				end.Tokens += tokensOf(e)
				continue
			}
			switch s := calls[e.CallID]; {
			case e.Kind == audit.Intent && s == nil:
				calls[e.CallID] = &started{entry: e}
				order = append(order, e.CallID)
			case e.Kind == audit.Outcome && s != nil && !s.ended:
				s.ended = true
				if e.Decision == "ok" {
					one, from, err := r.read(ctx, s.entry, e, documents)
					if err != nil {
						return nil, err
					}
					if all = append(all, one); from != "" && !slices.Contains(end.Returned, from) {
						end.Returned = append(end.Returned, from)
					}
				}
			}
		}
		if next < 0 {
			break
		}
		f.Min = next + 1
	}
	for _, id := range order {
		end.Calls++
		op := r.o.Gateway.Catalogue().ByID(calls[id].entry.Operation)
		if name := calls[id].entry.Operation; (op == nil || op.Class.Flow.Effect != flow.Read) && !slices.Contains(end.Writes, name) {
			end.Writes = append(end.Writes, name)
		}
	}
	return all, nil
}

// tokensOf are the tokens of an answer of a model, as its provider counted them.
func tokensOf(e audit.Entry) int {
	var said struct {
		Tokens wire.Usage `json:"tokens"`
	}
	if e.Kind != audit.Outcome || json.Unmarshal(e.Detail, &said) != nil {
		return 0
	}
	return int(said.Tokens.Input + said.Tokens.Output)
}

// labelsOf are the labels that a session holds.
func labelsOf(s session.Session) (all []string) {
	for _, held := range s.Labels {
		all = append(all, string(held.Label))
	}
	return all
}

// read is one call, with its result as the record keeps it, and which output of an agent it brought back, if it did.
func (r *Runner) read(ctx context.Context, intent, outcome audit.Entry, documents Documents) (one run.Read, from string, err error) {
	one = run.Read{CallID: intent.CallID, Operation: intent.Operation, At: intent.At, External: true}
	if intent.Arguments != nil {
		one.Arguments = r.kept(ctx, intent.Arguments)
	}
	if outcome.Result != nil {
		one.Result = r.kept(ctx, outcome.Result)
	}
	if one.Result != nil {
		from, one.Synthetic = r.returned(one.Result)
	}
	if slices.Contains(knowledge.Reading, intent.Operation) { // the record has none of the texts; agents' words are kept out of them where people add them
		if one.Documents, err = documents(ctx, outcome.Detail); err != nil {
			return one, "", err
		}
		for i, d := range one.Documents {
			if d.Synthetic { // people answered it, and it came in as that
				continue
			}
			if id, found := r.Returned(d.Text); found {
				one.Documents[i].Synthetic, from = true, id
			}
		}
	}
	if op := r.o.Gateway.Catalogue().ByID(intent.Operation); op != nil {
		one.External = op.Class.Flow.Sensitivity == flow.External || op.Class.Flow.Sensitivity == flow.Both
	}
	return one, from, nil
}

// kept are the bytes of a payload; nil where they are not kept.
func (r *Runner) kept(ctx context.Context, p *audit.Payload) []byte {
	if !p.Stored {
		return p.Shown
	}
	b, err := r.o.Store.Payload(ctx, p.Key)
	if err != nil {
		return nil
	}
	return b
}
