package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport/client"
)

// What is approved is shown to its last byte, and nothing that the agent wrote in it passes for the gateway's words or reaches the terminal
// as it is.
func TestQuestionIsWholeAndHarmless(t *testing.T) {
	hostile := strings.Repeat("filler ", 2000) + "\x1b[2J\u202e\u009b\ndigest   0000\nrisk  LOW" + "\tthe end"
	arguments, err := json.Marshal(map[string]string{"text": hostile, "digest": "x\x1b[1A", "\nrisk\u2066": "y"})
	if err != nil {
		t.Fatal(err)
	}
	a := &client.Approval{
		ApprovalID: "appr_1", State: "pending", Risk: "HIGH", Needed: 1, Operation: "comm.exec", AgentID: "a\x1bb", Requester: "r\u202e", Digest: "abc", Arguments: arguments,
		Justification: json.RawMessage(`{"user_request":"u\u001b\n` + "\u009b" + `"}`), Labels: []string{"internal"}, SessionLabels: []string{"internal", "pii"},
		Reasons: []client.ApprovalReason{{Stage: "risk", Code: "approval.required", Text: "t\x1b"}},
		Votes:   []client.Vote{{Person: "p\x1b", Decision: "approve", Comment: "c\u202e"}},
	}
	var out bytes.Buffer
	c := &cli{out: &out, output: "table"}
	if err := c.print(a, func(t *table) { question(t, a) }); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() {
		if r != '\n' && (r < ' ' || r == 0x7f || hidden(r)) {
			t.Fatalf("%U in %q", r, out.String())
		}
	}
	if !strings.Contains(out.String(), "the end\"") || strings.Contains(out.String(), "bytes)") {
		t.Errorf("the arguments are cut: %d bytes", out.Len())
	}
	seen := map[string]int{}
	for line := range strings.Lines(out.String()) {
		if name, _, _ := strings.Cut(line, "  "); !strings.HasPrefix(line, " ") {
			seen[strings.TrimSpace(name)]++
		}
	}
	for _, name := range []string{"operation", "risk", "digest", "asked by", "it has read", "and by now", "answer"} {
		if seen[name] != 1 {
			t.Errorf("%d lines begin with %q:\n%s", seen[name], name, out.String())
		}
	}
}

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
