package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A server behind the gateway can dial its ports. Without a credential they answer that the gateway is there and ready, how its interface looks, and
// with the page to sign in: nothing that belongs to anybody, and nothing that acts.
func TestPortsWithoutACredential(t *testing.T) {
	w := launch(t, newPlace(t, ""))
	open := []string{"GET /healthz", "GET /readyz", "GET /openapi.json", "GET /login", "GET /"} // the last two are the page to sign in
	status, body := w.send(http.MethodGet, w.admin+"/openapi.json", "", "", nil)
	var described struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &described); status != http.StatusOK || err != nil || len(described.Paths) < 20 {
		t.Fatalf("%d, %v, %d paths", status, err, len(described.Paths))
	}
	asked := []string{
		"GET /", "GET /approvals", "GET /sessions", "GET /agents", "GET /tools", "GET /audit", "GET /events", "GET /v1/events", "GET /metrics", "GET /debug/pprof/", "POST /login", "POST /login/link/x",
		"GET /login/link/x", "POST /mcp", "GET /mcp", "DELETE /mcp", "GET /checkpoint", "GET /tile/0/000", "POST /v1/session", "GET /v1/session/self", "POST /v1/session/self/calls",
	}
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	for path, methods := range described.Paths {
		for method := range methods {
			if method = strings.ToUpper(method); method != "PARAMETERS" {
				asked = append(asked, method+" "+parameter.ReplaceAllString(path, "x"))
			}
		}
	}
	refused := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusNotAcceptable, http.StatusGone}
	for _, side := range []string{w.agent, w.admin} {
		for _, request := range asked {
			method, path, _ := strings.Cut(request, " ")
			data := ""
			if method == http.MethodPost {
				data = "{}"
			}
			status, body := w.send(method, side+path, "", data, map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream, text/html"})
			switch {
			case slices.Contains(refused, status), slices.Contains(open, request):
			case status == http.StatusSeeOther || status == http.StatusFound: // to the page to sign in
			default:
				t.Errorf("%s%s without a credential answers %d: %.200s", side, request, status, body)
			}
		}
	}
	for _, e := range w.entries() {
		if e.Kind == "intent" || e.Action == "session.open" || e.Action == "kill.disable" {
			t.Errorf("something happened: %+v", e)
		}
	}
}
