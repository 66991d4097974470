package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/naming"
)

// Additions are labels for a configuration that says nothing of these tools yet.
type Additions struct {
	Operations map[string]OperationConfig // by <server>.<tool>
	Catalogue  []string                   // servers that get labels: catalogue
	Note       string                     // a comment beside the entries, one line
}

// Entries are the entries of operations, each on one line of YAML.
func (a Additions) Entries() (lines []string) {
	for _, operation := range slices.Sorted(maps.Keys(a.Operations)) {
		lines = append(lines, naming.Key(operation)+": "+a.Operations[operation].inline())
	}
	return lines
}

// With is the configuration with additions. It shares what it does not change.
func (c *Config) With(a Additions) *Config {
	d := *c
	d.Operations, d.Upstreams, d.known = maps.Clone(c.Operations), maps.Clone(c.Upstreams), maps.Clone(c.known)
	if d.Operations == nil {
		d.Operations = map[string]OperationConfig{}
	}
	maps.Copy(d.Operations, a.Operations)
	for _, server := range a.Catalogue {
		u := d.Upstreams[server]
		u.Labels = labelsOfCatalogue
		d.Upstreams[server] = u
		d.lookUp(&complaints{}, server) // what is wrong with it, reading the new text says
	}
	return &d
}

// Added is the text of a configuration, read from a folder, with additions. Nothing else in the text changes: it is read again, and has to say what it
// said before and what was added, and no more.
func Added(file string, text []byte, dir string, a Additions) ([]byte, error) {
	before, err := ParseConfig(file, text, dir)
	if err != nil {
		return nil, err
	}
	for operation := range a.Operations {
		if _, there := before.Operations[operation]; there {
			return nil, fmt.Errorf("%s has an entry for %.200q already", file, operation)
		}
	}
	e := &edit{text: text}
	e.servers(a)
	e.operations(a)
	if e.err != nil {
		return nil, fmt.Errorf("%s: %w", file, e.err)
	}
	if len(e.text) > maxConfig {
		return nil, fmt.Errorf("%s would have more than %d bytes, which is all that is read", file, maxConfig)
	}
	after, err := ParseConfig(file, e.text, dir)
	if err != nil {
		return nil, fmt.Errorf("with the labels the configuration would not be valid, so nothing was written: %w", err)
	}
	want, err := yaml.Dump(before.With(a))
	if err != nil {
		return nil, err
	}
	got, err := yaml.Dump(after)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(want, got) {
		return nil, fmt.Errorf("%s is written so that the labels can't be put in without changing more: paste them yourself", file)
	}
	return e.text, nil
}

// edit is a text of YAML that gets more members, one insertion after the other.
type edit struct {
	text []byte
	err  error
}

var errPaste = errors.New("it is written so that labels can't be added: paste them yourself")

// root is the mapping of the whole text as it is now; nil: the text is empty.
func (e *edit) root() *yaml.Node {
	var doc yaml.Node
	if e.err != nil || blank(e.text) {
		return nil
	}
	if e.err = yaml.Load(e.text, &doc); e.err != nil || len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

// member is a member of a mapping, with its key.
func member(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

func (e *edit) servers(a Additions) {
	for _, server := range slices.Sorted(slices.Values(a.Catalogue)) {
		_, upstreams := member(e.root(), "upstreams")
		_, u := member(upstreams, server)
		if u == nil || u.Kind != yaml.MappingNode {
			e.fail()
			return
		}
		e.into(u, []string{"labels: " + labelsOfCatalogue}, "")
	}
}

func (e *edit) operations(a Additions) {
	if len(a.Operations) == 0 {
		return
	}
	members := a.Entries()
	key, value := member(e.root(), "operations")
	switch {
	case key == nil:
		e.end("operations:", members, a.Note)
	case value.Kind == yaml.MappingNode:
		e.into(value, members, a.Note)
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null" && value.Value == "":
		e.insert(key.Line, strings.Repeat(" ", key.Column+1), members, a.Note)
	default:
		e.fail()
	}
}

func (e *edit) fail() {
	if e.err == nil {
		e.err = errPaste
	}
}

// into puts members into a mapping, before those that it has.
func (e *edit) into(n *yaml.Node, members []string, note string) {
	if e.err != nil {
		return
	}
	if n.Style&yaml.FlowStyle != 0 {
		at := e.offset(n.Line, n.Column)
		if at < 0 || at >= len(e.text) || e.text[at] != '{' {
			e.fail()
			return
		}
		more := strings.Join(members, ", ")
		if len(n.Content) > 0 {
			more += ", "
		}
		e.text = slices.Concat(e.text[:at+1], []byte(more), e.text[at+1:])
		return
	}
	if len(n.Content) == 0 {
		e.fail()
		return
	}
	first := n.Content[0]
	at := e.offset(first.Line, 1)
	if at < 0 || first.Column < 1 || len(e.text) < at+first.Column-1 || strings.Trim(string(e.text[at:at+first.Column-1]), " ") != "" {
		e.fail()
		return
	}
	e.insert(first.Line-1, string(e.text[at:at+first.Column-1]), members, note)
}

// insert puts members behind a line, counted from 1, each on a line of its own.
func (e *edit) insert(line int, indent string, members []string, note string) {
	at := e.offset(line+1, 1)
	if at < 0 {
		e.end("", nil, "") // the last line has no end
		at = len(e.text)
	}
	var b strings.Builder
	if note != "" {
		members = append([]string{"# " + note}, members...)
	}
	for _, m := range members {
		b.WriteString(indent + m + "\n")
	}
	e.text = slices.Concat(e.text[:at], []byte(b.String()), e.text[at:])
}

// end puts a new member with members of its own at the end of the text.
func (e *edit) end(key string, members []string, note string) {
	if e.err != nil {
		return
	}
	e.text = slices.Clone(e.text)
	if len(e.text) > 0 && e.text[len(e.text)-1] != '\n' {
		e.text = append(e.text, '\n')
	}
	if key == "" {
		return
	}
	if note != "" {
		key += "\n  # " + note
	}
	e.text = append(e.text, key+"\n  "+strings.Join(members, "\n  ")+"\n"...)
}

// offset is where a place stands in the text: its line and its character, counted from 1. -1: there is no such place.
func (e *edit) offset(line, column int) int {
	at := 0
	for ; line > 1; line-- {
		end := bytes.IndexByte(e.text[at:], '\n')
		if end < 0 {
			return -1
		}
		at += end + 1
	}
	for ; column > 1; column-- {
		_, size := utf8.DecodeRune(e.text[at:])
		if size == 0 {
			return -1
		}
		at += size
	}
	return at
}

// inline is an entry that Additions can have on one line of YAML.
func (o OperationConfig) inline() string {
	var all []string
	add := func(key, value string) {
		if value != "" {
			all = append(all, key+": "+value)
		}
	}
	add("sensitivity", o.Sensitivity)
	add("effect", o.Effect)
	if o.Level != nil {
		add("level", strconv.Itoa(*o.Level))
	}
	add("output", o.Output)
	if o.IDKind != "" {
		add("id_kind", naming.Key(o.IDKind))
	}
	if o.EgressURL {
		add("egress_url", "true")
	}
	add("action", o.Action)
	if len(o.Args) > 0 {
		var args []string
		for _, arg := range slices.Sorted(maps.Keys(o.Args)) {
			args = append(args, naming.Key(arg)+": "+o.Args[arg])
		}
		add("args", "{"+strings.Join(args, ", ")+"}")
	}
	return "{" + strings.Join(all, ", ") + "}"
}
