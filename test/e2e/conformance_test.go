package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// suites are the official conformance suites, each of the revision it was made for.
var suites = []struct {
	revision, pkg string
	args          []string
	stateless     string
	least         int // scenarios that must have run: a suite that finds nothing to do proves nothing
}{
	{revision1125, "conformance-2025-11-25", []string{"--suite", "all"}, "false", 30},
	{revision0728, "conformance-2026-07-28", []string{"--requirements", revision0728}, "true", 40},
}

// The official suites, through the gateway, with the Go SDK's server of everything behind it (mcp-127). The suites know of no
// tokens, so a front adds one; it changes nothing else, and passes Host and Origin on as they came.
func TestConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not checked: the conformance suites (-short)")
	}
	exceptions := readExceptions(t)
	for _, s := range suites {
		t.Run(s.revision, func(t *testing.T) {
			index := npm(t, s.pkg+"/dist/index.js")
			program := node(t)
			upstream := everythingServer(t, s.stateless)
			w := start(t, fmt.Sprintf(`
upstreams:
  everything: {url: %q, client_features: [elicitation, sampling, roots]}
operations:
  everything.*: {expose_as: "{tool}", output: trusted, sensitivity: none, effect: read, external_io: false}
limits: {calls_per_minute: 100000}
`, upstream))
			front := tokenFront(t, w.agent, w.token("tester"))
			out := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, append([]string{index, "server", "--url", front, "-o", out}, s.args...)...)
			printed, err := cmd.CombinedOutput()
			if err != nil { // scenarios that the revision does not require don't count in the exit code
				t.Errorf("the suite: %v", err)
			}
			passed, idle, failed := readResults(t, out)
			t.Logf("%s: %d scenarios passed, %d failed, %d had nothing to check: %v", s.revision, len(passed), len(failed), len(idle), idle)
			if len(passed) < s.least {
				t.Errorf("only %d scenarios passed", len(passed))
			}
			for _, name := range slices.Sorted(maps.Keys(failed)) {
				if exceptions[s.revision][name] == "" {
					t.Errorf("%s:\n%s", name, failed[name])
				}
			}
			for name := range exceptions[s.revision] {
				if slices.Contains(passed, name) {
					t.Errorf("%s passes: take it out of conformance-exceptions.yml", name)
				} else if failed[name] == "" {
					t.Errorf("%s is an exception that never ran", name)
				}
			}
			if t.Failed() {
				t.Logf("the suite printed:\n%s", printed)
			}
		})
	}
}

// readExceptions reads which scenarios may fail, by revision, and why.
func readExceptions(t *testing.T) map[string]map[string]string {
	t.Helper()
	b, err := os.ReadFile("conformance-exceptions.yml")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]string
	if err := yaml.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for revision, scenarios := range all {
		for name, why := range scenarios {
			if strings.TrimSpace(why) == "" {
				t.Errorf("%s %s is an exception without a reason", revision, name)
			}
		}
	}
	return all
}

// readResults reads what the suite wrote: one folder with a checks.json for each scenario.
func readResults(t *testing.T, dir string) (passed, idle []string, failed map[string]string) {
	t.Helper()
	failed = map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []struct {
			ID, Status, ErrorMessage string
		}
		if err := json.Unmarshal(b, &checks); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := scenario(filepath.Base(filepath.Dir(path)))
		var wrong []string
		right := 0
		for _, c := range checks {
			switch c.Status {
			case "FAILURE":
				wrong = append(wrong, fmt.Sprintf("  %s: %s", c.ID, c.ErrorMessage))
			case "SUCCESS":
				right++
			}
		}
		switch {
		case wrong != nil:
			failed[name] = strings.Join(wrong, "\n")
		case right > 0:
			passed = append(passed, name)
		default:
			idle = append(idle, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return passed, idle, failed
}

// written is the time at the end of a folder's name.
var written = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// scenario takes the time and the word "server" off a folder's name.
func scenario(folder string) string {
	return strings.TrimPrefix(written.ReplaceAllString(folder, ""), "server-")
}

// What time it is makes no difference to a scenario's name.
func TestScenarioNames(t *testing.T) {
	for folder, want := range map[string]string{
		"server-tools-list-2026-11-22T11-20-09-380Z":     "tools-list",
		"server-tools-list-2026-11-20T20-20-20-200Z":     "tools-list",
		"tasks-wire-fields-2026-11-22T11-19-09-405Z":     "tasks-wire-fields",
		"server-sep-2020-thing-2026-11-22T11-19-09-405Z": "sep-2020-thing",
		"server-without-a-time":                          "without-a-time",
	} {
		if got := scenario(folder); got != want {
			t.Errorf("%s: %s", folder, got)
		}
	}
}

// everythingServer starts the Go SDK's conformance server, in a process of its own as nobody here wrote it.
func everythingServer(t *testing.T, stateless string) string {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	cmd := exec.Command(build(t, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"), "-http", addr, "-stateless="+stateless)
	log := &tail{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	eventually(t, 20*time.Second, "the everything server listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	return "http://" + addr + "/mcp"
}

// tokenFront forwards everything to the gateway with a token added.
func tokenFront(t *testing.T, target, token string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	return serve(t, fullDuplex(proxy))
}

// fullDuplex lets a proxy read a request's body while it answers. A gateway may answer before the proxy has seen the end of the body; the
// server would then close the body, the proxy take that for a failed write, and cut the answer off (golang/go#40747).
func fullDuplex(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}
