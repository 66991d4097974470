package httpapi_test

import (
	"strings"
	"testing"

	"sallyport.example/client"
	"sallyport.example/internal/identity"
)

// A kept answer brings its labels with it, like the call did: after a person's release it may not be had without them.
func TestKeptAnswerBringsItsLabelsAfterARelease(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c := w.client(w.agent, w.token(identity.Agent, "worker"))
	mail, err := c.Call(ctx, client.Own, "search_email", nil)
	if err != nil || mail.Result == nil {
		t.Fatalf("%+v %v", mail, err)
	}
	st, err := c.Status(ctx, client.Own)
	if err != nil {
		t.Fatal(err)
	}
	if a := w.send(w.admin, "POST", "/v1/sessions/"+st.SessionID+"/release", w.token(identity.Person, "root2", identity.Operator), `{"labels":["internal"],"reason":"its context was emptied"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	out, err := c.Outcome(ctx, client.Own, mail.CallID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if st, err = c.Status(ctx, client.Own); err != nil {
		t.Fatal(err)
	}
	web, err := c.Call(ctx, client.Own, "web_search", nil)
	if err != nil {
		t.Fatal(err)
	}
	if out.Result != nil && len(st.Labels) == 0 && !strings.HasPrefix(string(web.Verdict.Code), "flow.") {
		t.Errorf("internal data was handed out again, to a session without labels, and the web was reached after it: %s", out.Result)
	}
}
