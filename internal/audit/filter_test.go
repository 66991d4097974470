package audit

import (
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

func TestParseFilter(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for query, want := range map[string]Filter{
		"": {Limit: 100},
		"agent=&session=&from=&to=&after=&limit=": {Limit: 100},
		"agent=a&session=s&action=call&decision=deny&kind=intent&operation=o&call_id=c": {
			Agent: "a", Session: "s", Action: "call", Decision: "deny", Kind: "intent", Operation: "o", CallID: "c", Limit: 100},
		"requester=r&approver=p&action_type=transfer_money&risk=HIGH&severity=critical&event=access_violation&code=permission.denied": {
			Requester: "r", Approver: "p", Type: "transfer_money", Risk: "HIGH", Severity: "critical", Event: "access_violation", Code: "permission.denied", Limit: 100},
		"from=2026-01-31T08:00:00Z&to=2026-01-31T09:00:00.5%2B01:00": {
			From: at("2026-01-31T08:00:00Z"), To: at("2026-01-31T09:00:00.5+01:00"), Limit: 100},
		"from=2026-01-31T08:00:00Z&to=2026-01-31T08:00:01Z&after=0&limit=1": {
			From: at("2026-01-31T08:00:00Z"), To: at("2026-01-31T08:00:01Z"), Min: 1, Limit: 1},
		"q=Anna+Meyer&from=7d&to=90m":          {Text: "Anna Meyer", From: at("2026-02-01T08:00:00Z"), To: at("2026-02-08T06:30:00Z"), Limit: 100},
		"after=9223372036854775806&limit=1000": {Min: 1<<63 - 1, Limit: 1000},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseFilter(q, at("2026-02-08T08:00:00Z"))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", query, got, err, want)
		}
	}
	for query, field := range map[string]string{
		"from=yesterday": "from", "to=2026-13-01T00:00:00Z": "to", "from=2026-01-31": "from",
		"from=2026-01-31T08:00:00Z&to=2026-01-31T08:00:00Z": "to",
		"after=-1": "after", "after=x": "after", "after=9223372036854775807": "after", "after=1e3": "after",
		"limit=0": "limit", "limit=1001": "limit", "limit=-5": "limit", "limit=all": "limit",
		"decision=maybe": "decision", "decision=Deny": "decision", "risk=high": "risk", "risk=EXTREME": "risk", "severity=fatal": "severity",
		"event=attack": "event", "code=permission": "code", "code=PERMISSION.DENIED": "code", "action=Call": "action", "action=call%20": "action",
		"type=transfer_money": "type", "from=0d": "from", "from=-1h": "from", "to=7w": "to", "from=1h&to=2h": "to",
		"kind=note": "kind", "kind=Intent": "kind", "agnet=a": "agnet", "Agent=a": "Agent",
		"agent=a&agent=b": "agent", "agent=%ff": "agent", "session=" + strings.Repeat("x", 257): "session",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseFilter(q, at("2026-02-08T08:00:00Z"))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.RequestMalformed || f.Field != field || !strings.Contains(f.Message, field) {
			t.Errorf("%.60s: %+v, %v; want an error at %s", query, got, err, field)
		}
	}
}

// TestFilterMatchesEachField: one wrong field is enough, and the right ones together match.
func TestFilterMatchesEachField(t *testing.T) {
	e := sample(5)
	e.Decision, e.Type, e.Severity, e.Event, e.Code, e.Approvers = "permit", "transfer_money", Critical, AccessViolation, "permission.denied", []string{"alice", "bob"}
	right := Filter{Requester: e.Requester, Approver: "bob", Type: e.Type, Risk: e.Risk, Severity: "critical", Event: "access_violation", Code: e.Code, Agent: e.Agent, Session: e.Session, Action: e.Action, Decision: e.Decision, Kind: string(e.Kind), Operation: e.Operation,
		CallID: e.CallID, From: e.At, To: e.At.Add(1), Min: 5, End: 6}
	if !right.Match(e) || !(Filter{}).Match(e) || !(Filter{}).Match(Entry{}) {
		t.Fatal("does not match")
	}
	v := reflect.ValueOf(right)
	for i := range v.NumField() {
		wrong := right
		f := reflect.ValueOf(&wrong).Elem().Field(i)
		switch name := v.Type().Field(i).Name; name {
		case "From":
			wrong.From = e.At.Add(1)
		case "To":
			wrong.To = e.At
		case "Min":
			wrong.Min = 6
		case "End":
			wrong.End = 5
		case "Limit", "Text":
			continue
		default:
			f.SetString("another")
		}
		if wrong.Match(e) {
			t.Errorf("matches with a wrong %s", v.Type().Field(i).Name)
		}
	}
}
