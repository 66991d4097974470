package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/clients"
)

// Addresses of a gateway where the configuration names none, and how many other pairs of ports init tries if another program has one of them.
const (
	defaultListen, defaultAdminListen = "127.0.0.1:7575", "127.0.0.1:7576"
	otherPorts                        = 10
)

// freeAddresses are the first pair of addresses of which neither is busy: the usual ones, which are "", or others ten ports on. Several gateways can so
// run on one machine, one for each project.
func freeAddresses(busy func(address string) bool) (agents, people string) {
	if !busy(defaultListen) && !busy(defaultAdminListen) {
		return "", ""
	}
	for i := 1; i <= otherPorts; i++ {
		agents, people = "127.0.0.1:"+strconv.Itoa(7575+10*i), "127.0.0.1:"+strconv.Itoa(7576+10*i)
		if !busy(agents) && !busy(people) {
			return agents, people
		}
	}
	return "", ""
}

// inUse tells whether a program listens at an address.
func inUse(address string) bool {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return true
	}
	ln.Close()
	return false
}

// Elsewhere tells whether the configuration names other addresses than the usual ones.
func (c *Config) Elsewhere() bool {
	return c.Listen != defaultListen || c.AdminListen != defaultAdminListen
}

// ErrByHand is the error of a configuration that is written so that nothing can be put into it.
var ErrByHand = errors.New("it is written so that nothing can be put in without changing more: add it by hand (docs/configuration.md)")

// InitMore adds servers to an installation that is there: to sallyport.yaml, their credentials to sallyport.env, and their tools to the agent dev. Nothing
// else in these files changes. It returns the files that it wrote. Without a declaration of dev that can be added to, permitted is false: a person has to
// permit the tools to an agent.
func InitMore(dir string, t TakeOver) (written []string, permitted bool, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, false, err
	}
	file := filepath.Join(dir, "sallyport.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, false, err
	}
	had, problems := readEnvFile(filepath.Join(dir, envFile))
	if len(problems) > 0 {
		return nil, false, &ConfigError{problems}
	}
	next, vars, err := t.more(file, text, dir, had)
	if err != nil {
		return nil, false, err
	}
	// The credentials first: a value that nothing refers to does no harm, and a reference without its value stops the start.
	if len(vars) > 0 {
		path := filepath.Join(dir, envFile)
		if err := addVariables(path, vars); err != nil {
			return nil, false, err
		}
		written = append(written, path)
	}
	if err := clients.Replace(file, text, next); err != nil {
		return written, false, err
	}
	written = append(written, file)
	agent := filepath.Join(dir, "agents", "dev.yaml")
	permitted, err = t.permit(agent)
	if permitted {
		written = append(written, agent)
	}
	return written, permitted, err
}

// more is the text of a configuration with the servers, and the values of the references that are new. It is read again: it has to say what it said
// before, and what the servers are.
func (t TakeOver) more(file string, text []byte, dir string, had map[string]string) (next []byte, vars map[string]string, err error) {
	before, err := parseConfig(file, text, dir, had)
	if err != nil {
		return nil, nil, err
	}
	v := &variables{all: maps.Clone(had)}
	if v.all == nil {
		v.all = map[string]string{}
	}
	e := &edit{text: text}
	for _, id := range slices.Sorted(maps.Keys(t.Servers)) {
		if _, there := before.Upstreams[id]; there {
			return nil, nil, fmt.Errorf("%s has a server %s already", file, id)
		}
		entry, err := yaml.Dump(map[string]UpstreamConfig{id: t.upstream(dir, id, v)})
		if err != nil {
			return nil, nil, err
		}
		e.server(strings.Split(strings.TrimSuffix(string(entry), "\n"), "\n"))
	}
	if e.err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, ErrByHand)
	}
	after, err := parseConfig(file, e.text, dir, v.all)
	if err != nil {
		return nil, nil, fmt.Errorf("with the servers it would be no good configuration, so nothing was written: %w", err)
	}
	for id, s := range t.Servers {
		u := after.Upstreams[id]
		if !slices.Equal(u.Command, texts(s.Command)) || u.URL != s.URL.Text || !maps.Equal(u.Env, s.Env) || !maps.Equal(u.Headers, s.Headers) {
			return nil, nil, fmt.Errorf("the server %s can't be written so that it is read as what it is: leave it out", id)
		}
		delete(after.Upstreams, id)
	}
	want, err := yaml.Dump(before)
	if err != nil {
		return nil, nil, err
	}
	if len(after.Upstreams) == 0 {
		after.Upstreams = before.Upstreams // none, in whatever form
	}
	if got, err := yaml.Dump(after); err != nil || !bytes.Equal(want, got) {
		return nil, nil, fmt.Errorf("%s: %w", file, ErrByHand)
	}
	maps.DeleteFunc(v.all, func(name, _ string) bool { _, old := had[name]; return old })
	return e.text, v.all, nil
}

// server puts the lines of an entry under upstreams.
func (e *edit) server(lines []string) {
	key, value := member(e.root(), "upstreams")
	switch {
	case key == nil:
		e.end("upstreams:", lines, "")
	case value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0:
		e.into(value, lines, "")
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null" && value.Value == "":
		e.insert(key.Line, strings.Repeat(" ", key.Column+1), lines, "")
	default:
		e.fail()
	}
}

// addVariables adds values to the file of credentials, or makes it.
func addVariables(path string, vars map[string]string) error {
	add, err := envText(vars)
	if err != nil {
		return err
	}
	had, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = out.Write(add)
		return errors.Join(err, out.Close())
	} else if err != nil {
		return err
	}
	_, lines, _ := bytes.Cut(add, []byte("\n")) // without what the file begins with
	next := slices.Clone(had)
	if len(next) > 0 && next[len(next)-1] != '\n' {
		next = append(next, '\n')
	}
	return clients.Replace(path, had, append(next, lines...))
}

// permit adds every tool of the servers to what a declaration may read and write. It tells whether it could.
func (t TakeOver) permit(path string) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	e := &edit{text: text}
	for _, id := range slices.Sorted(maps.Keys(t.Servers)) {
		for _, list := range []string{"read", "write"} {
			_, permissions := member(e.root(), "permissions")
			_, n := member(permissions, list)
			if n == nil || n.Kind != yaml.SequenceNode || n.Style&yaml.FlowStyle == 0 {
				return false, nil
			}
			e.item(n, strconv.Quote(id+".*"))
		}
	}
	if _, name := member(e.root(), "agentId"); e.err != nil || name == nil || name.Value != "dev" {
		return false, nil
	}
	return true, clients.Replace(path, text, e.text)
}

// item puts an item into a list in brackets, before those that it has.
func (e *edit) item(n *yaml.Node, item string) {
	at := e.offset(n.Line, n.Column)
	if e.err != nil || at < 0 || at >= len(e.text) || e.text[at] != '[' {
		e.fail()
		return
	}
	if len(n.Content) > 0 {
		item += ", "
	}
	e.text = slices.Concat(e.text[:at+1], []byte(item), e.text[at+1:])
}
