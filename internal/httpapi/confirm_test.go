package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/identity"
)

// withoutConfirmation are the requests that change something and wait for nobody: they stop or end it.
var withoutConfirmation = []string{
	"POST /agents/kill-switch/disable", "POST /agents/kill-switch/disable/{agentId}", "POST /v1/agents/{id}/quarantine", "POST /v1/sessions/{id}/close", "POST /v1/runs/{id}/cancel", "POST /v1/claims", "POST /v1/knowledge/search",
}

// Everything else that a person's token can change is confirmed at a terminal, which no test has here; reading is not.
func TestWhatIsConfirmed(t *testing.T) {
	w := newWorld(t)
	w.confirms = true
	token := w.token(identity.Person, "alice", identity.Admin)
	for _, e := range endpoints {
		if e.agents() || e.needs == "open" {
			continue
		}
		want := e.method != http.MethodGet && !slices.Contains(withoutConfirmation, e.method+" "+e.path)
		path := strings.NewReplacer("{id}", "sess_x", "{agentId}", "worker", "{operation}", "mail.read").Replace(e.path)
		for _, header := range []string{"", "able", "000000"} {
			got := w.send(w.admin, e.method, path, token, e.body, func(r *http.Request) {
				if header != "" {
					r.Header.Set("Sallyport-Confirmation", header)
				}
			})
			if is := got.status == http.StatusForbidden && strings.Contains(got.body, `"confirmation.required"`); is != want {
				t.Errorf("%s %s with %q: %d %.200s", e.method, e.path, header, got.status, got.body)
			}
		}
	}
	viewer := w.token(identity.Person, "vera", identity.Viewer)
	if got := w.send(w.admin, "POST", "/v1/sessions/next", viewer, `{"agent_id":"worker"}`); !strings.Contains(got.body, `"role.missing"`) {
		t.Errorf("a person who may not do it is asked: %s", got.body)
	}
}

// A sign-in to the console by a token alone would be a way past the terminal. A link is one that a terminal confirmed.
func TestATokenAloneSignsNobodyIn(t *testing.T) {
	w := newWorld(t)
	token := w.token(identity.Person, "alice", identity.Admin)
	link, _, err := w.api.SignInLink(token)
	if err != nil {
		t.Fatal(err)
	}
	signIn := func(path string, form url.Values) answer {
		return w.send(w.admin, "POST", path, "", form.Encode(), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", w.admin.URL)
		})
	}
	for _, confirms := range []bool{false, true} {
		w.confirms = confirms
		want := map[bool]int{false: http.StatusSeeOther, true: http.StatusForbidden}[confirms]
		if got := signIn("/login", url.Values{"token": {token}}); got.status != want || confirms && got.header.Get("Set-Cookie") != "" {
			t.Errorf("confirms: %t: %d", confirms, got.status)
		}
	}
	got := signIn(link, nil)
	if got.status != http.StatusSeeOther || got.header.Get("Set-Cookie") == "" {
		t.Fatalf("by the link: %d %s", got.status, got.body)
	}
	cookie, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
	next := w.send(w.admin, "POST", "/v1/sessions/next", "", `{"agent_id":"selfish"}`, func(r *http.Request) {
		r.Header.Set("Cookie", cookie)
		r.Header.Set("Origin", w.admin.URL)
	})
	if next.status == http.StatusForbidden {
		t.Errorf("who is signed in to the console is asked at a terminal: %s", next.body)
	}
}
