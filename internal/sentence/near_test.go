package sentence

import (
	"slices"
	"strings"
	"testing"
)

func TestNear(t *testing.T) {
	names := []string{"research-assistant", "reviewer", "mail-agent", "mail-agents", "worker", "a", "Bob", strings.Repeat("x", 100)}
	for written, want := range map[string][]string{
		"reserach-assistant":     {"research-assistant"},
		"research":               {"research-assistant"},
		"RESEARCH-ASSISTANT":     {"research-assistant"},
		"mail-agnet":             {"mail-agent", "mail-agents"},
		"bob":                    {"Bob"},
		"wroker":                 {"worker"},
		"b":                      nil,
		"":                       nil,
		"nobody":                 nil,
		strings.Repeat("x", 100): nil,
	} {
		if got := Near(written, names); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", written, got, want)
		}
	}
}
