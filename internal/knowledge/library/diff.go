package library

import (
	"context"
	"strings"

	"sallyport.example/internal/diff"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// Line is a line of the difference between two versions.
type Line struct {
	Kind diff.Kind `json:"kind" enum:",del,ins,skip" doc:"del: only in the older version; ins: only in the newer one; skip: lines that both have were left out; empty: in both"`
	Text string    `json:"text,omitempty"`
	Left int       `json:"left,omitempty" doc:"How many lines were left out"`
}

// skipped is the kind of a Line that stands for lines that both versions have.
const skipped diff.Kind = "skip"

// around is how many lines that both versions have are given before and after a difference.
const around = 3

// Diff compares two versions of a document, line by line. from 0 is the one before to, and to 0 the newest.
func (l *Library) Diff(ctx context.Context, d *knowledge.Document, from, to int) (older, newer *knowledge.Event, lines []Line, err error) {
	if to == 0 {
		to = d.Now().Version.Version
	}
	if from == 0 {
		from = max(1, to-1)
	}
	texts := [2][]string{}
	versions := [2]*knowledge.Event{}
	for i, n := range []int{from, to} {
		if versions[i] = d.Version(n); versions[i] == nil {
			return nil, nil, nil, fault.New(fault.NotFound, "The document has no version %d.", n).At([]string{"from", "to"}[i])
		}
		text, err := l.Text(ctx, d, versions[i])
		if err != nil {
			return nil, nil, nil, err
		}
		texts[i] = strings.Split(text, "\n")
	}
	var all []Line
	diff.Lines(texts[0], texts[1], func(a, b string) bool { return a == b }, func(kind diff.Kind, line string) { all = append(all, Line{Kind: kind, Text: line}) })
	return versions[0], versions[1], nearChanges(all), nil
}

// nearChanges leaves out lines of both versions that are far from any difference.
func nearChanges(all []Line) (lines []Line) {
	near := make([]bool, len(all))
	for i := range all {
		if all[i].Kind == diff.Both {
			continue
		}
		for j := max(0, i-around); j <= min(len(all)-1, i+around); j++ {
			near[j] = true
		}
	}
	for i := range all {
		switch n := len(lines); {
		case near[i]:
			lines = append(lines, all[i])
		case n > 0 && lines[n-1].Kind == skipped:
			lines[n-1].Left++
		default:
			lines = append(lines, Line{Kind: skipped, Left: 1})
		}
	}
	return lines
}
