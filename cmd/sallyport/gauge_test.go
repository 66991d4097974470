package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// A long command says at a terminal how far it is, not too often, and leaves nothing behind. Elsewhere it says nothing.
func TestGauge(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	g := &gauge{doing: "verifying", out: &out, now: func() time.Time { return now }, last: now}
	g.of(1, 100)
	if g.end(); out.Len() != 0 {
		t.Errorf("what is over at once wrote %q", out.String())
	}
	now = now.Add(time.Second)
	g.of(50, 100)
	g.of(51, 100)
	if got, want := out.String(), "\r\x1b[Kverifying 50 of 100 (50 %)"; got != want {
		t.Errorf("it wrote %q, not %q", got, want)
	}
	if g.end(); !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("it left %q", out.String())
	}
	quiet := (&cli{err: &out}).gauge("verifying")
	out.Reset()
	quiet.last = time.Time{}
	quiet.of(1, 2)
	if _, err := io.WriteString(quiet, "bytes"); err != nil || out.Len() > 0 || quiet.bytes != 5 {
		t.Errorf("where nobody looks it wrote %q", out.String())
	}
}

// Colours stand at a terminal alone, and not with NO_COLOR; columns stay aligned with them.
func TestColours(t *testing.T) {
	for _, colours := range []bool{false, true} {
		var out bytes.Buffer
		tab := &table{w: tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0), colours: colours}
		tab.row(tint("RISK"), "WHAT")
		tab.row(tint("HIGH"), "transfer")
		tab.row(tint("CRITICAL"), "more \x1b[31mhostile\x1b[0m")
		tab.row(tint(""), "nothing")
		if err := tab.w.Flush(); err != nil {
			t.Fatal(err)
		}
		plain := strings.NewReplacer("\x1b[31m", "", "\x1b[33m", "", "\x1b[32m", "", "\x1b[39m", "").Replace(out.String())
		for line := range strings.Lines(plain) {
			if strings.Index(line, "WHAT")+strings.Index(line, "transfer")+strings.Index(line, "more")+strings.Index(line, "nothing") != 10-3 {
				t.Errorf("not aligned: %q", line)
			}
		}
		if got := strings.Contains(out.String(), "\x1b[31mHIGH\x1b[39m"); got != colours {
			t.Errorf("with colours %v: %q", colours, out.String())
		}
		if strings.Contains(out.String(), "\x1b[31mhostile") {
			t.Error("text from outside has a colour")
		}
	}
	if (&cli{out: new(bytes.Buffer)}).colours() {
		t.Error("a pipe gets colours")
	}
}

// Times are the reader's at a terminal, and RFC 3339 in UTC for programs.
func TestTimesAreTheReaders(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, zone)
	for at, want := range map[time.Time]string{
		now.Add(-5 * time.Minute):        "11:55:00, 5 min ago",
		now.Add(29*time.Minute + 1):      "12:29:00, in 29 min",
		now.Add(-20 * time.Hour).UTC():   "Jan 30 16:00, 20 h ago",
		now.Add(-30 * time.Second).UTC(): "11:59:30, 30 s ago",
		now.Add(-72 * time.Hour).UTC():   "2026-01-28 12:00 CET",
	} {
		if got := (&table{now: now}).show(at); got != want {
			t.Errorf("%s is %q, not %q", at, got, want)
		}
	}
	if got := (&table{}).show(now); got != "2026-01-31T11:00:00Z" {
		t.Errorf("for programs it is %q", got)
	}
}
