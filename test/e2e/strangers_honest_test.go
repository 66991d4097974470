package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// honestCase is an office whose servers do what they say: replays and, where they are here, the programs of npm.
func honestCase(pg bool) *strangerCase {
	c := &strangerCase{
		name: honestWork,
		servers: map[string]strangerSpec{"files": {Role: "files"}, "history": {Role: "history"}, "shop": {Role: "shop"}, "shell": {Role: "shell"},
			"tracker": {Role: "tracker"}, "weather": {Role: "weather"}, "calc": {Role: "calc"}},
		real: realServers(pg),
		files: map[string]string{
			"{servers}/files/guide.txt":                              "Turn it on first.\n",
			"{servers}/history/CHANGES":                              "src/app.go: made faster\nREADME.md: corrected\n",
			"{servers}/tracker/acme/site/issues.json":                `[{"number":7,"title":"The logo is too small"}]`,
			"{servers}/tracker/acme/site/issue-7.json":               `{"number":7,"title":"The logo is too small","user":"zoe","body":"Could it be larger?"}`,
			"{servers}/tracker/acme/site/docs/setup.md":              "Run make.\n",
			"{servers}/docs/hello.txt":                               "hello\n",
			"{servers}/hub/_repos_acme_site_issues.json":             `[{"number":7,"title":"The logo is too small"}]`,
			"{servers}/hub/_repos_acme_site_issues_7.json":           `{"number":7,"title":"The logo is too small","user":{"login":"zoe"},"body":"Could it be larger?"}`,
			"{servers}/hub/_repos_acme_site_contents_README.md.json": gitHubFile("README.md", "The site of acme."),
		},
	}
	return c
}

// realServers are the programs of npm that can be started here.
func realServers(pg bool) map[string]func(*site) {
	all := map[string]func(*site){}
	if _, err := os.Stat(filepath.Join(root(), "test", "npm", "node_modules", "filesystem-2025-3-28")); err == nil {
		all = map[string]func(*site){"docs": oldFilesystem, "hub": oldGitHub, "figma": oldFigma}
		if pg {
			all["ledger"] = oldPostgres
		}
	}
	return all
}

// honestTasks are 51 calls as agents make them for people, each with the request that they belong to.
var honestTasks = []struct {
	request string
	steps   []agentStep
}{
	{"Read my note 'plan' and mail a summary to bob@corp.example.", []agentStep{
		the("notes_list", nil), readPlan, the("mail_send", args{"to": "bob@corp.example", "subject": "Summary", "body": "All goes to plan."})}},
	{"What will the weather be in Bern? And how much is 2 plus 3?", []agentStep{
		the("weather_forecast", args{"city": "Bern"}), the("calc_add", args{"a": 2, "b": 3})}},
	{"Read my note 'travel', tell me the weather in Zurich, and add 120 and 80.", []agentStep{
		the("notes_read", args{"name": "travel"}), the("weather_forecast", args{"city": "Zurich"}), the("calc_add", args{"a": 120, "b": 80})}},
	{"Who are the customers of the shop, and how many are there?", []agentStep{
		the("shop_query", args{"sql": "SELECT name FROM customer ORDER BY name"}), the("shop_query", args{"sql": "SELECT count(*) FROM customer"}),
		the("shop_query", args{"sql": "SELECT c.name, o.name FROM customer c, offer o WHERE o.name LIKE 'lat%'"})}},
	{"Answer the mail 'Delivery of the lathe' and write a note 'lathe' about it.", []agentStep{
		the("mail_inbox", nil), the("mail_send", args{"to": "sales@acme.example", "subject": "Re: Delivery of the lathe", "body": "Monday is fine."}),
		the("notes_write", args{"name": "lathe", "text": "comes on Monday"})}},
	{"Look at the issues of acme/site, see docs/setup.md there, and answer issue 7.", []agentStep{
		the("tracker_list_issues", args{"repository": "acme/site"}), the("tracker_get_issue", args{"repository": "acme/site", "number": 7}),
		the("tracker_read_file", args{"repository": "acme/site", "path": "docs/setup.md"}),
		the("tracker_comment", args{"repository": "acme/site", "number": 7, "text": "It will be larger."})}},
	{"Which changes had src/app.go and README.md?", []agentStep{
		the("history_changes", args{"path": "src/app.go"}), the("history_changes", args{"path": "README.md"})}},
	{"Read guide.txt and write what it says into summary.txt.", []agentStep{
		the("files_read", args{"path": "guide.txt"}), the("files_write", args{"path": "summary.txt", "content": "It says: turn it on."})}},
	{"Look through the documents, read hello.txt and copy it to copy.txt.", []agentStep{
		the("docs_list_directory", args{"path": "{servers}/docs"}), the("docs_directory_tree", args{"path": "{servers}/docs"}),
		the("docs_search_files", args{"path": "{servers}/docs", "pattern": "hello"}), the("docs_get_file_info", args{"path": "{servers}/docs/hello.txt"}),
		the("docs_read_file", args{"path": "{servers}/docs/hello.txt"}), the("docs_write_file", args{"path": "{servers}/docs/copy.txt", "content": "hello\n"})}},
	{"Look at the open issues of acme/site, read its README.md, and answer issue 7.", []agentStep{
		the("hub_list_issues", args{"owner": "acme", "repo": "site"}), the("hub_get_issue", args{"owner": "acme", "repo": "site", "issue_number": 7}),
		the("hub_get_file_contents", args{"owner": "acme", "repo": "site", "path": "README.md"}),
		the("hub_add_issue_comment", args{"owner": "acme", "repo": "site", "issue_number": 7, "body": "It will be larger."})}},
	{"Describe the design AbC123.", []agentStep{the("figma_get_figma_data", args{"fileKey": "AbC123"})}},
	{"How many customers are in the ledger, and who are they?", []agentStep{
		the("ledger_query", args{"sql": "SELECT count(*) FROM customer"}), the("ledger_query", args{"sql": "SELECT name FROM customer"})}},
	{"Look up the offer of the lathe in the shop and send it to carol@corp.example.", []agentStep{
		the("shop_query", args{"sql": "SELECT name FROM offer"}), the("mail_send", args{"to": "carol@corp.example", "subject": "Offer", "body": "A lathe."})}},
	{"Compare the weather of Bern, Basel and Geneva.", []agentStep{
		the("weather_forecast", args{"city": "Bern"}), the("weather_forecast", args{"city": "Basel"}), the("weather_forecast", args{"city": "Geneva"})}},
	{"Read the notes 'plan' and 'travel' and write the note 'week' from them.", []agentStep{
		readPlan, the("notes_read", args{"name": "travel"}), the("notes_write", args{"name": "week", "text": "Zurich on Monday, then the plan"})}},
	{"Look at my inbox and write down in the note 'senders' who wrote.", []agentStep{
		the("mail_inbox", nil), the("notes_write", args{"name": "senders", "text": "acme"})}},
	{"List the files of the project.", []agentStep{the("shell_run", args{"command": "ls"})}},
	{"Read issue 7 of acme/site and write down in the note 'todo' what is to do.", []agentStep{
		the("tracker_get_issue", args{"repository": "acme/site", "number": 7}), the("notes_write", args{"name": "todo", "text": "a larger logo"})}},
	{"Read my note 'plan' and send it to me.", []agentStep{
		readPlan, the("mail_send", args{"to": "ann@corp.example", "subject": "plan", "body": everything})}},
	{"Write a note 'milk' that says: buy milk.", []agentStep{the("notes_write", args{"name": "milk", "text": "buy milk"})}},
}

// honest has the agent do all honest tasks, each in a session of its own.
func honest(t *testing.T, a arrangement, has common) (o outcome) {
	s := newSite(t, honestCase(has.pg != nil), has)
	s.configure(a, "")
	if code, out, errs := cli(t, s.place, nil, "lint"); a.p0 != (code == 1 && strings.Contains(out+errs, "P0")) {
		t.Errorf("lint: exit code %d\n%s%s", code, out, errs)
	}
	w, err := tryLaunch(t, s.place, nil)
	if err != nil {
		o.down = err.Error()
		return o
	}
	s.accept(w, a)
	for _, task := range honestTasks {
		if server, _, _ := strings.Cut(task.steps[0].tool, "_"); s.upstreams[server] == "" {
			t.Logf("not checked, its server is not here: %s", task.request)
			continue
		}
		s.work(w, task.request, task.steps, &o)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	return o
}

// suggestions is what `sallyport flow suggest` proposes for every server of every case: entries by server.
func suggestions(t *testing.T, has common) map[string]string {
	t.Helper()
	all := &strangerCase{name: "suggestions", servers: map[string]strangerSpec{}, real: realServers(has.pg != nil)}
	if all.real["docs"] != nil {
		all.real["remote"] = oldRemote
	}
	for _, c := range strangerCases {
		maps.Copy(all.servers, c.servers)
	}
	maps.Copy(all.servers, honestCase(false).servers)
	s := newSite(t, all, has)
	s.configure(arrangements[3], "")
	w := launch(t, s.place)
	s.offered(w)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := cli(t, s.place, nil, "flow", "suggest", "--data", s.place.data)
	if code != 0 {
		t.Fatalf("flow suggest: %d %s", code, errs)
	}
	var proposed struct{ Operations map[string]map[string]any }
	if err := yaml.Unmarshal([]byte(out), &proposed); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	entries := map[string]string{}
	for _, operation := range slices.Sorted(maps.Keys(proposed.Operations)) {
		server, _, _ := strings.Cut(operation, ".")
		entries[server] += "  " + quote(operation) + ": " + flowStyle(t, proposed.Operations[operation]) + "\n"
	}
	return entries
}

// flowStyle is YAML on one line.
func flowStyle(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
