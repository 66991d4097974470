package agent

import (
	"strings"
	"testing"
)

// A trial agent may do what its agent may, and use the trial's tools. Nobody else may use those, whatever their permissions say in general.
func TestTrialAgent(t *testing.T) {
	local := Local()
	advisory := Local()
	advisory.AgentID, advisory.Mode, advisory.Permissions = "reader", Advisory, Permissions{Read: []string{"mail.search"}}
	if err := advisory.seal(); err != nil {
		t.Fatal(err)
	}
	named := Local() // as no file can have it
	named.AgentID, named.Permissions = "named", Permissions{Read: []string{"doctor.read", "doctor.*"}, Write: []string{"doctor.send", "doctor.*"}}
	if err := named.seal(); err != nil {
		t.Fatal(err)
	}
	long := Local()
	long.AgentID = strings.Repeat("x", 64)
	set := NewSet(local, advisory, named, long)
	if len(set.All()) != 4 {
		t.Errorf("lists have %d agents", len(set.All()))
	}
	if _, ok := set.Get(Trial(long.AgentID)); ok {
		t.Error("an agent has a trial agent whose id is too long")
	}
	for _, c := range []struct {
		agent, operation string
		write, want      bool
	}{
		{"local", "mail.send", true, true}, {"local", "doctor.send", true, false}, {"local", "doctor.read", false, false},
		{"named", "doctor.send", true, false}, {"named", "doctor.read", false, false}, {"named", "doctor.forbidden", true, false},
		{"doctor.local", "mail.send", true, true}, {"doctor.local", "doctor.send", true, true}, {"doctor.local", "doctor.read", false, true},
		{"doctor.local", "doctor.forbidden", false, false}, {"doctor.local", "doctor.forbidden", true, false},
		{"doctor.reader", "mail.search", false, true}, {"doctor.reader", "mail.send", true, false}, {"doctor.reader", "mail.search", true, false},
		{"doctor.reader", "doctor.pay", true, true}, {"doctor.reader", "doctor.forbidden", false, false},
	} {
		d, ok := set.Get(c.agent)
		if !ok || d.Permits(c.operation, c.write) != c.want {
			t.Errorf("%s, %s, write %v: declared %v, want %v", c.agent, c.operation, c.write, ok, c.want)
		}
	}
	d, _ := set.Get("doctor.reader")
	if d.JudgedAs() != "reader" || local.JudgedAs() != "local" {
		t.Error("policies judge a trial agent by another id than its agent's")
	}
	for _, line := range []string{"  read: [doctor.read]\n", "  read: [\"doctor.*\"]\n", "  read: [\"doctor.read@/srv\"]\n"} {
		example := Example()
		at := strings.Index(example, "  read:")
		end := at + strings.Index(example[at:], "\n") + 1
		if _, problems := Parse("a.yaml", []byte(example[:at]+line+example[end:])); len(problems) == 0 || !strings.Contains(problems[0].String(), "for the trial agents") {
			t.Errorf("%s: %v", line, problems)
		}
	}
	if _, problems := Parse("doctor.yaml", []byte(strings.Replace(Example(), "agentId: research-assistant", "agentId: doctor.dev", 1))); len(problems) == 0 || !strings.Contains(problems[0].String(), "choose another") {
		t.Errorf("a declaration takes the id of a trial agent: %v", problems)
	}
}
