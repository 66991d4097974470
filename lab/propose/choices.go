package propose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/labels"
	"sallyport.example/internal/naming"
	"sallyport.example/internal/threat"
	"sallyport.example/lab/suggest"
	"sallyport.example/provenance"
)

// enoughClean is how many clean calls of a tool support that it may be called as any write may.
const enoughClean = 3

// choices are the questions about the tools that were used, those that matter most first. pins are by operation.
func choices(c *daemon.Config, pins map[string]catalogue.Pin, uses map[string]*use) (all []Choice, left []Left) {
	all, left = []Choice{}, []Left{}
	classify, groups, names := c.Classifier(nil), map[string]*Choice{}, toolNames(pins)
	for _, operation := range slices.Sorted(maps.Keys(uses)) {
		server, tool, _ := strings.Cut(operation, ".")
		u, pin := uses[operation], pins[operation]
		upstream, ours := c.Upstreams[server]
		if !ours || u.calls == 0 || tool == string(call.ReadResource) || tool == "read_resource" || tool == "get_prompt" {
			continue
		}
		class := classify(server, tool).For(pin.Hash)
		if class.Named {
			continue
		}
		skip := func(format string, args ...any) { left = append(left, Left{operation, fmt.Sprintf(format, args...)}) }
		switch why := unfit(pin, u, tool, names); {
		case why != "":
			skip("%s", why)
			continue
		case class.Listed:
			skip("the entry %s.* covers it: name it under operations if it needs another label", server)
			continue
		}
		tally := func(choice Choice) {
			key := choice.key()
			g := groups[key]
			if g == nil {
				g = &choice
				groups[key] = g
			} else {
				g.merge(choice)
			}
			g.Calls, g.Clean = g.Calls+u.calls, g.Clean+u.clean[pin.Hash]
		}
		if choice, ok := ofCatalogue(server, tool, upstream, pin); ok {
			tally(choice)
			continue
		}
		p := suggest.For(server, suggest.Tool{Name: tool, Definition: pin.Definition})
		if p.Skipped != "" {
			skip("%s", p.Skipped)
			continue
		}
		tally(ofTool(&p, pin, offline(upstream), u, !pin.Unread() || class.TrustFirstSight))
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, *groups[key])
	}
	slices.SortStableFunc(all, func(a, b Choice) int {
		return cmp.Or(slices.Index(order, a.Basis)-slices.Index(order, b.Basis), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Operations[0], b.Operations[0]))
	})
	return all, left
}

var order = []Basis{Catalogue, Record, Server, Nothing}

// toolNames are the names that a definition could be about.
func toolNames(pins map[string]catalogue.Pin) map[string]threat.ToolNames {
	all := map[string]threat.ToolNames{}
	for operation := range pins {
		of, _, _ := strings.Cut(operation, ".")
		if all[of] != nil {
			continue
		}
		all[of] = threat.ToolNames{}
		for other := range pins {
			if server, tool, _ := strings.Cut(other, "."); tool != "*" {
				all[of][strings.ToLower(tool)] = all[of][strings.ToLower(tool)] || server == of
			}
		}
	}
	return all
}

// unfit says why nothing can be proposed for a tool; "" if something can.
func unfit(pin catalogue.Pin, u *use, tool string, names map[string]threat.ToolNames) string {
	server, _, _ := strings.Cut(pin.Operation, ".")
	switch {
	case pin.Pending != "":
		return "its definition has changed, and no person has accepted the new one (sallyport tools accept --all)"
	case len(pin.Definition) == 0:
		return "no person has accepted its definition (sallyport tools accept --all)"
	case u.hash != pin.Hash:
		return "its definition has changed since it was last called"
	case pin.Unread() && len(threat.SuspicionsIn(pin.Definition, tool, names[server])) > 0:
		return "its definition looks like an order to the model, or hides something, and no person has accepted it (sallyport tools accept --all)"
	}
	return ""
}

// offline reports whether the server reaches nothing but its own folder, by the operator's word and the sandbox's force.
func offline(u daemon.UpstreamConfig) bool {
	return len(u.Command) > 0 && u.Sandbox == "full" && u.Egress.Hosts == nil && (u.Egress.Mode == "" || u.Egress.Mode == "none")
}

// ofCatalogue proposes the gateway's own labels for a server, if the server is in the catalogue and the tool is there as it is here.
func ofCatalogue(server, tool string, u daemon.UpstreamConfig, pin catalogue.Pin) (Choice, bool) {
	if u.Labels != "" {
		return Choice{}, false
	}
	started := labels.Server{Command: u.Command, Env: u.Env, URL: u.URL}
	match, err := labels.For(started)
	if err != nil || !slices.Contains(match.Labelled(tool), pin.Hash) {
		return Choice{}, false
	}
	choice := Choice{
		Server: server, Operations: []string{pin.Operation}, Basis: Catalogue, Sure: match.Fetched || u.URL != "",
		Why:     "The catalogue of labels knows this server: " + match.Server + ". Unasked: " + match.Unasked,
		Options: []Option{{Key: "y", Means: "They get the labels of the catalogue.", Catalogue: []string{server}}},
	}
	if hosts := started.Hosts(); len(hosts) > 0 {
		choice.Sure = false
		choice.Why += " What they are asked may go to " + strings.Join(hosts, ", ") + ": the labels are for a service of yours."
	} else if !choice.Sure {
		choice.Why += " Its command names a folder: check that the package there is the one that the catalogue is for."
	}
	return choice, true
}

// ofTool proposes labels for one tool. read says that a person has accepted its definition, or trusts the server with that.
func ofTool(p *suggest.Proposal, pin catalogue.Pin, offline bool, u *use, read bool) Choice {
	server, tool, _ := strings.Cut(p.Operation, ".")
	choice := Choice{Server: server, Operations: []string{p.Operation}}
	entry := daemon.OperationConfig{Output: string(provenance.UntrustedOutput), EgressURL: p.EgressURL, IDKind: p.IDKind, Args: map[string]string{}}
	for arg, role := range p.Args {
		entry.Args[arg] = string(role)
	}
	sources := []source{{"p", "They read your private data and change nothing. Nobody outside sees their arguments.", flow.InternalSource},
		{"w", "They read public data and change nothing. Somebody outside sees their arguments.", flow.External},
		{"b", "They read private data and change nothing. Somebody outside may see their arguments. This is the strictest answer.", flow.Both}}
	if offline {
		sources = []source{{"y", "They read and change nothing. The sandbox keeps their server from the network.", flow.InternalSource}}
	}
	if says := onlyReads(pin.Definition, tool); says != "" {
		choice.Basis, choice.Why = Server, says+" Nobody has checked that. Tools that only read run unasked."
		for _, s := range sources {
			reads := entry
			reads.Effect, reads.Sensitivity = string(flow.Read), string(s.sensitivity)
			choice.Options = append(choice.Options, Option{Key: s.key, Means: s.means, Operations: map[string]daemon.OperationConfig{p.Operation: reads}})
		}
		return choice
	}
	level := 2
	entry.Level, entry.Action, entry.Sensitivity = &level, p.Action, string(p.Sensitivity)
	if offline {
		entry.Sensitivity = string(flow.InternalSource)
	}
	strict := entry
	strict.Args = maps.Clone(entry.Args)
	for _, arg := range p.Frees {
		delete(strict.Args, arg)
	}
	choice.Options = []Option{{Key: "y", Means: "Agents may call them. Once a session has read what strangers may have written, every argument has to be confirmed.", Operations: map[string]daemon.OperationConfig{p.Operation: strict}}}
	var frees []string
	if len(p.Frees) > 0 {
		frees = []string{tool + "(" + strings.Join(p.Frees, ", ") + ")"}
		choice.Options = append(choice.Options, Option{Key: "f", Means: "The same, but arguments that look harmless by their names need no confirmation.",
			Frees: frees, Operations: map[string]daemon.OperationConfig{p.Operation: entry}})
	}
	if p.Action == "" && !offline { // an action tells that somebody else gets something
		inside := entry
		inside.Sensitivity = string(flow.InternalSource)
		choice.Options = append(choice.Options, Option{Key: "i", Means: "Agents may call them. Their arguments stay with you or in a service of yours: nobody outside sees them.",
			Frees: frees, Operations: map[string]daemon.OperationConfig{p.Operation: inside}})
	}
	switch clean := u.clean[pin.Hash]; {
	case u.rejected > 0:
		choice.Basis, choice.Why = Nothing, "A person has rejected a call of these tools. They count as writes."
	case clean >= enoughClean && read:
		choice.Basis, choice.Sure, choice.Why = Record, true, "Their calls succeeded in sessions that had read nothing private and nothing from strangers. They count as writes."
	default:
		choice.Basis, choice.Why = Nothing, "The record shows only that agents call these tools. They count as writes."
	}
	return choice
}

type source struct {
	key, means  string
	sensitivity flow.Sensitivity
}

// onlyReads is what a server says of a tool that only reads, as a sentence; "" if it says nothing of the kind, or contradicts itself.
func onlyReads(definition json.RawMessage, tool string) string {
	if naming.Writes(tool) {
		return ""
	}
	annotations, _ := call.Get(definition, "annotations")
	reads, _ := call.Get(annotations, "readOnlyHint")
	destroys, _ := call.Get(annotations, "destructiveHint")
	switch {
	case string(reads) == "false" || string(destroys) == "true":
		return ""
	case string(reads) == "true":
		return "The server says that they only read (readOnlyHint)."
	case naming.OfTool(tool).Reads():
		return "Only their names say that they only read."
	}
	return ""
}

// key is the same for choices that are one question.
func (c *Choice) key() string {
	words := []string{c.Server, string(c.Basis), c.Why, fmt.Sprint(c.Sure)}
	for _, o := range c.Options {
		words = append(words, o.Key)
		for _, entry := range o.Operations { // one
			words = append(words, entry.Sensitivity, entry.Effect, entry.Action)
		}
	}
	return strings.Join(words, "\x00")
}

// merge adds another tool of the same server, for which the same is proposed.
func (c *Choice) merge(other Choice) {
	c.Operations = append(c.Operations, other.Operations...)
	for i, o := range other.Options {
		mine := &c.Options[i]
		maps.Copy(mine.Operations, o.Operations)
		mine.Frees = append(mine.Frees, o.Frees...)
	}
}
