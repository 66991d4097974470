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

// errPlanted says why a link is not followed.
var errPlanted = errors.New("it is behind a link that a server can change")

// places are where servers can put links. The gateway, which nothing confines, follows no link there.
type places struct {
	folders []string // of the servers, which may lie in the data directory
	written []string // paths that their commands, environments and lists of paths name, or the folders of those
	secrets []string // no server writes there, whatever it was given
}

// placesOf finds the places of all servers that have a sandbox. In doubt a place is taken for one that a server writes.
func placesOf(cfgs []Config, h GatewayPaths) (p places) {
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
			add(&p.folders, cfg.Confine.Folder)
		}
		for _, path := range cfg.Confine.Paths {
			add(&p.written, path)
		}
		if cfg.Confine.Sandbox == Full {
			continue
		}
		for _, path := range cfg.namedPaths(h) {
			st, err := os.Stat(path)
			if err == nil && st.IsDir() {
				add(&p.written, path)
			} else if parent := filepath.Dir(path); !(err == nil && st.Mode().IsRegular() && IsCode(path)) && !broad(parent, cfg.Dir, h.Home) {
				add(&p.written, parent)
			}
		}
	}
	for _, secret := range h.Secrets {
		add(&p.secrets, secret)
	}
	return p
}

// linkable tells whether a server can make a link in the directory dir, a name without links.
func (p places) linkable(dir string) bool {
	return within(dir, p.folders...) || within(dir, p.written...) && !within(dir, p.secrets...)
}

// resolve finds the file that path names. It follows the operator's links alone.
func (p places) resolve(path string) (string, error) {
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
		if p.linkable(at) {
			return "", errPlanted
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

// Folders of the system, and folders where everybody keeps something: no server has one for its own.
var (
	systemFolders = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys", "/usr"}
	publicFolders = []string{"/tmp", "/var/tmp", "/dev/shm"}
)

// CheckFolders refuses a folder that would give a server more than its own: one of the gateway, the system, everybody, or another server. It
// judges the folders that links lead to, too.
func CheckFolders(cfgs []Config, h GatewayPaths) error {
	var private, servers []string // what is the gateway's own, and the folder in it that holds those of servers
	for _, s := range h.Secrets {
		private = append(private, s, realPath(s))
	}
	if len(private) > 0 {
		servers = []string{filepath.Join(private[0], "servers"), filepath.Join(private[1], "servers")}
	}
	for _, cfg := range cfgs {
		if cfg.Confine.Folder == "" {
			continue
		}
		bad := func(format string, args ...any) error {
			err := invalid(cfg.ID, "has the folder "+display.Line(cfg.Confine.Folder, 256)+", which "+format, args...)
			return err.At("upstreams." + cfg.ID + ".folder").Try("Make a folder for this server alone, or leave the key out.")
		}
		for _, folder := range []string{cfg.Confine.Folder, realPath(cfg.Confine.Folder)} {
			holds := func(path string) bool { return path != "" && within(path, folder) }
			switch {
			case slices.ContainsFunc(private, holds):
				return bad("holds what is the gateway's own")
			case within(folder, private...) && !within(filepath.Dir(folder), servers...):
				return bad("lies in what is the gateway's own")
			case holds(h.Home) || h.Home != "" && holds(realPath(h.Home)) || holds(cfg.Dir) || slices.ContainsFunc(publicFolders, holds):
				return bad("holds more than what belongs to this server")
			case slices.ContainsFunc(systemFolders, holds) || within(folder, systemFolders...) && (h.Home == "" || !within(folder, h.Home)):
				return bad("is a folder of the system's")
			}
			for _, other := range cfgs {
				if of := other.Confine.Folder; of != "" && of != cfg.Confine.Folder && (within(folder, of, realPath(of)) || within(realPath(of), folder)) {
					return bad("is, holds or lies in that of the server %s", other.ID)
				}
				if p := placesOf([]Config{other}, h); !within(folder, p.secrets...) && within(filepath.Dir(folder), p.written...) {
					return bad("lies in what the server %s writes", other.ID)
				}
			}
		}
	}
	return nil
}

// realPath is a path without links, as far as anything is there.
func realPath(path string) string {
	for at, rest := path, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
	}
}

// follow replaces names by where they lead, and notes the names that the operator wrote as links.
func (r *reach) follow(names []string, p places) (real []string) {
	for _, name := range names {
		to, err := p.resolve(name)
		if errors.Is(err, errPlanted) {
			r.omit(fmt.Sprintf("%s: %v; name where it leads, or make it no link", name, err))
		}
		if err != nil { // else it is gone
			continue
		}
		if !slices.Contains(real, to) {
			real = append(real, to)
		}
		if to != name {
			r.links[name] = to
		}
	}
	slices.Sort(real) // a folder comes before what is below it
	return real
}
