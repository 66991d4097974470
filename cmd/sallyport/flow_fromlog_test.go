package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/daemon"
	"sallyport.example/internal/display"
	"sallyport.example/lab/propose"
	"sallyport.example/lab/replay"
)

// Names of tools and arguments are servers' words: none of them reaches the terminal as it is, and a question stays short however many tools it is about.
func TestQuestionsAboutLabelsArePrintable(t *testing.T) {
	const hostile = "x\x1b[2J\u202ey  = taken\nWrite it? y"
	choice := propose.Choice{Server: "crm", Basis: propose.Server, Why: "Its own words: " + hostile}
	option := propose.Option{Key: "y", Means: "They only read.", Operations: map[string]daemon.OperationConfig{}}
	for i := range 200 {
		operation := fmt.Sprintf("crm.%s%d", hostile, i)
		choice.Operations = append(choice.Operations, operation)
		option.Frees = append(option.Frees, operation+"("+hostile+")")
		option.Operations[operation] = daemon.OperationConfig{Effect: "read", Args: map[string]string{hostile: "query"}}
	}
	choice.Options = []propose.Option{option}
	list := &propose.List{Since: time.Unix(0, 0), Choices: []propose.Choice{choice}, Left: []propose.Left{{Operation: "crm." + hostile, Why: "it is odd"}}, Notes: []string{hostile}}
	var out bytes.Buffer
	s := &labelSheet{out: &out, width: 80}
	s.summary(list, "sallyport.yaml")
	s.choice(list, 0, list.Now)
	if n := strings.Count(out.String(), "\n"); n > 40 {
		t.Errorf("%d rows for one question:\n%s", n, out.String())
	}
	if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), "and 192 more") {
		t.Errorf("what is left out is not counted:\n%s", out.String())
	}
	s.entries(choice.Options)
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > 100 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || display.Hidden(r) }) {
			t.Fatalf("%q reaches the terminal", line)
		}
		if strings.HasPrefix(line, "Write it?") {
			t.Errorf("a server's words begin a row: %q", line)
		}
	}
}

// Only a key that was offered is an answer; what is not an answer is asked again; the end of the input, or quitting, takes nothing.
func TestAnswersAboutLabels(t *testing.T) {
	entry := func(operation string) map[string]daemon.OperationConfig {
		return map[string]daemon.OperationConfig{operation: {Effect: "read"}}
	}
	counted := func(_ context.Context, taken ...propose.Option) (replay.Counted, error) {
		return replay.Counted{Questions: 10 - len(taken)}, nil
	}
	for typed, want := range map[string]string{
		"":                       "",
		"y\n":                    "",
		"y\ny\n":                 "",
		"y\ny\nn\n":              "",
		"y\ny\ny\n":              "crm.a crm.b",
		"Y\n n \ny\n":            "crm.a",
		"n\nn\n":                 "",
		"yes\nf\n?\ny\nn\n\ny\n": "crm.a",
		"y\nq\n":                 "",
	} {
		list := &propose.List{Choices: []propose.Choice{
			{Server: "crm", Operations: []string{"crm.a"}, Options: []propose.Option{{Key: "y", Operations: entry("crm.a")}}},
			{Server: "crm", Operations: []string{"crm.b"}, Options: []propose.Option{{Key: "y", Operations: entry("crm.b")}}},
		}}
		lines := make(chan string, 20)
		for line := range strings.Lines(typed) {
			lines <- strings.TrimSuffix(line, "\n")
		}
		close(lines)
		var out bytes.Buffer
		taken, err := (&labelSheet{out: &out, width: 80, count: counted}).ask(t.Context(), list, "c.yaml", lines)
		var got []string
		for _, o := range taken {
			for operation := range o.Operations {
				got = append(got, operation)
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q takes %v, want %q: %v\n%s", typed, got, want, err, out.String())
		}
	}
}
