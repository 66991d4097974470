package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestListingMarksTheSession: in every revision a session that lists definitions which nobody has read holds untrusted, people see why, and what a
// person has accepted marks no session that comes after.
func TestListingMarksTheSession(t *testing.T) {
	for _, revision := range []string{revision0618, revision1125, revision0728} {
		t.Run(revision, func(t *testing.T) {
			server := &scripted{tools: plainTools("look", "write"), answer: says("done")}
			w := start(t, fmt.Sprintf(`
upstreams: {desk: {url: %q}}
operations: {desk.*: {sensitivity: none, output: trusted}}
`, server.url(t)), declaration("tester"))
			eventually(t, slack(10e9), "the tools are there", func() bool {
				servers, err := w.root.Servers(context.Background())
				return err == nil && len(servers) == 1 && servers[0].Tools == 2 && servers[0].Usable == 2
			})
			list := func() (id string, tools int) {
				id, token := w.open("tester")
				listed, err := w.connect(token, revision, nil).ListTools(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return id, len(listed.Tools)
			}
			id, before := list()
			s, err := w.root.Session(t.Context(), id)
			if err != nil || len(s.Labels) != 1 || s.Labels[0].Label != "untrusted" || s.Labels[0].Cause != "definitions of desk, which no person accepted" {
				t.Fatalf("%+v %v", s, err)
			}
			w.acceptDefinitions(anyDefinition)
			id, after := list()
			if s, err = w.root.Session(t.Context(), id); err != nil || len(s.Labels) != 0 || before != after {
				t.Errorf("accepted, %d and %d are listed: %+v %v", before, after, s, err)
			}
			marked := 0
			for _, e := range w.entries() {
				if e.Action == "session.definitions" && strings.Contains(e.Reason, "desk") {
					marked++
				}
			}
			if marked != 1 {
				t.Errorf("%d entries say what was listed", marked)
			}
		})
	}
}
