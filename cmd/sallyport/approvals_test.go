package main

import (
	"bytes"
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
		if err := c.confirmed("Approve a\x1bb?"); (err == nil) != yes || strings.Contains(prompt.String(), "\x1b") {
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
