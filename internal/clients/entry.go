package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/threat"
)

// Server is an entry of a client's file that can be taken over.
type Server struct {
	Name    string // as the client has it
	Command []Value
	Env     map[string]string // credentials, all of them
	Folder  string            // where the command starts: absolute, or "" for the project
	URL     Value
	Headers map[string]string // credentials, all of them
	Reads   []string          // variables of the environment that values were taken from, sorted
	Dropped []string          // keys that are not taken over, sorted

	filled []string // names of variables and headers with a value of the person's environment in them
}

// raw is an entry with the keys that clients know. Keys that change nothing about which program or address is used are dropped, and told.
type raw struct {
	Type              string            `json:"type"`
	Command           string            `json:"command"`
	Args              []string          `json:"args"`
	Env               map[string]string `json:"env"`
	Cwd               string            `json:"cwd"`
	URL               string            `json:"url"`
	Headers           map[string]string `json:"headers"`
	HTTPHeaders       map[string]string `json:"http_headers"`
	EnvHTTPHeaders    map[string]string `json:"env_http_headers"`
	BearerTokenEnvVar string            `json:"bearer_token_env_var"`
	Disabled          bool              `json:"disabled"`
	Enabled           *bool             `json:"enabled"`
}

// known are the keys of raw. refused are keys that make another server of an entry, with the reason.
var (
	known   = []string{"type", "command", "args", "env", "cwd", "url", "headers", "http_headers", "env_http_headers", "bearer_token_env_var", "disabled", "enabled"}
	refused = map[string]string{
		"envFile":       "it takes its environment from a file: write the variables under env",
		"env_vars":      "it takes variables of the client's environment: write them under env",
		"headersHelper": "a program of the file's makes its headers: write them under headers",
		"serverUrl":     "it has serverUrl, which is another client's key: write url",
		"httpUrl":       "it has httpUrl, which is another client's key: write url",
	}
)

// readEntry reads one entry. The error says why it is not taken over.
func readEntry(name string, value json.RawMessage, x *expander) (s Server, err error) {
	if !call.IsObject(value) {
		return s, errors.New("it is no object")
	}
	s.Name = name
	for key := range call.Members(value) {
		if why, ok := refused[key]; ok {
			return s, errors.New(why)
		}
		if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, key) }); i >= 0 && known[i] != key {
			return s, fmt.Errorf("its key %s is %s in other letter case, which clients read in different ways", display.Quote(key, 40), known[i])
		} else if i < 0 {
			s.Dropped = append(s.Dropped, key)
		}
	}
	var r raw
	if err := json.Unmarshal(value, &r); err != nil {
		return s, errors.New("its command, args, env, url or headers are not of the form that the client has")
	}
	x.reads = nil
	switch {
	case name == "" || len(name) > 200 || misleading(name):
		return s, errors.New("it has no name, or one of more than 200 bytes or with invisible characters")
	case r.Disabled || r.Enabled != nil && !*r.Enabled:
		return s, errors.New("it is disabled there")
	case r.ours():
		return s, fmt.Errorf("%s, and points to %s", OwnEntry, r.target())
	case r.Type == "sse":
		return s, errors.New("it speaks the transport sse, which MCP has given up: ask its makers for the address of their streamable HTTP server")
	case !slices.Contains([]string{"", "stdio", "http", "streamable-http", "streamableHttp"}, r.Type):
		return s, fmt.Errorf("its type is %s, which is not known", display.Quote(r.Type, 40))
	case (r.Command == "") == (r.URL == ""):
		return s, errors.New("it has to have one of command and url")
	case r.Command != "":
		err = s.stdio(&r, x)
	default:
		err = s.http(&r, x)
	}
	slices.Sort(x.reads)
	s.Reads = slices.Compact(x.reads)
	return s, err
}

// ours tells whether the entry points to a gateway of this kind already.
func (r *raw) ours() bool {
	if r.BearerTokenEnvVar == EnvToken {
		return true
	}
	for _, m := range []map[string]string{r.Env, r.Headers, r.HTTPHeaders} {
		for key, v := range m {
			if key == EnvToken || strings.Contains(v, EnvToken) || strings.Contains(v, "${input:sallyport-token}") || strings.HasPrefix(v, "Bearer spt_") {
				return true
			}
		}
	}
	return len(r.Args) > 0 && r.Args[0] == "connect" && strings.HasPrefix(filepath.Base(r.Command), "sallyport")
}

// target is what an entry points to, for people.
func (r *raw) target() string {
	if r.URL != "" {
		return display.Quote(r.URL, 300)
	}
	return display.Quote(strings.Join(append([]string{r.Command}, r.Args...), " "), 300)
}

// loads are variables of an environment that make a program run or load what they name, or fetch it from where they say. Their values are always shown.
var loads = regexp.MustCompile(`(?i)^(LD_|DYLD_|PATH$|ENV$|BASH_ENV$|ZDOTDIR$|GCONV_PATH$|OPENSSL_CONF$|NODE_(OPTIONS|PATH|COMPILE_CACHE|REPL_EXTERNAL_MODULE)$|BUN_OPTIONS$|ELECTRON_RUN_AS_NODE$|` +
	`NPM_CONFIG_|YARN_|PNPM_|PIP_|UV_|PYTHON(STARTUP|PATH|HOME|BREAKPOINT|PYCACHEPREFIX|USERBASE)$|PERL5(OPT|LIB|DB)$|PERLLIB$|RUBY(OPT|LIB)$|GEM_(HOME|PATH)$|BUNDLE_|CLASSPATH$|_?JAVA_(TOOL_)?OPTIONS$|` +
	`JDK_JAVA_OPTIONS$|DOTNET_(STARTUP_HOOKS|ADDITIONAL_DEPS)$|CORECLR_|COR_PROFILER|GIT_(CONFIG|SSH|EXEC_PATH|ASKPASS|EDITOR|PAGER|EXTERNAL_DIFF|PROXY_COMMAND|TEMPLATE_DIR)|SSH_ASKPASS$|EDITOR$|VISUAL$|PAGER$|` +
	`KUBECONFIG$|DOCKER_HOST$|(HTTPS?|ALL)_PROXY$|NODE_TLS_REJECT_UNAUTHORIZED$|NODE_EXTRA_CA_CERTS$|SSL_CERT_(FILE|DIR)$)`)

// Loads names the variables of its environment that make its program run or load more than the command says, or reach another than it says, sorted.
func (s *Server) Loads() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if loads.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// Shown is what a person sees of a variable of the environment, or of a header: its value, where neither the name nor the form says that it is a
// credential, and it was not taken from the person's own environment. What loads something is shown whole: it decides what runs.
func (s *Server) Shown(name, value string) string {
	if _, ok := s.Env[name]; ok && loads.MatchString(name) && !slices.Contains(s.filled, name) {
		return value
	}
	follows, inside := credential("--" + name)
	_, text := credential(value)
	if follows || inside || text || slices.Contains(s.filled, name) {
		return ""
	}
	return value
}

// Address is what a person sees of a server's url: all but a name, a password and a query, which can be credentials.
func (s *Server) Address() string {
	u, err := url.Parse(s.URL.Text)
	if err != nil {
		return ""
	}
	query := ""
	if u.User != nil || u.RawQuery != "" {
		query = " (without its credential)"
	}
	u.User, u.RawQuery = nil, ""
	return u.String() + query
}

// secretsOf are the texts of an entry that can be credentials, the longest first; very short ones, which stand in many words, are none.
func secretsOf(entry json.RawMessage) (all []string) {
	if !call.IsObject(entry) {
		return nil
	}
	for key, value := range call.Members(entry) {
		var texts []string
		named := map[string]string{}
		switch key {
		case "env", "headers", "http_headers":
			if json.Unmarshal(value, &named) == nil {
				all = slices.AppendSeq(all, maps.Values(named))
			}
			continue
		case "command", "url":
			texts = []string{""}
			if json.Unmarshal(value, &texts[0]) != nil {
				continue
			}
		case "args":
			if json.Unmarshal(value, &texts) != nil {
				continue
			}
		}
		said := false
		for _, s := range texts {
			follows, inside := credential(s)
			if said || inside {
				all = append(all, s)
			}
			said = follows
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < 5 })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

func (s *Server) stdio(r *raw, x *expander) error {
	if len(r.Args) > maxArgs {
		return fmt.Errorf("it has more than %d arguments", maxArgs)
	}
	secret := false // the argument before said that a credential follows
	for i, text := range append([]string{r.Command}, r.Args...) {
		v, err := x.value(text)
		if err != nil {
			return err
		}
		flag, inside := credential(v.Text)
		v.Secret = v.Secret || i > 0 && (secret || inside)
		secret = flag
		s.Command = append(s.Command, v)
	}
	if s.Command[0].Text == "" {
		return errors.New("its command is empty")
	}
	var err error
	if s.Env, err = s.all(x, r.Env); err != nil {
		return err
	}
	for name := range s.Env {
		if !variable.MatchString(name) {
			return fmt.Errorf("%s can't be the name of a variable", display.Quote(name, 80))
		}
	}
	if r.Cwd != "" {
		v, err := x.value(r.Cwd)
		if err != nil {
			return err
		}
		if v.Secret {
			return errors.New("its cwd has a reference in it, or a value of your environment: write the folder")
		}
		if s.Folder = v.Text; !filepath.IsAbs(s.Folder) {
			s.Folder = filepath.Join(x.o.Folder, s.Folder)
		}
	}
	return nil
}

// maxArgs bounds the arguments of a command.
const maxArgs = 200

var (
	secretFlag = regexp.MustCompile(`(?i)^-{1,2}([a-z0-9_-]*(key|token|secret|password|passwd|auth|header|credential|dsn|bearer)[a-z0-9_-]*|([a-z0-9]+[_-])*(pass|pwd|pat))$`)
	secretText = regexp.MustCompile(`(?i)^(-{1,2})?([a-z0-9_-]*(key|token|secret|password|passwd|auth|header|credential|dsn|bearer)[a-z0-9_-]*|([a-z0-9]+[_-])*(pass|pwd|pat))[=:].|://[^/@\s]*:[^/@\s]*@|[?&][^=&]*(key|token|secret|password|auth|sig)[^=&]*=.`)
)

// detector knows credentials by the forms that services give them.
var detector = sync.OnceValues(threat.New)

// credential tells by the form of an argument whether a credential is in it, or follows it.
func credential(arg string) (follows, inside bool) {
	if inside = secretText.MatchString(arg); !inside {
		d, err := detector()
		inside = err != nil || len(d.Secrets([]byte(arg))) > 0
	}
	return secretFlag.MatchString(arg), inside
}

// keyed matches a part of an address that nobody would type: a long word with letters and digits, as services put keys there.
func keyed(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if len(part) >= 16 && strings.ContainsAny(part, "0123456789") && strings.ContainsFunc(part, unicode.IsLetter) {
			return true
		}
	}
	return false
}

func (s *Server) http(r *raw, x *expander) (err error) {
	if s.URL, err = x.value(r.URL); err != nil {
		return err
	}
	u, err := url.Parse(s.URL.Text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("its url is no web address")
	}
	s.URL.Secret = s.URL.Secret || u.User != nil || u.RawQuery != "" || keyed(u.Path)
	if s.Headers, err = s.all(x, r.Headers); err != nil {
		return err
	}
	more, err := s.all(x, r.HTTPHeaders)
	if err != nil {
		return err
	}
	maps.Copy(s.Headers, more)
	for header, from := range r.EnvHTTPHeaders {
		if s.Headers[header], err = x.variable(from, ""); err != nil {
			return err
		}
		s.filled = append(s.filled, header)
	}
	if r.BearerTokenEnvVar != "" {
		if s.Headers["Authorization"], err = x.variable(r.BearerTokenEnvVar, "Bearer "); err != nil {
			return err
		}
		s.filled = append(s.filled, "Authorization")
	}
	for header, v := range s.Headers {
		if !headerName.MatchString(header) || strings.ContainsAny(v, "\r\n") {
			return fmt.Errorf("%s can't be a header", display.Quote(header, 80))
		}
	}
	return nil
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")

// all replaces the references in every value.
func (s *Server) all(x *expander, values map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		had := len(x.reads)
		v, err := x.value(values[name])
		if err != nil {
			return nil, err
		}
		if out[name] = v.Text; len(x.reads) > had {
			s.filled = append(s.filled, name)
		}
	}
	return out, nil
}

// variable is a value that an entry takes from the environment by name.
func (x *expander) variable(name, before string) (string, error) {
	text, _, err := x.reference("env:" + name)
	return before + text, err
}
