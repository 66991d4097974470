package daemon

import (
	"strings"
	"testing"
)

// What is wrong with a value that may hold a secret is said without the value: starts, lint and reload print it, and logs keep it.
func TestConfigProblemsShowNoSecrets(t *testing.T) {
	const secret = "s3cretpw"
	t.Setenv("PASSWORD", secret)
	for name, yaml := range map[string]string{
		"a database as store":             "store: postgres://joe:s3cretpw@h/db\n",
		"a store of the environment":      "store: ${PASSWORD}\n",
		"a server's address":              "upstreams: {a: {url: \"ftp://joe:s3cretpw@h/\"}}\n",
		"a server's address without //":   "upstreams: {a: {url: \"https:joe:s3cretpw@h/\"}}\n",
		"a server's headers in a list":    "upstreams: {a: {url: \"https://h\", headers: [s3cretpw]}}\n",
		"a server's headers as text":      "upstreams: {a: {url: \"https://h\", headers: s3cretpw}}\n",
		"a server's environment as text":  "upstreams: {a: {command: [a], env: s3cretpw}}\n",
		"a database of comm.query":        "comm: {databases: {crm: \"mysql://joe:s3cretpw@h/db\"}}\n",
		"a database that can't be parsed": "comm: {databases: {crm: \"postgres://joe:s3cretpw@h:port/db?x=%zz\"}}\n",
		"databases as text":               "comm: {databases: \"postgres://joe:s3cretpw@h/db\"}\n",
		"a model's key in a list":         "models: [{id: m-20250929, provider: openai, key: [s3cretpw]}]\n",
		"a model's address":               "models: [{id: m-20250929, provider: openai, base_url: \"https://joe:s3cretpw@h\"}]\n",
		"a channel's address":             "notify: [{kind: slack, url: \"https://joe:s3cretpw@h\"}]\n",
		"a channel's address in a list":   "notify: [{kind: slack, url: [s3cretpw]}]\n",
		"a channel's secret":              "notify: [{kind: slack, url: \"https://h/\", secret: s3cretpw}]\n",
		"a channel's mail server":         "notify: [{kind: email, smtp: \"joe:s3cretpw@h\", from: a@b.example, to: [c@d.example]}]\n",
		"a mail server's password":        "notify: [{kind: email, smtp: \"smtp.example:587\", from: a@b.example, to: [c@d.example], password: s3cretpw}]\n",
		"the identity provider's secret":  "console: {oidc: {client_secret: s3cretpw}}\n",
		"the console's address":           "console: {public_url: \"https://joe:s3cretpw@h\"}\n",
		"a search's address":              "comm: {search: {url: \"ftp://joe:s3cretpw@h\"}}\n",
		"a value that isn't closed":       "models: [{key: \"s3cretpw\n",
		"a tab before a key":              "models:\n\t- {key: s3cretpw}\n",
		"an anchor that isn't there":      "models: [{key: *s3cretpw}]\n",
		"a tag that isn't known":          "models: [{key: !x s3cretpw, id: [a]}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig("sallyport.yaml", []byte(yaml), t.TempDir())
			if err == nil {
				t.Fatal("nothing is wrong with it")
			}
			if strings.Contains(err.Error(), secret) {
				t.Error("shown:", err)
			}
		})
	}
}
