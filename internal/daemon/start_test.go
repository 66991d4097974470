package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/console"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/store"
)

const startedAgent = `agentId: bot
agentName: Bot
version: 1.0.0
purpose: tests things
capabilities: [testing]
dataSources: {tables: [], apis: [x], models: []}
permissions: {read: ["comm.*"], write: %s}
outputSchema: {type: object, properties: {answer: {type: string, enum: [a]}}, required: [answer], additionalProperties: false}
outputSchemaVersion: 1.0.0
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
mode: %s
`

// started starts a gateway of the configuration and the declarations on the data directory, stops it, and returns what is on record.
func started(t *testing.T, data, config string, agents map[string]string) []audit.Entry {
	t.Helper()
	dir := filepath.Dir(data) // one folder for all starts, as an operator has it
	if err := os.RemoveAll(filepath.Join(dir, "agents")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "agents"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range agents {
		if err := os.WriteFile(filepath.Join(dir, "agents", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := ParseConfig("sallyport.yaml", []byte("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\nagents: ./agents\n"+config), dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), cfg, Options{Data: data, Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := store.OpenReadOnly(data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, _, err := r.Entries(t.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// of are the reasons of the entries with the action, by agent.
func of(entries []audit.Entry, action string) (all []string) {
	for _, e := range entries {
		if e.Action == action {
			all = append(all, strings.TrimSpace(e.Agent+" "+e.Reason))
		}
	}
	return all
}

// Each start is on record with what it found, and what differs from the last start is, too: an advisory agent does not become an operator without
// a trace, and a setting that may hold a secret is named without its value.
func TestStartsAreOnRecord(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	advisory, operator := fmt.Sprintf(startedAgent, "[]", "advisory"), fmt.Sprintf(startedAgent, `["*"]`, "operator")
	t.Setenv("HOOK", "hunter2hunter2")
	const people = "people: [{id: ann, name: Ann Ng, roles: [approver], identities: [ann@example.com]}]\n"
	first := started(t, data, people, map[string]string{"bot": advisory})
	starts := of(first, startAction)
	if len(starts) != 1 || len(of(first, configAction)) != 0 || len(of(first, agentAction)) != 0 {
		t.Fatalf("the first start: %v", first)
	}
	for _, e := range first {
		var d struct {
			Version, Configuration, Policies, Declarations string
			Agents                                         map[string]string
		}
		if e.Action == startAction && (json.Unmarshal(e.Detail, &d) != nil || d.Version != "1.2.3" || len(d.Configuration) != 64 || d.Policies == "" || len(d.Agents["bot"]) != 64) {
			t.Errorf("%s", e.Detail)
		}
	}
	if again := started(t, data, people, map[string]string{"bot": advisory}); len(of(again, startAction)) != 2 || len(of(again, configAction))+len(of(again, agentAction)) != 0 {
		t.Errorf("a start with nothing new: %v", again)
	}
	const hook = `notify: [{kind: webhook, url: "https://hooks.example/${HOOK}", secret: "0123456789abcdef0123456789abcdef", on: [alert]}]` + "\n"
	second := started(t, data, "mode: observe\n"+strings.Replace(people, "approver", "admin", 1)+hook, map[string]string{"bot": operator, "new": strings.Replace(advisory, "agentId: bot", "agentId: new", 1)})
	if got := fmt.Sprint(of(second, configAction)); got != "[changed since the last start: mode, notify.0.kind, notify.0.on, notify.0.secret, notify.0.url, people.ann.roles]" {
		t.Errorf("configuration: %s", got)
	}
	if got := of(second, agentAction); len(got) != 2 || got[0] != "bot changed since the last start: mode, permissions.write" || !strings.HasPrefix(got[1], "new added since the last start: ") {
		t.Errorf("declarations: %q", got)
	}
	for _, e := range second {
		if e.Action == agentAction && e.Agent == "bot" && !strings.Contains(string(e.Detail), `{"field":"permissions.write","from":[],"to":["*"]}`) {
			t.Errorf("%s", e.Detail)
		}
		if e.Action == configAction && (!strings.Contains(string(e.Detail), `{"field":"mode","from":"enforce","to":"observe"}`) || !strings.Contains(string(e.Detail), `{"field":"notify.0.url"}`)) {
			t.Errorf("%s", e.Detail)
		}
		if e.Action != startAction && e.Action != configAction && e.Action != agentAction {
			continue
		}
		if want := map[bool]audit.Severity{true: audit.Info, false: audit.Warning}[e.Action == startAction]; e.Severity != want || e.Event == "" {
			t.Errorf("%+v", e)
		}
	}
	t.Setenv("HOOK", "another2another2")
	third := started(t, data, "mode: shadow\n"+strings.Replace(people, "approver", "admin", 1)+hook, map[string]string{"bot": operator})
	if got := of(third, configAction); len(got) != 2 || got[1] != "changed since the last start: notify.0.url" {
		t.Errorf("another secret: %q", got)
	}
	if got := of(third, agentAction); len(got) != 3 || !strings.HasPrefix(got[2], "new removed since the last start: ") {
		t.Errorf("a declaration that is gone: %q", got)
	}
	files, err := filepath.Glob(filepath.Join(data, "sallyport.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"hunter2hunter2", "another2another2", "0123456789abcdef0123456789abcdef", "ann@example.com", "Ann Ng"} {
			if strings.Contains(string(b), secret) {
				t.Errorf("%s is in %s", secret, filepath.Base(name))
			}
		}
	}
}

// Settings whose value can be a secret never have it on record.
func TestWhatIsPublic(t *testing.T) {
	for field, want := range map[string]bool{
		"mode": true, "operations.bank.pay.action": true, "people.ann.roles": true, "comm.exec.allow": true, "limits.calls_per_minute": true,
		"people.ann.identities": false, "people.ann.name": false, "upstreams.crm.headers.Authorization": false, "upstreams.crm.url": false, "upstreams.crm.command": false,
		"comm.databases.crm": false, "notify.0.url": false, "console.oidc.client_secret": false, "comm.search.key": false, "modelsx": false, "": false,
	} {
		if isPublic(field) != want {
			t.Errorf("%s: %t", field, !want)
		}
	}
}

// People are told of each change once, over any number of starts, and not of old ones.
func TestTellConfiguration(t *testing.T) {
	d, o := &fakeDesk{clock: noon}, newOutbox()
	for range 2 {
		tell := newTeller(t, d, o)
		tell.changes = func() []console.Change {
			return []console.Change{{Index: 7, At: noon, Agent: "bot", Text: "changed since the last start: mode"}, {Index: 6, At: noon, Text: "changed since the last start: listen"}, {Index: 2, At: noon.Add(-2 * tellBack), Text: "old"}}
		}
		tell.everything(t.Context())
		tell.change(t.Context(), changes.Change{Topic: changes.Kill})
	}
	reloaded := newTeller(t, d, o)
	reloaded.changes = func() []console.Change {
		return []console.Change{{Index: 9, At: noon, Text: "changed since the configuration was loaded last: mode"}}
	}
	reloaded.change(t.Context(), changes.Change{Topic: changes.Agent, ID: "bot"})
	if len(o.keys) != 2 {
		t.Errorf("a change of one agent's standing: %v", o.keys)
	}
	reloaded.change(t.Context(), changes.Change{Topic: changes.Agent})
	if len(o.keys) != 3 || o.title("change:9") != "The configuration changed" {
		t.Errorf("after a reload: %v", o.keys)
	}
	if o.title("change:7") != "The declaration of the agent bot changed" || o.title("change:6") != "The configuration changed" || !strings.Contains(o.bodies["change:7"], "mode") {
		t.Errorf("%v %v", o.keys, o.bodies)
	}
}

// However many fields changed, and however much longer they are as JSON, the log takes the entries about them, and they name each field: a start that
// can't be put on record is refused, and a change doesn't hide behind a hundred others.
func TestManyChangesAreAllNamed(t *testing.T) {
	for _, value := range []string{`["` + strings.Repeat(`a","`, 60) + `z"]`, `"` + strings.Repeat("<&>", 60) + `"`, `"HIGH"`, ""} {
		var fields []changed
		for i := range 300 {
			name := fmt.Sprintf("operations.crm.update_customer_record_%03d.args.recipients.allowed", i)
			if value == "" { // names that are too long themselves
				value, name = "1", name+strings.Repeat("<", 40_000)
			}
			fields = append(fields, changed{name, clipped(json.RawMessage(value)), clipped(json.RawMessage(value))})
		}
		named := 0
		entries := starting.changeEntries(configAction, "", "changed", fields)
		for _, e := range entries {
			var detail struct {
				Fields []changed `json:"fields"`
				More   int       `json:"more"`
			}
			if _, err := e.Marshal(); err != nil || json.Unmarshal(e.Detail, &detail) != nil || len(detail.Fields) == 0 {
				t.Fatalf("%.20s: %v", value, err)
			}
			for _, f := range detail.Fields {
				if !strings.HasPrefix(fields[named].Field, f.Field[:60]) {
					t.Errorf("%.80s stands where %.80s is due", f.Field, fields[named].Field)
				}
				named++
			}
			if named+detail.More != len(fields) {
				t.Errorf("%.20s: %d fields are named, and %d more", value, named, detail.More)
			}
		}
		if named != len(fields) {
			t.Errorf("%.20s: %d of %d fields are named", value, named, len(fields))
		}
	}
}

// What decides without a word of its own in the file is on record, too: an operation with an empty entry, a list that is empty so that the server's does
// not hold, and another folder that relative paths mean.
func TestChangesWithoutAWord(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	to := func(name string) {
		_ = os.Remove(link)
		if err := os.Symlink(filepath.Join(dir, name), link); err != nil {
			t.Fatal(err)
		}
	}
	to("one")
	const server = "upstreams: {m: {command: [\"false\"]}}\n"
	parse := func(text, dir string) startState {
		t.Helper()
		cfg, err := ParseConfig("sallyport.yaml", []byte(text), dir)
		if err != nil {
			t.Fatal(err)
		}
		policies, err := policy.Load("")
		if err != nil {
			t.Fatal(err)
		}
		s, err := startStateOf("test", []byte("key"), cfg, agent.Set{}, policies)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	project := "flow: {project: " + link + "}\n"
	inProject := parse(project, dir)
	to("two")
	for name, c := range map[string]struct {
		before, after startState
		want          string
	}{
		"nothing":       {parse(server, dir), parse(server, dir), ""},
		"an operation":  {parse(server, dir), parse(server+"operations: {m.send: {}}\n", dir), "operations"},
		"one more":      {parse(server+"operations: {m.x: {}}\n", dir), parse(server+"operations: {m.x: {}, m.send: {}}\n", dir), "operations.m.send"},
		"an empty list": {parse(server+"operations: {m.*: {names: [a]}, m.x: {names: [], effect: read}}\n", dir), parse(server+"operations: {m.*: {names: [a]}, m.x: {effect: read}}\n", dir), "operations.m.x.names"},
		"its folder":    {parse(server, filepath.Join(dir, "one")), parse(server, filepath.Join(dir, "two")), "folder"},
		"a link":        {inProject, parse(project, dir), "flow.project (the folder)"},
	} {
		got := ""
		for _, e := range starting.changes(&c.before, &c.after) {
			got += e.Reason
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
