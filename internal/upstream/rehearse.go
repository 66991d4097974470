package upstream

import (
	"context"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/npm"
	"sallyport.example/internal/sandbox"
)

// rehearsalTime bounds a rehearsal, with the fetching of a package.
const rehearsalTime = npm.FetchTime + time.Minute

// Rehearsal tells how the trial of a server's sandbox went.
type Rehearsal struct {
	ID          string
	Sandbox     Sandbox
	Tier        sandbox.Tier // Full with namespaces, Partial with Landlock alone
	Folder      string
	Write       []string // paths that it writes, beside its folder
	Network     sandbox.Network
	Hosts       []string
	NotLetIn    []string // paths that its command or environment names and that it does not get, each with the reason
	Tried       int      // how many attempts were made to reach what no server may reach
	Reached     []string // the attempts that succeeded
	Definitions int      // how many the server offered, where it was started
	Err         error    // why there is no sandbox, or why the server did not start in it
	Stderr      string   // the end of what the server wrote on its standard error
}

// Rehearse tries each server that the gateway starts. It proves that the sandbox keeps what is forbidden out of reach; with start, it
// also starts the server in its sandbox, lists what it offers, and ends it. Packages that npx would run are fetched as for a start. Servers without a sandbox are only named.
func (m *Manager) Rehearse(ctx context.Context, forbidden sandbox.Forbidden, start bool) (all []Rehearsal) {
	for _, id := range m.order {
		if s := m.servers[id]; s.http == nil {
			all = append(all, s.rehearse(ctx, forbidden, start))
		}
	}
	return all
}

func (s *server) rehearse(ctx context.Context, forbidden sandbox.Forbidden, start bool) (r Rehearsal) {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTime)
	defer cancel()
	r = Rehearsal{ID: s.cfg.ID, Sandbox: s.cfg.Confine.Sandbox, Folder: s.cfg.Confine.Folder, Hosts: s.cfg.Confine.Hosts}
	if r.Sandbox == Unconfined {
		return r
	}
	if r.Tier, _ = sandbox.Servers(); r.Tier == sandbox.None {
		_, r.Err = sandbox.Server{Argv: []string{s.cfg.ID}, Path: "/", Dir: "/", Folder: "/"}.Command()
		return r
	}
	l, err := s.launch(ctx)
	if err != nil {
		r.Err = err
		return r
	}
	box, omitted, err := s.sandboxed(l, nil)
	if err != nil {
		r.Err = err
		return r
	}
	r.Write, r.Network, r.NotLetIn = box.Write, box.Network, omitted
	if r.Tried, r.Reached, r.Err = box.Prove(ctx, forbidden); r.Err != nil || !start {
		return r
	}
	stderr := &sandbox.Tail{Most: 32 << 10}
	s.stderr = stderr
	c, err := s.connect(ctx, nil)
	defer func() { r.Stderr = telling(stderr.String()) }()
	if err != nil {
		r.Err = fault.Wrap(err, fault.UpstreamFailed, "It does not start in its sandbox: %s", plain(err))
		return r
	}
	defer c.close()
	if r.Err = s.refresh(ctx, c); r.Err == nil {
		r.Definitions = s.status().Definitions
	}
	return r
}

// telling returns the last lines of a text, or the first of the last thirty that names an error where that is not among them.
func telling(text string) string {
	lines := strings.Split(text, "\n")
	last := lines[max(0, len(lines)-3):]
	for _, line := range lines[max(0, len(lines)-31):] {
		if lower := strings.ToLower(line); strings.Contains(lower, "error") || strings.Contains(lower, "denied") || strings.Contains(lower, "no such file") {
			if !slices.Contains(last, line) {
				last = []string{line}
			}
			break
		}
	}
	return strings.Join(last, " / ")
}
