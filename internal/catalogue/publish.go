package catalogue

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

// publish puts the next snapshot in place and says so. c.mu is held.
func (c *Catalogue) publish() {
	c.snap.Store(c.build())
	c.tell()
}

// tell says that there is another snapshot. c.mu is held.
func (c *Catalogue) tell() {
	for _, f := range c.subs {
		f()
	}
	c.o.Changed()
}

// build makes the next snapshot from offers, pins and classification. c.mu is held.
func (c *Catalogue) build() *Snapshot {
	s := &Snapshot{
		byID: map[string]*Operation{}, byName: map[string]*Operation{},
		offers: map[call.Kind][]Offer{}, withheld: map[call.Kind][]Offer{},
	}
	c.builtins(s)
	c.models(s)
	for _, server := range slices.Sorted(maps.Keys(c.offered)) {
		for _, d := range c.offered[server] {
			if d.Kind == call.Tool {
				op := c.operation(server, d.Name, call.Tool)
				c.addTool(s, op, d)
			} else {
				c.addOffer(s, server, d)
			}
		}
	}
	// Pinned tools that are no longer offered keep their id, so that a call of one says so.
	for id, pin := range c.pins {
		if s.byID[id] == nil && !strings.HasSuffix(id, serverSeen) {
			server, tool, _ := strings.Cut(id, ".")
			if server == agent.TrialServer { // it is there as long as a trial is
				continue
			}
			op := c.operation(server, tool, call.Tool)
			op.Standing, op.Hash, op.Unread = Gone, pin.Hash, pin.Unread() && !op.Class.TrustFirstSight
			s.byID[id] = op
		}
	}
	c.assignNames(s)
	c.inputs = map[string]func() (func([]byte) error, error){} // those of definitions that are no longer offered go
	for _, op := range s.byID {
		if op.input != nil {
			c.inputs[op.Hash] = op.input
		}
	}
	return s
}

// operation makes an operation as the operator has classified it with the definition that is accepted, or else with the one that waits. If the
// classification can't be resolved, the operation is unfit.
func (c *Catalogue) operation(server, tool string, kind call.Kind) *Operation {
	pin := c.pins[server+"."+tool]
	return c.classified(c.o.Classify(server, tool).For(cmp.Or(pin.Hash, pin.Pending)), server, tool, kind)
}

func (c *Catalogue) classified(class Classification, server, tool string, kind call.Kind) *Operation {
	op := &Operation{ID: server + "." + tool, Server: server, Tool: tool, Kind: kind, Class: class, Standing: Active}
	op.profile()
	if !class.Listed {
		op.Standing, op.AskFirst = c.o.Unlisted, c.o.Unlisted == Active
		op.AskOnce = op.AskFirst && c.o.AskOnce
		if c.o.Observe && op.Standing == Unlisted {
			op.Standing, op.Denied = Active, true
		}
	}
	spec := class.Flow
	spec.ID, spec.Name = op.ID, exposedName(class, server, tool)
	op.Name = spec.Name
	f, err := flow.Resolve(spec, c.o.Labels)
	if err != nil {
		op.Standing, op.Fault = Unfit, err.Error()
	}
	op.Flow = f
	return op
}

func exposedName(class Classification, server, tool string) string {
	if class.ExposeAs == "" {
		if n := len(server); len(tool) > n+1 && strings.EqualFold(tool[:n], server) && strings.ContainsRune("_-.", rune(tool[n])) {
			return strings.ReplaceAll(tool, ".", "_") // git_status of git is no git_git_status
		}
		return fullName(server, tool)
	}
	return strings.ReplaceAll(class.ExposeAs, "{tool}", tool)
}

// fullName is a tool's name with its server's id before it, whatever it begins with. It can be called by it, too, while no other tool has that name.
func fullName(server, tool string) string { return strings.ReplaceAll(server+"_"+tool, ".", "_") }

func (c *Catalogue) addTool(s *Snapshot, op *Operation, d call.Definition) {
	pin := c.pins[op.ID]
	op.Hash, op.Launch, op.Accepted = pin.Hash, pin.Launch, pin.AcceptedBy != FirstSight
	op.Unread = pin.Unread() && !op.Class.TrustFirstSight
	switch {
	case d.Fault != "":
		op.Standing, op.Fault = Unfit, d.Fault
	case op.Tool == readResource || op.Tool == getPrompt:
		op.Standing, op.Fault = Unfit, "its name is that of the operation for the server's resources or prompts"
	case op.Standing != Active:
	case pin.Hash != d.Hash || pin.Launch != c.o.Launch(op.Server):
		op.Standing = Quarantined
	default:
		op.acts(pin.Definition)
		def, err := exposedTool(op, pin.Definition)
		if err != nil {
			op.Standing, op.Fault = Unfit, err.Error()
			break
		}
		op.Definition = def
		op.input, op.places = c.inputCheck(op.Hash, pin.Definition), placeDefaults(pin.Definition, op.Profile)
		if schema, ok := call.Get(pin.Definition, "outputSchema"); ok && op.Class.Output == provenance.TrustedOutput {
			check, err := c.o.Schema(schema)
			if err != nil {
				op.Standing, op.Fault = Unfit, "its outputSchema: "+err.Error()
				break
			}
			op.Check = check
		}
	}
	if s.byID[op.ID] == nil { // of a name that is offered twice, Fault says so in both definitions
		s.byID[op.ID] = op
	} else if op.Standing == Unfit {
		s.byID[op.ID] = op
	}
}

// acts makes a write of a tool that is classified as a read, if every call of it needs an argument that holds code and no rule says which code
// is allowed.
func (op *Operation) acts(definition []byte) {
	if op.Flow.Effect != flow.Read {
		return
	}
	schema, _ := call.Get(definition, "inputSchema")
	raw, _ := call.Get(schema, "required")
	var required []string
	if json.Unmarshal(raw, &required) != nil {
		return // no argument is required, so each call is judged by its own arguments
	}
	unruled := op.Class.Reading(op.Server, op.Tool).Unruled(required)
	if len(unruled) == 0 {
		return
	}
	op.Acts = fmt.Sprintf("The argument %s of %s holds code, and no shape or class says what it may say, so it counts as an operation that changes what others see.", display.Line(unruled[0], 80), op.Name)
	op.Class.Level, op.Flow.Effect, op.Class.Flow.Effect = 2, flow.Write, flow.Write
	op.profile()
}

// profile derives the profile from the classification.
func (op *Operation) profile() {
	op.Profile = op.Class.Profile()
	op.Rules = op.Profile.Digest()
}

// exposedTool is the accepted definition as the agent sees it: under its exposed name, without characters that could mislead a terminal or a
// model's tokenizer, and without outputSchema if the result will be fenced.
func exposedTool(op *Operation, definition []byte) (json.RawMessage, error) {
	members, err := objectOf(definition)
	if err != nil {
		return nil, err
	}
	members = threat.PlainValue(members).(map[string]any)
	members["name"] = op.Name
	if op.Class.Description != "" {
		members["description"] = op.Class.Description
	}
	if op.Class.Output != provenance.TrustedOutput && op.Class.Output != provenance.TypedOutput {
		delete(members, "outputSchema")
	}
	delete(members, "_meta")
	hints := op.annotations(members)
	if delete(members, "annotations"); hints != nil {
		members["annotations"] = hints
	}
	if op.Class.NeedsReasons && op.Command == nil {
		if err := takeReasons(members); err != nil {
			return nil, err
		}
	}
	return json.Marshal(members)
}

// takeReasons adds to a tool what a call says about why it is needed. The gateway takes it off again: the server never sees it.
func takeReasons(definition map[string]any) error {
	schema, _ := definition["inputSchema"].(map[string]any)
	properties, described := schema["properties"].(map[string]any)
	if schema == nil || schema["properties"] != nil && !described {
		return errors.New("its arguments are not described, and the configuration says declare: required")
	}
	added := map[string]any{"justification": json.RawMessage(justificationSchema), "declaration_id": json.RawMessage(declarationSchema)}
	for name := range properties {
		if strings.EqualFold(name, "justification") || strings.EqualFold(name, "declaration_id") {
			return errors.New("it has an argument " + strings.ToLower(name) + " of its own, and the configuration says declare: required")
		}
	}
	schema = maps.Clone(schema)
	maps.Copy(added, properties)
	schema["properties"] = added
	definition["inputSchema"] = schema
	return nil
}

// annotations are the hints for clients, some of which ask their user about nothing that claims to read. So they follow the operator's labels, and of
// the server's own word only the title is kept, which is text like the description.
func (op *Operation) annotations(members map[string]any) map[string]any {
	schema, _ := members["inputSchema"].(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	// A call of a read that takes code may be a write by its arguments.
	reads := op.Flow.Effect == flow.Read && len(op.Class.Reading(op.Server, op.Tool).Unruled(slices.Collect(maps.Keys(properties)))) == 0
	outside := op.Flow.Sensitivity == flow.External || op.Flow.Sensitivity == flow.Both || op.Profile.EgressURL
	if c := op.Command; c != nil { // its definition is short: of the hints there is the one that clients ask their user by
		switch {
		case reads:
			return map[string]any{"readOnlyHint": c.Writes == nil}
		case op.Class.Level == 1:
			return map[string]any{"destructiveHint": false}
		}
		return nil // what MCP takes for granted of a tool
	}
	hints := map[string]any{
		"readOnlyHint": reads, "destructiveHint": !reads && op.Class.Level != 1,
		"openWorldHint": outside,
	}
	own, _ := members["annotations"].(map[string]any)
	if title, ok := own["title"].(string); ok {
		hints["title"] = title
	}
	return hints
}

func (c *Catalogue) addOffer(s *Snapshot, server string, d call.Definition) {
	word := readResource
	if d.Kind == call.Prompt {
		word = getPrompt
	}
	op := s.byID[server+"."+word]
	if op == nil || op.Kind != d.Kind {
		op = c.operation(server, word, d.Kind)
		op.Hash = call.HashBytes([]byte(op.ID)) // one operation for all of a server's resources has no definition to pin
		s.byID[op.ID] = op
	}
	withhold := func() {
		o := Offer{Operation: op, Name: d.Name}
		if d.Kind == call.Prompt {
			o.Name = exposedName(op.Class, server, d.Name)
		}
		s.withheld[d.Kind] = append(s.withheld[d.Kind], o)
	}
	if op.Standing != Active {
		withhold() // an operation that can't be called takes no name
		return
	}
	if d.Fault != "" || d.Kind == call.Resource && !threat.PlainURI(strings.NewReplacer("{", "", "}", "").Replace(d.Name)) {
		withhold() // the definition is unfit, or its URI could be read as a sentence
		return
	}
	// Reading a list raises no label, so lists show nothing that would need one. They hide resources and prompts of a server whose results
	// bring confidentiality labels, which can still be read by name, and show no free text of a server that is not trusted.
	brings := slices.DeleteFunc(slices.Clone(op.Flow.Emits), func(l flow.Label) bool { return l == flow.Untrusted })
	bare := op.Class.Output != provenance.TrustedOutput
	o := Offer{Operation: op, Name: d.Name, Upstream: d.Name, Hidden: len(brings) > 0}
	if d.Kind == call.Prompt {
		o.Name = exposedName(op.Class, server, d.Name)
	}
	members, err := objectOf(d.JSON)
	if err != nil {
		return
	}
	if d.Kind == call.Prompt {
		members["name"] = o.Name
	}
	_, o.Template = members["uriTemplate"]
	if bare {
		members = bareOffer(members)
		o.Hidden = o.Hidden || !op.Class.TrustFirstSight && c.looksLikeOrder(server, d, members)
	}
	o.Definition, err = json.Marshal(threat.PlainValue(members))
	if err != nil {
		return
	}
	s.offers[d.Kind] = append(s.offers[d.Kind], o)
}

// bareOffer keeps only names and types, which are enough to ask for a resource or prompt, and no sentences.
func bareOffer(members map[string]any) map[string]any {
	next := map[string]any{}
	for _, key := range []string{"name", "uri", "uriTemplate", "mimeType"} {
		s, ok := members[key].(string)
		if !ok {
			continue
		}
		if key == "mimeType" && !threat.MediaType(s) || len(s) > 1000 {
			continue
		}
		if key == "name" { // a name could be a sentence
			s = bareName(s)
		}
		next[key] = s
	}
	if list, ok := members["arguments"].([]any); ok {
		var arguments []any
		for _, a := range list {
			if a, ok := a.(map[string]any); ok {
				name, _ := a["name"].(string)
				arguments = append(arguments, map[string]any{"name": bareName(name), "required": a["required"] == true})
			}
		}
		next["arguments"] = arguments
	}
	return next
}

func bareName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-/", r)) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 128)]
}

// assignNames gives out the exposed names. Two operations may claim the same name, or names that differ only in case and dashes. The operation
// that the operator names outright then gets it, else the one that was accepted first; the other is unfit. So no new tool takes or imitates a
// name, and an operation keeps its name while its server is away.
func (c *Catalogue) assignNames(s *Snapshot) {
	var claims []*Operation
	for _, op := range s.byID {
		if op.Kind == call.Tool && (op.Standing == Active || op.Standing == Quarantined || op.Standing == Gone && op.Hash != "") {
			claims = append(claims, op)
		}
	}
	slices.SortFunc(claims, func(a, b *Operation) int {
		if at, bt := a.Server == agent.TrialServer, b.Server == agent.TrialServer; at != bt { // a trial takes no name from the operator's tools
			if bt {
				return -1
			}
			return 1
		}
		if an, bn := a.Class.Named, b.Class.Named; an != bn {
			if an {
				return -1
			}
			return 1
		}
		if d := c.pins[a.ID].AcceptedAt.Compare(c.pins[b.ID].AcceptedAt); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	taken := map[string]*Operation{}
	for _, op := range claims {
		key := strings.ReplaceAll(strings.ToLower(op.Name), "-", "_")
		if other := taken[key]; other != nil {
			op.Standing, op.Fault = Unfit, fmt.Sprintf("its exposed name %q is taken by %s, or looks like it: set expose_as", op.Name, other.ID)
			continue
		}
		if strings.HasPrefix(key, "sallyport_") && op.Command == nil { // of built-in ones the program says the name, and no configuration can give one such a name
			op.Standing, op.Fault = Unfit, "names that begin with sallyport_ are the gateway's own: set expose_as"
			continue
		}
		taken[key] = op
		s.byName[op.Name] = op
		if op.Standing == Active {
			s.tools = append(s.tools, op)
		}
	}
	for _, op := range claims {
		full := fullName(op.Server, op.Tool)
		if key := strings.ReplaceAll(strings.ToLower(full), "-", "_"); op.Class.ExposeAs == "" && s.byName[op.Name] == op && taken[key] == nil {
			taken[key], s.byName[full] = op, op
		}
	}
	slices.SortFunc(s.tools, func(a, b *Operation) int { return strings.Compare(a.Name, b.Name) })
	listed := map[string]bool{}
	for kind, offers := range s.offers {
		slices.SortStableFunc(offers, func(a, b Offer) int { return strings.Compare(a.Name, b.Name) })
		// Of one URI on two servers the first server by id has it. The answer says which server it is from.
		s.offers[kind] = slices.DeleteFunc(offers, func(o Offer) bool {
			key := string(kind) + "\x00" + o.Name
			dup := listed[key]
			listed[key] = true
			return dup
		})
	}
}

func objectOf(data []byte) (map[string]any, error) {
	var m map[string]any
	if err := call.Decode(data, &m); err != nil {
		return nil, fmt.Errorf("its definition is not an object: %w", err)
	}
	return m, nil
}
