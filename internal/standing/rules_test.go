package standing_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/standing"
)

const declaration = `agentId: %s
agentName: Test
version: 1.0.0
purpose: tests
capabilities: [testing]
dataSources: {tables: [], apis: [], models: []}
permissions: {read: ["mail.*"], write: []}
outputSchema: {type: object, properties: {answer: {enum: [a]}}, required: [answer], additionalProperties: false}
outputSchemaVersion: 1.0.0
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
mode: operator
`

// declared are agents with those ids.
func declared(t *testing.T, ids ...string) agent.Set {
	t.Helper()
	dir := t.TempDir()
	for _, id := range ids {
		if err := os.WriteFile(filepath.Join(dir, id+".yaml"), []byte(fmt.Sprintf(declaration, id)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, _ := agent.Load(dir)
	if len(set.All()) != len(ids) {
		t.Fatalf("%d agents are declared", len(set.All()))
	}
	return set
}

func TestWhoMayHaveAToken(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rules := standing.TokenRules{Agents: declared(t, "worker"), People: map[string][]identity.Role{
		"ann": {identity.Admin}, "bob": {identity.Viewer, identity.Approver},
	}}
	for name, c := range map[string]struct {
		want  standing.WantedToken
		roles []identity.Role
		code  fault.Code // "": it may have one
		field string
	}{
		"a declared agent":          {want: standing.WantedToken{Kind: "agent", ID: "worker"}},
		"an agent with an end":      {want: standing.WantedToken{Kind: "agent", ID: "worker", Expires: now.Add(time.Second)}},
		"a host":                    {want: standing.WantedToken{Kind: "host", ID: "laptop"}},
		"a role of theirs, twice":   {want: standing.WantedToken{Kind: "person", ID: "bob", Roles: []string{"viewer", "viewer"}}, roles: []identity.Role{identity.Viewer}},
		"an admin with less":        {want: standing.WantedToken{Kind: "person", ID: "ann", Roles: []string{"auditor"}}, roles: []identity.Role{identity.Auditor}},
		"a person nobody knows":     {want: standing.WantedToken{Kind: "person", ID: "carol", Roles: []string{"operator"}}, roles: []identity.Role{identity.Operator}},
		"an agent nobody declared":  {want: standing.WantedToken{Kind: "agent", ID: "nobody"}, code: fault.AgentUndeclared, field: "id"},
		"an agent with roles":       {want: standing.WantedToken{Kind: "agent", ID: "worker", Roles: []string{"viewer"}}, code: fault.RequestMalformed, field: "roles"},
		"a host with roles":         {want: standing.WantedToken{Kind: "host", ID: "laptop", Roles: []string{"admin"}}, code: fault.RequestMalformed, field: "roles"},
		"a session":                 {want: standing.WantedToken{Kind: "session", ID: "sess_1"}, code: fault.RequestMalformed, field: "kind"},
		"nothing":                   {want: standing.WantedToken{ID: "x"}, code: fault.RequestMalformed, field: "kind"},
		"an id that is a path":      {want: standing.WantedToken{Kind: "person", ID: "../x", Roles: []string{"viewer"}}, code: fault.RequestMalformed, field: "id"},
		"no id":                     {want: standing.WantedToken{Kind: "host"}, code: fault.RequestMalformed, field: "id"},
		"a time that is over":       {want: standing.WantedToken{Kind: "host", ID: "laptop", Expires: now}, code: fault.RequestMalformed, field: "expires"},
		"a person without a role":   {want: standing.WantedToken{Kind: "person", ID: "carol"}, code: fault.RequestMalformed, field: "roles"},
		"a role that is none":       {want: standing.WantedToken{Kind: "person", ID: "carol", Roles: []string{"king"}}, code: fault.RequestMalformed, field: "roles"},
		"a role that is not theirs": {want: standing.WantedToken{Kind: "person", ID: "bob", Roles: []string{"viewer", "admin"}}, code: fault.PermissionDenied, field: "roles"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := rules.Subject(c.want, now)
			if c.code != "" {
				if f := fault.Of(err); err == nil || f.Code != c.code || f.Field != c.field {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || string(p.Kind) != c.want.Kind || p.ID != c.want.ID || !slices.Equal(p.Roles, c.roles) || !p.Expires.Equal(c.want.Expires) || p.Agent != "" || p.TokenID != "" {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}
