package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/sentence"
)

// securityHour is what the security figures need of an hour.
type securityHour struct {
	requests, violations int64 // of agents and at the doors
	high, highAsked      int64 // calls of risk HIGH or CRITICAL that ran, and those of them that people were asked about
}

// verdict is what a person says of something that was screened.
type verdict struct {
	screen.Judged
	at time.Time
}

// ownActor is who acts where the gateway itself asks a model, which is no call of an agent.
const ownActor = "gateway"

// maxVerdicts bounds the verdicts that count. Of more, the newest are left out.
const maxVerdicts = 100_000

// secure counts an entry for alerts and figures. k and n are what it counts as. It holds mu.
func (c *Counters) secure(e *audit.Entry, k Key, n int64) {
	if e.Kind == audit.Intent && e.Agent != "" && e.Actor != ownActor && !e.At.Before(c.started) { // those of agents alone: any other would stand for one that is missing
		c.acted++
	}
	if agent.IsTrial(e.Agent) { // a trial of the controls is no incident
		return
	}
	c.alerts.add(e)
	h := c.security[e.At.UTC().Truncate(time.Hour)]
	if h == nil {
		h = &securityHour{}
		c.security[e.At.UTC().Truncate(time.Hour)] = h
	}
	switch {
	case e.Kind == audit.Intent:
		h.requests++
		if e.Risk == "HIGH" || e.Risk == "CRITICAL" {
			h.high++
			if len(e.Approvers) > 0 {
				h.highAsked++
			}
		}
	case e.Kind == audit.Decision && (k.What == Refused || k.What == Asked):
		h.requests += n
		all, _ := concerns(e)
		for _, c := range all {
			if c.kind == Violations {
				h.violations += c.n
			}
		}
	case e.Kind == audit.Change && e.Action == screen.VerdictAction:
		var j screen.Judged
		if json.Unmarshal(e.Detail, &j) != nil {
			return
		}
		if _, known := c.verdicts[j.Entry]; known || len(c.verdicts) < maxVerdicts {
			c.verdicts[j.Entry] = verdict{j, e.At}
		}
	}
}

// Figure is one of the security figures (AU-5). Without a Value nothing is known of it yet.
type Figure struct {
	Value *float64
	Goal  float64
	Least bool // the goal is the least that the value may be; otherwise the most
	Are   int64
	Of    int64
	Basis string // what was counted, in words
}

// Met tells whether the figure is as it should be; nil: nothing is known yet.
func (f Figure) Met() *bool {
	if f.Value == nil {
		return nil
	}
	met := *f.Value <= f.Goal
	if f.Least {
		met = *f.Value >= f.Goal
	}
	return &met
}

// share is a figure of so many among so many.
func share(are, of int64, goal float64, least bool, basis string) Figure {
	f := Figure{Goal: goal, Least: least, Are: are, Of: of, Basis: basis}
	if of > 0 {
		v := float64(are) / float64(of)
		f.Value = &v
	}
	return f
}

// mean is a figure of a time in seconds.
func mean(all []time.Duration, goal time.Duration, basis string) Figure {
	f := Figure{Goal: goal.Seconds(), Are: int64(len(all)), Of: int64(len(all)), Basis: basis}
	if len(all) > 0 {
		var sum time.Duration
		for _, d := range all {
			sum += d
		}
		v := (sum / time.Duration(len(all))).Seconds()
		f.Value = &v
	}
	return f
}

// Security are the security figures (AU-5) of a time.
type Security struct {
	From, To           time.Time
	InjectionDetection Figure // share
	AccessViolations   Figure // share
	HighApproval       Figure // share
	AuditCompleteness  Figure // share, since Started
	TimeToDetect       Figure // seconds
	TimeToRespond      Figure // seconds
	Started            time.Time
	Waiting            int // incidents that nothing has contained and nobody has resolved
}

// Security returns the figures from the hour with the time on. acted is how many calls of agents the gateway has carried out since it started, by its own count.
func (c *Counters) Security(ctx context.Context, from time.Time, acted func() int64) (Security, error) {
	did := acted() // before the log is read, so that what runs meanwhile can only be in the log
	if err := c.CatchUp(ctx); err != nil {
		return Security{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	from = from.UTC().Truncate(time.Hour)
	if oldest := c.oldest(); from.Before(oldest) {
		from = oldest
	}
	s := Security{From: from, To: c.now().UTC(), Started: c.started}
	var h securityHour
	for at, of := range c.security {
		if at.Before(from) {
			continue
		}
		h.requests, h.violations, h.high, h.highAsked = h.requests+of.requests, h.violations+of.violations, h.high+of.high, h.highAsked+of.highAsked
	}
	s.AccessViolations = share(h.violations, h.requests, 0.001, false, fmt.Sprintf("%d of %d requests tried something without the permission or the credential for it.", h.violations, h.requests))
	s.HighApproval = share(h.highAsked, h.high, 1, true, fmt.Sprintf("%d of %d calls of risk HIGH or CRITICAL that ran had been approved by a person.", h.highAsked, h.high))
	logged := min(c.acted, did)
	s.AuditCompleteness = share(logged, did, 1, true, fmt.Sprintf("%d of %d calls that the gateway has carried out since its start are in the log.", logged, did))

	var found, missed int64
	for _, v := range c.verdicts {
		switch {
		case v.at.Before(from) || !v.Attack:
		case v.Hit:
			found += int64(v.Weight)
		default:
			missed += int64(v.Weight)
		}
	}
	s.InjectionDetection = share(found, found+missed, 0.95, true, fmt.Sprintf("By people’s verdicts: %d attacks found, %d missed. A missed one in the sample stands for %d.", found, missed, screen.SampleOf))

	var detected, responded []time.Duration
	for _, a := range c.alerts.log {
		if !a.Critical() {
			continue
		}
		end := a.Responded()
		if end.IsZero() {
			s.Waiting++
		}
		if a.Detected.Before(from) {
			continue
		}
		detected = append(detected, a.Detected.Sub(a.Due))
		if !end.IsZero() {
			responded = append(responded, end.Sub(a.Detected))
		}
	}
	s.TimeToDetect = mean(detected, 5*time.Minute, fmt.Sprintf("%s: time from the event that met the rule until the alert.", sentence.Count(len(detected), "incident")))
	s.TimeToRespond = mean(responded, 15*time.Minute, fmt.Sprintf("%s: time from the alert until all involved were stopped or quarantined, or a person resolved it. %d still wait.", sentence.Count(len(responded), "incident"), s.Waiting))
	return s, nil
}
