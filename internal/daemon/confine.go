package daemon

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/call"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
	"sallyport.example/internal/upstream"
)

// Egress says which hosts a confined server may reach: none, any, or a list.
type Egress struct {
	Mode  string // none, any, or "" if there is a list or nothing
	Hosts []string
}

// UnmarshalYAML reads either form.
func (e *Egress) UnmarshalYAML(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.ScalarNode && (n.Value == "none" || n.Value == "any"):
		e.Mode = n.Value
		return nil
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		return n.Load(&e.Hosts)
	}
	return fmt.Errorf("egress is none, any or a list of hosts such as [api.example.com]")
}

// MarshalYAML writes either form.
func (e Egress) MarshalYAML() (any, error) {
	if e.Hosts != nil {
		return e.Hosts, nil
	}
	return e.Mode, nil
}

// IsZero tells whether nothing is configured.
func (e Egress) IsZero() bool { return e.Mode == "" && e.Hosts == nil }

var egressSchema = &jsonschema.Schema{
	AnyOf: []*jsonschema.Schema{{Enum: []any{"none", "any"}}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}, MinItems: jsonschema.Ptr(1)}, {Type: "string", Pattern: `\$\{`}},
}

// checkConfinement finds contradictions between the settings of a server's sandbox.
func (u UpstreamConfig) checkConfinement(p *complaints, field string) {
	p.oneOf(field+".sandbox", u.Sandbox, "full", "partial", "none")
	given := map[string]bool{"sandbox": u.Sandbox != "", "folder": u.Folder != "", "paths": u.Paths != nil, "egress": !u.Egress.IsZero()}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		switch {
		case !given[key]:
		case u.URL != "":
			p.bad(field+"."+key, "remove it", "a server that is reached by a url runs elsewhere; only one with a command can be confined")
		case u.Sandbox == "none" && key != "sandbox":
			p.bad(field+"."+key, "remove it, or remove sandbox: none", "it has no effect on a server without a sandbox")
		case u.Sandbox == "full" && key == "paths":
			p.bad(field+"."+key, "use sandbox: partial, or move what it needs into its folder", "a server in the sandbox full has its folder alone")
		}
	}
	if slices.Contains(u.Paths, "/") {
		p.bad(field+".paths", "name the folders that it needs", "/ would let everything in")
	}
	if filepath.Clean(u.Folder) == "/" {
		p.bad(field+".folder", "name a folder of its own, or remove it", "/ can't be the folder of one server")
	}
	if u.Egress.Hosts != nil {
		if _, err := egress.New(egress.Policy{Domains: u.Egress.Hosts}, egress.Options{}); err != nil {
			p.fault(field+".egress", err)
		}
	}
}

// folderProblems finds what keeps servers from being started as they are configured. Without a data directory it takes the default one.
func (c *Config) folderProblems(file, data string) []Problem {
	if data == "" {
		data = c.path("sallyport-data")
	}
	if _, _, err := c.servers(data); err != nil {
		f := fault.Of(err)
		return []Problem{c.problem(file, f.Field, "error", f.Remedy, "%s", f.Message)}
	}
	return nil
}

// unconfined returns the servers that are configured without a sandbox.
func (c *Config) unconfined() (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if c.Upstreams[id].Sandbox == "none" {
			ids = append(ids, id)
		}
	}
	return ids
}

// launchHash is the hash of how a server is started or reached: its command and arguments, the names of its environment variables, its url. Values of
// variables and headers are credentials, which change without making it another server.
func (c *Config) launchHash(server string) string {
	u, ok := c.Upstreams[server]
	if !ok {
		return ""
	}
	launch := map[string]any{"command": slices.Clone(u.Command), "env": slices.Sorted(maps.Keys(u.Env)), "url": u.URL}
	if u.Cwd != "" {
		launch["cwd"] = u.Cwd
	}
	raw, err := call.Encode(launch)
	if err != nil {
		return "" // can't be: it is lists of strings
	}
	return call.HashBytes(raw)
}

// launched is the launchHash of each server.
func (c *Config) launched() map[string]string {
	all := map[string]string{}
	for server := range c.Upstreams {
		all[server] = c.launchHash(server)
	}
	return all
}

// servers returns the upstreams as the client takes them, and the paths that their sandboxes have in common.
func (c *Config) servers(data string) (servers []upstream.Config, paths upstream.GatewayPaths, err error) {
	if paths, err = c.gatewayPaths(data); err != nil {
		return nil, paths, err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, paths, err
	}
	below := func(dir, p string) string {
		if rest, ok := strings.CutPrefix(p, "~/"); ok && paths.Home != "" {
			return filepath.Join(paths.Home, rest)
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		return filepath.Clean(p)
	}
	absolute := func(p string) string { return below(dir, p) }
	for _, id := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[id]
		s := upstream.Config{
			ID: id, Command: slices.Clone(u.Command), Env: u.Env, URL: u.URL, Headers: u.Headers, Timeout: time.Duration(u.Timeout), ClientFeatures: u.ClientFeatures,
		}
		if s.Timeout == 0 {
			s.Timeout = time.Duration(c.Limits.NetworkTimeout)
		}
		if len(s.Command) > 0 {
			s.Dir = absolute(u.Cwd) // without one, what is relative in a command starts from the configuration, as everything does
			if program := s.Command[0]; strings.ContainsRune(program, filepath.Separator) {
				s.Command[0] = below(s.Dir, program)
			}
			s.Confine = upstream.Confinement{Sandbox: upstream.Sandbox(u.Sandbox)}
			if s.Confine.Sandbox == "" {
				s.Confine.Sandbox = upstream.Partial
			}
			if s.Confine.Sandbox != upstream.Unconfined {
				s.Confine.Folder = filepath.Join(paths.Secrets[0], "servers", id)
				if u.Folder != "" {
					s.Confine.Folder = absolute(u.Folder)
				}
				for _, p := range u.Paths {
					s.Confine.Paths = append(s.Confine.Paths, absolute(p))
				}
				s.Confine.Hosts = u.Egress.Hosts
				switch {
				case u.Egress.Hosts != nil:
					s.Confine.Network = sandbox.ProxyNetwork
				case u.Egress.Mode != "":
					s.Confine.Network = sandbox.Network(u.Egress.Mode)
				}
			}
		}
		servers = append(servers, s)
	}
	return servers, paths, upstream.CheckFolders(servers, paths)
}

// gatewayPaths returns the paths that no server reaches, each by its name and with its links resolved, the data directory first; and the user's home.
func (c *Config) gatewayPaths(data string) (upstream.GatewayPaths, error) {
	var h upstream.GatewayPaths
	env := filepath.Join(c.Dir, envFile)
	if _, err := os.Lstat(env); err != nil {
		env = ""
	}
	for _, p := range []string{data, c.file, env, c.path(c.Agents), c.path(c.Policies), c.path(c.Audit.Anchor.File)} {
		if p == "" {
			continue
		}
		p, err := filepath.Abs(p)
		if err != nil {
			return h, err
		}
		h.Secrets = append(h.Secrets, p)
		if real, err := filepath.EvalSymlinks(p); err == nil && real != p {
			h.Secrets = append(h.Secrets, real)
		}
	}
	h.Packages = filepath.Join(h.Secrets[0], "packages")
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		h.Home = filepath.Clean(home)
	}
	return h, nil
}

// listeners returns the gateway's own addresses, which no server reaches by its list of hosts, and no agent by comm.fetch.
func (d *Daemon) listeners() (own []netip.AddrPort) {
	for _, at := range []*door{&d.agents, &d.people} {
		if a, err := netip.ParseAddrPort(at.ln.Addr().String()); err == nil {
			own = append(own, a)
		}
	}
	return own
}

// unconfinedNote says at each start which servers have no sandbox.
func (d *Daemon) unconfinedNote() string {
	ids := d.config().unconfined()
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf("  warning  without a sandbox, by the configuration: %s. Each can read the gateway's keys and tokens, and act as any person.\n", strings.Join(ids, ", "))
}
