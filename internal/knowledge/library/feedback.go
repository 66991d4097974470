package library

import (
	"context"
	"regexp"
	"slices"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

// Said knows what agents said.
type Said interface {
	// Holds tells whether half of a part of a text stands in what agents said, and not in what these had read; from is the run or recommendation.
	Holds(part string) (from string, found bool)
	// Imported reads a text of lines that were exported of recommendations which people answered, and returns what is kept of it, the export that it is from,
	// and the labels of the sessions that recommended. export is the one that the text is said to be from; "": the lines say it.
	Imported(ctx context.Context, export, content string) (text, from string, labels []string, err error)
}

// tagged is what a text is from that carries the tag of an output.
const tagged = "synthetic"

// tag is the tag of an agent's output, in JSON and in YAML.
var tag = regexp.MustCompile(`(?i)["']?\bsynthetic["']?[ \t]*:[ \t\r\n]*true\b`)

// takeExport makes what is kept of the lines of an export. Into its collection goes what people answered of agents' recommendations, and nothing else.
func (l *Library) takeExport(ctx context.Context, source string, a *Adding) error {
	if source != knowledge.ExportCollection {
		return nil
	}
	text, from, labels, err := l.o.Said.Imported(ctx, a.Snapshot, a.Content)
	if err != nil {
		return err
	}
	a.Content, a.Snapshot, a.Labels, a.exported = text, from, append(slices.Clone(a.Labels), labels...), true
	return checkText(text)
}

// agentsWords tells which output of an agent a text is, or has in it: by its tag, or by the words of one of its chunks.
func (l *Library) agentsWords(content string) (from string, found bool) {
	if tag.MatchString(content) {
		return tagged, true
	}
	for _, s := range knowledge.Chunks(content) {
		if from, found := l.o.Said.Holds(content[s.Start:s.End]); found {
			return from, true
		}
	}
	return "", false
}

// refuseAgentsWords refuses a text of an agent, unless its author says that it is theirs. It returns where it is from, for the record.
func (l *Library) refuseAgentsWords(a *Adding) (from string, err error) {
	if a.exported {
		return "", nil
	}
	from, found := l.agentsWords(a.Content)
	if !found || a.Own {
		return from, nil
	}
	return from, fault.New(fault.ContentSynthetic, "The text is, or has in it, what an agent said: %s. Agents don't learn from agents.", from).At("own").
		Try("Is this yours? Then say so: send the same with own: true, --own on the command line, or the box in the console.")
}
