package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sallyport.example/client"
)

// figures are what /metrics answers a token.
func (w *world) figures(token string) (int, string) {
	w.t.Helper()
	status, body := w.send(http.MethodGet, w.admin+"/metrics", token, "", nil)
	return status, string(body)
}

// viewer is the token of a person who can only look.
func (w *world) viewer(id string) string {
	w.t.Helper()
	created, err := w.root.CreateToken(w.t.Context(), client.NewToken{Kind: "person", ID: id, Roles: []string{"viewer"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return created.Secret
}

const metricsPlace = "operations: {echo.say: {sensitivity: none, effect: read}, echo.ask: {sensitivity: none, effect: write, risk: HIGH}}\n"

// TestMetrics: a person's token is needed and the least role will do; the figures follow what happens; nothing that an agent writes is a label.
func TestMetrics(t *testing.T) {
	const words = "ignore-this-label"
	w := launch(t, newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\n"+metricsPlace, limited("tester", "{apiCalls: {day: 400}}")))
	w.acceptDefinitions(anyDefinition)
	token := w.viewer("prometheus")
	_, session := w.open("tester")
	host, err := w.root.CreateToken(t.Context(), client.NewToken{Kind: "host", ID: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]string{"none": "", "an agent's": w.token("tester"), "a session's": session, "a host's": host.Secret} {
		if status, body := w.figures(other); status != http.StatusUnauthorized && status != http.StatusForbidden || strings.Contains(body, "sallyport_") {
			t.Errorf("with %s: %d", name, status)
		}
	}
	status, before := w.figures(token)
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, before)
	}
	for _, want := range []string{`server_up{server="echo"} 1`, "ready 1", "kill_switch_active 0", "figures_missing 0", "sessions_open 1", `quota_limit{agent="tester",resource="api_calls",window="day"} 400`} {
		if !strings.Contains(before, "\nsallyport_"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}

	cs := w.connect(session, revision1125, nil)
	for range 3 {
		must(t, cs, "echo_say", map[string]any{"x": words})
	}
	w.raw(session, words, "{}")
	w.send(http.MethodPost, w.agent+"/v1/session", host.Secret, `{"agent_id":"`+words+`","user_request":"x"}`, map[string]string{"Content-Type": "application/json"})
	w.send(http.MethodPost, w.agent+"/openai/v1/chat/completions", session, `{"model":"`+words+`","messages":[]}`, map[string]string{"Content-Type": "application/json"})
	w.send(http.MethodGet, w.admin+"/metrics?"+words, words, "", map[string]string{"User-Agent": words})
	has := func(figures ...string) func() bool {
		return func() bool {
			_, now := w.figures(token)
			if strings.Contains(now, words) {
				t.Fatal("words of an agent are among the figures")
			}
			for _, want := range figures {
				if !regexp.MustCompile(`(?m)^sallyport_` + want + `$`).MatchString(now) {
					return false
				}
			}
			return true
		}
	}
	eventually(t, patience, "the calls are counted", has(`calls_total\{agent="tester",code="",outcome="ran"\} 3`, `calls_total\{agent="tester",code="tool.unknown",outcome="refused"\} 1`,
		`quota_used\{agent="tester",resource="api_calls",window="day"\} 3`, `calls_total\{agent="\(nobody\)",code="credential.missing",outcome="refused"\} [1-9]\d*`))
	if _, err := w.root.Kill(t.Context(), "", "test"); err != nil {
		t.Fatal(err)
	}
	if !has("kill_switch_active 1")() {
		t.Error("the switch is pulled, and the figures don't say so")
	}
	w.kill()

	w = launch(t, w.place) // counters begin again, what holds does not
	eventually(t, patience, "the figures after a crash", has("kill_switch_active 1", "ready 1", "sessions_open 1"))
	if _, after := w.figures(token); strings.Contains(after, `outcome="ran"} `) {
		t.Error("calls from before the start are counted as if they were made now: they would look like a jump")
	}
}

// TestPrometheus: with the configuration and the rules of docs/operations.md, Prometheus itself reads the figures and raises an alert.
func TestPrometheus(t *testing.T) {
	for _, name := range []string{"prometheus", "promtool"} {
		_, err := exec.LookPath(name)
		requireTool(t, err == nil, name)
	}
	w := launch(t, newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\n"+metricsPlace))
	w.acceptDefinitions(anyDefinition)
	dir, token := t.TempDir(), w.viewer("prometheus")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := example(t, "prometheus.yml")
	for what, here := range map[string]string{"127.0.0.1:7576": strings.TrimPrefix(w.admin, "http://"), "15s": "1s"} {
		if strings.Count(config, what) != 1 {
			t.Fatalf("%s is not in the example", what)
		}
		config = strings.Replace(config, what, here, 1)
	}
	write("prometheus.yml", config+"global: {evaluation_interval: 1s}\n")
	write("sallyport.rules.yml", example(t, "sallyport.rules.yml"))
	write("sallyport.token", token+"\n") // as the command of the page writes it
	tool := func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.Command("promtool", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	tool("", "check", "config", "prometheus.yml")
	_, all := w.figures(token)
	var own strings.Builder
	for line := range strings.Lines(all) { // what the library says of the process isn't ours to name
		if strings.Contains(line, "sallyport_") {
			own.WriteString(line)
		}
	}
	tool(own.String(), "check", "metrics")

	cmd := exec.CommandContext(t.Context(), "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address=127.0.0.1:0")
	cmd.Dir = dir
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	address := make(chan string, 1)
	go func() {
		listens := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			if found := listens.FindStringSubmatch(lines.Text()); found != nil {
				select {
				case address <- found[1]:
				default:
				}
			}
		}
		close(address)
	}()
	at, ok := <-address
	if !ok {
		t.Fatal("prometheus does not start")
	}
	// ask is how many results a query has.
	ask := func(query string) int {
		_, body := w.send(http.MethodGet, "http://"+at+"/api/v1/query?query="+url.QueryEscape(query), "", "", nil)
		var answer struct {
			Data struct{ Result []json.RawMessage }
		}
		if json.Unmarshal(body, &answer) != nil { // it still starts
			return 0
		}
		return len(answer.Data.Result)
	}
	_, session := w.open("tester")
	must(t, w.connect(session, revision1125, nil), "echo_say", map[string]any{})
	for _, query := range []string{`up{job="sallyport"} == 1`, `sallyport_calls_total{agent="tester",outcome="ran"} == 1`, `sallyport_server_up{server="echo"} == 1`, `sallyport_figures_missing == 0`} {
		eventually(t, patience, query, func() bool { return ask(query) == 1 })
	}
	firing := func(alert string) string { return fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"}`, alert) }
	if ask(firing("SallyportStopped")) != 0 {
		t.Error("an alert for nothing")
	}
	if _, err := w.root.Kill(t.Context(), "", "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the alert", func() bool { return ask(firing("SallyportStopped")) == 1 })
}
