package daemon

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm"
	"sallyport.example/internal/comm/exec"
	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/comm/query"
	"sallyport.example/internal/comm/search"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/sandbox"
)

func (c *CommConfig) egress(version string) egress.Policy {
	return egress.Policy{Domains: c.AllowedDomains, Protocols: c.Protocols, UserAgent: userAgent(version)}
}

// userAgent says honestly that a robot is asking, in the form that robots.txt files match.
func userAgent(version string) string {
	if version == "" {
		return "Sallyport (agent gateway)"
	}
	return "Sallyport/" + version + " (agent gateway)"
}

func (c *CommConfig) search() search.Config {
	s := c.Search
	return search.Config{Provider: s.Provider, URL: s.URL, Key: s.Key, Results: s.Results, Title: s.Title, Link: s.Link, Snippet: s.Snippet}
}

// databases returns the DSNs, with the paths of SQLite files resolved.
func (c *Config) databases() map[string]string {
	dsns := maps.Clone(c.Comm.Databases)
	for id, dsn := range dsns {
		for _, scheme := range []string{"sqlite:", "file:"} {
			if path, ok := strings.CutPrefix(dsn, scheme); ok && !strings.HasPrefix(path, "/") {
				if abs, err := filepath.Abs(c.path(path)); err == nil {
					dsns[id] = scheme + abs
				}
			}
		}
	}
	return dsns
}

func (c *ExecConfig) options() exec.Options {
	return exec.Options{Allow: c.Allow, Plain: c.Plain, Network: c.Network, Limits: sandbox.Limits{
		Wall: time.Duration(c.Timeout), CPU: time.Duration(c.CPUTime), Memory: int64(c.MemoryMiB) << 20, Processes: c.Processes, Output: int64(c.OutputKiB) << 10,
	}}
}

// checkComm finds the problems of the section comm, in the sentences of the packages that use it.
func (c *Config) checkComm(p *complaints) {
	take := func(section string, err error) {
		if err == nil {
			return
		}
		field := section
		if inner := fault.Of(err).Field; inner != "" {
			field += "." + inner
		}
		p.fault(field, err)
	}
	web, err := egress.New(c.Comm.egress(""), egress.Options{})
	take("comm", err)
	if err == nil {
		_, err = fetch.New(fetch.Options{Web: web, Methods: c.Comm.Methods}) // without a cache it holds nothing open
		take("comm", err)
	}
	take("comm.search", search.CheckConfig(c.Comm.search()))
	d, err := query.New(query.Options{Databases: c.databases()})
	take("comm", err)
	if d != nil {
		take("comm", d.Close())
	}
}

func (d *Daemon) commOptions() comm.Options {
	return comm.Options{
		Data: d.o.Data, Egress: d.config().Comm.egress(d.o.Version), Methods: d.config().Comm.Methods, Search: d.config().Comm.search(),
		Databases: d.config().databases(), Exec: d.config().Comm.Exec.options(),
		NetworkTimeout: time.Duration(d.config().Limits.NetworkTimeout), FileTimeout: time.Duration(d.config().Limits.FileTimeout), ExecTimeout: time.Duration(d.config().Comm.Exec.Timeout),
		Listeners: egress.Options{Own: d.listeners()}, // an agent does not reach the gateway through the gateway
		Knowledge: func(ctx context.Context, r catalogue.CommandRun, query string, most int) (any, catalogue.Brought, error) { // the library is opened later
			return d.consultOptions().Within(ctx, r, query, most)
		},
	}
}

// tiers returns the built-in trust tiers, overridden by those of the configuration.
func (c *Config) tiers() map[string]gateway.Tier {
	all := gateway.Tiers()
	for id, t := range c.TrustTiers {
		all[id] = gateway.Tier{
			CommRequestsPerMinute: t.CommRequestsPerMinute, CallsPerMinute: t.CallsPerMinute, Budget: time.Duration(t.ExecutionBudget), AskFrom: policy.Risk(t.AskFrom), PlansWait: t.PlanApproval == "person",
		}
	}
	return all
}

// tierProblems finds declarations with a tier that does not exist. Their agents are restricted.
func (c *Config) tierProblems(set agent.Set) []Problem {
	tiers := c.tiers()
	var all []Problem
	for _, d := range set.All() {
		if _, ok := tiers[d.TrustTier]; !ok && d.TrustTier != "" {
			all = append(all, d.Problem("trustTier", agent.P1, "there is no tier \""+d.TrustTier+"\", so the agent is restricted",
				"use one of "+strings.Join(slices.Sorted(maps.Keys(tiers)), ", ")+", or add it to trust_tiers"))
		}
	}
	return all
}

// voter returns the roles and identities that a person has today. Only people in the configuration have any, and admin, who always exists.
func (c *Config) voter(person string) (approval.Voter, bool) {
	for _, p := range c.People.List {
		if p.ID == person {
			return c.withOthers(p.voter()), true
		}
	}
	if person == bootstrapAdmin {
		return c.withOthers(approval.Voter{Person: person, Roles: []identity.Role{identity.Admin}}), true
	}
	return approval.Voter{}, false
}

const bootstrapAdmin = "admin"

// admins are the people with the role admin, by id.
func (c *Config) admins() (ids []string) {
	listed := false
	for _, p := range c.People.List {
		listed = listed || p.ID == bootstrapAdmin
		if slices.Contains(p.Roles, string(identity.Admin)) {
			ids = append(ids, p.ID)
		}
	}
	if !listed {
		ids = append(ids, bootstrapAdmin)
	}
	return ids
}

func (p PersonConfig) voter() approval.Voter {
	v := approval.Voter{Person: p.ID, Aliases: p.Identities}
	for _, r := range p.Roles {
		v.Roles = append(v.Roles, identity.Role(r))
	}
	return v
}

// withOthers adds whether the person may answer what they asked for, and who else could.
func (c *Config) withOthers(v approval.Voter) approval.Voter {
	v.AnswersOwn = c.Approvals.Requester == requesterHigh
	v.Others = func() (others []approval.Voter) {
		listed := false
		for _, p := range c.People.List {
			listed = listed || p.ID == bootstrapAdmin
			if p.ID != v.Person {
				others = append(others, p.voter())
			}
		}
		if !listed && v.Person != bootstrapAdmin {
			others = append(others, approval.Voter{Person: bootstrapAdmin, Roles: []identity.Role{identity.Admin}})
		}
		return others
	}
	return v
}
