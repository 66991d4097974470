package identity

import (
	"strings"
	"testing"
)

func TestMintedSecretsAreDistinctAndSayWhatTheyOpen(t *testing.T) {
	seen := map[string]bool{}
	for kind, prefix := range map[Kind]string{Agent: "spt_agent_", Host: "spt_host_", Session: "spt_session_", Person: "spt_person_"} {
		for range 100 {
			secret, hash := Mint(kind)
			if !strings.HasPrefix(secret, prefix) || len(secret) != len(prefix)+32 || seen[secret] {
				t.Fatalf("%s: %q", kind, secret)
			}
			seen[secret] = true
			if hash != HashSecret(secret) || strings.Contains(hash, secret) || len(hash) != 64 {
				t.Fatalf("hash %q", hash)
			}
			if got, ok := Bearer("Bearer " + secret); !ok || got != secret {
				t.Fatalf("%q does not come back from a header", secret)
			}
		}
	}
}

func TestBearerRefuses(t *testing.T) {
	for _, h := range []string{"", "Bearer", "Bearer ", "Basic spt_agent_x", "Bearer x", "Bearer spt_a b", "Bearer spt_a,Bearer spt_b", "Bearer spt_a\tb", "bearer: spt_a",
		"Bearer  spt_agent_x", "Bearer spt_" + strings.Repeat("a", 300)} {
		if token, ok := Bearer(h); ok {
			t.Errorf("%q gave %q", h, token)
		}
	}
	if _, ok := Bearer("bEaReR spt_agent_x"); !ok {
		t.Error("the scheme is not case-insensitive")
	}
}

func TestRoles(t *testing.T) {
	for _, r := range Roles {
		if got, err := ParseRole(string(r)); err != nil || got != r {
			t.Errorf("%s: %v", r, err)
		}
	}
	for _, s := range []string{"", "Admin", "root", "admin "} {
		if _, err := ParseRole(s); err == nil {
			t.Errorf("%q is a role", s)
		}
	}
	// Roles don't include one another, but for admin; and only people have them.
	for _, have := range Roles {
		for _, want := range Roles {
			p := Principal{Kind: Person, ID: "p", Roles: []Role{have}}
			if p.Has(want) != (have == want || have == Admin) {
				t.Errorf("%s has %s: %v", have, want, p.Has(want))
			}
			p.Kind = Agent
			if p.Has(want) {
				t.Errorf("an agent has %s", want)
			}
		}
	}
}

func FuzzCheckID(f *testing.F) {
	for _, s := range []string{"a", "a.b-c_d", "", ".a", "a b", "ä", strings.Repeat("a", 65), "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckID(s) != nil {
			return
		}
		if len(s) == 0 || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
		}) {
			t.Errorf("%q is a valid id", s)
		}
	})
}

func TestShown(t *testing.T) {
	for actor, want := range map[string]string{
		"person:ann": "ann", "host:ci": "host ci", "rule:breaker": "rule breaker", "gateway": "gateway", "": "", "person:a:b": "a:b", "person": "person",
	} {
		if got := Shown(actor); got != want {
			t.Errorf("%q is shown as %q, want %q", actor, got, want)
		}
	}
}
