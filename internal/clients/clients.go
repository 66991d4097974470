// Package clients knows the configuration files of MCP clients: where they lie, which servers they name, and how the gateway's entry stands in them.
//
// A file of a client's is a stranger's: it may have come with a repository. Promises: it is read within bounds and strictly, nothing in it is run,
// every value that can be a credential is marked as one, what can't be taken over is listed with the reason, and a file is only rewritten to a text
// that differs from it in the servers alone.
package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
)

// kind is an MCP client.
type kind struct {
	word, name string
	project    []string // its files in a project
	home       []string // its files in the person's home
	member     string   // under which the servers stand
	comments   bool     // its JSON may have comments, and commas before a closing bracket
	expands    bool     // it replaces references to variables in values
	perProject bool     // its file also has servers of single projects: projects.FOLDER.mcpServers
}

// kinds are the clients whose configuration is known, in the order in which their files are looked for.
var kinds = []kind{
	{word: "claude-code", name: "Claude Code", project: []string{".mcp.json"}, home: []string{".claude.json"}, member: "mcpServers", expands: true, perProject: true},
	{word: "claude-desktop", name: "Claude Desktop", member: "mcpServers", home: []string{"Library/Application Support/Claude/claude_desktop_config.json",
		".config/Claude/claude_desktop_config.json", "AppData/Roaming/Claude/claude_desktop_config.json"}},
	{word: "cursor", name: "Cursor", project: []string{".cursor/mcp.json"}, home: []string{".cursor/mcp.json"}, member: "mcpServers", comments: true, expands: true},
	{word: "vscode", name: "VS Code", project: []string{".vscode/mcp.json"}, member: "servers", comments: true, expands: true,
		home: []string{"Library/Application Support/Code/User/mcp.json", ".config/Code/User/mcp.json", "AppData/Roaming/Code/User/mcp.json"}},
	{word: "codex", name: "Codex", project: []string{".codex/config.toml"}, home: []string{".codex/config.toml"}, member: "mcp_servers"},
}

// Kinds are the clients whose configuration is known, by the word that the command line has for each.
var Kinds = func() (words []string) {
	for _, k := range kinds {
		words = append(words, k.word)
	}
	return words
}()

const (
	maxFile    = 16 << 20 // Claude Code keeps more than servers in its file
	maxTOML    = 1 << 20
	maxServers = 100 // of one file
)

// limits of what a file says of its servers.
var limits = call.Limits{Bytes: 1 << 20, Depth: 12, Members: 10_000}

// File is one file of a client's.
type File struct {
	Path    string // absolute
	Kind    string // one of Kinds
	Client  string // its name for people
	Servers []Server
	Skipped []Skipped // what is not taken over

	kind    kind
	places  [][]string // members under which it has servers
	text    []byte
	secrets []string // values that can be credentials, also of entries that are not taken over
}

// OwnEntry is how the reason begins for which an entry that looks like the gateway's own is not taken over.
const OwnEntry = "it looks like the gateway's own entry"

// Skipped is an entry that is not taken over.
type Skipped struct{ Name, Why string }

// Options say where files are looked for, and what values refer to.
type Options struct {
	Folder string                      // the project: absolute
	Home   string                      // of the person; "" if there is none
	Lookup func(string) (string, bool) // the environment
}

// Find returns the paths of the files that are there: those of the project, and with home also those of the person.
func Find(o Options, home bool) (paths []string) {
	add := func(dir string, names []string) {
		for _, name := range names {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	for _, k := range kinds {
		add(o.Folder, k.project)
	}
	for _, k := range kinds {
		if home && o.Home != "" {
			add(o.Home, k.home)
		}
	}
	return paths
}

// ProjectOf is the folder of the project that a file belongs to: the one that the client starts servers in. "" for a person's own file, and for one of
// another name.
func ProjectOf(path, home string) string {
	for _, k := range kinds {
		for _, name := range k.project {
			if dir, ok := strings.CutSuffix(filepath.ToSlash(path), "/"+name); ok && filepath.Clean(dir) != filepath.Clean(home) {
				return filepath.FromSlash(dir)
			}
		}
	}
	return ""
}

// CheckPlace refuses a file that a link of its project points to.
func CheckPlace(path string, o Options) error {
	if real := ledAway(path, o); real != "" {
		return fmt.Errorf("%s is reached by a link: name the file itself, %s", display.Line(path, 300), display.Line(real, 300))
	}
	return nil
}

// ledAway says where a file of a project's, or of the person's home, is in truth, if a folder on the way to it is a link: a project's .cursor may lead to the
// person's own. "" if it is where its name says.
func ledAway(path string, o Options) string {
	for _, base := range []string{o.Folder, o.Home} {
		rel, err := filepath.Rel(base, filepath.Dir(path))
		if base == "" || err != nil || !filepath.IsLocal(rel) {
			continue
		}
		at, err := filepath.EvalSymlinks(base)
		if err != nil {
			return ""
		}
		if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && real != filepath.Join(at, rel) {
			return filepath.Join(real, filepath.Base(path))
		}
		return ""
	}
	return ""
}

// Read reads one file and what it says of servers.
func Read(path string, o Options) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := CheckPlace(path, o); err != nil {
		return nil, err
	}
	text, err := readRegular(path, maxFile)
	if err != nil {
		return nil, err
	}
	k, err := kindOf(path, text)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path, Kind: k.word, Client: k.name, kind: k, text: text, places: [][]string{{k.member}}}
	if k.perProject && filepath.Base(path) == ".claude.json" {
		f.places = append(f.places, []string{"projects", o.Folder, k.member})
	}
	inputs, err := f.inputs()
	if err != nil {
		return nil, f.unreadable(err)
	}
	from := &expander{o: o, on: k.expands, inputs: inputs}
	for _, place := range f.places {
		entries, err := f.entries(text, place)
		if err != nil {
			return nil, f.unreadable(err)
		}
		if len(f.Servers)+len(f.Skipped)+len(entries) > maxServers {
			return nil, f.unreadable(fmt.Errorf("it names more than %d servers", maxServers))
		}
		for _, e := range entries {
			f.secrets = append(f.secrets, secretsOf(e.value)...)
			s, err := readEntry(e.name, e.value, from)
			switch {
			case err != nil:
				f.Skipped = append(f.Skipped, Skipped{e.name, err.Error()})
			case slices.ContainsFunc(f.Servers, func(other Server) bool { return other.Name == s.Name }):
				f.Skipped = append(f.Skipped, Skipped{e.name, "the file has another entry of the name"})
			default:
				f.Servers = append(f.Servers, s)
			}
		}
	}
	return f, nil
}

func (f *File) unreadable(err error) error {
	return fmt.Errorf("%s can't be read as a file of %s: %w", display.Line(f.Path, 300), f.Client, err)
}

// kindOf tells whose file it is: by its name, else by its form.
func kindOf(path string, text []byte) (kind, error) {
	slashed := "/" + strings.ToLower(strings.TrimPrefix(filepath.ToSlash(path), "/"))
	for _, k := range kinds {
		for _, name := range slices.Concat(k.project, k.home) {
			if strings.HasSuffix(slashed, "/"+strings.ToLower(name)) || k.word == "claude-desktop" && strings.HasSuffix(slashed, "/claude_desktop_config.json") {
				return k, nil
			}
		}
	}
	switch ending := filepath.Ext(slashed); ending {
	case ".toml":
		return kinds[slices.Index(Kinds, "codex")], nil
	case ".json", ".jsonc":
		for _, word := range []string{"vscode", "cursor"} { // which takes what Claude Code takes, and comments
			k := kinds[slices.Index(Kinds, word)]
			if _, ok, err := find(plainJSON(text), []string{k.member}); ok && err == nil {
				return k, nil
			}
		}
	}
	return kind{}, fmt.Errorf("%s is no configuration of a client that is known (%s)", display.Line(path, 300), strings.Join(Kinds, ", "))
}

// entry is a server as it stands in a file.
type entry struct {
	name  string
	value json.RawMessage
}

// entries are the servers under one member, by name.
func (f *File) entries(text []byte, place []string) (all []entry, err error) {
	value, err := f.member(text, place)
	if value == nil || err != nil {
		return nil, err
	}
	if !call.IsObject(value) {
		return nil, fmt.Errorf("%s is no object", display.Quote(place[len(place)-1], 40))
	}
	for name, v := range call.Members(value) {
		all = append(all, entry{name, v})
	}
	return all, nil
}

// member is the canonical value of a member of the file; nil if it has none.
func (f *File) member(text []byte, place []string) (json.RawMessage, error) {
	if f.Kind == "codex" {
		doc, err := readTOML(text)
		if err != nil {
			return nil, err
		}
		v, ok := doc[place[0]]
		if !ok {
			return nil, nil
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		return call.Canonical(raw, limits)
	}
	text, err := f.json(text)
	if err != nil {
		return nil, err
	}
	at, ok, err := find(text, place)
	if !ok || err != nil {
		return nil, err
	}
	return call.Canonical(text[at.start:at.end], limits)
}

// json is the text without what only this client's JSON may have.
func (f *File) json(text []byte) ([]byte, error) {
	if f.kind.comments {
		text = plainJSON(text)
	}
	if !json.Valid(text) {
		return nil, f.noJSON(text)
	}
	return text, nil
}

// noJSON says where a text stops being JSON.
func (f *File) noJSON(text []byte) error {
	var v any
	err := json.Unmarshal(text, &v)
	var at *json.SyntaxError
	if !errors.As(err, &at) {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("it is empty")
	}
	before := text[:max(0, min(len(text), int(at.Offset)-1))]
	line, column := bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])+1
	what := "it is no JSON: " + at.Error()
	switch {
	case !f.kind.comments && json.Valid(plainJSON(text)):
		what = "it has comments or a comma behind the last member, which " + f.Client + " can't read either: take them out"
	case int(at.Offset) >= len(text):
		what = "it ends before every { and [ is closed"
	}
	return fmt.Errorf("line %d, column %d: %s", line, column, what)
}

// inputs are the defaults of the values that VS Code asks its person for; "" of one that has none, or that is a password.
func (f *File) inputs() (map[string]string, error) {
	if f.Kind != "vscode" {
		return nil, nil
	}
	raw, err := f.member(f.text, []string{"inputs"})
	if raw == nil || err != nil {
		return nil, err
	}
	var list []struct {
		ID       string `json:"id"`
		Default  string `json:"default"`
		Password bool   `json:"password"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("inputs is no list of inputs with texts")
	}
	all := map[string]string{}
	for _, in := range list {
		if !in.Password {
			all[in.ID] = in.Default
		}
	}
	return all, nil
}

// readTOML reads a text of Codex's.
func readTOML(text []byte) (doc map[string]any, err error) {
	if len(text) > maxTOML {
		return nil, fmt.Errorf("it has more than %d bytes", maxTOML)
	}
	depth := 0
	for _, c := range text { // the parser calls itself for each bracket; brackets in texts count, too, which is on the safe side
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > 200 {
			return nil, errors.New("its brackets are nested too deep")
		}
	}
	if err := toml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("it is no TOML: %w", err)
	}
	return doc, nil
}

// readRegular reads a regular file of no more than that many bytes.
func readRegular(path string, most int64) ([]byte, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", display.Line(path, 300))
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", display.Line(path, 300))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes, which is all that is read", display.Line(path, 300), most)
	}
	return text, err
}
