package loop

import (
	"strings"

	"sallyport.example/internal/agent"
)

// System is the system message of an agent: what its declaration says of it, what the gateway tells every agent of the session (constraint), and how it has to
// answer.
func System(d *agent.Declaration, constraint string) string {
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	add(d.SystemPrompt.Role)
	add("You are the agent " + d.AgentID + ". Your purpose: " + d.Purpose)
	if len(d.SystemPrompt.Constraints) > 0 {
		add("What you must keep to:\n- " + strings.Join(d.SystemPrompt.Constraints, "\n- "))
	}
	add(constraint)
	add("Read what you need with the tools. Then answer with exactly one JSON object and nothing before or after it: no Markdown, no code fence, no explanation. The object must match this JSON schema:\n" + string(d.OutputSchema))
	sources := append(append(append([]string{}, d.DataSources.Tables...), d.DataSources.APIs...), d.DataSources.Models...)
	add("In citations, source is one of: " + strings.Join(sources, ", ") + "; timestamp is the time that you were told after the call that read it; a quote stands word for word in what you read. " +
		"Where the schema has executionTime or tokensUsed, write 0: the gateway measures them. Where it has modelVersion, write " + d.Run.Model + ". Where it has timestamp, write the time that you were told last.")
	return strings.Join(parts, "\n\n")
}
