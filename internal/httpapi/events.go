package httpapi

import (
	"encoding/json"
	"net/http"

	"sallyport.example/internal/changes"
)

// eventRoutes send programs of people the events that the console's pages get. The bounds on streams count both.
func (a *API) eventRoutes(s *side) {
	s.raw(route{method: http.MethodGet, path: "/v1/events", roles: readers, summary: `What changes, as server-sent events: the topic (approval, plan, session, tool, kill, agent, run, recommendation) with {"id":"…"} of what changed, of a plan that of its session; "all" first and whenever some were missed`},
		"/v1/events", false, "text/event-stream", nil, func(w http.ResponseWriter, r *http.Request) error {
			p, err := s.admit(r, readers)
			if err != nil {
				return err
			}
			return a.console.Stream(w, r, p, func() bool { _, err := s.admit(r, readers); return err == nil }, event)
		})
}

// event is the event of a change, named after its topic. The topic "all" has no id.
func event(change changes.Change) []string {
	data, err := json.Marshal(map[string]string{"id": change.ID})
	if err != nil {
		panic(err) // strings encode
	}
	return []string{"event: " + change.Topic + "\ndata: " + string(data) + "\n\n"}
}
