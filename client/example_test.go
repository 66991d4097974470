package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"sallyport.example/client"
)

// A host opens a session for an agent and works in it. The address is the one under listen; the token comes from
// sallyport token create --host NAME.
func Example() {
	gateway := exampleGateway()
	defer gateway.Close()
	ctx := context.Background()

	host, err := client.New(gateway.URL, "spt_host_example")
	if err != nil {
		fmt.Println(err)
		return
	}
	opened, err := host.Open(ctx, client.OpenSession{AgentID: "assistant", UserRequest: "What did Ann write, and what does the web say about it?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	agent, err := client.New(gateway.URL, opened.SessionToken)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := agent.Call(ctx, client.Own, "web_search", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Verdict.Decision, answer.Verdict.Code)
	for _, r := range answer.Verdict.Remedies {
		fmt.Println(r.Text)
	}

	var problem *client.Problem
	if _, err = agent.Open(ctx, client.OpenSession{AgentID: "assistant"}); errors.As(err, &problem) {
		fmt.Println(problem.Status, problem.Code)
	}
	// Output:
	// deny phase.blocked
	// Submit a plan.
	// 403 credential.wrong_kind
}

// exampleGateway answers as a gateway would.
func exampleGateway() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/session", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer spt_host_example" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"status":403,"code":"credential.wrong_kind","title":"Forbidden","detail":"A session's token can't open sessions."}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"session_id":"sess_1","session_token":"spt_session_example","phase":"planning"}`)
	})
	mux.HandleFunc("POST /v1/session/self/calls", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"call_id":"call_1","verdict":{"decision":"deny","code":"phase.blocked","remedies":[{"kind":"declare","text":"Submit a plan."}]}}`)
	})
	return httptest.NewServer(mux)
}
