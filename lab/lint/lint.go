// Package lint compares the labels of a configuration with what a data directory knows: the definitions of tools, and what was called and
// answered of late. It finds what of a label can't be right or never mattered, and changes nothing: it never writes, and a gateway may run on
// the directory.
package lint

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/naming"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/store"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

// Bounds of what Compare looks at in a data directory: the newest entries, and so many bytes of their arguments and results.
const (
	maxEntries = 10_000
	maxBytes   = 64 << 20
	maxNamed   = 8 // names in one finding
	maxWords   = 4 // in a text beyond which somebody may have written it: a date has fewer
	enough     = 5 // calls, or results, after which it means something that a thing was never there
)

// Compare compares the labels with what a data directory knows: the definitions of tools that were accepted, and what was called of late. File
// stands in the problems, which have no lines.
func Compare(ctx context.Context, c *daemon.Config, file, dir string) (daemon.Recorded, error) {
	r, err := store.OpenReadOnly(dir)
	if err != nil {
		return daemon.Recorded{}, err
	}
	defer r.Close()
	pins, err := r.Pins(ctx)
	if err != nil {
		return daemon.Recorded{}, err
	}
	d := comparison{c: c, file: file, schemas: map[string]naming.Schema{}, tools: map[string][]string{}, used: map[string]*use{}, argless: map[string]bool{}, hashes: map[string]string{}}
	for _, p := range pins {
		server, tool, _ := strings.Cut(p.Operation, ".")
		definition := p.Definition
		if definition == nil {
			definition = p.PendingDef
		}
		if _, ours := c.Upstreams[server]; definition == nil || !ours {
			continue // it only says that the server was seen, or is from another configuration
		}
		schema, _ := call.Get(definition, "inputSchema")
		read := naming.ReadSchema(schema)
		d.schemas[p.Operation] = read
		d.hashes[p.Operation] = cmp.Or(p.Hash, p.Pending)
		d.argless[p.Operation] = len(read.Arguments) == 0 && !read.Cut && !read.Open
		d.tools[server] = append(d.tools[server], tool)
	}
	d.definitions(pins)
	if err := d.read(ctx, r); err != nil {
		return daemon.Recorded{}, err
	}
	for _, server := range slices.Sorted(maps.Keys(d.tools)) {
		d.unlabelled(server, d.tools[server])
		d.unruled(server, d.tools[server])
		d.undirected(server, d.tools[server])
	}
	for _, id := range slices.Sorted(maps.Keys(c.Operations)) {
		d.entry(id, c.Operations[id])
	}
	return daemon.Recorded{Problems: d.found, NoArguments: d.argless, Definitions: d.hashes}, nil
}

// definitions finds definitions of tools that no person has accepted.
func (d *comparison) definitions(pins []catalogue.Pin) {
	unread, waiting := d.c.Unaccepted(pins)
	for _, server := range slices.Sorted(maps.Keys(d.c.Upstreams)) {
		names := toolNames(server, pins)
		way := "read and accept them: sallyport tools accept --all " + server
		for _, p := range append(slices.Clone(waiting[server]), unread[server]...) {
			definition, what := p.Definition, "a session that lists it holds untrusted"
			if p.Pending != "" {
				definition, what = p.PendingDef, "it waits for a person, and agents can't call it"
			}
			_, tool, _ := strings.Cut(p.Operation, ".")
			if found := threat.SuspicionsIn(definition, tool, names); len(found) > 0 {
				d.add(agent.P1, "upstreams."+server, way, "the definition of %s looks like an order to the model, or hides something (%s); %s", p.Operation, found[0], what)
			}
		}
		if n := len(unread[server]); n > 0 {
			d.add(agent.P1, "upstreams."+server, way, "only a rule accepted %s of %s, so every session that lists one holds untrusted", sentence.Count(n, "definition"), server)
		}
	}
}

// toolNames are the names that a definition of the server could be about, as far as the pins know.
func toolNames(server string, pins []catalogue.Pin) threat.ToolNames {
	names := threat.ToolNames{}
	for _, p := range pins {
		if of, tool, _ := strings.Cut(p.Operation, "."); tool != "*" {
			names[strings.ToLower(tool)] = names[strings.ToLower(tool)] || of == server
		}
	}
	return names
}

type comparison struct {
	c       *daemon.Config
	file    string
	schemas map[string]naming.Schema // by operation
	hashes  map[string]string        // of the definitions, by operation
	argless map[string]bool          // operations whose schema takes no argument
	tools   map[string][]string      // by server
	used    map[string]*use          // by operation
	entries int64                    // that were looked at
	calls   int                      // among them
	found   []daemon.Problem
}

// use is what is on record of an operation.
type use struct {
	calls   int
	args    map[string]bool   // paths that a call had
	results int               // that could be read as they were
	trusted int               // of these, that had the shape
	fields  map[string]bool   // that they had, by every path that could lead there
	texts   map[string]string // of these, which held what somebody may have written, and what it was
}

func (d *comparison) add(severity agent.Severity, field, remedy, format string, args ...any) {
	d.found = append(d.found, daemon.Problem{File: d.file, Field: field, Severity: severity, Problem: fmt.Sprintf(format, args...), Remedy: remedy})
}

// class is the class of a tool with the definition that is on record.
func (d *comparison) class(server, tool string) catalogue.Classification {
	return d.c.Classifier(nil)(server, tool).For(d.hashes[server+"."+tool])
}

// some are the first few of a list of names, as a sentence shows them.
func some(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// unlabelled finds tools of a server that nobody said anything about, or only together with all others.
func (d *comparison) unlabelled(server string, tools []string) {
	var unlisted, bare, writes []string
	for _, tool := range tools {
		class := d.class(server, tool)
		switch p := class.Profile(); {
		case !class.Listed:
			unlisted = append(unlisted, tool)
		case class.Named:
		case p.Level < 2 && naming.Writes(tool):
			writes = append(writes, tool)
		case !p.HasRoles() && p.Level > 0 && !d.argless[server+"."+tool]:
			bare = append(bare, tool)
		}
	}
	const way = "name each under operations; sallyport flow suggest proposes entries"
	if len(unlisted) > 0 {
		what := "can't be called"
		switch d.c.Unlisted {
		case "ask":
			what = "are asked about at each call"
		case "ask_once":
			what = "are asked about at their first call in each session"
		}
		d.add(agent.P2, "operations", way, "no entry covers these tools of %s, so they %s: %s", server, what, some(unlisted))
	}
	if len(writes) > 0 {
		d.add(agent.P1, "operations."+server+".*", "give each an entry with its own level", "by their names these tools change something, and only %s.* covers them, which says that they hardly do: %s", server, some(writes))
	}
	if len(bare) > 0 {
		d.add(agent.P2, "operations."+server+".*", way, "these tools have no label of their own, so once a session has read untrusted content every argument of theirs must be confirmed: %s", some(bare))
	}
}

// unruled finds arguments of reads that hold code, which the tools' schemas have and no entry names.
func (d *comparison) unruled(server string, tools []string) {
	for _, tool := range slices.Sorted(slices.Values(tools)) {
		class := d.class(server, tool)
		if !class.Listed || class.Profile().Level != 0 {
			continue
		}
		var takes []string
		for _, a := range d.schemas[server+"."+tool].Arguments {
			if _, has := class.Roles[a.Path]; !has && (len(a.Types) == 0 || !a.Is("number", "integer", "boolean")) {
				takes = append(takes, a.Path)
			}
		}
		field := "operations." + server + ".*"
		if class.Named {
			field = "operations." + server + "." + tool
		}
		for _, arg := range class.Reading(server, tool).Unruled(takes) {
			d.add(agent.P1, field, fmt.Sprintf(daemon.CodeRemedy, arg), "the argument %.80q of %.80s: "+daemon.CodeProblem, arg, tool)
		}
	}
}

// undirected finds arguments of writes that by their names say who gets something, or how much of it, and have no role.
func (d *comparison) undirected(server string, tools []string) {
	for _, tool := range slices.Sorted(slices.Values(tools)) {
		class := d.class(server, tool)
		if !class.Listed || class.Level == 0 {
			continue
		}
		field := "operations." + server + ".*"
		if class.Named {
			field = "operations." + server + "." + tool
		}
		var bare, roles []string
		for _, a := range d.schemas[server+"."+tool].Arguments {
			if _, _, has := call.LongestPrefix(class.Roles, a.Path); has {
				continue
			}
			if role := directing(a); role != "" {
				bare, roles = append(bare, a.Path), append(roles, fmt.Sprintf("%.80q: %s", a.Path, role))
			}
		}
		if len(bare) == 0 {
			continue
		}
		what := "so nothing compares who gets it with who got something before, and an amount counts by its name alone"
		if class.Level == 1 {
			what = "and level 1 says that only the person sees what it does"
		}
		d.add(agent.P1, field+".args", "say args: {"+strings.Join(roles[:min(maxNamed, len(roles))], ", ")+"}, or what else they are", "by their names these arguments of %.80s say who gets something, or how much, and they have no role, %s: %s", tool, what, some(bare))
	}
}

// directing is the role that the name of an argument tells, where that is who gets something or how much; else "".
func directing(a naming.Argument) provenance.Role {
	if len(a.Types) > 0 && !slices.ContainsFunc(a.Types, func(t string) bool {
		return slices.Contains([]string{"string", "number", "integer", "object", "array"}, t)
	}) {
		return ""
	}
	name := a.Path[strings.LastIndexByte(a.Path, '.')+1:]
	if policy.NamedAmount(name) {
		return provenance.Amount
	}
	role, _ := naming.Role(a.Path)
	if role == provenance.Destination || role == "" && naming.Has(naming.Split(name), "account", "accounts", "wallet", "receiver", "addressee") {
		return provenance.Destination
	}
	return ""
}

// entry compares one entry with the schema of its tool and with what was called.
func (d *comparison) entry(id string, o daemon.OperationConfig) {
	server, tool, _ := strings.Cut(id, ".")
	field := "operations." + id
	takes := func(arg string) bool { return d.schemas[id].Takes(arg) }
	if tool == "*" {
		takes = func(arg string) bool {
			return slices.ContainsFunc(d.tools[server], func(t string) bool { return d.schemas[server+"."+t].Takes(arg) })
		}
	}
	schema, known := d.schemas[id]
	if _, upstream := d.c.Upstreams[server]; upstream && len(d.tools[server]) > 0 && !known && tool != "*" && tool != "read_resource" && tool != "get_prompt" {
		d.add(agent.P2, field, "check the name: sallyport tools list", "%s has never offered a tool of this name", server)
		return
	}
	missing := map[string]bool{}
	if known || tool == "*" && len(d.tools[server]) > 0 {
		for _, arg := range slices.Sorted(maps.Keys(o.Args)) {
			if !takes(arg) {
				missing[arg] = true
				remedy := "check the name in the tool's schema: sallyport tools list --output yaml"
				if i := slices.IndexFunc(schema.Arguments, func(a naming.Argument) bool { return provenance.NearPaths(a.Path, arg) }); i >= 0 {
					remedy = "write it as the tool does, since names are compared exactly: " + schema.Arguments[i].Path
				}
				d.add(agent.P1, field+".args."+arg, remedy, "no call has such an argument, so the role %s is given to nothing", o.Args[arg])
			}
		}
	}
	if tool == "*" {
		return
	}
	p := d.class(server, tool).Profile()
	if known && p.HasRoles() {
		var bare []string
		for _, a := range schema.Arguments {
			if _, _, has := call.LongestPrefix(p.Args, a.Path); !has && (p.Level == 0 || directing(a) == "") {
				bare = append(bare, a.Path)
			}
		}
		if len(bare) > 0 {
			d.add(agent.P2, field+".args", "give each a role, or leave it so", "an argument without a role has to be confirmed like a target: %s", some(bare))
		}
	}
	d.history(id, field, o, p, missing)
}

// history finds what of a label never mattered in what is on record.
func (d *comparison) history(id, field string, o daemon.OperationConfig, p *provenance.Profile, missing map[string]bool) {
	labelled := len(o.Args) > 0 || o.Shape != "" || o.TrustedFields != nil || o.Names != nil || o.Delegable != nil || o.Level != nil && *o.Level == 1
	if !labelled || d.calls == 0 {
		return
	}
	u := d.used[id]
	if u == nil {
		d.add(agent.P2, field, "try it before you rely on its label", "it was not called in the newest %d entries of the log, so its label was never tried", d.entries)
		return
	}
	if u.calls >= enough {
		for _, arg := range slices.Sorted(maps.Keys(o.Args)) {
			if !u.args[arg] && !missing[arg] {
				d.add(agent.P2, field+".args."+arg, "check the name", "none of the newest %d calls had this argument", u.calls)
			}
		}
	}
	if p.Shape != nil && u.results > 0 && u.trusted == 0 && (p.Output == provenance.TrustedOutput || p.Output == provenance.TypedOutput) {
		at := field
		if o.Shape != "" {
			at += ".shape"
		}
		d.add(agent.P2, at, "compare it with a result: sallyport audit query --operation "+id, "no result had the shape (%d were looked at), so all were untrusted", u.results)
	}
	for _, f := range o.TrustedFields {
		if what := u.texts[f]; what != "" {
			d.add(agent.P1, field+".trusted_fields", "leave "+f+" out, and name what the system sets in it, if anything", "results had %s in the field %.80q, and every value there counts as confirmed", what, f)
		}
	}
	if u.results < enough {
		return
	}
	for _, list := range []struct {
		name   string
		fields []string
	}{{"trusted_fields", o.TrustedFields}, {"names", o.Names}, {"delegable", o.Delegable}} {
		for _, f := range list.fields {
			if !u.fields[f] {
				d.add(agent.P2, field+"."+list.name, "write it as it stands in a result: sallyport audit query --operation "+id, "none of the newest %d results had the field %.80q", u.results, f)
			}
		}
	}
}

// read takes in what the newest entries say about calls and their results.
func (d *comparison) read(ctx context.Context, r *store.Reader) error {
	size, err := r.Size(ctx)
	if err != nil {
		return err
	}
	left := int64(maxBytes)
	first := max(r.Oldest(), size-maxEntries)
	d.entries = size - first
	for next := first; next >= 0 && next < size; {
		var page []audit.Entry
		var last int64
		page, last, err = r.Entries(ctx, audit.Filter{Min: next, Limit: 1000})
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := d.take(ctx, r, e, &left); err != nil {
				return err
			}
		}
		if next = -1; last >= 0 {
			next = last + 1
		}
	}
	return nil
}

func (d *comparison) take(ctx context.Context, r *store.Reader, e audit.Entry, left *int64) error {
	if e.Operation == "" || e.Kind != audit.Intent && (e.Kind != audit.Outcome || e.Decision != "ok") {
		return nil
	}
	u := d.used[e.Operation]
	if u == nil {
		u = &use{args: map[string]bool{}, fields: map[string]bool{}, texts: map[string]string{}}
		d.used[e.Operation] = u
	}
	if e.Kind == audit.Intent {
		u.calls++
		d.calls++
		b, err := payload(ctx, r, e.Arguments, left)
		if err != nil || b == nil {
			return err
		}
		var v any
		if json.Unmarshal(b, &v) == nil {
			pathsOf(v, "", u.args)
		}
		return nil
	}
	server, tool, _ := strings.Cut(e.Operation, ".")
	p := d.class(server, tool).Profile()
	if e.Result == nil || e.Result.Redacted || p.Shape == nil && p.TrustedFields == nil && p.Names == nil && p.Delegable == nil {
		return nil // what was left out of the log would be taken for what was never there
	}
	b, err := payload(ctx, r, e.Result, left)
	if err != nil || b == nil {
		return err
	}
	payloads, _ := effect.Payloads(call.CallTool, b)
	seen := provenance.Observe(p, &provenance.Request{}, provenance.Result{Operation: e.Operation, CallID: e.CallID, Arguments: []byte("{}"), Values: payloads})
	if len(seen.Records) == 0 || seen.Cut {
		return nil
	}
	u.results++
	if seen.Trusted {
		u.trusted++
	}
	for _, value := range payloads {
		v := value.Plain()
		paths, texts := map[string]bool{}, map[string]string{}
		pathsOf(v, "", paths)
		textsOf(v, "", texts)
		for path := range paths { // a record may begin anywhere in it
			for ok := true; ok; _, path, ok = strings.Cut(path, ".") {
				u.fields[path] = true
			}
		}
		for path, what := range texts {
			for ok := true; ok; _, path, ok = strings.Cut(path, ".") {
				u.texts[path] = what
			}
		}
	}
	return nil
}

// payload is what the log keeps of arguments or a result; nil where it keeps nothing, or so much was read already.
func payload(ctx context.Context, r *store.Reader, p *audit.Payload, left *int64) ([]byte, error) {
	switch {
	case p == nil || *left < p.Size:
		return nil, nil
	case p.Shown != nil:
		*left -= p.Size
		return p.Shown, nil
	case !p.Stored:
		return nil, nil
	}
	*left -= p.Size
	b, err := r.Payload(ctx, p.Key)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return b, err
}

// pathsOf collects the paths of a value, in the form that roles are given by.
func pathsOf(v any, path string, into map[string]bool) {
	if path != "" && v != nil && len(into) < 10_000 {
		into[path] = true
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			pathsOf(e, path, into)
		}
	case map[string]any:
		for name, e := range v {
			at := name
			if path != "" {
				at = path + "." + name
			}
			pathsOf(e, at, into)
		}
	}
}

// textsOf collects the paths at which there are records, or texts of so many words that somebody may have written them.
func textsOf(v any, path string, into map[string]string) {
	if len(into) >= 10_000 {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			textsOf(e, path, into)
		}
	case map[string]any:
		if path != "" {
			into[path] = "records"
		}
		for name, e := range v {
			at := name
			if path != "" {
				at = path + "." + name
			}
			textsOf(e, at, into)
		}
	case string:
		words := 0
		for w := range strings.FieldsSeq(v[:min(len(v), 1000)]) {
			if strings.IndexFunc(w, unicode.IsLetter) >= 0 {
				words++
			}
		}
		if words > maxWords && path != "" {
			into[path] = "text"
		}
	}
}
