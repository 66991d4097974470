package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/clients"
	"sallyport.example/internal/comm/exec"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/store"
	"sallyport.example/internal/upstream"
)

// Check is the result of one check of the doctor.
type Check struct {
	Name   string `json:"name"`
	State  string `json:"state"` // ok, warning or failed; of a trial of the running gateway also untried, or unused
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// States of a trial of the running gateway, besides those of Doctor.
const (
	untried = "untried" // nothing is proved
	unused  = "unused"  // not in use here
)

// Confinement proves, for each server that the running gateway starts, that its sandbox holds: this program takes the server's place in it, and tries to
// reach what no server may. running has the sandbox of each server, as the gateway says; canaries are files that no server may read.
func Confinement(ctx context.Context, config, data string, running map[string]string, canaries ...string) []Check {
	cfg, err := LoadConfig(config)
	if err != nil {
		return []Check{{State: untried, Detail: fmt.Sprintf("the configuration can't be read: %v", err), Remedy: "name the gateway's with --config"}}
	}
	f := forbidden(data)
	f.Files = canaries
	var all []Check
	doctorUpstreams(ctx, cfg, data, false, f, func(name, state, remedy, format string, args ...any) {
		c := Check{Name: strings.TrimPrefix(name, "upstreams."), State: state, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
		switch {
		case running[c.Name] == "":
			c.State, c.Detail, c.Remedy = untried, "the running gateway has no such server", "name its configuration with --config, or start it again"
		case running[c.Name] != string(cmp.Or(upstream.Sandbox(cfg.Upstreams[c.Name].Sandbox), upstream.Partial)):
			c.State, c.Detail, c.Remedy = untried, "the running gateway holds it in the sandbox "+running[c.Name]+", and the configuration says another", "name its configuration with --config, or start it again"
		case running[c.Name] == string(upstream.Unconfined):
			c.State, c.Detail = unused, "not in use here: "+c.Detail
		case state == "warning":
			c.State = "ok"
		}
		all = append(all, c)
	})
	for _, id := range slices.Sorted(maps.Keys(running)) {
		if running[id] != "" && !slices.ContainsFunc(all, func(c Check) bool { return c.Name == id }) {
			all = append(all, Check{Name: id, State: untried, Detail: "the configuration does not name it", Remedy: "name the gateway's configuration with --config"})
		}
	}
	return all
}

// Doctor looks at an installation from outside: the configuration, the data directory, the sandbox that comm.exec and servers need, what the
// configuration names, and whether a gateway answers. Where none does, it starts each server in its sandbox and ends it. It fetches npm packages and
// makes servers' folders, as a start would, and changes nothing else.
func Doctor(ctx context.Context, config, data string, progress func(what string)) []Check {
	var all []Check
	add := func(name, state, remedy, format string, args ...any) {
		progress(name)
		all = append(all, Check{Name: name, State: state, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	cfg, err := LoadConfig(config)
	switch {
	case err != nil:
		add("configuration", "failed", "sallyport lint shows the problems one by one", "%v", err)
		cfg, _ = ParseConfig("(defaults)", nil, ".") // the rest is looked at as far as it can be
	default:
		warnings, remarks := 0, 0
		problems, err := lintConfig(ctx, config, "", nil)
		blocked := err
		for _, p := range problems {
			if p.Blocks() {
				blocked = errors.New(p.String())
			}
			switch p.Severity {
			case agent.Note:
			case agent.P2:
				remarks++
			default:
				warnings++
			}
		}
		switch {
		case blocked != nil:
			add("configuration", "failed", "sallyport lint shows the problems one by one", "%v", blocked)
		case warnings > 0:
			add("configuration", "warning", "sallyport lint", "it can be used; %s", sentence.Count(warnings+remarks, "remark"))
		case remarks > 0:
			add("configuration", "ok", "", "no problems; %s (sallyport lint)", sentence.Count(remarks, "remark"))
		case cfg.file == "":
			add("configuration", "ok", "", "there is no sallyport.yaml here, so the built-in defaults hold")
		default:
			add("configuration", "ok", "", "no problems")
		}
	}
	if cfg.observes() {
		add("mode", "warning", "mode: enforce, once the labels fit", "the gateway only observes: %s", observing)
	} else {
		add("mode", "ok", "", "enforce")
	}
	doctorConfirm(cfg, data, add)
	doctorData(cfg, data, add)
	doctorSandbox(cfg, add)
	doctorAround(ctx, cfg, add)
	running := doctorServer(ctx, data, add)
	doctorUpstreams(ctx, cfg, data, !running, forbidden(data), add)
	return all
}

// doctorConfirm looks whether the gateway can ask people at their terminals. It sees the programs of its own user alone.
func doctorConfirm(cfg *Config, data string, add func(name, state, remedy, format string, args ...any)) {
	if !cfg.People.confirms() {
		return
	}
	st, err := os.Stat(data)
	if err != nil {
		return // nothing was ever started there, which the next row says
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Getuid() && sys.Uid != 0 {
		add(peopleConfirm, "failed", "use the console, or give the commands as the gateway's user", "the gateway runs as another user, and can't see who gives a command: it refuses all that need a confirmation")
		return
	}
	add(peopleConfirm, "ok", "", "what people do with a token, other than to stop something, is confirmed at the terminal of the command")
}

// doctorUpstreams proves the sandbox of each server that the gateway starts, and where no gateway runs it starts each server in it, to see whether it
// lives there.
func doctorUpstreams(ctx context.Context, cfg *Config, data string, start bool, f sandbox.Forbidden, add func(name, state, remedy, format string, args ...any)) {
	servers, paths, err := cfg.servers(data)
	if err != nil {
		add("upstreams", "failed", "", "%v", err)
		return
	}
	m, err := upstream.New(servers, upstream.Options{Gateway: paths, Definitions: func(string, []call.Definition) {}})
	if err != nil {
		add("upstreams", "failed", fault.Of(err).Remedy, "%s", fault.Of(err).Message)
		return
	}
	defer m.Close()
	for _, r := range m.Rehearse(ctx, f, start) {
		name := "upstreams." + r.ID
		switch {
		case r.Sandbox == upstream.Unconfined:
			add(name, "warning", "remove sandbox: none; if the server needs more than the sandbox partial lets in, name it under paths", "it has no sandbox: it can read the gateway's keys and tokens, and act as any person")
		case len(r.Reached) > 0:
			add(name, "failed", "do not start it; report what is listed here as a security problem", "its sandbox does not hold: it could %s", strings.Join(r.Reached[:min(len(r.Reached), 10)], ", "))
		case r.Tier == sandbox.None:
			add(name, "failed", "make the sandbox possible (above), or write sandbox: none for a server that you trust with the gateway's keys", "it is not started: %s", fault.Of(r.Err).Message)
		case r.Err != nil:
			remedy := fault.Of(r.Err).Remedy
			if remedy == "" {
				remedy = "name what it misses under paths (it sees its folder, its program, and what its command and environment name), or set its egress"
			}
			stderr := ""
			if r.Stderr != "" {
				stderr = "; it says: " + r.Stderr
			}
			add(name, "failed", remedy, "%s%s", sentenceOf(r.Err), stderr)
		default:
			state, remedy := "ok", ""
			if len(r.NotLetIn) > 0 {
				state, remedy = "warning", "not let in: "+strings.Join(r.NotLetIn, "; ")+" (make what is not there, or name its folder under paths; move what is the gateway's own elsewhere)"
			}
			started := ""
			if start {
				started = fmt.Sprintf("; started in it, it offers %d tools, prompts and resources", r.Definitions)
			}
			add(name, state, remedy, "sandbox %s, held by %s: %d attempts to reach keys, files of the gateway, its processes and local sockets all failed; it writes to %s; network: %s%s",
				r.Sandbox, map[sandbox.Tier]string{sandbox.Full: "namespaces, Landlock and seccomp", sandbox.Partial: "Landlock and seccomp"}[r.Tier], r.Tried,
				strings.Join(append([]string{r.Folder}, r.Write...), ", "), reachable(r), started)
		}
	}
}

// forbidden is what no server may reach: this process, the one above it, the gateway's, its doors, and what the gateway finds in its environment.
func forbidden(data string) sandbox.Forbidden {
	f := sandbox.Forbidden{Processes: []int{os.Getpid(), os.Getppid()}, Variables: []string{clients.EnvToken, clients.EnvURL}}
	if text, err := audit.ReadFile(filepath.Join(data, "lock")); err == nil {
		if pid, err := strconv.Atoi(strings.TrimFunc(string(text), func(r rune) bool { return r < '0' || r > '9' })); err == nil {
			f.Processes = append(f.Processes, pid)
		}
	}
	if b, err := audit.ReadFile(filepath.Join(data, "addresses.json")); err == nil {
		var addresses map[string]string
		if json.Unmarshal(b, &addresses) == nil {
			for _, address := range addresses {
				if u, err := url.Parse(address); err == nil && u.Port() != "" {
					f.Addresses = append(f.Addresses, u.Host)
				}
			}
		}
	}
	return f
}

// sentenceOf returns an error for an operator: the sentence of a fault error, the text of any other.
func sentenceOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

func reachable(r upstream.Rehearsal) string {
	switch r.Network {
	case sandbox.ProxyNetwork:
		return "only " + strings.Join(r.Hosts, ", ") + ", through the gateway's proxy (a program that honours no proxy reaches nothing)"
	case sandbox.NoNetwork:
		return "none"
	}
	return "any"
}

// foreign reports whether a directory has files and no database: it is not the gateway's.
func foreign(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0 && !store.HasDatabase(dir) && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == audit.KeyFile })
}

func doctorData(cfg *Config, data string, add func(name, state, remedy, format string, args ...any)) {
	const name = "data directory"
	st, err := os.Stat(data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		add(name, "ok", "", "%s is not there yet; the first start makes it", data)
		return
	case err != nil:
		add(name, "failed", "choose another with --data", "%v", err)
		return
	case !st.IsDir() || foreign(data):
		add(name, "failed", "name the gateway's directory with --data", "%s holds something else", data)
		return
	case st.Mode().Perm()&0o077 != 0:
		add(name, "failed", "chmod 700 "+data, "others can read %s", data)
		return
	}
	if !store.HasDatabase(data) {
		add(name, "ok", "", "%s has no database yet; the first start makes it", data)
		return
	}
	r, err := store.OpenReadOnly(data)
	if err != nil {
		add(name, "failed", fault.Of(err).Remedy, "%v", err)
		return
	}
	defer r.Close()
	if size, err := r.Size(context.Background()); err != nil {
		add(name, "failed", fault.Of(err).Remedy, "%v", err)
	} else {
		files, archived := logFiles(r)
		add(name, "ok", "", "%s; the log has %d entries in %s%s (sallyport audit verify proves them)", data, size, sentence.Count(files, "file"), archived)
	}
	doctorAnchor(cfg, data, r, add)
	pins, err := r.Pins(context.Background())
	if err != nil {
		add("definitions", "failed", fault.Of(err).Remedy, "%v", err)
		return
	}
	unread, waiting := cfg.Unaccepted(pins)
	var says []string
	for _, server := range slices.Sorted(maps.Keys(cfg.Upstreams)) {
		if n := len(unread[server]); n > 0 {
			says = append(says, fmt.Sprintf("nobody has read %s of %s yet, and a session that lists one counts as having read untrusted content", sentence.Count(n, "definition"), server))
		}
		if n := len(waiting[server]); n > 0 {
			says = append(says, fmt.Sprintf("the gateway keeps %s of %s from agents until a person accepts", sentence.Count(n, "definition"), server))
		}
	}
	if len(says) > 0 {
		add("definitions", "warning", "with the gateway running: sallyport tools accept --all", "%s", strings.Join(says, "; "))
	} else {
		add("definitions", "ok", "", "no definition of a tool waits for a person")
	}
}

// logFiles counts the files that the log is in, here or where they were archived.
func logFiles(r *store.Reader) (files int, archived string) {
	sealed, _ := r.Segments()
	away := 0
	for _, s := range sealed {
		if s.ArchivedTo != "" {
			away++
		}
	}
	if away > 0 {
		archived = fmt.Sprintf(", %d of them archived", away)
	}
	return len(sealed) + 1, archived
}

func doctorSandbox(cfg *Config, add func(name, state, remedy, format string, args ...any)) {
	r := sandbox.Probe()
	state, remedy := "ok", strings.Join(r.Missing, " ")
	if r.Tier == sandbox.Partial {
		state = "warning"
	}
	if r.Tier == sandbox.None {
		if state = "warning"; len(cfg.Comm.Exec.Allow) > 0 {
			state = "failed"
		}
	}
	add("sandbox", state, remedy, "tier %s: Landlock ABI %d, seccomp %v, user namespaces %v", r.Tier, r.Landlock, r.Seccomp, r.UserNamespaces)
	if len(cfg.Comm.Exec.Allow) == 0 {
		add("comm.exec", "ok", "", "no program is allowed (comm.exec.allow)")
	} else if runner, err := exec.New(cfg.Comm.Exec.options()); err != nil {
		add("comm.exec", "failed", fault.Of(err).Remedy, "%s", fault.Of(err).Message)
	} else {
		add("comm.exec", "ok", "", "%s", strings.Join(runner.Programs(), ", "))
	}
}

func doctorServer(ctx context.Context, data string, add func(name, state, remedy, format string, args ...any)) (running bool) {
	const name = "gateway"
	b, err := audit.ReadFile(filepath.Join(data, "addresses.json"))
	if err != nil {
		add(name, "ok", "", "none has run on this data directory")
		return false
	}
	var at struct{ Admin string }
	if err := json.Unmarshal(b, &at); err != nil {
		add(name, "failed", "start it again: it writes the file anew", "addresses.json can't be read")
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.Admin+"/readyz", nil)
	if err == nil {
		var resp *http.Response
		if resp, err = http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("it answers %s", resp.Status)
			}
		}
	}
	if err != nil {
		add(name, "warning", "sallyport serve", "none answers at %s: %v", at.Admin, err)
		return false
	}
	add(name, "ok", "", "ready at %s", at.Admin)
	return true
}
