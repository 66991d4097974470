package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/monitor"
)

// Security are the security figures (AU-5).
type Security struct {
	From                   time.Time `json:"from" doc:"The beginning of an hour."`
	To                     time.Time `json:"to"`
	InjectionDetectionRate Figure    `json:"injection_detection_rate"`
	AccessViolationRate    Figure    `json:"access_violation_rate"`
	HighApprovalRate       Figure    `json:"high_approval_rate"`
	AuditCompleteness      Figure    `json:"audit_completeness"`
	MeanTimeToDetect       Figure    `json:"mean_time_to_detect"`
	MeanTimeToRespond      Figure    `json:"mean_time_to_respond"`
	OpenAlerts             int       `json:"open_alerts" doc:"Alerts that nobody has resolved."`
	UncontainedIncidents   int       `json:"uncontained_incidents" doc:"Incidents whose agents are neither stopped nor quarantined, and that nobody has resolved."`
}

// Figure is one of them.
type Figure struct {
	Value *float64 `json:"value" doc:"null: nothing is known of it yet."`
	Unit  string   `json:"unit" doc:"share (0 to 1) or seconds"`
	Goal  float64  `json:"goal"`
	Bound string   `json:"bound" doc:"at_least or at_most: which side of the goal is right"`
	Met   *bool    `json:"met" doc:"null: nothing is known of it yet."`
	Count int64    `json:"count" doc:"Of a share: so many. Of a time: over so many incidents."`
	Total int64    `json:"total" doc:"Of a share: of so many."`
	Basis string   `json:"basis" doc:"What was counted, in words."`
}

func figure(f monitor.Figure, unit string) Figure {
	bound := "at_most"
	if f.Least {
		bound = "at_least"
	}
	return Figure{f.Value, unit, f.Goal, bound, f.Met(), f.Are, f.Of, f.Basis}
}

// Alert is something that people should look at (AU-4).
type Alert struct {
	ID          string          `json:"alert_id"`
	Kind        string          `json:"kind" doc:"injection_attempts, access_violations, quota, timeout or log_damage"`
	Severity    string          `json:"severity" doc:"critical: an incident that needs people; warning: the gateway itself bounds it"`
	State       string          `json:"state" doc:"open, acknowledged or resolved"`
	Title       string          `json:"title"`
	Explanation string          `json:"explanation"`
	Involved    []AlertInvolved `json:"involved" nullable:"false"`
	Count       int64           `json:"count" doc:"Events so far."`
	Entry       int64           `json:"entry" doc:"Of the log: the event that met the rule."`
	FirstAt     time.Time       `json:"first_event_at"`
	EventAt     time.Time       `json:"event_at" doc:"The event that met the rule."`
	LastAt      time.Time       `json:"last_event_at"`
	DetectedAt  time.Time       `json:"detected_at"`

	AcknowledgedAt *time.Time `json:"acknowledged_at"`
	AcknowledgedBy string     `json:"acknowledged_by,omitempty"`
	Comment        string     `json:"comment,omitempty"`
	ContainedAt    *time.Time `json:"contained_at" doc:"When all agents involved were stopped or quarantined, or the gateway itself ended the matter."`
	ContainedBy    string     `json:"contained_by,omitempty"`
	ResolvedAt     *time.Time `json:"resolved_at"`
	ResolvedBy     string     `json:"resolved_by,omitempty"`
	Reason         string     `json:"reason,omitempty"`

	TimeToDetect  float64  `json:"time_to_detect_seconds" doc:"From the event that met the rule until the alert."`
	TimeToRespond *float64 `json:"time_to_respond_seconds" doc:"From the alert to the containment or the resolution, whichever came first; null: neither did yet."`
}

// AlertInvolved says how many events an agent caused.
type AlertInvolved struct {
	Agent  string `json:"agent_id" doc:"The agent; or the credential that acted, as kind:id, where none was at work."`
	Events int64  `json:"events"`
}

// AlertList is a list of alerts.
type AlertList struct {
	Alerts []Alert `json:"alerts" nullable:"false"`
}

func stampOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func alertOf(a monitor.Alert) Alert {
	severity := "warning"
	if a.Critical() {
		severity = "critical"
	}
	shown := Alert{
		ID: a.ID, Kind: string(a.Kind), Severity: severity, State: string(a.State), Title: a.Title(), Explanation: a.Explanation(), Involved: []AlertInvolved{}, Count: a.Count(), Entry: a.Entry,
		FirstAt: a.First.UTC(), EventAt: a.Due.UTC(), LastAt: a.Last.UTC(), DetectedAt: a.Detected.UTC(),
		AcknowledgedAt: stampOf(a.Acknowledged), AcknowledgedBy: a.AcknowledgedBy, Comment: a.Comment, ContainedAt: stampOf(a.Contained), ContainedBy: a.ContainedBy,
		ResolvedAt: stampOf(a.Resolved), ResolvedBy: a.ResolvedBy, Reason: a.Reason, TimeToDetect: a.Detected.Sub(a.Due).Seconds(),
	}
	if end := a.Responded(); !end.IsZero() {
		took := end.Sub(a.Detected).Seconds()
		shown.TimeToRespond = &took
	}
	for _, one := range a.Most() {
		shown.Involved = append(shown.Involved, AlertInvolved{one.Who, one.Events})
	}
	return shown
}

// CommentBody is what a person says with an acknowledgement.
type CommentBody struct {
	Comment string `json:"comment,omitempty" maxLength:"2000" doc:"Goes on the record."`
}

func (a *API) securityRoutes(s *side) {
	handle(s, route{method: http.MethodGet, path: "/v1/security", roles: readers, summary: "The security figures"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			Hours int `query:"hours" minimum:"1" maximum:"168" default:"24" doc:"Of how many hours, the one under way included."`
		}) (Security, error) {
			found, err := a.o.Counters.Security(ctx, a.clock().Add(-time.Duration(in.Hours-1)*time.Hour), a.g.Acted)
			if err != nil {
				return Security{}, err
			}
			unresolved := 0
			for _, n := range a.o.Counters.Unresolved() {
				unresolved += n
			}
			return Security{
				From: found.From, To: found.To, InjectionDetectionRate: figure(found.InjectionDetection, "share"), AccessViolationRate: figure(found.AccessViolations, "share"),
				HighApprovalRate: figure(found.HighApproval, "share"), AuditCompleteness: figure(found.AuditCompleteness, "share"),
				MeanTimeToDetect: figure(found.TimeToDetect, "seconds"), MeanTimeToRespond: figure(found.TimeToRespond, "seconds"),
				OpenAlerts:           unresolved,
				UncontainedIncidents: found.Waiting,
			}, nil
		})
	handle(s, route{method: http.MethodGet, path: "/v1/alerts", roles: readers, summary: "Alerts, the newest first"},
		func(_ context.Context, _ identity.Principal, in *struct {
			State string `query:"state" doc:"open, acknowledged or resolved; without it all"`
			Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		}) (AlertList, error) {
			state := monitor.AlertState(in.State)
			if state != "" && !slices.Contains(monitor.AlertStates, state) {
				return AlertList{}, fault.New(fault.RequestMalformed, "state is open, acknowledged or resolved, not %.40q.", in.State).At("state")
			}
			list := AlertList{[]Alert{}}
			for _, one := range a.o.Counters.Alerts(state) {
				if len(list.Alerts) == in.Limit {
					break
				}
				list.Alerts = append(list.Alerts, alertOf(one))
			}
			return list, nil
		})
	handle(s, route{method: http.MethodGet, path: "/v1/alerts/{id}", roles: readers, summary: "An alert"},
		func(_ context.Context, _ identity.Principal, in *PathID) (Alert, error) {
			one, err := a.o.Counters.Alert(in.ID)
			return alertOf(one), err
		})
	handle(s, route{method: http.MethodPost, path: "/v1/alerts/{id}/acknowledge", roles: operator, summary: "Say that you look after an alert"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body CommentBody
		}) (Alert, error) {
			one, err := a.o.Counters.Acknowledge(ctx, in.ID, in.Body.Comment, p.String())
			return alertOf(one), err
		})
	handle(s, route{method: http.MethodPost, path: "/v1/alerts/{id}/resolve", roles: operator, summary: "Say that an alert is dealt with"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ReasonBody
		}) (Alert, error) {
			one, err := a.o.Counters.Resolve(ctx, in.ID, in.Body.Reason, p.String())
			return alertOf(one), err
		})
}
