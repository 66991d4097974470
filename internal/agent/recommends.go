package agent

import (
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/call"
)

// recommendsPrefix begins the id of the principal that carries out what an agent recommended. No declaration can have such an id.
const recommendsPrefix = "recommendation:"

// Recommendations is the id of the principal that carries out what people approve of an agent's recommendations. It may call the operations of the
// action map and nothing else. The agent's switch and quarantine reach it.
func Recommendations(id string) string { return recommendsPrefix + id }

// Base is the agent whose switch, quarantine and declaration count for an id: of the principal of its recommendations the agent, else the id itself.
func Base(id string) string { return strings.TrimPrefix(id, recommendsPrefix) }

// IsRecommendations tells whether an id is that of such a principal.
func IsRecommendations(id string) bool { return strings.HasPrefix(id, recommendsPrefix) }

// recommends is the declaration of the principal of the agent's recommendations; false if its action map calls nothing.
func (d *Declaration) recommends() (*Declaration, bool) {
	var operations []string
	for _, name := range slices.Sorted(maps.Keys(d.RecommendationActions)) {
		if op := d.RecommendationActions[name].Operation; op != "" && !slices.Contains(operations, op) {
			operations = append(operations, op)
		}
	}
	r := *d
	r.AgentID, r.Mode, r.StartPhase, r.Sessions, r.SessionsSideBySide = Recommendations(d.AgentID), Operator, Execution, ByHost, true
	r.Permissions = Permissions{Read: operations, Write: operations}
	r.RecommendationActions, r.Run = nil, nil
	return &r, len(operations) > 0 && r.seal() == nil
}

// Recommends tells whether an output of the agent can recommend an action: its schema has a place for one, or there is a map of actions.
func (d *Declaration) Recommends() bool {
	properties, _ := call.Get(d.OutputSchema, "properties")
	inner, _ := call.Get(properties, "recommendation")
	nested, _ := call.Get(inner, "properties")
	_, below := call.Get(nested, "action")
	_, top := call.Get(properties, "action")
	return below || top || len(d.RecommendationActions) > 0
}
