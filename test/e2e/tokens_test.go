package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
)

// Every kind of credential at every door: who belongs there gets in, who doesn't is told which door is theirs, and what is no good (any
// more) is refused with what to do, never with the secret in the answer.
func TestTokens(t *testing.T) {
	up := &scripted{tools: plainTools("get"), answer: says("x")}
	w := start(t, fmt.Sprintf("people: [{id: vera, roles: [viewer]}]\nupstreams: {up: {url: %q}}\noperations: {up.*: {sensitivity: none, effect: read}}\n", up.url(t)), declaration("tester"), declaration("sent"))
	issue := func(r client.NewToken) *client.CreatedToken {
		t.Helper()
		c, err := w.root.CreateToken(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	soon := time.Now().Add(400 * time.Millisecond)
	agent, host := issue(client.NewToken{Kind: "agent", ID: "tester"}), issue(client.NewToken{Kind: "host", ID: "ci"})
	viewer := issue(client.NewToken{Kind: "person", ID: "vera", Roles: []string{"viewer"}})
	_, session := w.open("sent") // beside a session that was opened for it, an agent's own token opens no door
	revokedAgent, revokedPerson := issue(client.NewToken{Kind: "agent", ID: "tester"}), issue(client.NewToken{Kind: "person", ID: "vera", Roles: []string{"viewer"}})
	expiredAgent, expiredPerson := issue(client.NewToken{Kind: "agent", ID: "tester", Expires: soon}), issue(client.NewToken{Kind: "person", ID: "vera", Roles: []string{"viewer"}, Expires: soon})

	// A revoked token that has a connection open loses it, too.
	open := w.connect(revokedAgent.Secret, revision1125, nil)
	if r := must(t, open, "up_get", nil); r.IsError {
		t.Fatal(r.text())
	}
	for _, c := range []*client.CreatedToken{revokedAgent, revokedPerson} {
		if err := w.root.RevokeToken(t.Context(), c.TokenID); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := callTool(t.Context(), open, "up_get", nil); err == nil {
		t.Errorf("an open connection of a revoked token: %s", r.text())
	}
	time.Sleep(time.Until(soon.Add(50 * time.Millisecond)))

	const agents, people, mcpDoor = "agents' HTTP", "people's HTTP", "MCP"
	want := map[string]map[string]int{ // credential -> door -> status
		"agent":           {agents: 200, people: 403, mcpDoor: 200},
		"session":         {agents: 200, people: 403, mcpDoor: 200},
		"host":            {agents: 403, people: 403, mcpDoor: 403},
		"viewer":          {agents: 403, people: 200, mcpDoor: 403},
		"admin":           {agents: 403, people: 200, mcpDoor: 403},
		"none":            {agents: 401, people: 401, mcpDoor: 401},
		"unknown":         {agents: 401, people: 401, mcpDoor: 401},
		"of another kind": {agents: 401, people: 401, mcpDoor: 401},
		"revoked agent":   {agents: 401, people: 401, mcpDoor: 401},
		"revoked person":  {agents: 401, people: 401, mcpDoor: 401},
		"expired agent":   {agents: 401, people: 401, mcpDoor: 401},
		"expired person":  {agents: 401, people: 401, mcpDoor: 401},
	}
	secrets := map[string]string{
		"agent": agent.Secret, "session": session, "host": host.Secret, "viewer": viewer.Secret, "admin": w.place.secret(t, "admin.token"), "none": "",
		"unknown": "spt_agent_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "of another kind": strings.Replace(agent.Secret, "agent", "person", 1),
		"revoked agent": revokedAgent.Secret, "revoked person": revokedPerson.Secret, "expired agent": expiredAgent.Secret, "expired person": expiredPerson.Secret,
	}
	for who, doors := range want {
		for door, status := range doors {
			var got int
			var body []byte
			var header http.Header
			switch door {
			case agents:
				got, body, header = w.ask(t, "GET", w.agent+"/v1/session/self", secrets[who], "")
			case people:
				got, body, header = w.ask(t, "GET", w.admin+"/v1/sessions", secrets[who], "")
			case mcpDoor:
				for _, revision := range []string{revision1125, revision0728} {
					content := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
					headers := map[string]string{}
					if revision == revision0728 {
						content, headers = modern("tools/call", "up_get", `"name":"up_get","arguments":{}`)
					}
					before := len(up.calls())
					if got, body = w.post("/mcp", secrets[who], content, headers); got != status {
						t.Errorf("%s at %s with %s: %d, want %d: %s", who, door, revision, got, status, body)
					}
					if reached := len(up.calls()) > before; reached && status != 200 {
						t.Errorf("%s at %s: the call reached the server", who, door)
					}
				}
				_, _, header = w.ask(t, "POST", w.agent+"/mcp", secrets[who], `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			}
			if got != status {
				t.Errorf("%s at %s: %d, want %d: %s", who, door, got, status, body)
			}
			if secret := secrets[who]; secret != "" && strings.Contains(string(body), secret) {
				t.Errorf("%s at %s: the secret is in the answer", who, door)
			}
			switch status {
			case 401:
				if !strings.HasPrefix(header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s at %s: no WWW-Authenticate", who, door)
				}
				for what, word := range map[string]string{"revoked": "revoked", "expired": "expired"} {
					if strings.HasPrefix(who, what) && !strings.Contains(string(body), word) {
						t.Errorf("%s at %s is not told so: %s", who, door, body)
					}
				}
				if !strings.Contains(string(body), "credential.missing") {
					t.Errorf("%s at %s: %s", who, door, body)
				}
			case 403:
				if !strings.Contains(string(body), "credential.wrong_kind") {
					t.Errorf("%s at %s: %s", who, door, body)
				}
			}
		}
	}
	// Spellings that are no credential.
	for _, value := range []string{"Basic " + agent.Secret, "bearer" + agent.Secret, agent.Secret, "Bearer  " + agent.Secret + " x", "Bearer " + strings.ToUpper(agent.Secret), "Bearer " + agent.Secret + "\t,Bearer x"} {
		status, body := w.send("GET", w.agent+"/v1/session/self", "", "", map[string]string{"Authorization": value})
		if status != http.StatusUnauthorized {
			t.Errorf("%q: %d %s", strings.ReplaceAll(value, agent.Secret, "SECRET"), status, body)
		}
	}
	for _, path := range []string{"/v1/session/self?token=" + agent.Secret, "/v1/session/self?access_token=" + agent.Secret} {
		if status, _ := w.send("GET", w.agent+path, "", "", nil); status != http.StatusUnauthorized {
			t.Errorf("a token in the address: %d", status)
		}
	}
}

func (w *world) ask(t *testing.T, method, url, token, body string) (int, []byte, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b, resp.Header
}
