package audit

import (
	"encoding/json"
	"regexp"
	"testing"
)

// Every entry has words for people, without code in them.
func TestPlain(t *testing.T) {
	for want, e := range map[string]Entry{
		"all agents stopped":            {Kind: Change, Action: "kill.disable"},
		"agent let work again":          {Kind: Change, Action: "kill.enable", Agent: "a"},
		"call began":                    {Kind: Intent, Action: "call", Decision: "permit"},
		"call ran":                      {Kind: Outcome, Action: "call", Decision: "ok"},
		"call blocked":                  {Kind: Decision, Action: "call", Decision: "deny"},
		"call, end unknown":             {Kind: Outcome, Action: "call", Decision: "unknown"},
		"model request ran":             {Kind: Outcome, Action: "models/request", Decision: "ok"},
		"model request blocked":         {Kind: Decision, Action: "models/request", Decision: "deny"},
		"circuit breaker opened":        {Kind: Change, Action: "breaker.open"},
		"refused: request approved":     {Kind: Decision, Action: "approval.approve", Decision: "deny"},
		"refused: stopped":              {Kind: Decision, Action: "kill.disable", Decision: "deny"},
		"many refusals":                 {Kind: Decision, Action: Folded, Decision: "deny"},
		"tools list":                    {Kind: Decision, Action: "tools/list"},
		"request approved, own request": {Kind: Decision, Action: "approval.approve", Detail: json.RawMessage(`{"own":true}`)},
		"request rejected":              {Kind: Decision, Action: "approval.reject", Detail: json.RawMessage(`{"own":false}`)},
		"plan approved, own request":    {Kind: Change, Action: "plan.approve", Detail: json.RawMessage(`{"plan_digest":"d","own":true}`)},
		"session opened":                {Kind: Change, Action: "session.open", Detail: json.RawMessage(`{"own":true}`)}, // the agent's own session
		"document erased":               {Kind: Change, Action: "knowledge.erase"},
		"an action of later versions":   {Kind: Change, Action: "an.action_of/later_versions"},
	} {
		if got := Plain(e); got != want {
			t.Errorf("%s of %s: %q, want %q", e.Kind, e.Action, got, want)
		}
	}
	for action, words := range doing {
		if !regexp.MustCompile(`^[A-Za-z’ ]+$`).MatchString(words) || !actionForm.MatchString(action) {
			t.Errorf("%s is called %q", action, words)
		}
	}
}
