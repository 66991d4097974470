package daemon

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/console"
	"sallyport.example/internal/diff"
	"sallyport.example/internal/display"
	"sallyport.example/internal/policy"
)

const (
	// maxChanged bounds the fields that one entry about a change names, and maxValue the bytes of each value. Entries that follow name the others.
	maxChanged, maxValue = 100, 200
	// maxAgentsNamed bounds the declarations whose digests stand in the entry of a start. All of them are in its payload.
	maxAgentsNamed = 200
	// changesShown is how long the overview shows that the configuration or a declaration changed.
	changesShown = 7 * 24 * time.Hour
)

// The actions of the entries about a start.
const (
	startAction  = "gateway.start"
	reloadAction = "config.reload"
	configAction = "config.change"
	agentAction  = "agent.change"
	byStart      = "gateway:start"
)

// startState is what a start or a reload found. It is the payload of its entry, so that the next one can say what differs. It holds no secrets: of
// the configuration it has keyed digests, and values of the sections alone that hold none (public).
type startState struct {
	Version     string                     `json:"version"`
	Key         string                     `json:"key"` // names the key of the digests
	Config      map[string]string          `json:"config"`
	Values      map[string]json.RawMessage `json:"values"`
	Policies    string                     `json:"policies"`
	Agents      map[string]json.RawMessage `json:"agents"`
	Approvals   bool                       `json:"approvals"`           // declarations count once they are approved; false: an older version wrote it
	Programs    bool                       `json:"programs"`            // the digests of declarations cover the files of their runs; false: an older version wrote it
	LoadedBy    map[string]string          `json:"loaded_by,omitempty"` // who loaded each declaration as it is, as kind:id
	agentDigest map[string]string
}

// loading is a start or a reload, for the entries about it.
type loading struct {
	action, by string
	since      string // when what is compared with was loaded, in words
}

// starting is the loading at a start.
var starting = loading{startAction, byStart, "the last start"}

// public are the sections and fields of the configuration that hold no secrets. Of any other the record says only that it changed.
var public = []string{
	"listen", "admin_listen", "store", "mode", "agents", "policies", "people", "operations", "unlisted_operations", "flow", "limits", "trust_tiers", "approvals", "declarations",
	"comm.allowed_domains", "comm.protocols", "comm.exec", "console.public_url", "folder",
}

// isPublic tells whether the value of a field may stand in the record.
func isPublic(field string) bool {
	personal := strings.HasPrefix(field, "people.") && !strings.HasSuffix(field, ".roles") && field != peopleConfirm // names and addresses
	return !personal && slices.ContainsFunc(public, func(p string) bool { return field == p || strings.HasPrefix(field, p+".") })
}

// startState says what a start or a reload found. key is the secret of the digests.
func startStateOf(version string, key []byte, cfg *Config, agents agent.Set, policies *policy.Set) (startState, error) {
	name := sha256.Sum256(key)
	s := startState{Version: version, Key: hex.EncodeToString(name[:8]), Config: map[string]string{}, Values: map[string]json.RawMessage{}, Policies: policies.Version(), Agents: map[string]json.RawMessage{}, Approvals: true, Programs: true, agentDigest: map[string]string{}}
	plain := *cfg
	plain.People.Confirm = ""      // so that the fields of people have one name in both forms; beside adds it
	text, err := yaml.Dump(&plain) // with all defaults, and the environment's values in place
	if err != nil {
		return s, err
	}
	var tree any
	if err := yaml.Load(text, &tree); err != nil {
		return s, err
	}
	encoded, err := json.Marshal(tree)
	if err != nil {
		return s, err
	}
	fields := map[string]json.RawMessage{}
	diff.FlattenNamed(encoded, fields)
	cfg.beside(fields)
	for field, value := range fields {
		s.Config[field] = fieldDigest(key, field, value)
		if isPublic(field) {
			s.Values[field] = value
		}
	}
	for _, d := range agents.All() {
		if s.Agents[d.AgentID], err = json.Marshal(d); err != nil {
			return s, err
		}
		s.agentDigest[d.AgentID] = d.Digest
	}
	return s, nil
}

// beside adds what decides and is in no field of the file that the last start could be compared by: the folders that relative paths mean, lists that are
// empty in order to replace a server's, and the gateway's own labels of servers.
func (c *Config) beside(fields map[string]json.RawMessage) {
	add := func(field string, value any) { fields[field], _ = json.Marshal(value) } // of strings and plain fields: can't fail
	if folder, err := filepath.Abs(c.Dir); err == nil {
		if real, err := filepath.EvalSymlinks(folder); err == nil {
			folder = real
		}
		add("folder", folder)
	}
	if c.People.Confirm != "" {
		add(peopleConfirm, c.People.Confirm)
	}
	if own := c.rules(); own.text != nil { // who needs them reports the error
		add(patternsFile, call.HashBytes(own.text))
	}
	if c.project != nil {
		add(projectFolder, c.project.Folder())
	}
	for id, o := range c.Operations {
		for name, list := range map[string][]string{"trusted_fields": o.TrustedFields, "names": o.Names, "delegable": o.Delegable, "may_omit": o.MayOmit} {
			if list != nil && len(list) == 0 {
				add("operations."+id+"."+name, list)
			}
		}
	}
	for server, k := range c.known {
		for tool, o := range k.operations {
			add("upstreams."+server+"."+labelsOf+tool, struct {
				Says        OperationConfig
				Definitions []string
			}{o, k.Labelled(tool)})
		}
	}
}

// fieldDigest is the keyed digest of a field of the configuration, whose value is JSON.
func fieldDigest(key []byte, field string, value []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\x00%s", field, value)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// configKey is the secret of the digests of the configuration's fields.
func (d *Daemon) configKey() ([]byte, error) {
	signing, err := audit.ReadFile(filepath.Join(d.o.Data, audit.KeyFile))
	if err != nil {
		return nil, err
	}
	return derived(signing, "configuration"), nil
}

// derived is a secret for one purpose, made of the signing key: so there is one secret to keep, and what is derived stays the same over restarts.
func derived(signing []byte, purpose string) []byte {
	key := sha256.Sum256(append([]byte("sallyport "+purpose+" v1\x00"), signing...))
	return key[:]
}

// changed is one field that differs. Of what may hold a secret there are no values.
type changed struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

// fieldsChanged lists the fields whose digests differ, with their values where those are known.
func fieldsChanged[D comparable](before, after map[string]D, from, to map[string]json.RawMessage) (all []changed) {
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, known := before[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, had := before[name]
		if is, has := after[name]; had != has || was != is {
			all = append(all, changed{name, clipped(from[name]), clipped(to[name])})
		}
	}
	return all
}

// clipped is a value as JSON, of a long one the beginning as text.
func clipped(v json.RawMessage) json.RawMessage {
	if len(v) <= maxValue {
		return v
	}
	short, _ := json.Marshal(display.Clip(string(v), maxValue)) // of a string: can't fail
	return short
}

// configChanges are the fields of the configuration that differ.
func (s *startState) configChanges(last *startState) (config []changed) {
	if s.Key == last.Key {
		config = fieldsChanged(last.Config, s.Config, last.Values, s.Values)
	} else { // digests under another key say nothing
		config = append(fieldsChanged(asText(last.Values), asText(s.Values), last.Values, s.Values), changed{Field: "signing.key"})
	}
	if last.Policies != s.Policies {
		from, _ := json.Marshal(last.Policies) // of strings: can't fail
		to, _ := json.Marshal(s.Policies)
		config = append(config, changed{policyFiles, from, to})
	}
	return config
}

// changedAgent is a declaration that differs, came or went.
type changedAgent struct {
	id, what string
	fields   []changed
}

// agentChanges are the declarations that differ, by id.
func (s *startState) agentChanges(last *startState) (all []changedAgent) {
	ids := slices.Sorted(maps.Keys(s.Agents))
	for id := range last.Agents {
		if _, still := s.Agents[id]; !still {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		was, is := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		old, had := last.Agents[id]
		now, has := s.Agents[id]
		if had {
			diff.Flatten("", old, was)
		}
		if has {
			diff.Flatten("", now, is)
		}
		if fields := fieldsChanged(asText(was), asText(is), was, is); len(fields) > 0 {
			all = append(all, changedAgent{id, map[bool]string{true: "changed", false: map[bool]string{true: "added", false: "removed"}[has]}[had && has], fields})
		}
	}
	return all
}

// changes are the entries about what differs. The actions and agents stand in a fixed order.
func (l loading) changes(last, now *startState) (entries []audit.Entry) {
	if config := now.configChanges(last); len(config) > 0 {
		entries = append(entries, l.changeEntries(configAction, "", "changed", config)...)
	}
	for _, a := range now.agentChanges(last) {
		entries = append(entries, l.changeEntries(agentAction, a.id, a.what, a.fields)...)
	}
	return entries
}

// asText are values that can be compared.
func asText(values map[string]json.RawMessage) map[string]string {
	all := make(map[string]string, len(values))
	for name, v := range values {
		all[name] = string(v)
	}
	return all
}

// changeEntries name every field that differs. Many of them take several entries, so that a change can't hide behind others.
func (l loading) changeEntries(action, agentID, what string, fields []changed) (entries []audit.Entry) {
	for len(fields) > 0 {
		n := min(len(fields), maxChanged)
		e := l.changeEntry(action, agentID, what, fields[:n], len(fields)-n)
		for ; len(e.Detail) > maxChangeDetail && n > 1; e = l.changeEntry(action, agentID, what, fields[:n], len(fields)-n) {
			n = n * 3 / 4 // written as JSON, quotes and angle brackets are longer
		}
		entries, fields = append(entries, e), fields[n:]
	}
	return entries
}

// changeEntry names some fields that differ. more stand in the entries that follow.
func (l loading) changeEntry(action, agentID, what string, fields []changed, more int) audit.Entry {
	fields, names := slices.Clone(fields), make([]string, 0, len(fields))
	for i := range fields {
		fields[i].Field = audit.Clip(fields[i].Field) // so that one always has room
		names = append(names, fields[i].Field)
	}
	e := audit.Entry{Kind: audit.Change, Action: action, Agent: agentID, Actor: l.by, Decision: "ok", Reason: audit.Clip(what + " since " + l.since + ": " + strings.Join(names, ", "))}
	e.Detail, _ = json.Marshal(struct { // of strings and values that are JSON: can't fail
		Change string    `json:"change"`
		Fields []changed `json:"fields"`
		More   int       `json:"more,omitempty"`
	}{what, fields, more})
	return e
}

// maxChangeDetail bounds the detail of an entry about what changed: an entry that is too long would be refused, and with it every start.
const maxChangeDetail = 32 << 10

// recordStart puts this start on record, with what differs from what was loaded last.
func (d *Daemon) recordStart(ctx context.Context, agents agent.Set, policies *policy.Set) error {
	key, err := d.configKey()
	if err != nil {
		return err
	}
	s, err := startStateOf(d.o.Version, key, d.config(), agents, policies)
	if err != nil {
		return fmt.Errorf("reading what this start found: %w", err)
	}
	last, err := d.lastStart(ctx)
	if err != nil {
		return fmt.Errorf("reading what the last start found: %w", err)
	}
	s.loadedBy(last, byStart)
	if err := d.adoptDeclarations(ctx, last, agents); err != nil {
		return fmt.Errorf("taking over the declarations that ran before: %w", err)
	}
	entry, err := starting.entry(&s)
	if err != nil {
		return err
	}
	entries := []audit.Entry{entry}
	if last != nil {
		entries = append(entries, starting.changes(last, &s)...)
	}
	if err := d.store.Record(ctx, entries...); err != nil {
		return err
	}
	paths, err := d.config().gatewayPaths(d.o.Data)
	if err != nil {
		return err
	}
	d.loaded.Store(&loaded{at: time.Now().UTC(), by: byStart, state: &s, kept: paths.Secrets})
	return d.findChanges(ctx)
}

// entry is the entry of the start or the reload that found s.
func (l loading) entry(s *startState) (audit.Entry, error) {
	whole, err := call.Encode(s)
	if err != nil {
		return audit.Entry{}, err
	}
	config, err := call.Encode(s.Config)
	if err != nil {
		return audit.Entry{}, err
	}
	declarations, err := call.Encode(s.agentDigest)
	if err != nil {
		return audit.Entry{}, err
	}
	detail := map[string]any{
		"version": s.Version, "configuration": call.HashBytes(config), "policies": s.Policies, "declarations": call.HashBytes(declarations),
	}
	if len(s.agentDigest) <= maxAgentsNamed {
		detail["agents"] = s.agentDigest
	}
	key := call.HashBytes(whole)
	e := audit.Entry{
		Kind: audit.Change, Action: l.action, Actor: l.by, Decision: "ok",
		Arguments: &audit.Payload{SHA256: key, Size: int64(len(whole)), Stored: true, Key: key, Bytes: whole},
	}
	e.Detail, err = json.Marshal(detail)
	return e, err
}

// lastStart is what the last start found, or a reload after it; nil if none is on record.
func (d *Daemon) lastStart(ctx context.Context) (*startState, error) {
	size, err := d.store.Size(ctx)
	if err != nil {
		return nil, err
	}
	for end, piece := size, int64(1024); end > 0; end, piece = max(0, end-piece), piece*4 {
		var found []audit.Entry
		for _, action := range []string{startAction, reloadAction} {
			some, err := d.entries(ctx, audit.Filter{Action: action, Min: max(0, end-piece)}, end)
			if err != nil {
				return nil, err
			}
			found = append(found, slices.DeleteFunc(some, func(e audit.Entry) bool { return e.Decision != "ok" })...)
		}
		slices.SortFunc(found, func(a, b audit.Entry) int { return cmp.Compare(a.Index, b.Index) })
		if len(found) == 0 {
			continue
		}
		e := found[len(found)-1]
		if e.Arguments == nil {
			return nil, fmt.Errorf("entry %d has no payload", e.Index)
		}
		whole, err := d.store.Payload(ctx, e.Arguments.Key)
		if err != nil {
			return nil, err
		}
		var s startState
		if err := json.Unmarshal(whole, &s); err != nil {
			return nil, fmt.Errorf("the payload of entry %d: %w", e.Index, err)
		}
		return &s, nil
	}
	return nil, nil
}

// entries are those before index end that match the filter.
func (d *Daemon) entries(ctx context.Context, f audit.Filter, end int64) (all []audit.Entry, err error) {
	for f.End = end; f.Min < end; f.Min++ {
		page, next, err := d.store.Entries(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if next < 0 || next+1 >= end {
			return all, nil
		}
		f.Min = next
	}
	return all, nil
}

// recentChanges are the changes of configuration and declarations that starts and reloads found lately, the newest first.
func (d *Daemon) recentChanges(ctx context.Context) (all []console.Change, err error) {
	size, err := d.store.Size(ctx)
	if err != nil {
		return nil, err
	}
	for _, action := range []string{configAction, agentAction} {
		found, err := d.entries(ctx, audit.Filter{Action: action, From: time.Now().Add(-changesShown)}, size)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			all = append(all, console.Change{Index: e.Index, At: e.At, Agent: e.Agent, Text: e.Reason})
		}
	}
	slices.SortFunc(all, func(a, b console.Change) int { return int(b.Index - a.Index) })
	return all, nil
}
