package daemon

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/console"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/notify"
	"sallyport.example/internal/standing"
)

// People are told of a server that is down for a minute, once, and when it is back; of a quarantine, of a tool that changed, and of a channel that fails.
func TestTrouble(t *testing.T) {
	o := newOutbox()
	d := &fakeDesk{clock: noon}
	te := newTeller(t, d, o)
	servers := []console.ServerStatus{{ID: "erp", State: "failed", LastError: "exit status 1", Since: noon.Add(-30 * time.Second)}, {ID: "mail", State: "up", Since: noon}}
	te.trouble = trouble{
		servers: func() []console.ServerStatus { return servers },
		tools: func() []catalogue.Tool {
			return []catalogue.Tool{{Operation: "mail.send", Hash: "a", PendingHash: "b"}, {Operation: "mail.new", PendingHash: "c"}, {Operation: "mail.gone", Hash: "a", PendingHash: "b", Standing: catalogue.Gone}}
		},
		quarantines: func() map[string]standing.Quarantine {
			return map[string]standing.Quarantine{"a": {Since: noon, By: "person:ann", Reason: "it tried the bank"}, "old": {Since: noon.Add(-48 * time.Hour)}}
		},
	}
	te.look(t.Context())
	if o.title("quarantine:a:"+nanos(noon)) != "The agent a was quarantined" || o.title("tool:mail.send:b") != "The tool mail.send changed" || len(o.keys) != 2 {
		t.Errorf("%q", o.keys)
	}
	if body := o.bodies["quarantine:a:"+nanos(noon)]; !strings.Contains(body, `{"name":"by","value":"ann"}`) {
		t.Errorf("%s", body)
	}
	d.clock = noon.Add(time.Minute)
	te.look(t.Context())
	te.look(t.Context())
	down := "server:erp:down:" + nanos(servers[0].Since)
	if o.title(down) != "The server erp is down" || len(o.keys) != 3 {
		t.Errorf("%q", o.keys)
	}
	servers[0].State, servers[0].Since = "up", d.clock
	te.look(t.Context())
	if up := "server:erp:up:" + nanos(d.clock); o.title(up) != "The server erp is up again" || o.follows[up] != down {
		t.Errorf("%q %q", o.keys, o.follows)
	}
	o.counts = map[string]notify.Counts{o.channel: {Waiting: 3, LastError: "status 403", LastFailure: d.clock}}
	te.look(t.Context())
	if key := o.keys[len(o.keys)-1]; !strings.HasPrefix(key, "channel:webhook:hooks.example:") {
		t.Error(key)
	}
}

// What became of a question is told after the message that asked it, by how it ended.
func TestEnded(t *testing.T) {
	for want, a := range map[string]approval.Approval{
		"Approved by ann: bank.transfer":            {State: approval.Approved, Votes: []approval.Vote{{Person: "ann", Decision: approval.Approve}}},
		"Nobody said no, so it runs: bank.transfer": {State: approval.Spent},
		"Rejected by bob: bank.transfer":            {State: approval.Rejected, Reason: "wrong account", Votes: []approval.Vote{{Person: "bob", Decision: approval.Reject}}},
		"Nobody answered in time: bank.transfer":    {State: approval.Expired},
		"Withdrawn: bank.transfer":                  {State: approval.Superseded, Reason: "agent a was stopped"},
		"":                                          {State: approval.Pending},
	} {
		o := newOutbox()
		o.keys = []string{"approval:appr_1:asked"}
		te := newTeller(t, &fakeDesk{clock: noon}, o)
		a.ID, a.Operation, a.Risk = "appr_1", "bank.transfer", "HIGH"
		te.ended(t.Context(), desk.Question{Approval: a})
		key := "approval:appr_1:ended"
		if o.title(key) != want || want != "" && o.follows[key] != "approval:appr_1:asked" || !strings.Contains(o.bodies[key], a.Reason) {
			t.Errorf("%s: %s", a.State, o.bodies[key])
		}
	}
}

func nanos(at time.Time) string { return strconv.FormatInt(at.UnixNano(), 10) }
