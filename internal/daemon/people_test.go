package daemon

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/policy"
)

// Both forms say the same of the same people, and what is written is read back.
func TestPeopleInBothForms(t *testing.T) {
	for name, c := range map[string]struct {
		yaml    string
		people  int
		confirm bool
	}{
		"a list":            {"people: [{id: alice, roles: [admin]}]", 1, false},
		"an empty list":     {"people: []", 0, false},
		"a map":             {"people:\n  confirm: terminal\n  list:\n    - {id: alice, roles: [admin], identities: [a@example.com]}\n    - {id: bob, roles: [viewer]}\n", 2, true},
		"a map with a list": {"people: {list: [{id: alice, roles: [admin]}]}", 1, false},
		"confirm alone":     {"people: {confirm: terminal}", 0, true},
		"nothing":           {"", 0, false},
	} {
		cfg, err := ParseConfig("f", []byte(c.yaml), t.TempDir())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(cfg.People.List) != c.people || cfg.People.confirms() != c.confirm || len(cfg.persons()) != c.people {
			t.Errorf("%s: %+v", name, cfg.People)
		}
		text, err := yaml.Dump(cfg)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseConfig("f", text, t.TempDir())
		if err != nil || len(again.People.List) != c.people || again.People.confirms() != c.confirm {
			t.Errorf("%s, written and read: %+v, %v", name, again, err)
		}
	}
}

// The record names a person's fields alike in both forms, and confirm by its own, with its value.
func TestConfirmInTheRecord(t *testing.T) {
	state := func(text string) startState {
		cfg, err := ParseConfig("f", []byte(text), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		policies, err := policy.Load("")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Dir = "/" // the folder is in the record, too
		s, err := startStateOf("v", []byte("key"), cfg, agent.Set{}, policies)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, after := state("people: [{id: alice, roles: [admin]}]"), state("people: {confirm: terminal, list: [{id: alice, roles: [admin]}]}")
	changes := after.configChanges(&before)
	if len(changes) != 1 || changes[0].Field != "people.confirm" || string(changes[0].To) != `"terminal"` || !reloads(changes[0].Field) {
		t.Errorf("%+v", changes)
	}
}

func TestWhoReachesTheConsoleFromElsewhereCanSignIn(t *testing.T) {
	const confirms, public = "people: {confirm: terminal}\n", "console: {public_url: \"https://sallyport.example\""
	for text, warned := range map[string]bool{
		confirms: false, public + "}": false, confirms + public + "}": true,
		confirms + public + ", oidc: {issuer: \"https://idp.example\", client_id: x}}": false,
	} {
		cfg, err := ParseConfig("f", []byte(text), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		got := false
		for _, w := range cfg.Warnings("f") {
			got = got || w.Field == "people.confirm" && strings.Contains(w.Problem, "signs nobody in")
		}
		if got != warned {
			t.Errorf("%s: %+v", text, cfg.Warnings("f"))
		}
	}
}
