// Package labels holds the catalogue of labels: for well-known servers, what an operator may say of each of their tools. There is one file for each
// server in the folder entries; docs/labels.md says what stands in it, and how people add one.
//
// Promises: an entry applies to a server by the package that the gateway starts, or by the host that it reaches, and never because tools look alike.
// Each label is for one definition of a tool, by its hash: a tool that says anything else of itself has no label here. A file that can't be read in
// full is an error, never half an entry.
package labels

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/npm"
)

//go:embed entries/*.yaml
var files embed.FS

// How an entry was tested.
const (
	Days = "days" // the real server, over whole days of work, honest and hostile
	Stub = "stub" // a stub that serves the recorded definitions
)

// Entry is what is known of one server.
type Entry struct {
	ID       string   `yaml:"-"`                  // the name of its file
	Server   string   `yaml:"server"`             // its name, for people
	Packages []string `yaml:"packages"`           // of npm: whatever else starts the server, the entry doesn't apply
	Hosts    []string `yaml:"hosts,omitempty"`    // that serve the same tools, by https
	Version  string   `yaml:"version"`            // of the package that the definitions were taken from
	Tested   string   `yaml:"tested"`             // days or stub
	Sandbox  string   `yaml:"sandbox"`            // the strictest in which it was seen to work: full or partial
	Egress   string   `yaml:"egress"`             // what it needs of the network there: none or any
	Confined string   `yaml:"confined,omitempty"` // why the sandbox is partial, or what full takes besides; "" with full: nothing
	Project  bool     `yaml:"project,omitempty"`  // it works on the project in which it is started, and its command doesn't name that
	Unasked  string   `yaml:"unasked"`            // what runs without a question, for people
	// Trusts says, of each tool whose results confirm anything, why they may.
	Trusts map[string]string `yaml:"trusts,omitempty"`
	// Unlabelled are the tools that have no label on purpose, with the reason.
	Unlabelled map[string]string `yaml:"unlabelled,omitempty"`
	// Operations are the labels by tool, in the words of "operations" in the configuration. Who reads the configuration reads them.
	Operations map[string]yaml.Node `yaml:"operations"`
	// Definitions are the hashes of the definitions, as the gateway computes them, of all tools that the server had. A tool has several where it says
	// something else of itself in another version, or with other versions of what it depends on.
	Definitions map[string][]string `yaml:"definitions"`
}

// Labelled are the hashes of the definitions of a tool that its label is for; none where it has no label.
func (e *Entry) Labelled(tool string) []string {
	if _, ok := e.Operations[tool]; !ok {
		return nil
	}
	return e.Definitions[tool]
}

// All returns every entry, by id. They are read once, and nobody changes them.
var All = sync.OnceValues(func() ([]*Entry, error) {
	found, err := files.ReadDir("entries")
	if err != nil {
		return nil, err
	}
	var all []*Entry
	for _, f := range found {
		data, err := files.ReadFile(path.Join("entries", f.Name()))
		if err != nil {
			return nil, err
		}
		e, err := Parse(strings.TrimSuffix(f.Name(), ".yaml"), data)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, oneEach(all)
})

var hash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Parse reads one entry strictly. What its operations say is not looked at.
func Parse(id string, data []byte) (*Entry, error) {
	e := &Entry{ID: id}
	if err := yaml.Load(data, e, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("the catalogue's entry %s: %w", id, err)
	}
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("the catalogue's entry %s: %s: %s", id, field, fmt.Sprintf(format, args...))
	}
	for field, text := range map[string]string{"server": e.Server, "version": e.Version, "unasked": e.Unasked} {
		if strings.TrimSpace(text) == "" {
			return nil, bad(field, "it is missing")
		}
	}
	switch {
	case len(e.Packages) == 0:
		return nil, bad("packages", "name the package that the definitions were taken from")
	case e.Tested != Days && e.Tested != Stub:
		return nil, bad("tested", "use days or stub")
	case e.Sandbox != "full" && e.Sandbox != "partial":
		return nil, bad("sandbox", "use full or partial")
	case e.Egress != "none" && e.Egress != "any":
		return nil, bad("egress", "use none or any")
	case e.Sandbox == "partial" && e.Confined == "":
		return nil, bad("confined", "say why the sandbox full doesn't do")
	case len(e.Operations) == 0:
		return nil, bad("operations", "there are none")
	}
	for _, tool := range slices.Sorted(maps.Keys(e.Definitions)) {
		_, labelled := e.Operations[tool]
		_, left := e.Unlabelled[tool]
		for _, h := range e.Definitions[tool] {
			if !hash.MatchString(h) {
				return nil, bad("definitions."+tool, "%.80q is no SHA-256 in hexadecimal", h)
			}
		}
		if labelled == left {
			return nil, bad("definitions."+tool, "a tool stands under operations or under unlabelled, and not under both")
		}
	}
	for name, tools := range map[string][]string{"operations": slices.Collect(maps.Keys(e.Operations)), "unlabelled": slices.Collect(maps.Keys(e.Unlabelled)), "trusts": slices.Collect(maps.Keys(e.Trusts))} {
		for _, tool := range tools {
			if len(e.Definitions[tool]) == 0 {
				return nil, bad(name+"."+tool, "no definition of it is recorded")
			}
		}
	}
	return e, nil
}

// oneEach reports a package or host that two entries name: one of them would be a matter of luck.
func oneEach(all []*Entry) error {
	of := map[string]string{}
	for _, e := range all {
		for _, name := range slices.Concat(e.Packages, e.Hosts) {
			if other := of[name]; other != "" {
				return fmt.Errorf("the catalogue's entries %s and %s both name %s", other, e.ID, name)
			}
			of[name] = e.ID
		}
	}
	return nil
}

// Server is how a server is started or reached, as the configuration says it.
type Server struct {
	Command []string
	Env     map[string]string
	URL     string
}

// Hosts are the hosts elsewhere that its command or environment names, in an address or under a word for a host, sorted: what the server is asked may go
// there, and only its operator knows whose they are. None for one that is reached by a url, which an entry is for or not.
func (s Server) Hosts() (all []string) {
	add := func(authority string) {
		authority = authority[strings.LastIndexByte(authority, '@')+1:]
		for host := range strings.SplitSeq(authority, ",") { // databases take several
			if bracketed, _, ok := strings.Cut(strings.TrimPrefix(host, "["), "]"); ok {
				host = bracketed
			} else if strings.Count(host, ":") == 1 {
				host, _, _ = strings.Cut(host, ":")
			}
			host = strings.ToLower(strings.TrimSpace(host))
			if ip, err := netip.ParseAddr(host); host != "" && host != "localhost" && (err != nil || !ip.IsLoopback()) {
				all = append(all, host)
			}
		}
	}
	look := func(name, value string) {
		addresses := authorityOf.FindAllStringSubmatch(value, -1)
		for _, m := range addresses {
			add(m[1])
		}
		if len(addresses) == 0 && aHost.MatchString(name) {
			add(value)
		}
	}
	before := ""
	for _, arg := range s.Command {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(name, "-") {
			name, value = before, arg
		}
		look(name, value)
		if before = ""; !ok && strings.HasPrefix(arg, "-") {
			before = arg
		}
	}
	for name, value := range s.Env {
		look(name, value)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	authorityOf = regexp.MustCompile(`://([^/?#\s'"]+)`)
	aHost       = regexp.MustCompile(`(?i)(^|[-_])(host(name|s)?|endpoint|server|domain|url|uri|addr(ess)?|proxy)$|^pghost(addr)?$`)
)

// Match is the entry for a server.
type Match struct {
	*Entry
	// Fetched: the gateway itself fetches the package from the registry. Otherwise it is what lies in the folder that the command names, and
	// only who put it there knows whether it is the package.
	Fetched bool
}

// For finds the entry for a server. Without one the error says why there is none.
func For(s Server) (Match, error) {
	all, err := All()
	if err != nil {
		return Match{}, err
	}
	if s.URL != "" {
		host := hostOf(s.URL)
		for _, e := range all {
			if host != "" && slices.Contains(e.Hosts, host) {
				return Match{Entry: e}, nil
			}
		}
		return Match{}, fmt.Errorf("it has no entry for the server at %.100q", s.URL)
	}
	name, fetched := packageOf(s.Command)
	if name == "" {
		return Match{}, fmt.Errorf("an entry applies by the package of npm that the command starts, as npx -y PACKAGE@VERSION, and this one doesn't say which it is")
	}
	for variable := range s.Env {
		if redirects(variable) {
			return Match{}, fmt.Errorf("the variable %.80q can make %.80s another program", variable, name)
		}
	}
	for _, e := range all {
		if slices.Contains(e.Packages, name) {
			return Match{Entry: e, Fetched: fetched}, nil
		}
	}
	return Match{}, fmt.Errorf("it has no entry for the package %.100q", name)
}

// packageOf is the package of npm that a command starts, and whether the gateway fetches it: npx and npm exec name it, and of a program that node
// starts it is the folder below node_modules. Any option before that could load something else first.
func packageOf(command []string) (name string, fetched bool) {
	if p, ok := npm.Of(command); ok {
		return p.Name, true
	}
	if len(command) < 2 || filepath.Base(command[0]) != "node" || command[0] != "node" && !filepath.IsAbs(command[0]) {
		return "", false
	}
	program := filepath.ToSlash(filepath.Clean(command[1]))
	if strings.HasPrefix(program, "-") {
		return "", false
	}
	_, rest, ok := cutLast("/"+program, "/node_modules/")
	if !ok {
		return "", false
	}
	parts := strings.Split(rest, "/")
	n := 1
	if strings.HasPrefix(rest, "@") {
		n = 2
	}
	if len(parts) <= n {
		return "", false
	}
	return strings.Join(parts[:n], "/"), false
}

// cutLast is strings.Cut around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// redirects tells whether an environment variable can have another program run than the command says, or other code in it.
func redirects(variable string) bool {
	word := strings.ToUpper(variable)
	return slices.Contains([]string{"PATH", "NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "NODE_COMPILE_CACHE", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "GCONV_PATH"}, word) ||
		slices.ContainsFunc([]string{"LD_", "DYLD_", "NPM_CONFIG_"}, func(p string) bool { return strings.HasPrefix(word, p) })
}

// hostOf is the host of an address that is reached by https at the usual port; "" of any other.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.User != nil || cmp.Or(u.Port(), "443") != "443" {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
