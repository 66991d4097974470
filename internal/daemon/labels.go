package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/labels"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/sentence"
)

// labelsOfCatalogue is the word for the gateway's own labels of a well-known server.
const labelsOfCatalogue = "catalogue"

// known is what the catalogue of labels says of a server.
type known struct {
	*labels.Entry
	operations map[string]OperationConfig // by tool
}

// labelled are the hashes of the definitions that the label of a tool is for; none where it has no label.
func (k known) labelled(tool string) []string {
	if k.Entry == nil {
		return nil
	}
	return k.Labelled(tool)
}

// lookUp finds what the catalogue of labels says of a server that asks for it.
func (c *Config) lookUp(p *complaints, server string) {
	u, field := c.Upstreams[server], "upstreams."+server+".labels"
	if u.Labels != labelsOfCatalogue {
		return
	}
	const way = "remove it, and name the tools under operations: sallyport flow suggest proposes entries; docs/labels.md lists the servers that have some"
	match, err := labels.For(labels.Server{Command: u.Command, Env: u.Env, URL: u.URL})
	if err != nil {
		p.bad(field, way, "the catalogue of labels doesn't apply: %v", err)
		return
	}
	operations, err := operationsOf(match.Entry)
	if err != nil {
		p.bad(field, way, "%v", err)
		return
	}
	if c.known == nil {
		c.known = map[string]known{}
	}
	c.known[server] = known{Entry: match.Entry, operations: operations}
}

// operationsOf reads the labels of an entry of the catalogue as strictly as those of the configuration.
func operationsOf(e *labels.Entry) (map[string]OperationConfig, error) {
	all := map[string]OperationConfig{}
	for tool, n := range e.Operations {
		var o OperationConfig
		if err := n.Load(&o, yaml.WithKnownFields()); err != nil {
			return nil, fmt.Errorf("the catalogue's labels of %s.%s can't be read: %w", e.ID, tool, err)
		}
		all[tool] = o
	}
	return all, nil
}

// said is all that is said of an operation: its own entry, then its server's, then what the catalogue of labels says of the tool as it is recorded there.
func (c *Config) said(server, tool string) OperationConfig {
	return c.Operations[server+"."+tool].over(c.Operations[server+".*"]).over(c.known[server].operations[tool])
}

// over returns an entry with what it leaves out taken from another. The roles of both hold, where both name an argument its own; of two words on the risk
// the higher one; approvals.role and egress_url if either says so. Lists that are given, empty ones too, replace the other's.
func (o OperationConfig) over(other OperationConfig) OperationConfig {
	o.ExposeAs, o.Description = cmp.Or(o.ExposeAs, other.ExposeAs), cmp.Or(o.Description, other.Description)
	o.Sensitivity, o.Output, o.Shape = cmp.Or(o.Sensitivity, other.Sensitivity), cmp.Or(o.Output, other.Output), cmp.Or(o.Shape, other.Shape)
	o.IDKind, o.Boundary = cmp.Or(o.IDKind, other.IDKind), cmp.Or(o.Boundary, other.Boundary)
	o.Action, o.Declare, o.Screen = cmp.Or(o.Action, other.Action), cmp.Or(o.Declare, other.Declare), cmp.Or(o.Screen, other.Screen)
	if o.Effect == "" && o.Level == nil { // two ways to say the same: who says either decides both
		o.Effect, o.Level = other.Effect, other.Level
	}
	o.Emits, o.BlockedBy = cmp.Or(o.Emits, other.Emits), cmp.Or(o.BlockedBy, other.BlockedBy)
	o.ExternalIO, o.Stores = cmp.Or(o.ExternalIO, other.ExternalIO), cmp.Or(o.Stores, other.Stores)
	o.TrustedFields, o.Names = given(o.TrustedFields, other.TrustedFields), given(o.Names, other.Names)
	o.Delegable, o.MayOmit = given(o.Delegable, other.Delegable), given(o.MayOmit, other.MayOmit)
	o.Invisible = given(o.Invisible, other.Invisible)
	o.EgressURL = o.EgressURL || other.EgressURL // it only makes the rules look closer
	if other.Risk != "" && (o.Risk == "" || policy.Risk(other.Risk).Rank() > policy.Risk(o.Risk).Rank()) {
		o.Risk = other.Risk
	}
	o.Approvals.Role = cmp.Or(o.Approvals.Role, other.Approvals.Role) // there is one role, so nothing is taken back
	o.Args, o.Code = both(o.Args, other.Args), both(o.Code, other.Code)
	return o
}

// both holds the members of two maps; where both have one, that of the first.
func both[V any](first, second map[string]V) map[string]V {
	all := maps.Clone(second)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, first)
	return all
}

// catalogueNotes says of each server with labels from the catalogue what they let run, and what of the entry doesn't fit. recorded holds the hash of each
// operation's definition, if a data directory was looked at.
func (c *Config) catalogueNotes(file string, recorded map[string]string) []Problem {
	var all []Problem
	for _, server := range slices.Sorted(maps.Keys(c.known)) {
		k, field := c.known[server], "upstreams."+server
		var count counted
		var unknown []string
		for _, tool := range c.toolsOf(server, recorded) {
			hash, seen := recorded[server+"."+tool]
			class := c.Classifier(nil)(server, tool)
			if len(recorded) > 0 && seen {
				class = class.For(hash)
			}
			if !class.Listed {
				unknown = append(unknown, tool)
				continue
			}
			count.add(class)
		}
		all = append(all, c.problem(file, field+".labels", agent.Note, "docs/labels.md says more", "labels from the catalogue (%s, recorded from %s %s, tested by %s): %s",
			k.Server, k.Packages[0], k.Version, testedBy[k.Tested], count.sentence(len(unknown))))
		for _, tool := range unknown {
			if hash, seen := recorded[server+"."+tool]; seen && len(k.labelled(tool)) > 0 && !slices.Contains(k.labelled(tool), hash) {
				all = append(all, c.problem(file, field+".labels", agent.P2, "read it (sallyport tools show "+server+"."+tool+"), and give it an entry under operations: sallyport flow suggest "+server,
					"the definition of %.80s is not the one that the catalogue's label is for, so it has none", tool))
			}
		}
		if u := c.Upstreams[server]; len(u.Command) > 0 && k.Sandbox == "full" && u.Sandbox != "full" {
			all = append(all, c.problem(file, field+".sandbox", agent.P2, fullSandbox(k.Entry), "%s works in the sandbox full, and has %s: the less it reaches, the less a wrong label costs", k.Server, cmp.Or(u.Sandbox, "partial")))
		}
	}
	return all
}

var testedBy = map[string]string{labels.Days: "days of work", labels.Stub: "a stub"}

// fullSandbox is how to say the sandbox full for a server of the catalogue.
func fullSandbox(e *labels.Entry) string {
	way := "say sandbox: full"
	if e.Egress == "any" {
		way += ", with egress: any or the hosts that it needs"
	}
	if e.Confined != "" {
		way += "; " + e.Confined
	}
	return way
}

// toolsOf are the tools of a server as far as they are known: from the records of a gateway, or else from the catalogue.
func (c *Config) toolsOf(server string, recorded map[string]string) []string {
	var tools []string
	for operation := range recorded {
		if of, tool, _ := strings.Cut(operation, "."); of == server && tool != "*" {
			tools = append(tools, tool)
		}
	}
	if len(tools) == 0 {
		tools = slices.Collect(maps.Keys(c.known[server].Definitions))
	}
	slices.Sort(tools)
	return tools
}

// counted are tools by what becomes of their calls.
type counted struct{ reads, checked, drafts, writes, people int }

func (n *counted) add(class catalogue.Classification) {
	switch p := class.Profile(); {
	case class.Risk().Rank() >= policy.High.Rank():
		n.people++
	case class.Level == 0 && p.EgressURL:
		n.checked++
	case class.Level == 0:
		n.reads++
	case class.Level == 1:
		n.drafts++
	default:
		n.writes++
	}
}

// sentence says it in words. Others have no label.
func (n *counted) sentence(others int) string {
	var parts []string
	for _, part := range []struct {
		n          int
		what, noun string
	}{
		{n.reads, "run unasked", "read"},
		{n.checked, "run unasked to a confirmed address", "read"},
		{n.drafts, "seen by the person alone, who can undo it", "write"},
		{n.writes, "asked about once the session holds untrusted content, unless confirmed", "write"},
		{n.people, "always asked about", "tool"},
		{others, "without a label", "tool"},
	} {
		if part.n > 0 {
			parts = append(parts, part.what+": "+sentence.Count(part.n, part.noun))
		}
	}
	return strings.Join(parts, "; ")
}
