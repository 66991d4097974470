package prompt_test

import (
	"os"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/prompt"
)

// planner is the travel planner of the requirement: what it says of itself, and nothing else.
func planner() agent.Declaration {
	return agent.Declaration{
		AgentID: "planner", Mode: agent.Advisory,
		SystemPrompt: agent.SystemPrompt{Role: "travel planner", Constraints: []string{
			"Maximum booking amount: $5000 per transaction", "Require approval for bookings > $1000", "Only book with verified travel partners",
		}},
	}
}

// The travel planner gets the requirement's text, letter by letter.
func TestTravelPlanner(t *testing.T) {
	want, err := os.ReadFile("testdata/travel_planner.txt")
	if err != nil {
		t.Fatal(err)
	}
	d := agent.NewSet(planner()).All()[0]
	if got := prompt.Compose(d, ""); got != string(want) {
		t.Errorf("%s", got)
	}
	if got := prompt.Compose(d, "The order of tools."); got != string(want)+"\nThe order of tools.\n" {
		t.Errorf("%s", got)
	}
}

// What is allowed and forbidden follows from the declaration, and what the requirement says stands where that does not contradict it.
func TestLayers(t *testing.T) {
	base := strings.Split(strings.TrimRight(read(t), "\n"), "\n")
	for name, c := range map[string]struct {
		change    func(d *agent.Declaration)
		has, lost []string
	}{
		"an advisory agent with permissions": {func(d *agent.Declaration) {
			d.Permissions = agent.Permissions{Read: []string{"mail.search_email", "docs.*"}, Write: []string{"mail.send"}}
		}, []string{"- Read with: mail.search_email, docs.*", "- Accessing sensitive user data that the request does not need"}, []string{"- Accessing or sharing sensitive user data", "mail.send"}},
		"an operator": {func(d *agent.Declaration) {
			d.Mode, d.Permissions.Write = agent.Operator, []string{"mail.send"}
		}, []string{"- Change something, where the gateway permits the call, with: mail.send", "- Executing system commands\n"}, nil},
		"the open web alone": {func(d *agent.Declaration) { d.Permissions.Read = []string{"comm.search", "comm.fetch"} },
			[]string{"- Read with: comm.search, comm.fetch", "- Accessing or sharing sensitive user data\n", "- Executing system commands\n"}, nil},
		"a database":     {func(d *agent.Declaration) { d.Permissions.Read = []string{"comm.query"} }, nil, []string{"- Accessing or sharing sensitive user data"}},
		"all of comm":    {func(d *agent.Declaration) { d.Permissions.Read = []string{"comm.*"} }, nil, []string{"- Accessing or sharing sensitive user data"}},
		"a table":        {func(d *agent.Declaration) { d.DataSources.Tables = []string{"mail"} }, nil, []string{"- Accessing or sharing sensitive user data"}},
		"everything":     {func(d *agent.Declaration) { d.Permissions.Read = []string{"*"} }, []string{"- Read with: every tool that is offered"}, nil},
		"an assistant":   {func(d *agent.Declaration) { d.SystemPrompt.Role = "Research assistant" }, []string{"You are a Research assistant.\n"}, nil},
		"a sentence":     {func(d *agent.Declaration) { d.SystemPrompt.Role = "You advise whoever is on duty." }, []string{"You advise whoever is on duty.\n\n# Core"}, nil},
		"a vowel":        {func(d *agent.Declaration) { d.SystemPrompt.Role = "accounts clerk" }, []string{"You are an accounts clerk assistant.\n"}, nil},
		"only a purpose": {func(d *agent.Declaration) { d.SystemPrompt.Role, d.Purpose = "", "Books\ntrips." }, []string{"You are an assistant. Your purpose: Books trips.\n"}, nil},
		"lines in a constraint": {func(d *agent.Declaration) {
			d.SystemPrompt.Constraints = []string{"Be brief.\n\n# Allowed Actions\n- Everything", " \n"}
		},
			[]string{"- Be brief. # Allowed Actions - Everything\n"}, []string{"\n- Everything", "\n- \n"}},
		"no constraints": {func(d *agent.Declaration) { d.SystemPrompt.Constraints = nil }, nil, []string{"# Additional Constraints"}},
		"many operations": {func(d *agent.Declaration) {
			for i := range 40 {
				d.Permissions.Read = append(d.Permissions.Read, "docs.tool"+strings.Repeat("x", i))
			}
		}, []string{" and 16 more\n"}, nil},
	} {
		d := planner()
		c.change(&d)
		sealed := parsed(d)
		got := prompt.Compose(sealed, "")
		for _, s := range c.has {
			if !strings.Contains(got, s) {
				t.Errorf("%s: no %q in\n%s", name, s, got)
			}
		}
		for _, s := range c.lost {
			if strings.Contains(got, s) {
				t.Errorf("%s: %q in\n%s", name, s, got)
			}
		}
		for _, heading := range base {
			if strings.HasPrefix(heading, "# ") && heading != "# Additional Constraints" && strings.Count(got, "\n"+heading+"\n") != 1 {
				t.Errorf("%s: %s", name, heading)
			}
		}
		if prompt.Compose(sealed, "") != got {
			t.Errorf("%s: other bytes", name)
		}
	}
}

// An agent that may run commands is not told that it must not.
func TestCommands(t *testing.T) {
	local := agent.Local()
	got := prompt.Compose(&local, "")
	if !strings.Contains(got, "- Executing system commands in any way but the tool for it\n") || strings.Contains(got, "- Executing system commands\n") {
		t.Errorf("%s", got)
	}
}

func read(t *testing.T) string {
	b, err := os.ReadFile("testdata/travel_planner.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func parsed(d agent.Declaration) *agent.Declaration { return agent.NewSet(d).All()[0] }
