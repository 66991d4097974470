package catalogue_test

import (
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/catalogue"
	"sallyport.example/provenance"
)

// A tool whose name begins with its server's id keeps it, and can be called by the long name, too, unless that is another tool's.
func TestNamesDoNotDouble(t *testing.T) {
	w := newWorld(t, func(o *catalogue.Options) {
		o.Classify = func(_, tool string) catalogue.Classification {
			c := catalogue.Classification{Listed: true, ExternalIO: true, Output: provenance.UntrustedOutput, Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}}
			if tool == "git_named" {
				c.ExposeAs = "named"
			}
			return c
		}
	})
	w.offer("git", definition("git", "git_status", "A."), definition("git", "Git-log", "B."), definition("git", "github", "C."), definition("git", "git_", "D."), definition("git", "push", "E."),
		definition("git", "git_named", "F."), definition("git", "git.diff", "G."), definition("git", "git_other", "H."))
	w.offer("git_git", definition("git_git", "other", "I."))
	s := w.c.Snapshot()
	for name, id := range map[string]string{
		"git_status": "git.git_status", "git_git_status": "git.git_status", "Git-log": "git.Git-log", "git_github": "git.github", "git_git_": "git.git_", "git_push": "git.push",
		"named": "git.git_named", "git_git_named": "", "git_diff": "git.git.diff", "git_git_diff": "git.git.diff", "git_other": "git.git_other", "git_git_other": "git_git.other", "status": "", "github": "",
	} {
		got := ""
		if op := s.Lookup(name); op != nil {
			got = op.ID
		}
		if got != id {
			t.Errorf("%s is %q, not %q", name, got, id)
		}
	}
	for _, tool := range w.c.Tools() {
		if tool.Operation == "git.git_status" && tool.Name != "git_status" {
			t.Errorf("it is shown as %s", tool.Name)
		}
	}
}
