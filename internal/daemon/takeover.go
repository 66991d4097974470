package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/clients"
	"sallyport.example/internal/display"
	"sallyport.example/internal/labels"
	"sallyport.example/internal/project"
)

// TakeOver is what a new installation takes over from MCP clients.
type TakeOver struct {
	Servers   map[string]clients.Server // by id, see ServerID
	Project   string                    // the folder that agents work in, where commands start: absolute
	Developer bool                      // for one person's own work: writes that only they see and can undo are free, and sessions last long
	// Unlabelled are servers that get no labels of the catalogue, though it has some: they may reach somebody else's service.
	Unlabelled map[string]bool
	Model      *ModelConfig // the agent's model, or nil. A key is stored apart, as any credential is.
}

var notID = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// ServerID is the id of a server that a client knows by a name: what of the name an id can have. "" if nothing is left.
func ServerID(name string) string {
	id := strings.Trim(notID.ReplaceAllString(name, "-"), "-_")
	if len(id) > 40 {
		id = strings.TrimRight(id[:40], "-_")
	}
	switch strings.ToLower(id) {
	case "comm", "knowledge", "sallyport":
		id += "-server"
	}
	return id
}

// InitFrom writes into dir what an installation starts from that has the servers of somebody's clients: sallyport.yaml, its JSON Schema, sallyport.env with
// every value that can be a credential, and the agent dev. Like Init it overwrites nothing. In a repository it adds the file of credentials and the
// data directory to .gitignore.
func InitFrom(dir string, t TakeOver) (written []string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	config, vars, err := t.config(dir)
	if err != nil {
		return nil, err
	}
	env, err := envText(vars)
	if err != nil {
		return nil, err
	}
	schema, err := ConfigSchema()
	if err != nil {
		return nil, err
	}
	if err := fresh(dir); err != nil {
		return nil, err
	}
	written, err = writeNew(dir, []newFile{
		{"sallyport.yaml", config, 0o644},
		{"sallyport.schema.json", schema, 0o644},
		{filepath.Join("agents", "dev.yaml"), t.agent(), 0o644},
		{envFile, env, 0o600},
	})
	if err != nil {
		return written, err
	}
	ignored, err := ignore(dir, envFile, "sallyport-data/")
	if ignored != "" {
		written = append(written, ignored)
	}
	return written, err
}

// fresh refuses a folder in which something would count that was there before: declarations of agents, or a data directory with its tokens, accepted tools
// and keys. They may have come with the client's file.
func fresh(dir string) error {
	there := func(name string) error {
		return &ConfigError{[]Problem{{File: filepath.Join(dir, name), Severity: "error", Problem: "is there already, and what is in it would count",
			Remedy: "look at it and move it away, or choose another folder: sallyport init DIR --from FILE"}}}
	}
	if st, err := os.Lstat(filepath.Join(dir, "sallyport-data")); !errors.Is(err, fs.ErrNotExist) && (err != nil || !st.IsDir() || st.Mode().Perm()&0o077 != 0) { // a gateway makes its own for itself alone
		return there("sallyport-data")
	}
	switch st, err := os.Lstat(filepath.Join(dir, "agents")); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil || !st.IsDir():
		return there("agents")
	}
	switch entries, err := os.ReadDir(filepath.Join(dir, "agents")); {
	case err != nil:
		return err
	case len(entries) > 0:
		return there(filepath.Join("agents", entries[0].Name()))
	}
	return nil
}

// Written is what a configuration says of its servers as it stands in the file, with no reference replaced.
type Written struct {
	Path      string
	Mode      string
	Upstreams map[string]struct {
		Command      []string
		URL, Sandbox string
	}
}

// AsWritten reads it from the configuration in a folder, which can be loaded.
func AsWritten(dir string) (w Written, err error) {
	path := filepath.Join(dir, "sallyport.yaml")
	text, err := readConfig(path)
	if err != nil {
		return w, err
	}
	if err := yaml.Load(text, &w); err != nil {
		return w, err
	}
	w.Path = path
	return w, nil
}

// config is the configuration, with the values for its references. It is read again to see that it says what the servers are.
func (t TakeOver) config(dir string) (text []byte, vars map[string]string, err error) {
	v := &variables{all: map[string]string{}}
	cfg := Config{
		Agents: "agents", People: PeopleConfig{List: []PersonConfig{{ID: "admin", Name: "Administrator", Roles: []string{"admin"}}}},
		Upstreams: map[string]UpstreamConfig{}, Unlisted: "ask_once",
	}
	cfg.Listen, cfg.AdminListen = freeAddresses(inUse)
	if t.Developer {
		cfg.Flow.FreeLevel1, cfg.Flow.Project = true, t.folder(dir)
		cfg.Limits.ExecutionBudget = Duration(4 * time.Hour)
	}
	for _, id := range slices.Sorted(maps.Keys(t.Servers)) {
		cfg.Upstreams[id] = t.upstream(dir, id, v)
	}
	if t.Model != nil {
		m := *t.Model
		if m.Key != "" {
			m.Key = v.put(m.Provider, "API_KEY", m.Key)
		}
		cfg.Models = []ModelConfig{m}
	}
	text, err = yaml.Dump(cfg)
	if err != nil {
		return nil, nil, err
	}
	text = append([]byte(takenHeader), bytes.ReplaceAll(text, []byte(": 4h0m0s\n"), []byte(": 4h\n"))...)
	again, err := parseConfig(filepath.Join(dir, "sallyport.yaml"), text, dir, v.all)
	if err != nil {
		return nil, nil, fmt.Errorf("the configuration would not be a good one: %w", err)
	}
	for id, s := range t.Servers {
		u := again.Upstreams[id]
		if !slices.Equal(u.Command, texts(s.Command)) || u.URL != s.URL.Text || !maps.Equal(u.Env, s.Env) || !maps.Equal(u.Headers, s.Headers) {
			return nil, nil, fmt.Errorf("the server %s can't be written so that it is read as what it is: leave it out", id)
		}
	}
	return text, v.all, nil
}

// folder is the project's, as the configuration in dir names it.
func (t TakeOver) folder(dir string) string {
	if t.Project == dir {
		return "."
	}
	return t.Project
}

const takenHeader = `# yaml-language-server: $schema=./sallyport.schema.json
#
# Servers taken over from MCP clients. "${NAME}" stands for a value in sallyport.env, which others can't read.
# Every key: docs/configuration.md. sallyport lint checks this file, sallyport serve starts.
#
# A tool that has no label here and none in the catalogue is asked about once a session (unlisted_operations). Labels for it: sallyport flow suggest.
`

// upstream is a server's entry in the configuration.
func (t TakeOver) upstream(dir, id string, v *variables) UpstreamConfig {
	s := t.Servers[id]
	u := UpstreamConfig{Env: v.named(id, s.Env), Headers: v.named(id, s.Headers)}
	known := KnownServer(s)
	if known != nil && !t.Unlabelled[id] {
		u.Labels = labelsOfCatalogue
	}
	if s.URL.Text != "" {
		u.URL = v.text(id, "URL", s.URL)
		return u
	}
	namesFile := slices.ContainsFunc(texts(s.Command)[1:], func(arg string) bool {
		return filepath.IsAbs(arg) || strings.HasPrefix(arg, ".") || strings.HasPrefix(arg, "~")
	})
	if known != nil && known.Sandbox == "full" && known.Confined == "" && !namesFile { // in full it would not see the file
		u.Sandbox, u.Egress = "full", Egress{Mode: known.Egress}
	}
	for i, arg := range s.Command {
		u.Command = append(u.Command, v.text(id, "ARG_"+strconv.Itoa(i), arg))
	}
	if known != nil && known.Project && t.Developer { // the folder that flow.project has: it is no home
		u.Paths = []string{t.folder(dir)}
	}
	if at := s.Folder; at != "" || t.Project != dir {
		if at == "" {
			at = t.Project
		}
		u.Cwd = at
	}
	return u
}

// KnownServer is the entry of the catalogue of labels for a client's server; nil if there is none. A server in a folder of node_modules has none: whoever
// wrote the client's file could have put another program there.
func KnownServer(s clients.Server) *labels.Entry {
	m, err := labels.For(serverOf(s))
	if err != nil || s.URL.Text == "" && !m.Fetched {
		return nil
	}
	return m.Entry
}

func serverOf(s clients.Server) labels.Server {
	return labels.Server{Command: texts(s.Command), Env: s.Env, URL: s.URL.Text}
}

// Doubts says why the labels of the catalogue may be wrong for a client's server that has some, in sentences; none if nothing speaks against them. Labels take
// what a server reads for the person's own, and what it keeps for something that nobody runs: the server's entry may say otherwise.
func Doubts(s clients.Server) (all []string) {
	if KnownServer(s) == nil {
		return nil
	}
	if hosts := serverOf(s).Hosts(); len(hosts) > 0 {
		all = append(all, "What it is asked may go to "+strings.Join(hosts, ", ")+".")
	}
	for _, text := range append(texts(s.Command[1:]), slices.Sorted(maps.Values(s.Env))...) {
		if _, value, ok := strings.Cut(text, "="); ok {
			text = value
		}
		if is := project.ActsLater(text); is != "" {
			all = append(all, "It may write "+display.Line(text, 300)+", which is "+is+".")
		}
	}
	return all
}

func texts(values []clients.Value) (all []string) {
	for _, v := range values {
		all = append(all, v.Text)
	}
	return all
}

// variables are the values of the file of credentials.
type variables struct{ all map[string]string }

var notName = regexp.MustCompile(`[^A-Z0-9]+`)

// put keeps a value and returns the reference to it.
func (v *variables) put(id, key, value string) string {
	word := func(s string) string { return strings.Trim(notName.ReplaceAllString(strings.ToUpper(s), "_"), "_") }
	name := word(key)
	if own := word(id); !strings.HasPrefix(name, own+"_") {
		name = own + "_" + name
	}
	if !envName.MatchString(name) {
		name = "_" + name
	}
	for n, base := 2, name; ; n++ {
		if had, taken := v.all[name]; !taken || had == value {
			break
		}
		name = base + "_" + strconv.Itoa(n)
	}
	v.all[name] = value
	return "${" + name + "}"
}

func (v *variables) text(id, key string, value clients.Value) string {
	if value.Secret {
		return v.put(id, key, value.Text)
	}
	return value.Text
}

func (v *variables) named(id string, values map[string]string) map[string]string {
	if len(values) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		out[key] = v.put(id, key, values[key])
	}
	return out
}

// agent is the declaration of dev, who may call every tool of these servers.
func (t TakeOver) agent() []byte {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(t.Servers)) {
		all = append(all, strconv.Quote(id+".*"))
	}
	model := ""
	if t.Model != nil {
		model = strconv.Quote(t.Model.ID)
	}
	return fmt.Appendf(nil, devAgent, strings.Join(all, ", "), model)
}

const devAgent = `# The agent that works through the servers of sallyport.yaml. sallyport lint checks this file.
agentId: dev                         # its credential: sallyport token create --agent dev
agentName: Developer's agent
version: 1.0.0
purpose: Works on a project with its developer, through MCP tools.
capabilities: [read and change the project, look things up]
dataSources: {tables: [], apis: [], models: [%[2]s]}

# Every tool of the servers. What a call may do is decided when it is made.
permissions:
  read: [%[1]s]
  write: [%[1]s]

outputSchemaVersion: 1.0.0
outputSchema:
  type: object
  required: [answer, citations]
  additionalProperties: false
  properties:
    answer: {type: string, maxLength: 10000, pattern: "^[^<>]*$", x-fact: true}
    citations:
      type: array
      items:
        type: object
        required: [source, timestamp, confidence]
        additionalProperties: false
        properties:
          source: {type: string, maxLength: 200, pattern: "^[^<>]*$"}
          timestamp: {type: string, format: date-time}
          confidence: {type: number, minimum: 0, maximum: 1}

maxExecutionTime: 300000
maxTokens: 200000
killSwitchEnabled: true
humanApprovalRequired: true
mode: operator
startPhase: execution
`

// ignore adds names to the .gitignore of a folder in a repository; it returns the file if it changed it.
func ignore(dir string, names ...string) (changed string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			break
		}
		if at == filepath.Dir(at) {
			return "", nil
		}
	}
	path := filepath.Join(dir, ".gitignore")
	st, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var has []byte
	if err == nil {
		if !st.Mode().IsRegular() || st.Size() > maxConfig {
			return "", fmt.Errorf("%s is no file that can be added to: keep %s out of the repository yourself", path, strings.Join(names, " and "))
		}
		if has, err = os.ReadFile(path); err != nil {
			return "", err
		}
	}
	var add bytes.Buffer
	if len(has) > 0 && has[len(has)-1] != '\n' {
		add.WriteByte('\n')
	}
	before := add.Len()
	lines := strings.Split(string(has), "\n")
	for _, name := range names {
		last := -1 // the last line decides, and one that begins with ! lets files back in
		for i, line := range lines {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "!") {
				last = -1
			} else if strings.Trim(line, "/") == strings.Trim(name, "/") {
				last = i
			}
		}
		if last < 0 {
			fmt.Fprintln(&add, name)
		}
	}
	if add.Len() == before {
		return "", nil
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, &add)
	return path, errors.Join(err, out.Close())
}
