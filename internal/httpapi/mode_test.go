package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/client"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
)

// A gateway that only observes says so on each page and to whoever asks, with what it has let through; one that enforces doesn't.
func TestMode(t *testing.T) {
	for mode, words := range map[gateway.Mode]int{gateway.Enforce: 0, gateway.Observe: 1} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, func(o *gateway.Options) { o.Mode = mode })
			host := w.client(w.agent, w.token(identity.Host, "ci"))
			s, err := host.Open(t.Context(), client.OpenSession{AgentID: "planner", UserRequest: "look it up"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.client(w.agent, s.SessionToken).Call(t.Context(), s.SessionID, "web_search", json.RawMessage(`{"q":"x"}`)); err != nil {
				t.Fatal(err)
			}
			m, err := w.root().Mode(t.Context())
			if err != nil || m.Mode != string(mode) || m.Observed != (client.Observed{Refusals: int64(words)}) || (m.Text != "") != (words > 0) {
				t.Errorf("%+v %v", m, err)
			}
			_, cookie := w.signIn(w.token(identity.Person, "alice", identity.Admin))
			for _, path := range []string{"/", "/tools", "/sessions/" + s.SessionID} {
				if a := w.send(w.admin, "GET", path, "", "", with(cookie)); a.status != 200 || strings.Count(a.body, "Observing: questions and refusals are recorded, not enforced.") != words {
					t.Errorf("%s: status %d, and the words are not there %d times", path, a.status, words)
				}
			}
		})
	}
}
