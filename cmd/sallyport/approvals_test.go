package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
)

// Nothing but a yes is a yes.
func TestConfirmed(t *testing.T) {
	for in, yes := range map[string]bool{"y\n": true, "YES\n": true, " y ": true, "": false, "\n": false, "no\n": false, "yy\n": false, "n\ny\n": false, strings.Repeat(" ", 200) + "y\n": false} {
		var prompt bytes.Buffer
		c := &cli{in: strings.NewReader(in), err: &prompt}
		if err := c.confirmed(t.Context(), "Approve a\x1bb?"); (err == nil) != yes || strings.Contains(prompt.String(), "\x1b") {
			t.Errorf("%q: %v, %q", in, err, prompt.String())
		}
	}
}

func TestUntilTime(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{"": {}, "10m": now.Add(10 * time.Minute), "2026-11-20T15:00:00Z": now.Add(3 * time.Hour)} {
		if got, err := untilTime(s, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v %v", s, got, err)
		}
	}
	for _, s := range []string{"-5m", "0s", "tomorrow", "10"} {
		if _, err := untilTime(s, now); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestSimilar(t *testing.T) {
	got := similar([]client.Approval{{Similar: "a"}, {Similar: "b"}, {Similar: "c"}, {Similar: "b"}, {}, {}, {Similar: "b"}, {Similar: "c"}})
	if len(got) != 2 || got["b"] != "1" || got["c"] != "2" {
		t.Errorf("%v", got)
	}
}

func TestArgumentsOf(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "@" + path
	}
	for in, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, " {} \n": "{}", file("good", "{\"a\":\n2}\n"): "{\"a\":\n2}",
		"": "", "@": "", "[]": "", `"{}"`: "", "{": "", "{}{}": "", file("empty", ""): "", "@" + dir: "", file("none", "{}") + "x": "", file("huge", "{"+strings.Repeat(" ", maxArguments)+"}"): "",
	} {
		got, err := argumentsOf(in)
		if string(got) != want || (err == nil) != (want != "") || err != nil && exitCode(err) != exitUsage {
			t.Errorf("%.60q: %s %v", in, got, err)
		}
	}
}

// A signal ends the wait for an answer, which counts as no, whatever was answered before.
func TestSignalAtAQuestion(t *testing.T) {
	for _, c := range []struct{ first, line, want string }{
		{"", "", "stopped, and nothing was written"},
		{"y\n", "", "stopped, and nothing was written"},
	} {
		dir := t.TempDir()
		t.Setenv("HOME", dir)
		t.Chdir(dir)
		if err := os.WriteFile(".mcp.json", []byte(`{"mcpServers": {"a": {"command": "one"}, "b": {"command": "two"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		in, hand, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer hand.Close()
		ctx, stop := context.WithCancel(t.Context())
		asked := &atPrompt{n: 1 + strings.Count(c.first, "\n"), then: stop}
		if _, err := hand.WriteString(c.first); err != nil {
			t.Fatal(err)
		}
		if code := run(ctx, []string{"init", "--from", ".mcp.json", "--apply"}, in, io.Discard, asked); code != exitRefused || !strings.Contains(asked.String(), c.want) {
			t.Errorf("after %q: %d, %q", c.first, code, asked.String())
		}
		if _, err := os.Stat("sallyport.yaml"); err == nil {
			t.Errorf("after %q a configuration was written", c.first)
		}
	}
}

// atPrompt does something when the n-th question is asked.
type atPrompt struct {
	bytes.Buffer
	n    int
	then func()
}

func (a *atPrompt) Write(p []byte) (int, error) {
	n, err := a.Buffer.Write(p)
	if strings.Count(a.String(), "[y/N]") >= a.n {
		a.then()
	}
	return n, err
}
