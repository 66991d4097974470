package loop

import (
	"strings"

	"sallyport.example/internal/agent"
)

// System says to a model which agent it is and how it has to answer. The gateway's layered system message stands before it, with what the declaration's
// systemPrompt says.
func System(d *agent.Declaration) string {
	var parts []string
	add := func(text string) { parts = append(parts, text) }
	add("You are the agent " + d.AgentID + ". Your purpose: " + d.Purpose)
	add("Read what you need with the tools. Then answer with exactly one JSON object and nothing before or after it: no Markdown, no code fence, no explanation. The object must match this JSON schema:\n" + string(d.OutputSchema))
	sources := append(append(append([]string{}, d.DataSources.Tables...), d.DataSources.APIs...), d.DataSources.Models...)
	add("In citations, source is one of: " + strings.Join(sources, ", ") + "; timestamp is the time that you were told after the call that read it; a quote stands word for word in what you read. " +
		"Where the schema has executionTime or tokensUsed, write 0: the gateway measures them. Where it has modelVersion, write " + d.Run.Model + ". Where it has timestamp, write the time that you were told last.")
	return strings.Join(parts, "\n\n")
}
