package live

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sallyport.example/client"
)

// This file tries the built-in external operations, as the first agent that may use them.

const justification = `"justification":{"user_request":"` + asked + `","missing_knowledge":"Whether the gateway refuses this call.","expected_use":"Nothing: it has to be refused."}`

// openFor opens a session of the first trial agent that may call a built-in operation. nobody: no agent may.
func (p *prober) openFor(ctx context.Context, tool string) (s session, nobody bool, err error) {
	for _, a := range p.here.Agents {
		s, err := p.open(ctx, a.TrialID, "execution")
		if err != nil {
			return s, false, err
		}
		m, err := s.Manifest(ctx, client.Own)
		if err != nil {
			return s, false, err
		}
		if slices.ContainsFunc(m.Tools, func(t client.ManifestTool) bool { return t.Name == tool }) {
			return s, false, nil
		}
		if _, err := p.o.People.CloseSession(ctx, s.id, reason); err != nil {
			return s, false, err
		}
	}
	return session{}, true, nil
}

// egress fetches from this process, and asks whether private and metadata addresses could be fetched.
func (p *prober) egress(ctx context.Context) Row {
	s, nobody, err := p.openFor(ctx, "comm_fetch")
	switch {
	case err != nil:
		return untried(err)
	case nobody:
		return unused("no agent may call comm.fetch")
	}
	var hits atomic.Int64
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return untried(err)
	}
	web := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		fmt.Fprint(w, "canary")
	})}
	go web.Serve(l) //nolint:errcheck // it ends with Close
	defer web.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String()) // of a listener: well-formed
	var rows []Row
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433"} {
		if p.mayFetch(host) {
			continue
		}
		address := "http://" + host + ":" + port + "/canary"
		a, err := s.call(ctx, "comm_fetch", `{"url":`+quoted(address)+`,`+justification+`}`)
		rows = append(rows, refused("a fetch from "+address, a, err, "egress.blocked", "request.malformed"))
	}
	for _, host := range []string{"169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "[fd00::1]", "[fe80::1]", "0.0.0.0", "metadata.google.internal"} {
		if p.mayFetch(host) {
			continue
		}
		address := "http://" + host + "/" // nothing is sent: what is there is not ours
		v, err := s.Check(ctx, client.Own, "comm_fetch", []byte(`{"url":`+quoted(address)+`,`+justification+`}`))
		if err != nil {
			return untried(err)
		}
		if host == "metadata.google.internal" && v.Decision == "permit" { // a name is judged when it is resolved, just before it is dialled
			continue
		}
		rows = append(rows, refused("a fetch from "+address, answerOf(v), nil, "egress.blocked", "request.malformed"))
	}
	if hits.Load() > 0 {
		return Row{State: Failed, Detail: "a fetch reached a server on this machine", Remedy: "see comm.allowed_domains; report it as a security problem"}
	}
	if len(rows) == 0 {
		return unused("comm.allowed_domains lists every address that this would try")
	}
	return together("nothing on this machine, in its private networks or at its cloud's metadata could be fetched, except what comm.allowed_domains lists", rows...)
}

// mayFetch tells whether the operator has listed the host, so that fetching from it is no mistake.
func (p *prober) mayFetch(host string) bool {
	return slices.ContainsFunc(p.here.Domains, func(d string) bool { return strings.HasPrefix(d, strings.Trim(host, "[]")) })
}

// paths reads a canary outside the workspace, by every way there is to name it.
func (p *prober) paths(ctx context.Context) Row {
	s, nobody, err := p.openFor(ctx, "comm_read_file")
	switch {
	case err != nil:
		return untried(err)
	case nobody:
		return unused("no agent may call comm.read_file")
	}
	canary, own := filepath.Join(p.folder, "outside"), filepath.Join(p.here.Workspace, s.id)
	if err := os.WriteFile(canary, []byte("canary"), 0o600); err != nil {
		return untried(err)
	}
	up, err := filepath.Rel(own, canary)
	if err != nil {
		up = strings.Repeat("../", 30) + strings.TrimPrefix(canary, "/")
	}
	names, linked := []string{canary, up, "./" + up}, "; a link could not be tried, because the gateway's folder is not here"
	if os.MkdirAll(own, 0o700) == nil && os.Symlink(canary, filepath.Join(own, "link")) == nil && os.Symlink(p.folder, filepath.Join(own, "folder")) == nil {
		names, linked = append(names, "link", "folder/outside"), ", and no link led there"
	}
	var rows []Row
	for _, name := range names {
		a, err := s.call(ctx, "comm_read_file", `{"path":`+quoted(name)+`,`+justification+`}`)
		row := refused("reading "+name+", outside the session's folder,", a, err, "path.blocked", "not_found", "request.malformed")
		if a.done && !strings.Contains(string(a.result), "canary") { // an answer that says that the file can't be read
			row = Row{State: OK}
		}
		rows = append(rows, row)
	}
	return together("no file outside the session's folder could be read, by an absolute path or by .."+linked, rows...)
}

func (p *prober) program(ctx context.Context) Row {
	if len(p.here.Programs) == 0 {
		return unused("comm.exec.allow names no program")
	}
	s, nobody, err := p.openFor(ctx, "comm_exec")
	switch {
	case err != nil:
		return untried(err)
	case nobody:
		return unused("no agent may call comm.exec")
	}
	canary := filepath.Join(p.folder, "made")
	var rows []Row
	for _, name := range []string{"touch", "mkdir", "tee", "true"} {
		path, err := exec.LookPath(name)
		if err != nil || slices.ContainsFunc(p.here.Programs, func(allowed string) bool { return filepath.Base(allowed) == name }) {
			continue
		}
		for _, argv := range []string{name, path} {
			a, err := s.call(ctx, "comm_exec", `{"argv":[`+quoted(argv)+`,`+quoted(canary)+`],`+justification+`}`)
			rows = append(rows, refused("the program "+argv+", which is not allowed,", a, err, "permission.denied"))
		}
	}
	if _, err := os.Lstat(canary); err == nil {
		return Row{State: Failed, Detail: "a program that is not allowed ran", Remedy: "report it as a security problem"}
	}
	if len(rows) == 0 {
		return Row{State: Untried, Detail: "comm.exec.allow lists every program that this would try"}
	}
	return together("a program that is not on the list could not be run, by its name or by its path", rows...)
}

// databases sends each database statements that write, and that would change no row.
func (p *prober) databases(ctx context.Context) (rows []Row) {
	if len(p.here.Databases) == 0 {
		return []Row{unused("comm.databases names none")}
	}
	s, nobody, err := p.openFor(ctx, "comm_query")
	switch {
	case err != nil:
		return []Row{untried(err)}
	case nobody:
		return []Row{unused("no agent may call comm.query")}
	}
	for _, id := range p.here.Databases {
		row := p.database(ctx, s, id)
		row.Name = id
		rows = append(rows, row)
	}
	return rows
}

func (p *prober) database(ctx context.Context, s session, id string) Row {
	last, denied := Row{}, false
	for _, sql := range []string{
		"CREATE TEMP TABLE sallyport_doctor (a integer)", "DELETE FROM pg_catalog.pg_class WHERE 1 = 0", "SELECT 1; DELETE FROM pg_catalog.pg_class WHERE 1 = 0",
		"WITH gone AS (DELETE FROM pg_catalog.pg_class WHERE 1 = 0 RETURNING 1) SELECT 1 FROM gone",
	} {
		a, err := s.call(ctx, "comm_query", `{"database":`+quoted(id)+`,"sql":`+quoted(sql)+`,`+justification+`}`)
		if a.done && strings.Contains(string(a.result), "The database says") {
			continue // it knows no such table
		}
		last = refused("the statement "+sql, a, err, "permission.denied")
		if denied = denied || last.State == OK; last.State == Failed || err != nil {
			return last
		}
	}
	if !denied {
		return last
	}
	return Row{State: OK, Detail: "statements that write were refused; they would have changed nothing"}
}
