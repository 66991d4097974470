package daemon

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/store"
)

// DeclarationsConfig says who approves declarations of agents.
type DeclarationsConfig struct {
	Approvers int      `yaml:"approvers,omitempty" json:"approvers,omitempty" jsonschema:"How many people have to approve the declaration of an operator agent that may use everything, or operations of risk HIGH or CRITICAL: 1 or 2. All others take one. Default: 2 where at least two of the people can answer, else 1."`
	Trusted   []string `yaml:"trusted,omitempty" json:"trusted,omitempty" jsonschema:"Public keys (audit.pub) of other gateways whose signed approvals of declarations this one takes over (sallyport agents approvals import)."`
}

// maxTrusted bounds the keys of other gateways.
const maxTrusted = 20

func (c *Config) checkDeclarations(p *complaints) {
	for i, key := range c.Declarations.Trusted {
		if _, err := audit.ParsePublicKey(key); err != nil {
			p.bad(fmt.Sprintf("declarations.trusted[%d]", i), "write what the other gateway's audit.pub holds", "is no public key")
		}
	}
	if len(c.Declarations.Trusted) > maxTrusted {
		p.bad("declarations.trusted", "remove keys that sign nothing any more", "has more than %d keys", maxTrusted)
	}
	n := c.Declarations.Approvers
	switch {
	case n < 0 || n > 2:
		p.bad("declarations.approvers", "write 1 or 2", "%d is not known", n)
	case n == 2 && c.answerers() < 2:
		p.bad("declarations.approvers", "list a second person with the role approver or admin under people, or write 1", "two people have to approve, and of those under people %s can", sentence.Count(c.answerers(), "person"))
	}
}

// everybody is all people who are known: those of the configuration, and admin.
func (c *Config) everybody() []approval.Voter { return c.withOthers(approval.Voter{}).Others() }

// answerers is how many of the configured people can answer.
func (c *Config) answerers() (n int) {
	for _, p := range c.People.List {
		if p.voter().Answers() {
			n++
		}
	}
	return n
}

// approversOf is how many people have to approve a declaration.
func (c *Config) approversOf(d *agent.Declaration) int {
	most := c.Declarations.Approvers
	if most == 0 && c.answerers() >= 2 {
		most = 2
	}
	if most == 2 && d.Mode == agent.Operator && c.dangerous(d) {
		return 2
	}
	return 1
}

// dangerous tells whether a declaration permits everything, or writing with operations that are HIGH or CRITICAL by themselves or by their amount.
func (c *Config) dangerous(d *agent.Declaration) bool {
	if slices.Contains(d.Permissions.Write, "*") || slices.Contains(d.Permissions.Read, "*") {
		return true
	}
	classify := c.Classifier(nil)
	return slices.ContainsFunc(c.writesOf(d), func(id string) bool {
		server, tool, _ := strings.Cut(id, ".")
		for class := classify(server, tool); ; class = *class.Otherwise {
			for _, role := range class.Roles {
				if role == "amount" {
					return true
				}
			}
			if class.Risk().Rank() >= policy.High.Rank() {
				return true
			}
			if class.Otherwise == nil {
				return false
			}
		}
	})
}

// writesOf are the operations that a declaration permits to write with, as far as the configuration names them.
func (c *Config) writesOf(d *agent.Declaration) (ids []string) {
	ids = slices.Clone(d.Permissions.Write) // "server.*" is what the configuration says of the server as a whole
	for id := range c.Operations {
		if d.Permits(id, true) {
			ids = append(ids, id)
		}
	}
	for server, k := range c.known {
		for tool := range k.operations {
			if id := server + "." + tool; d.Permits(id, true) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// openApprovals reads which declarations are approved.
func (d *Daemon) openApprovals(ctx context.Context) (err error) {
	d.approved, err = approved.New(ctx, approved.Options{
		Store: d.store, Agents: func() agent.Set { return d.gate.Agents() },
		Needed: func(decl *agent.Declaration) int { return d.config().approversOf(decl) },
		Voter:  func(person string) (approval.Voter, bool) { return d.config().voter(person) },
		People: func() []approval.Voter { return d.config().everybody() }, Expires: func() time.Duration { return time.Duration(d.config().Approvals.Expires) },
		LoadedBy: func(id string) string {
			if in := d.loaded.Load(); in != nil {
				return in.state.LoadedBy[id]
			}
			return ""
		},
		Now:     func() time.Time { return time.Now().UTC() },
		Changed: func(id string) { d.gate.AgentChanged(id) },
		Signer:  d.store.Signer(), Trusted: func() []string { return d.config().Declarations.Trusted }, LastAside: d.lastAside,
	})
	return err
}

// lastAside is when an agent was put aside last; zero: never.
func (d *Daemon) lastAside(ctx context.Context, id string) (last time.Time, err error) {
	for f := (audit.Filter{Agent: id, Action: "agent.quarantine"}); ; {
		page, next, err := d.store.Entries(ctx, f)
		if err != nil {
			return last, err
		}
		for _, e := range page {
			if e.At.After(last) {
				last = e.At
			}
		}
		if next < 0 {
			return last, nil
		}
		f.Min = next + 1
	}
}

// adoptDeclarations approves by rule what ran before there were approvals: the declarations that are as the last start found them. So it does with the
// programs of what people approved before programs belonged to declarations.
func (d *Daemon) adoptDeclarations(ctx context.Context, last *startState, agents agent.Set) error {
	if last == nil || last.Programs {
		return nil
	}
	if last.Approvals {
		return d.approved.AdoptPrograms(ctx, agents.All()...)
	}
	var same []*agent.Declaration
	for _, decl := range agents.All() {
		if fields, err := call.Canonical(last.Agents[decl.AgentID], call.DefaultLimits()); err == nil && call.HashBytes(fields) == decl.WithoutFiles() {
			same = append(same, decl)
		}
	}
	return d.approved.Adopt(ctx, approved.ByUpgrade, same...)
}

// loadedBy says who loaded each declaration: by, or whoever did before, where it has not changed since.
func (s *startState) loadedBy(last *startState, by string) {
	s.LoadedBy = map[string]string{}
	for id, fields := range s.Agents {
		s.LoadedBy[id] = by
		if last == nil {
			continue
		}
		if before := last.LoadedBy[id]; before != "" && string(last.Agents[id]) == string(fields) {
			s.LoadedBy[id] = before
		}
	}
}

// unapproved returns lines that name the agents whose declarations wait for people.
func (d *Daemon) unapproved() string {
	ids := d.approved.Pending()
	if len(ids) == 0 {
		return ""
	}
	const shown = 5
	names := sentence.Names(ids[:min(len(ids), shown)])
	if more := len(ids) - shown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("  note     nobody has approved the declarations of %s, so their calls are refused: sallyport agents diff %s, then sallyport agents approve --all --reason TEXT\n", names, ids[0])
}

// ApproveWritten approves the declarations of a configuration that somebody has just written, in the name of the account that runs this program. It makes
// the data directory, and does nothing where there is one: what is there was approved, or was not.
func ApproveWritten(ctx context.Context, cfg *Config, data string) (ids []string, err error) {
	if store.HasDatabase(data) {
		return nil, nil
	}
	set, problems := cfg.declarations()
	if err := blocking(problems); err != nil {
		return nil, err
	}
	if err := dataDir(data); err != nil {
		return nil, err
	}
	db, err := store.Open(data, store.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	book, err := approved.New(ctx, approved.Options{
		Store: db, Agents: func() agent.Set { return set }, Needed: cfg.approversOf, Voter: cfg.voter, People: cfg.everybody,
		Expires: func() time.Duration { return time.Duration(cfg.Approvals.Expires) }, LoadedBy: func(string) string { return "" },
		Now: func() time.Time { return time.Now().UTC() }, Changed: func(string) {},
	})
	if err != nil {
		return nil, err
	}
	for _, d := range set.All() {
		if !book.Approved(d) {
			ids = append(ids, d.AgentID)
		}
	}
	return ids, book.Write(ctx, "terminal:"+account(), set.All()...)
}

// account names the account that runs this program.
func account() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}
