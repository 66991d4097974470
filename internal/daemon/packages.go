package daemon

import (
	"context"
	"maps"
	"slices"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/npm"
	"sallyport.example/internal/upstream"
)

// ServerPackage is a server that npx would run, with the package that is kept for it.
type ServerPackage struct {
	Server    string    `json:"server"`
	Package   string    `json:"package"`
	Requested string    `json:"requested,omitempty"` // what the configuration says; empty: the newest
	Version   string    `json:"version,omitempty"`   // what is kept; empty: nothing yet
	Integrity string    `json:"integrity,omitempty"`
	Fetched   time.Time `json:"fetched,omitzero"`
}

// Packages returns the servers that npx would run, with the packages that are kept for them in the data directory. With fetch it first fetches the
// packages of the named servers, or of all, and calls begins for each; they replace those that are kept. A running server keeps its package.
func Packages(ctx context.Context, cfg *Config, data string, begins func(server string), fetch bool, names ...string) (all []ServerPackage, err error) {
	servers, paths, err := cfg.servers(data)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if i := slices.IndexFunc(servers, func(s upstream.Config) bool { return s.ID == name }); i < 0 {
			return nil, fault.New(fault.RequestMalformed, "The configuration has no server %q.", name).Try("sallyport upstreams list shows them.")
		} else if _, ok := npm.Of(servers[i].Command); !ok {
			return nil, fault.New(fault.RequestMalformed, "The server %q is not started by npx, so there is no package to fetch.", name)
		}
	}
	if fetch {
		if err := dataDir(data); err != nil {
			return nil, err
		}
	}
	for _, s := range servers {
		p, ok := npm.Of(s.Command)
		if !ok || len(names) > 0 && !slices.Contains(names, s.ID) {
			continue
		}
		pin, err := p.Fetched(paths.Packages)
		if fetch {
			begins(s.ID)
			if pin, err = upstream.FetchPackage(ctx, p, paths); err != nil {
				return all, err
			}
		}
		row := ServerPackage{Server: s.ID, Package: p.Name, Requested: p.Version}
		if err == nil {
			row.Version, row.Integrity, row.Fetched = pin.Version, pin.Integrity, pin.At
		}
		all = append(all, row)
	}
	return all, nil
}

// packageProblems finds servers whose package is not pinned.
func (c *Config) packageProblems(file string) (all []Problem) {
	for _, id := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if p, ok := npm.Of(c.Upstreams[id].Command); ok && !p.Pinned() {
			all = append(all, c.problem(file, "upstreams."+id+".command", agent.P2, "write the version: "+p.Name+"@1.2.3; sallyport upstreams list shows which is kept",
				"it names no single version, so the first start fetches what the registry has by then, and keeps that"))
		}
	}
	return all
}
