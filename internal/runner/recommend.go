package runner

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/run"
)

// recommend stores what the output of a run recommends, and asks people about its call. It returns the id; "" if the output recommends nothing.
func (c *carried) recommend(ctx context.Context, end *run.End) string {
	rec, ok := run.Recommend(end.Output, c.decl, c.r.o.Clock())
	if !ok {
		return ""
	}
	rec.Run, rec.From, rec.Requester, rec.Citations, rec.Claims = c.run.ID, c.run.Session, c.run.Requester, end.Citations, end.Claims
	rec.Labels = end.Labels
	if _, err := c.r.keep(ctx, rec); err != nil {
		c.r.o.Log.Error("a recommendation is not on record, so nobody is asked about it", "run", c.run.ID, "error", err)
		return ""
	}
	return rec.ID
}

// keep stores a recommendation, and asks people about its call, if it has one.
func (r *Runner) keep(ctx context.Context, rec run.Recommendation) (run.Recommendation, error) {
	if err := r.o.Store.AddRecommendation(ctx, rec, recEntry(rec, "recommendation.make", byRunner)); err != nil {
		return rec, err
	}
	r.o.Gateway.Publish(changes.Recommendation, rec.ID)
	r.settling.Lock()
	defer r.settling.Unlock()
	return r.settle(ctx, rec)
}

// Submit stores what an agent recommends from a session, after the checks that the output of a run has.
func (r *Runner) Submit(ctx context.Context, p identity.Principal, sessionID string, output json.RawMessage) (run.Recommendation, error) {
	var rec run.Recommendation
	s, err := r.o.Gateway.SessionFor(ctx, p)
	switch {
	case err != nil:
		return rec, err
	case sessionID != "" && sessionID != s.ID:
		return rec, fault.New(fault.NotFound, "There is no session %.80q for this credential.", sessionID).At("session_id")
	case r.o.Gateway.Standing().Killed(s.Agent):
		return rec, fault.New(fault.KillSwitch, "")
	}
	if _, aside := r.o.Gateway.Standing().Quarantined(s.Agent); aside {
		return rec, fault.New(fault.AgentQuarantined, "")
	}
	d, ok := r.o.Gateway.Agents().Get(s.Agent)
	if !ok {
		return rec, r.o.Gateway.Standing().Declared(s.Agent)
	}
	if err := r.o.Gateway.Approved(d); err != nil {
		return rec, err
	}
	if err := r.o.Gateway.TakeTurn(ctx, p, s.ID); err != nil { // the record of the session is read for each
		return rec, err
	}
	if output, err = run.ReadOutput(output, d); err != nil {
		return rec, err
	}
	var measured run.End
	reads, err := r.reads(ctx, s.ID, s.OpenedAt, &measured)
	if err != nil {
		return rec, err
	}
	if err := run.CheckMetadata(output, d, run.Measured{Took: r.o.Clock().Sub(s.OpenedAt), Tokens: measured.Tokens, Started: s.OpenedAt, Ended: r.o.Clock()}); err != nil {
		return rec, err
	}
	cited, _, err := run.CheckCitations(output, d, reads, r.o.Clock())
	if err != nil {
		return rec, err
	}
	if rec, ok = run.Recommend(output, d, r.o.Clock()); !ok {
		return rec, fault.New(fault.OutputInvalid, "It recommends no action: the action stands at recommendation.action, or at action.").At("recommendation.action")
	}
	if rec.Claims, err = r.confirm(ctx, d, s.ID, labelsOf(s), output); err != nil {
		return rec, err
	}
	rec.From, rec.Requester, rec.Citations, rec.Run = s.ID, s.Requester, cited, r.runIn(s.ID)
	rec.Labels = labelsOf(s)
	rec.Print = printOf(output, reads, nil).Sample()
	kept, err := r.keep(context.WithoutCancel(ctx), rec)
	if err == nil {
		r.known.Add(kept.ID, rec.Print)
	}
	return kept, err
}

// runIn is the run that a session is of; "" if it is of none that is under way.
func (r *Runner) runIn(session string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.running {
		if c.run.Session == session {
			return c.run.ID
		}
	}
	return ""
}

// lookAgain is how often recommendations that wait are looked at, if nothing else happens: a question expires without an event.
const lookAgain = 15 * time.Second

// follow looks at the recommendations that wait, whenever people answer, and after a start.
func (r *Runner) follow() {
	changed, end := r.o.Gateway.Watch(changes.Approval, changes.Agent)
	defer end()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	r.expireAll()
	for {
		r.settleAll()
		select {
		case <-r.ended.Done():
			return
		case <-changed:
		case <-tick.C:
			r.expireAll()
		}
	}
}

// expireAll ends what nobody answered in time, though no question was asked.
func (r *Runner) expireAll() {
	for _, state := range []run.RecommendationState{run.Advice, run.Blocked} {
		if err := r.expire(context.Background(), state); err != nil {
			r.o.Log.Error("recommendations that are too old to be answered are not ended yet", "error", err)
		}
	}
}

// settleAll settles what waits.
func (r *Runner) settleAll() {
	ctx := context.Background() // what is approved is carried out whole
	waiting, err := r.o.Store.Recommendations(ctx, run.RecommendationFilter{State: run.Pending, Limit: 1000})
	if err != nil {
		r.o.Log.Error("the recommendations that wait can't be read", "error", err)
		return
	}
	for _, rec := range waiting {
		if r.ended.Err() != nil {
			return
		}
		r.settling.Lock()
		if _, err := r.settle(ctx, rec); err != nil && !fault.Is(err, fault.Conflict) {
			r.o.Log.Error("what became of a recommendation is not on record yet", "recommendation", rec.ID, "error", err)
		}
		r.settling.Unlock()
	}
}

// expire ends the recommendations in a state whose time is over, the oldest first.
func (r *Runner) expire(ctx context.Context, state run.RecommendationState) error {
	oldest, err := r.o.Store.Recommendations(ctx, run.RecommendationFilter{State: state, Limit: 100, Oldest: true})
	for _, rec := range oldest {
		if err != nil || !rec.Over(r.o.Clock()) || r.ended.Err() != nil {
			break
		}
		if _, err = r.close(ctx, rec, run.Expired, "nobody answered in time", nil); fault.Is(err, fault.Conflict) {
			err = nil // somebody answered meanwhile
		}
	}
	return err
}

// settle asks about a recommended call, carries out what people approved, and notes what they refused. It holds settling.
func (r *Runner) settle(ctx context.Context, rec run.Recommendation) (run.Recommendation, error) {
	rec, err := r.o.Store.Recommendation(ctx, rec.ID) // as it is by now
	if err != nil || rec.State != run.Pending {
		return rec, err
	}
	if now, ok := r.o.Gateway.Agents().Get(rec.Agent); !ok || now.Digest != rec.Declaration {
		return r.close(ctx, rec, run.Superseded, "the agent's declaration changed since", nil)
	}
	if rec.Call.Approval == "" {
		return r.ask(ctx, rec)
	}
	q, err := r.o.Gateway.Desk().Question(ctx, rec.Call.Approval)
	if err != nil {
		return rec, err
	}
	switch q.State {
	case approval.Approved:
		return r.carryOut(ctx, rec, q)
	case approval.Rejected:
		return r.close(ctx, rec, run.Rejected, saidBy(q.Approval), voters(q.Approval))
	case approval.Expired:
		return r.close(ctx, rec, run.Expired, "nobody answered in time", nil)
	case approval.Spent: // by a process that did not live to write it down
		rec.Call.CallID = q.SpentBy
		return r.close(ctx, rec, run.CarriedOut, "", q.Approvers())
	case approval.Superseded:
		return r.close(ctx, rec, run.Superseded, "what was asked about is not what would be called any more", nil)
	}
	return rec, nil
}

// ask opens a session for the recommended call and has people asked about it. What a stage denies is shown as that, before anybody is asked.
func (r *Runner) ask(ctx context.Context, rec run.Recommendation) (run.Recommendation, error) {
	from, err := r.o.Gateway.SessionByID(ctx, rec.From)
	if err != nil {
		return rec, err
	}
	s, err := r.o.Gateway.OpenRecommended(ctx, rec.Agent, rec.Requester, from.UserRequest, byRunner, from.Labels)
	if err != nil {
		if fault.Is(err, fault.StoreUnavailable) || fault.Is(err, fault.AuditUnavailable) {
			return rec, err
		}
		return r.close(ctx, rec, run.Blocked, "can't be carried out: "+fault.Of(err).Public(), nil)
	}
	rec.Call.Session = s.ID
	answer := r.o.Gateway.CallRecommended(ctx, s.ID, rec.Call.Operation, rec.Call.Arguments)
	if answer.Verdict.Decision != fault.Ask || answer.Verdict.ApprovalID == nil {
		return r.close(ctx, rec, run.Blocked, "can't be carried out: "+answer.Verdict.Reason, nil)
	}
	q, err := r.o.Gateway.Desk().Question(ctx, *answer.Verdict.ApprovalID)
	if err != nil {
		return rec, err
	}
	return r.change(ctx, rec.ID, "recommendation.ask", byRunner, func(old run.Recommendation) (run.Recommendation, error) {
		return old.Asked(s.ID, q.ID, q.Digest, q.Risk, q.Needed, q.ExpiresAt)
	})
}

// carryOut makes the call that people approved. It is judged again, under today's rules; what asks anew is not what they saw.
func (r *Runner) carryOut(ctx context.Context, rec run.Recommendation, q desk.Question) (run.Recommendation, error) {
	answer := r.o.Gateway.CallRecommended(ctx, rec.Call.Session, rec.Call.Operation, rec.Call.Arguments)
	rec.Call.CallID = answer.CallID
	switch v := answer.Verdict; {
	case v.Code == fault.StoreUnavailable || v.Code == fault.AuditUnavailable:
		return rec, fault.New(v.Code, "%s", v.Reason) // it is tried again: nothing happened, or the approval says by which call
	case v.Decision == fault.Ask:
		return r.close(ctx, rec, run.Superseded, "it would be asked about anew: "+v.Reason, q.Approvers())
	case v.Decision == fault.Deny:
		return r.close(ctx, rec, run.NotDone, v.Reason, q.Approvers())
	case answer.RPCError != nil || string(failed(answer.Result)) == "true":
		return r.close(ctx, rec, run.NotDone, "the server answered with an error", q.Approvers())
	}
	return r.close(ctx, rec, run.CarriedOut, "", q.Approvers())
}

func failed(result json.RawMessage) json.RawMessage {
	is, _ := call.Get(result, "isError")
	return is
}

// close moves a recommendation to a state in which nothing of it waits, and ends its session.
func (r *Runner) close(ctx context.Context, rec run.Recommendation, to run.RecommendationState, why string, by []string) (run.Recommendation, error) {
	actor := byRunner
	if len(by) > 0 {
		actor = "person:" + by[len(by)-1]
	}
	next, err := r.change(ctx, rec.ID, "recommendation."+string(to), actor, func(old run.Recommendation) (run.Recommendation, error) {
		if rec.Call != nil {
			old.Call = rec.Call
		}
		return old.Move(to, why, by, r.o.Clock())
	})
	if err == nil && rec.Call != nil && rec.Call.Session != "" {
		if _, cerr := r.o.Gateway.CloseSession(ctx, rec.Call.Session, byRunner, "the recommendation is "+string(to)); cerr != nil && !fault.Is(cerr, fault.SessionClosed) {
			r.o.Log.Error("the session of a recommendation can't be closed", "recommendation", rec.ID, "error", cerr)
		}
	}
	return next, err
}

func (r *Runner) change(ctx context.Context, id, action, actor string, move func(run.Recommendation) (run.Recommendation, error)) (run.Recommendation, error) {
	next, err := r.o.Store.ChangeRecommendation(ctx, id, func(old run.Recommendation) (run.Recommendation, audit.Entry, error) {
		next, err := move(old)
		return next, recEntry(next, action, actor), err
	})
	if err == nil {
		r.o.Gateway.Publish(changes.Recommendation, id)
	}
	return next, err
}

// recEntry is what the entries of a recommendation say.
func recEntry(rec run.Recommendation, action, actor string) audit.Entry {
	e := audit.Entry{Kind: audit.Change, Action: action, Agent: rec.Agent, Session: rec.From, Requester: rec.Requester, Actor: actor, Decision: "ok", Model: rec.Model, Reason: audit.Clip(rec.Why)}
	said := map[string]any{"recommendation": rec.ID, "action": rec.Action, "output_sha256": call.HashBytes(rec.Output), "synthetic": true}
	if rec.Run != "" {
		said["run"] = rec.Run
	}
	if c := rec.Call; c != nil {
		e.Operation, e.CallID = c.Operation, c.CallID
		if c.Approval != "" {
			said["approval_id"] = c.Approval
		}
	}
	e.Detail, _ = json.Marshal(said) // of strings: can't fail
	return e
}

func voters(a approval.Approval) (all []string) {
	for _, v := range a.Votes {
		if v.Decision == approval.Reject && !slices.Contains(all, v.Person) {
			all = append(all, v.Person)
		}
	}
	return all
}

// saidBy is the reason of whoever rejected.
func saidBy(a approval.Approval) string {
	for _, v := range a.Votes {
		if v.Decision == approval.Reject && v.Comment != "" {
			return v.Comment
		}
	}
	return "rejected"
}

// Recommendation returns one, as it is now.
func (r *Runner) Recommendation(ctx context.Context, id string) (run.Recommendation, error) {
	return r.o.Store.Recommendation(ctx, id)
}

// Recommendations returns recommendations, the newest first.
func (r *Runner) Recommendations(ctx context.Context, f run.RecommendationFilter) ([]run.Recommendation, error) {
	return r.o.Store.Recommendations(ctx, f)
}

// Respond is a person's answer to a recommendation. Where it has a question, the answer is the vote on that, under the same digest, quorum and expiry;
// approved, it is carried out before this returns.
func (r *Runner) Respond(ctx context.Context, voter approval.Voter, id string, answer desk.Response) (run.Recommendation, error) {
	rec, err := r.o.Store.Recommendation(ctx, id)
	if err != nil {
		return rec, err
	}
	if rec.State == run.Pending {
		if rec.Call.Approval == "" {
			return rec, fault.New(fault.Conflict, "People are not asked about this recommendation yet.").Try("Try again in a moment.")
		}
		answer.Approval = rec.Call.Approval
		if answer.Decision == approval.Reject && answer.Digest == "" {
			answer.Digest = rec.Digest
		}
		if _, err := r.o.Gateway.Desk().Respond(ctx, voter, answer); err != nil {
			return rec, err
		}
		r.settling.Lock()
		defer r.settling.Unlock()
		return r.settle(context.WithoutCancel(ctx), rec)
	}
	if rec.Over(r.o.Clock()) {
		return rec, fault.New(fault.Conflict, "The recommendation %s could be answered for %d days, and nobody did.", rec.ID, run.Lasts/(24*time.Hour)).Try("Ask the agent again.")
	}
	if answer.Decision == approval.Approve && answer.Digest != rec.Digest {
		return rec, fault.New(fault.ApprovalMismatch, "The recommendation %s has another digest.", rec.ID).At("digest").Try("Look at it again: sallyport recommendations show %s", rec.ID)
	}
	switch answer.Decision {
	case approval.Approve:
		if rec.State == run.Blocked {
			return rec, fault.New(fault.Conflict, "The call of the recommendation %s %s. So there is nothing to approve.", rec.ID, strings.TrimSuffix(rec.Why, ".")).Try("Reject it, or change what keeps it from being carried out and ask the agent again.")
		}
		return r.close(ctx, rec, run.Accepted, answer.Reason, []string{voter.Person})
	case approval.Reject:
		return r.close(ctx, rec, run.Rejected, answer.Reason, []string{voter.Person})
	}
	return rec, fault.New(fault.Conflict, "Nothing waits of the recommendation %s, so there is nothing to postpone.", rec.ID)
}

// Learned are the recommendations that people answered, with who and when: all that anything may be learned from (AG-11). after is the id of the last one
// that is known. export names the export that they are of, or ("") all that were answered are meant.
func (r *Runner) Learned(ctx context.Context, after, export string, limit int) (all []run.Recommendation, next string, err error) {
	then, pinned := answeredBy(export)
	if export != "" && !pinned {
		return nil, "", fault.New(fault.RequestMalformed, "%.80q names no export.", export).At("snapshotId").Try("Leave it out for a new one.")
	}
	for len(all) < limit {
		page, err := r.o.Store.Recommendations(ctx, run.RecommendationFilter{After: after, Limit: 100})
		if err != nil {
			return nil, "", err
		}
		for _, rec := range page {
			if after = rec.ID; rec.State.Validated() && (!pinned || !rec.DecidedAt.After(then)) {
				all = append(all, rec)
			}
			if len(all) == limit {
				return all, after, nil
			}
		}
		if len(page) < 100 {
			return all, "", nil
		}
	}
	return all, after, nil
}
