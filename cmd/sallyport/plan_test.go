package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sallyport.example/client"
	"sallyport.example/internal/display"
)

// planned is a session whose plan has the steps.
func planned(steps ...client.PlanStep) *client.Session {
	return &client.Session{SessionID: "sess_1", State: "open", Phase: "planning", Plan: &client.Plan{PlanID: "plan_1", State: "pending", Digest: strings.Repeat("8f", 32), Steps: steps}}
}

// A plan is shown to its last byte together with the digest that it is approved by, or without it.
func TestPlanIsShownWhole(t *testing.T) {
	arguments, err := json.Marshal(map[string]string{"about": strings.Repeat("the invoice of May ", 20), "to": "IBAN-OF-THIEF"})
	if err != nil {
		t.Fatal(err)
	}
	large := json.RawMessage(`{"text":"` + strings.Repeat("x", shownArguments) + `"}`)
	half := json.RawMessage(`{"text":"` + strings.Repeat("x", shownArguments/2) + `"}`)
	for name, c := range map[string]struct {
		steps []client.PlanStep
		whole bool
		want  []string
	}{
		"long":          {[]client.PlanStep{{Tool: "pay", Operation: "bank.pay", Arguments: arguments, Justification: "the last words"}}, true, []string{"IBAN-OF-THIEF", "the last words", "bank.pay"}},
		"any arguments": {[]client.PlanStep{{Tool: "pay", Operation: "bank.pay", After: []int{2, 4}}}, true, []string{"not fixed: each call is checked when it is made", "after step      2 4"}},
		"from results": {[]client.PlanStep{{Tool: "find"}, {Tool: "pay", Each: new(int), Open: []string{"text"}, From: map[string]client.StepSource{"to": {Field: "iban"}, "sum": {Role: "amount"}}}}, true,
			[]string{"none but these", `"sum" from step 0: what may serve as amount`, `"to" from step 0: the field "iban"`, `"text" open`, "called once for each record of step 0"}},
		"much from": {[]client.PlanStep{{Tool: "pay", Open: []string{strings.Repeat("x", shownArguments)}}}, false, []string{"NOT SHOWN         1 of 1 steps"}},
		"large":     {[]client.PlanStep{{Tool: "note"}, {Tool: "pay", Arguments: large}}, false, []string{"step 0", "NOT SHOWN         1 of 2 steps"}},
		"together":  {[]client.PlanStep{{Tool: "pay", Arguments: half}, {Tool: "pay", Arguments: half}}, false, []string{"NOT SHOWN         1 of 2 steps"}},
		"words":     {[]client.PlanStep{{Tool: "pay", Justification: strings.Repeat("x ", shownArguments)}}, false, []string{"NOT SHOWN         1 of 1 steps"}},
	} {
		s := planned(c.steps...)
		rows, whole := sessionRows(s, 100, time.Time{})
		text := strings.Join(rows, "\n")
		if whole != c.whole || strings.Contains(text, s.Plan.Digest) != c.whole || strings.Contains(text, "NOT SHOWN") == c.whole {
			t.Errorf("%s: whole is %v:\n%.2000s", name, whole, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not there:\n%.2000s", name, want, text)
			}
		}
	}
}

// Nothing in a plan can look like another part of what is shown.
func TestPlanIsHarmless(t *testing.T) {
	for name, text := range hostile {
		text = text[:min(len(text), 12_000)]
		arguments, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		s := planned(client.PlanStep{Tool: text, Operation: text, Arguments: arguments, Justification: text,
			From: map[string]client.StepSource{text[:min(len(text), 200)]: {Field: text[:min(len(text), 200)]}, "role": {Role: text[:min(len(text), 200)]}}, Open: []string{text[:min(len(text), 200)]}})
		s.AgentID, s.UserRequest, s.OpenedBy, s.Labels = text, text, text, []client.Held{{Label: text}}
		rows, whole := sessionRows(s, 80, time.Time{})
		if !whole {
			t.Errorf("%s: not whole", name)
		}
		count := map[string]int{}
		for _, row := range rows {
			for _, r := range row {
				if r < ' ' || r == 0x7f || display.Hidden(r) || !utf8.ValidString(row) {
					t.Fatalf("%s: %U in %q", name, r, row)
				}
			}
			first, _, _ := strings.Cut(row, " ")
			count[first]++
		}
		for _, word := range []string{"session", "state", "plan", "step", "digest"} {
			if count[word] != 1 {
				t.Errorf("%s: %d rows are called %s", name, count[word], word)
			}
		}
		if count["risk"] > 0 {
			t.Errorf("%s: a row is called risk", name)
		}
	}
}

// sallyport sessions approve-plan without a digest tells it only of a plan that it has shown whole.
func TestApprovePlanTellsTheDigestOfWhatItShows(t *testing.T) {
	for size, told := range map[int]bool{100: true, shownArguments: false} {
		s := planned(client.PlanStep{Tool: "pay", Arguments: json.RawMessage(`{"text":"` + strings.Repeat("x", size) + `"}`)})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(s)
		}))
		t.Setenv(envURL, server.URL)
		t.Setenv(envToken, "t")
		var out, errOut bytes.Buffer
		code := run(t.Context(), []string{"sessions", "approve-plan", "sess_1"}, nil, &out, &errOut)
		server.Close()
		if all := out.String() + errOut.String(); code == exitDone || !strings.Contains(all, "plan_1") || strings.Contains(all, s.Plan.Digest) != told {
			t.Errorf("%d bytes: exit %d: %.3000s", size, code, all)
		}
	}
}

// sallyport approvals list names plans that wait, wherever among the open sessions they are, and nothing else reads sessions.
func TestListNamesPlansThatWait(t *testing.T) {
	waits, sealed := planned(client.PlanStep{Tool: "pay"}), planned(client.PlanStep{Tool: "pay"})
	waits.SessionID, waits.Plan.State, sealed.SessionID, sealed.Plan.State = "sess_waits", "pending", "sess_sealed", "approved"
	asked, broken := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case r.URL.Path == "/v1/approvals":
			_ = json.NewEncoder(w).Encode(client.ApprovalPage{})
		case broken:
			problem(w, &client.Problem{Status: 503, Code: "store.unavailable", Detail: "No."})
		case r.URL.Path == "/v1/sessions" && q.Get("state") == "open" && q.Get("after") == "":
			asked++
			_ = json.NewEncoder(w).Encode(client.SessionPage{Sessions: []client.Session{*sealed, {SessionID: "sess_none"}}, Next: "sess_none"})
		case r.URL.Path == "/v1/sessions" && q.Get("after") == "sess_none":
			_ = json.NewEncoder(w).Encode(client.SessionPage{Sessions: []client.Session{*waits}})
		default:
			t.Errorf("%s %s", r.Method, r.URL)
		}
	}))
	defer server.Close()
	t.Setenv(envURL, server.URL)
	t.Setenv(envToken, "t")
	for args, named := range map[string]bool{"": true, "--state rejected": false, "--session sess_1": false, "--after appr_1": false, "--output json": false} {
		var out, errOut bytes.Buffer
		asked = 0
		code := run(t.Context(), append([]string{"approvals", "list"}, strings.Fields(args)...), nil, &out, &errOut)
		if all := out.String(); code != exitDone || strings.Contains(all, "sallyport sessions approve-plan sess_waits") != named || strings.Contains(all, "sess_sealed") || (asked > 0) != named {
			t.Errorf("%q: exit %d, %s%s", args, code, all, errOut.String())
		}
	}
	broken = true
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"approvals", "list"}, nil, &out, &errOut); code != exitDone || !strings.Contains(out.String(), "APPROVAL") || !strings.Contains(errOut.String(), "whether plans wait is not known") {
		t.Errorf("without sessions: exit %d, %s%s", code, out.String(), errOut.String())
	}
}
