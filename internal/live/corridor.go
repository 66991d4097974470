package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"sallyport.example/client"
	"sallyport.example/guard"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/trial"
)

// This file tries the stages that every call goes through, with the tools of the trial's server.

const send = `{"to":"` + trial.Stranger + `","text":"canary"}`

func (p *prober) permission(ctx context.Context) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	a, err := s.call(ctx, "doctor_forbidden", "{}")
	return refused("a call without the permission", a, err, "permission.denied")
}

func (p *prober) phase(ctx context.Context) Row {
	if row, yes := p.recorded(); yes {
		return row
	}
	s, err := p.open(ctx, p.agent.TrialID, "planning")
	if err != nil {
		return untried(err)
	}
	a, err := s.call(ctx, "doctor_send", send)
	return refused("a call that reaches outside, in the planning phase,", a, err, "phase.blocked")
}

func (p *prober) declaration(ctx context.Context) Row {
	if row, yes := p.recorded(); yes {
		return row
	}
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	a, err := s.call(ctx, "doctor_explain", "{}")
	return refused("a call that has to say why it is needed, and doesn't,", a, err, "declaration.missing", "declaration.invalid")
}

// untrusted reads a stranger's text, and sends something to the address that it names.
func (p *prober) untrusted(ctx context.Context) Row {
	if row, yes := p.recorded(); yes {
		return row
	}
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	if a, err := s.call(ctx, "doctor_read", "{}"); err != nil || !a.done {
		return Row{State: Untried, Detail: fmt.Sprintf("no untrusted text could be read: %s %v", a.reason, err)}
	}
	a, err := s.call(ctx, "doctor_send", send)
	return refusedBy("flow", "a text sent to an address that untrusted text names", a, err, "approval.required", "flow.untrusted_argument")
}

// fence reads a text that imitates the end of its fence.
func (p *prober) fence(ctx context.Context) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	a, err := s.call(ctx, "doctor_read", "{}")
	if err != nil || !a.done {
		return Row{State: Untried, Detail: fmt.Sprintf("no untrusted text could be read: %s %v", a.reason, err)}
	}
	var result struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(a.result, &result); err != nil {
		return untried(err)
	}
	var all strings.Builder
	for _, block := range result.Content {
		all.WriteString(block.Text + "\n")
	}
	fenced := guard.FindWrapped(all.String())
	forged, _, _ := strings.Cut(trial.Hostile, "\n")
	switch {
	case len(fenced) != 1 || !strings.Contains(fenced[0].ForModel(), trial.Stranger):
		return Row{State: Failed, Detail: "untrusted text reached the agent without a fence", Remedy: "report it as a security problem"}
	case strings.Contains(all.String(), forged):
		return Row{State: Failed, Detail: "untrusted text could imitate the end of its fence", Remedy: "report it as a security problem"}
	}
	return Row{State: OK, Detail: "untrusted text came fenced, and the end of the fence that it imitated was made inert"}
}

// secrets holds each confidentiality label, and calls a tool that sends.
func (p *prober) secrets(ctx context.Context) Row {
	if len(p.here.Labels) == 0 {
		return unused("flow.labels names no confidentiality label")
	}
	if len(p.here.Enforced) == 0 {
		return unused("mode observe only records what the labels block")
	}
	var rows []Row
	for _, label := range p.here.Enforced {
		s, err := p.working(ctx, label)
		if err != nil {
			return untried(err)
		}
		a, err := s.call(ctx, "doctor_send", send)
		rows = append(rows, refusedBy("flow", "a text sent to an address that nobody named, by a session that holds "+label, a, err, "flow.contaminated", "approval.required"))
	}
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	if a, err := s.call(ctx, "doctor_secret", "{}"); err != nil || !a.done {
		return Row{State: Untried, Detail: fmt.Sprintf("no secret could be read: %s %v", a.reason, err)}
	}
	a, err := s.call(ctx, "doctor_send", send)
	rows = append(rows, refusedBy("flow", "a text sent to an address that nobody named, after a secret was read", a, err, "flow.contaminated", "approval.required"))
	return together("nothing could be sent unasked to an address that nobody named, with "+strings.Join(p.here.Enforced, ", ")+", nor after a secret was read", rows...)
}

// budget uses up the time of a session.
func (p *prober) budget(ctx context.Context) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	if a, err := s.call(ctx, "doctor_wait", "{}"); err != nil || a.done {
		if err != nil {
			return untried(err)
		}
		return Row{State: Failed, Detail: "a call ran longer than the time that the session has"}
	}
	a, err := s.call(ctx, "doctor_read", "{}")
	return refused("a call after the time of the session was used up", a, err, "limit.budget")
}

// atOnce is how many calls are under way while the limit is sought.
const atOnce = 8

// rate makes more calls in a minute than a session may make. Where there is a label, the flow rules refuse these calls, so that they fill the log with few entries.
func (p *prober) rate(ctx context.Context) Row {
	n := p.agent.CallsPerMinute
	switch {
	case n == 0:
		return unused("neither limits.calls_per_minute nor the agent's trust tier sets a limit")
	case n > p.o.MaxCalls:
		return Row{State: Untried, Detail: fmt.Sprintf("the limit of %d calls a minute is too high to be tried: at most %d calls are made", n, p.o.MaxCalls)}
	}
	s, err := p.working(ctx, p.here.Labels[:min(1, len(p.here.Labels))]...)
	if err != nil {
		return untried(err)
	}
	var (
		made    atomic.Int64
		limited atomic.Bool
		failed  atomic.Pointer[error]
		callers sync.WaitGroup
	)
	for range atOnce {
		callers.Go(func() {
			for made.Add(1) <= int64(n)+1 && !limited.Load() && failed.Load() == nil {
				a, err := s.call(ctx, "doctor_send", send)
				if err != nil {
					failed.Store(&err)
				}
				if a.code == "limit.rate" {
					limited.Store(true)
				}
			}
		})
	}
	callers.Wait()
	switch err := failed.Load(); {
	case limited.Load():
		return Row{State: OK, Detail: fmt.Sprintf("at most %d calls of a session ran in a minute: limit.rate", n)}
	case err != nil:
		return untried(*err)
	}
	return Row{State: Failed, Detail: fmt.Sprintf("%d calls ran in a minute, and the limit is %d", n+1, n)}
}

// ownVote answers a question of risk CRITICAL as the person who opened the session.
func (p *prober) ownVote(ctx context.Context) Row {
	if _, err := p.o.People.Approve(ctx, "appr_doctor", "none", reason); answerIs(err, "role.missing") {
		return Row{State: Untried, Detail: "you can't answer requests", Remedy: "run it as a person with the role approver"}
	}
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	const pay = `{"to":"` + trial.Stranger + `","text":"canary","amount":5}`
	a, err := s.call(ctx, "doctor_pay", pay)
	if row := refused("a CRITICAL call", a, err, "approval.required"); row.State != OK {
		return row
	}
	q, err := p.o.People.Approval(ctx, a.asks)
	if err != nil {
		return untried(err)
	}
	given, voted := p.o.People.Approve(ctx, q.ApprovalID, q.Digest, reason)
	after, again := s.call(ctx, "doctor_pay", pay)
	switch row := refused("a CRITICAL call after the person who opened its session approved it", after, again, "approval.required"); {
	case row.State != OK:
		return row
	case voted == nil && given.State != "pending":
		return Row{State: Failed, Detail: "the person who opened a session could approve its CRITICAL call alone"}
	case voted == nil:
		return Row{State: Failed, Detail: "the approval by the person who opened a session was counted for its CRITICAL call"}
	}
	return Row{State: OK, Detail: "a CRITICAL call waited for people, and the person who opened its session could not approve it"}
}

func answerIs(err error, code string) bool {
	var problem *client.Problem
	return errors.As(err, &problem) && problem.Code == code
}

func (p *prober) kill(ctx context.Context) Row {
	return p.stopped(ctx, "the kill switch", "kill_switch.active",
		func() error { _, err := p.o.People.Kill(ctx, p.agent.TrialID, reason); return err },
		func() error {
			_, err := p.o.People.Unkill(context.WithoutCancel(ctx), p.agent.TrialID, reason)
			return err
		})
}

func (p *prober) quarantine(ctx context.Context) Row {
	return p.stopped(ctx, "the agent's quarantine", "agent.quarantined",
		func() error { _, err := p.o.People.Quarantine(ctx, p.agent.TrialID, reason); return err },
		func() error {
			_, err := p.o.People.Restore(context.WithoutCancel(ctx), p.agent.TrialID, reason)
			return err
		})
}

// stopped tries a call while the trial agent is stopped, and one after that.
func (p *prober) stopped(ctx context.Context, what, code string, stop, start func() error) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	if err := stop(); err != nil {
		return untried(err)
	}
	a, tried := s.call(ctx, "doctor_secret", "{}")
	if err := start(); err != nil {
		return untried(err)
	}
	row := refused("a call under "+what, a, tried, code)
	if row.State != OK {
		return row
	}
	if a, err = s.call(ctx, "doctor_secret", "{}"); err != nil || !a.done {
		return Row{State: Failed, Detail: fmt.Sprintf("after %s was taken back, calls are still refused: %s %v", what, a.reason, err)}
	}
	row.Detail += "; after that was taken back, calls ran again. Only the trial agent was stopped"
	return row
}

func (p *prober) changed(ctx context.Context) Row {
	s, err := p.working(ctx)
	if err != nil {
		return untried(err)
	}
	if a, err := s.call(ctx, "doctor_change", "{}"); err != nil || !a.done {
		return Row{State: Untried, Detail: fmt.Sprintf("the tool could not be called before it changed: %s %v", a.reason, err)}
	}
	if err := p.o.People.ChangeTrial(ctx); err != nil {
		return untried(err)
	}
	a, err := s.call(ctx, "doctor_change", "{}")
	return refused("a call of a tool whose definition changed", a, err, "tool.quarantined")
}

// operations asks, for each agent, about each operation of the configuration that a label blocks, in a session that holds all labels. Nothing is called.
func (p *prober) operations(ctx context.Context) (rows []Row) {
	if len(p.here.Labels) == 0 {
		return []Row{unused("flow.labels names no confidentiality label")}
	}
	tools, err := p.o.People.Tools(ctx)
	if err != nil {
		return []Row{untried(err)}
	}
	definitions := map[string]client.Tool{}
	for _, tool := range tools {
		definitions[tool.Operation] = tool
	}
	for _, agent := range p.here.Agents {
		row := p.operationsOf(ctx, agent, definitions)
		row.Name = agent.AgentID
		rows = append(rows, row)
	}
	return rows
}

func (p *prober) operationsOf(ctx context.Context, agent client.TrialAgent, definitions map[string]client.Tool) Row {
	s, err := p.open(ctx, agent.TrialID, "execution", p.here.Labels...)
	if err != nil {
		return untried(err)
	}
	m, err := s.Manifest(ctx, client.Own)
	if err != nil {
		return untried(err)
	}
	var rows []Row
	var other []string
	refusals := 0
	for _, tool := range m.Tools {
		d, offered := definitions[tool.Operation]
		blocks := slices.ContainsFunc(d.BlockedBy, func(label string) bool { return slices.Contains(p.here.Enforced, label) })
		if !offered || d.Server == "comm" || d.Server == "doctor" || !blocks {
			continue
		}
		v, err := s.Check(ctx, client.Own, tool.Name, sample(d.Definition))
		if err != nil {
			return untried(err)
		}
		switch row := refusedBy("flow", tool.Operation+" in a session that holds "+strings.Join(p.here.Labels, ", "), answerOf(v), nil, "flow.contaminated", "approval.required"); row.State {
		case OK:
			refusals++
		case Untried: // refused all the same
			other = append(other, tool.Operation+" ("+v.Code+")")
		default:
			row.Detail = strings.Replace(row.Detail, "it ran", "it would run", 1)
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		return rows[0]
	}
	if refusals == 0 && len(other) == 0 {
		return unused("no operation of a server that it may call is blocked by a label")
	}
	row := Row{State: OK, Detail: fmt.Sprintf("%s that a label blocks: refused to a session that holds %s", sentence.Count(refusals, "operation"), strings.Join(p.here.Labels, ", "))}
	if len(other) > 0 {
		row.Detail += fmt.Sprintf("; %d were refused before the labels were looked at: %s", len(other), strings.Join(other[:min(len(other), 5)], ", "))
		if refusals == 0 {
			row.State = Untried
		}
	}
	return row
}

// sample makes arguments that a tool's schema takes: only the required ones, each of its type.
func sample(definition json.RawMessage) json.RawMessage {
	type property struct {
		Type any   `json:"type"`
		Enum []any `json:"enum"`
	}
	var d struct {
		InputSchema struct {
			Properties map[string]property `json:"properties"`
			Required   []string            `json:"required"`
		} `json:"inputSchema"`
	}
	if json.Unmarshal(definition, &d) != nil {
		return json.RawMessage("{}")
	}
	arguments := map[string]any{}
	for _, name := range d.InputSchema.Required {
		of := d.InputSchema.Properties[name]
		kind, _ := of.Type.(string) // of several types, or of none that is named: a text
		value, plain := map[string]any{"number": 1, "integer": 1, "boolean": false, "array": []any{}, "object": map[string]any{}}[kind]
		switch {
		case len(of.Enum) > 0:
			arguments[name] = of.Enum[0]
		case plain:
			arguments[name] = value
		default:
			arguments[name] = "x"
		}
	}
	var b bytes.Buffer
	if json.NewEncoder(&b).Encode(arguments) != nil {
		return json.RawMessage("{}")
	}
	return b.Bytes()
}
