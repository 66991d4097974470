package clients

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "with space", "it's", "$(rm)", "`x`", "a\\b", "\"", "http://127.0.0.1:1/mcp", "*", "é"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q became %q (%v)", s, out, err)
		}
	}
}

// A program that "go run" made goes away, so no configuration names it.
func TestProgram(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	for path, kept := range map[string]bool{
		"/usr/local/bin/sallyport": true, "/home/a/go-builder/sallyport": true, "/home/a/0a/sallyport": true, "/srv/go-build/sallyport": true,
		"/tmp/go-build123456/b001/exe/sallyport": false, "/home/a/.cache/go-build/0a/" + hash + "-d/sallyport": false,
		"/elsewhere/cache/0a/" + hash + "-d/sallyport": false, `C:\Temp\go-build42\b001\exe\sallyport.exe`: false,
	} {
		got, note := Program(path, nil)
		if kept && (got != path || note != "") || !kept && (got != "sallyport" || note == "") {
			t.Errorf("%s became %q, %q", path, got, note)
		}
	}
	if got, note := Program("", errors.New("unknown")); got != "sallyport" || note == "" {
		t.Errorf("without a path: %q, %q", got, note)
	}
}

// The command that Claude Code is set up with keeps the reference, whatever shell reads it: the token itself stands in no file.
func TestCommandKeepsTheReference(t *testing.T) {
	snippet, _, err := Setup{Address: "http://127.0.0.1:7575"}.Snippet("claude-code")
	if err != nil {
		t.Fatal(err)
	}
	command, _, _ := strings.Cut(snippet, "\n")
	c := exec.Command("sh", "-c", "claude() { printf '%s\\n' \"$@\"; }; "+command)
	c.Env = append(os.Environ(), EnvToken+"=spt_agent_secret")
	out, err := c.Output()
	if err != nil || !strings.Contains(string(out), "Authorization: Bearer ${"+EnvToken+"}") || strings.Contains(string(out), "spt_agent_secret") {
		t.Errorf("%s\ngave the client %q (%v)", command, out, err)
	}
}
