package daemon

import "testing"

// Command, arguments, names of variables and url make the hash of how a server is started or reached; values of variables and headers do not.
func TestLaunchHash(t *testing.T) {
	hash := func(u UpstreamConfig) string {
		c := Config{Upstreams: map[string]UpstreamConfig{"srv": u}}
		return c.launchHash("srv")
	}
	seen := map[string]int{}
	for i, u := range []UpstreamConfig{
		{Command: []string{"npx", "-y", "a"}}, {Command: []string{"npx", "-y a"}}, {Command: []string{"npx", "-y", "b"}}, {Command: []string{"npx", "-y", "a"}, Env: map[string]string{"TOKEN": "1"}},
		{Command: []string{"npx", "-y", "a"}, Env: map[string]string{"NODE_OPTIONS": "1", "TOKEN": "1"}}, {URL: "https://a.example/mcp"}, {URL: "https://b.example/mcp"},
	} {
		if other, twice := seen[hash(u)]; twice || hash(u) == "" {
			t.Errorf("%d is like %d", i, other)
		}
		seen[hash(u)] = i
	}
	if hash(UpstreamConfig{Command: []string{"a"}, Env: map[string]string{"TOKEN": "1"}}) != hash(UpstreamConfig{Command: []string{"a"}, Env: map[string]string{"TOKEN": "2"}}) {
		t.Error("another value of a variable is another server")
	}
	if hash(UpstreamConfig{URL: "https://a.example/"}) != hash(UpstreamConfig{URL: "https://a.example/", Headers: map[string]string{"Authorization": "Bearer x"}}) {
		t.Error("another credential is another server")
	}
	if (&Config{}).launchHash("srv") != "" {
		t.Error("of no server")
	}
}
