package upstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sallyport.example/internal/display"
)

// errTheirs is why a link is not followed.
var errTheirs = errors.New("it is behind a link that a server can change")

// grounds are the places where servers can put links: the gateway, which nothing confines, follows none of those.
type grounds struct {
	folders []string // of the servers, which may lie in the data directory
	written []string // what their commands, environments and paths name, or the folder of that
	secrets []string // where no server writes, whatever it was given
}

// groundsOf are the grounds of all servers that have a sandbox. A place that can't be told is taken for one that a server writes.
func groundsOf(cfgs []Config, h GatewayPaths) (g grounds) {
	add := func(list *[]string, path string) {
		*list = append(*list, path)
		if real, err := filepath.EvalSymlinks(path); err == nil {
			*list = append(*list, real)
		}
	}
	for _, cfg := range cfgs {
		if len(cfg.Command) == 0 || cfg.Confine.Sandbox == Unconfined {
			continue
		}
		if cfg.Confine.Folder != "" {
			add(&g.folders, cfg.Confine.Folder)
		}
		for _, p := range cfg.Confine.Paths {
			add(&g.written, p)
		}
		if cfg.Confine.Sandbox == Full {
			continue
		}
		for _, p := range cfg.named(h) {
			switch st, err := os.Stat(p); {
			case err == nil && st.IsDir():
				add(&g.written, p)
				continue
			case err == nil && st.Mode().IsRegular() && isCode(p):
				continue
			}
			if parent := filepath.Dir(p); !broad(parent, cfg.Dir, h.Home) {
				add(&g.written, parent)
			}
		}
	}
	for _, s := range h.Secrets {
		add(&g.secrets, s)
	}
	return g
}

// server tells whether a server can make a link in the directory dir, a name without links.
func (g grounds) server(dir string) bool {
	return within(dir, g.folders) || within(dir, g.written) && !within(dir, g.secrets)
}

// resolve is where path leads, by the operator's links alone.
func (g grounds) resolve(path string) (string, error) {
	const most = 40 // as the kernel has it
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		st, err := os.Lstat(next)
		if err != nil {
			return "", err
		}
		if st.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		if g.server(at) {
			return "", errTheirs
		}
		to, err := os.Readlink(next)
		if links++; err != nil || links > most {
			return "", errors.Join(err, errors.New("it is behind too many links"))
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = slices.Concat(strings.Split(to, "/"), rest)
	}
	return at, nil
}

// Folders of the system's, and where everybody keeps something: no server has one for its own.
var (
	systemFolders = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys", "/usr"}
	everybodys    = []string{"/tmp", "/var/tmp", "/dev/shm"}
)

// CheckFolders refuses a folder that would give a server more than its own: what is the gateway's, the system's, everybody's, or another server's. It
// goes by where names lead.
func CheckFolders(cfgs []Config, h GatewayPaths) error {
	var houses, data []string
	for _, s := range h.Secrets {
		houses = append(houses, s, leads(s))
	}
	if len(houses) > 0 {
		data = []string{filepath.Join(houses[0], "servers"), filepath.Join(houses[1], "servers")}
	}
	for _, cfg := range cfgs {
		if cfg.Confine.Folder == "" {
			continue
		}
		bad := func(format string, args ...any) error {
			err := invalid(cfg.ID, "has the folder "+display.Line(cfg.Confine.Folder, 256)+", which "+format, args...)
			return err.At("upstreams." + cfg.ID + ".folder").Try("Make a folder for this server alone, or leave the key out.")
		}
		for _, folder := range []string{cfg.Confine.Folder, leads(cfg.Confine.Folder)} {
			ours := func(path string) bool { return path != "" && within(path, []string{folder}) }
			switch {
			case slices.ContainsFunc(houses, ours):
				return bad("holds what is the gateway's own")
			case within(folder, houses) && !within(filepath.Dir(folder), data):
				return bad("lies in what is the gateway's own")
			case ours(h.Home) || h.Home != "" && ours(leads(h.Home)) || ours(cfg.Dir) || slices.ContainsFunc(everybodys, ours):
				return bad("holds more than what belongs to this server")
			case slices.ContainsFunc(systemFolders, ours) || within(folder, systemFolders) && (h.Home == "" || !within(folder, []string{h.Home})):
				return bad("is a folder of the system's")
			}
			for _, other := range cfgs {
				if of := other.Confine.Folder; of != "" && of != cfg.Confine.Folder && (within(folder, []string{of, leads(of)}) || within(leads(of), []string{folder})) {
					return bad("is, holds or lies in that of the server %s", other.ID)
				}
				if g := groundsOf([]Config{other}, h); !within(folder, g.secrets) && within(filepath.Dir(folder), g.written) {
					return bad("lies in what the server %s writes", other.ID)
				}
			}
		}
	}
	return nil
}

// leads is where a name leads, as far as anything is there.
func leads(path string) string {
	for at, rest := path, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
	}
}

// settle puts the names of what is let in right: each by where it leads, with the name that the operator wrote as a link.
func (r *reach) settle(g grounds) {
	r.links = map[string]string{}
	settled := func(names []string) (real []string) {
		for _, name := range names {
			switch to, err := g.resolve(name); {
			case errors.Is(err, errTheirs):
				r.left = append(r.left, fmt.Sprintf("%s: %v; name where it leads, or make it no link", name, err))
			case err != nil: // it is gone
			case !slices.Contains(real, to):
				real = append(real, to)
				fallthrough
			default:
				if to != name {
					r.links[name] = to
				}
			}
		}
		slices.Sort(real) // a folder comes before what is below it
		return real
	}
	r.read, r.write = outermost(settled(r.read)), settled(r.write)
}
