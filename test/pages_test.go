package test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// handsOn are the pages whose marked blocks are run. Each begins in an empty folder, with sallyport on the PATH.
var handsOn = []string{
	"docs/first-server.md", "docs/claude-code.md", "docs/team.md", "docs/tls.md", "docs/oidc.md", "docs/first-policy.md", "docs/tuning.md", "docs/auditor.md",
	"docs/try-approvals.md",
}

// The steps of each page work as they stand there, and print what the page shows. Only the ports are others, since those of the pages may be
// taken on this machine.
func TestHandsOnPages(t *testing.T) {
	if testing.Short() {
		t.Skip("not checked in short mode: it builds and runs the program")
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(bin, "sallyport"), "sallyport.example/cmd/sallyport").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, page := range handsOn {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) { follow(t, bin, page) })
	}
}

// A page with marked blocks is in the list of those that are run.
func TestEveryMarkedPageIsRun(t *testing.T) {
	elsewhere := []string{"README.md", "docs/external.md"} // these begin with a clone
	for name, page := range pages(t) {
		if runs := slices.Contains(handsOn, name) || slices.Contains(elsewhere, name); runs != (len(marked(page)) > 0) {
			t.Errorf("%s: has marked blocks: %v; is run: %v", name, len(marked(page)) > 0, runs)
		}
	}
}

// docs/README.md lists every page of the folder once, as a task, as reference or as design.
func TestEveryPageIsInTheIndex(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| \[[^]]+\]\(([\w.-]+)\)`)
	listed := map[string]int{}
	for _, m := range rows.FindAllStringSubmatch(read(t, "docs/README.md"), -1) {
		listed["docs/"+m[1]]++
	}
	for name := range pages(t) {
		if apart := name == "docs/README.md" || name == "docs/glossary.md" || !strings.HasPrefix(name, "docs/"); !apart && listed[name] != 1 {
			t.Errorf("%s is %d times in docs/README.md", name, listed[name])
		}
	}
}

// A task page says what the reader has at the end, and what goes wrong with its way out.
func TestTaskPagesSayWhatComesOfThem(t *testing.T) {
	_, tasks, _ := strings.Cut(read(t, "docs/README.md"), "\n## Tasks\n")
	tasks, _, _ = strings.Cut(tasks, "\n## ")
	found := regexp.MustCompile(`(?m)^\| \[[^]]+\]\(([\w.-]+)\)`).FindAllStringSubmatch(tasks, -1)
	if len(found) < 10 {
		t.Fatalf("only %d task pages were found", len(found))
	}
	for _, m := range found {
		page := read(t, "docs/"+m[1])
		if m[1] == "external.md" { // a task and its reference in one
			continue
		}
		for _, has := range []string{"\n**At the end** ", "\n## What goes wrong\n"} {
			if !strings.Contains(page, has) {
				t.Errorf("docs/%s has no %q", m[1], strings.TrimSpace(has))
			}
		}
		if !strings.Contains(read(t, "README.md"), "](docs/"+m[1]+")") {
			t.Errorf("the README does not lead to docs/%s", m[1])
		}
	}
}

// follow does what the page says, in a folder of its own.
func follow(t *testing.T, bin, page string) {
	ports := map[string]string{"7575": freePort(t), "7576": freePort(t), "8443": freePort(t)}
	port := regexp.MustCompile(`:(7575|7576|8443)\b`)
	// What init writes has the ports of the pages, too.
	repair := fmt.Sprintf("find . -maxdepth 2 '(' -name sallyport.yaml -o -name .mcp.json ')' -exec sed -i.bak 's/:7[56][0-9]5\\b/:%s/; s/:7[56][0-9]6\\b/:%s/' {} +\n", ports["7575"], ports["7576"])
	here := func(text string) string {
		return port.ReplaceAllStringFunc(text, func(at string) string { return ":" + ports[at[1:]] })
	}
	steps, output := "set -eo pipefail\n", ""
	for _, b := range marked(read(t, page)) {
		if b.kind == "output" {
			output += here(b.text) + "\n"
			continue
		}
		for line := range strings.Lines(b.text + "\n") {
			steps += here(line)
			if strings.HasPrefix(line, "sallyport init") {
				steps += repair
			}
		}
	}
	needs(t, bin, steps)
	if strings.Contains(steps, "https://login.example") {
		login := identityProvider(t)
		steps, output = strings.ReplaceAll(steps, "https://login.example", login), strings.ReplaceAll(output, "https://login.example", login)
	}

	dir := t.TempDir()
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // where init keeps what it replaces
	t.Cleanup(func() {
		if log, err := os.ReadFile(filepath.Join(dir, "serve.log")); t.Failed() && err == nil {
			t.Logf("the gateway's log ends with:\n%s", log[max(0, len(log)-4000):])
		}
	})
	printed := shell(t, dir, steps, 5*time.Minute)
	if checkOutput(t, strings.TrimSpace(output), printed); t.Failed() {
		t.Logf("printed was:\n%s", printed)
	}
}

// identityProvider describes itself as a provider does. Nobody signs in at it.
func identityProvider(t *testing.T) (issuer string) {
	server := httptest.NewUnstartedServer(nil)
	issuer = "http://" + server.Listener.Addr().String()
	described := strings.ReplaceAll(`{"issuer":"ISSUER","authorization_endpoint":"ISSUER/authorize","token_endpoint":"ISSUER/token","jwks_uri":"ISSUER/keys",
		"response_types_supported":["code"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"],"code_challenge_methods_supported":["S256"]}`, "ISSUER", issuer)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/openid-configuration" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, described)
	})
	server.Start()
	t.Cleanup(server.Close)
	return issuer
}

// needs skips where this machine lacks what the steps use.
func needs(t *testing.T, bin, steps string) {
	t.Helper()
	for _, tool := range []string{"bash", "curl", "npx", "nginx", "openssl", "git"} {
		if _, err := exec.LookPath(tool); err != nil && (tool == "bash" || regexp.MustCompile(`\b`+tool+`\b`).MatchString(steps)) {
			missing(t, tool)
		}
	}
	for _, server := range regexp.MustCompile(`@modelcontextprotocol/[\w-]+@[\d.]+`).FindAllString(steps, -1) {
		// Asked for ahead, so that a registry that can't be reached is told from steps that don't work.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "npm", "view", server, "version").CombinedOutput(); err != nil {
			missing(t, fmt.Sprintf("%s (%v: %s)", server, err, out))
		}
	}
	doctor := exec.Command(filepath.Join(bin, "sallyport"), "doctor", "--data", filepath.Join(t.TempDir(), "data"))
	doctor.Dir = t.TempDir()
	if out, err := doctor.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	} else if strings.Contains(string(out), "tier none") {
		missing(t, "a kernel that holds the sandbox")
	}
}
