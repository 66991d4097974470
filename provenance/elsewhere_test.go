package provenance

import "testing"

// An id counts within its repository: a record of a repository that the request does not name is not the one that the request names, whatever its title.
func TestRecordsOfAnotherRepository(t *testing.T) {
	repository := map[string]Role{"owner": Repository, "repo": Repository, "state": Flag}
	list := &Profile{Output: UntrustedOutput, IDKind: "issue", TrustedFields: []string{"number"}, Names: []string{"title"}, Args: repository}
	get := &Profile{Output: UntrustedOutput, IDKind: "issue", TrustedFields: []string{"number"}, Names: []string{"title"}, Args: map[string]Role{"owner": Repository, "repo": Repository, "issue_number": Selector}}
	comment := &Profile{Level: 2, IDKind: "issue", Args: map[string]Role{"owner": Repository, "repo": Repository, "issue_number": Selector, "body": Content}}
	const issues = `[{"number":7,"title":"Crash on start"},{"number":8,"title":"Docs"}]`
	for name, c := range map[string]struct {
		p    *Profile
		args string
		want Verdict
	}{
		"the repository of the request": {list, `{"owner":"acme","repo":"site"}`, Permit},
		"in other letter case":          {list, `{"owner":"Acme","repo":"Site","state":"open"}`, Permit},
		"a stranger's":                  {list, `{"owner":"evil","repo":"x"}`, Ask},
		"a stranger's of the same name": {list, `{"owner":"evil","repo":"site"}`, Ask},
		"another of the same owner":     {list, `{"owner":"acme","repo":"x"}`, Ask},
		"one issue of a stranger's":     {get, `{"owner":"evil","repo":"x","issue_number":7}`, Ask},
		"no repository":                 {list, `{}`, Permit},
	} {
		s := newSession(t, "Answer the issue 'Crash on start' of acme/site")
		s.read("hub.list", c.p, c.args, issues)
		if v := s.judge(comment, `{"owner":"acme","repo":"site","issue_number":7,"body":"x"}`); v.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %s", name, v.Verdict, c.want, v.Reason)
		}
	}
}
