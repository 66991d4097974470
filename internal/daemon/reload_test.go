package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/console"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// installed is a running gateway with its files.
type installed struct {
	t   *testing.T
	dir string
	d   *Daemon
	log strings.Builder
	mu  sync.Mutex
}

func (i *installed) Write(b []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.log.Write(b)
}

const ownPorts = "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\npolicies: policies\n"

// install starts a gateway with this configuration, with one agent and one policy.
func install(t *testing.T, config string) *installed {
	t.Helper()
	i := &installed{t: t, dir: t.TempDir()}
	i.write("sallyport.yaml", ownPorts+config)
	i.write("agents/bot.yaml", fmt.Sprintf(startedAgent, "[]", "advisory"))
	i.write("policies/p.cedar", `forbid (principal, action, resource) when { false };`)
	i.start()
	t.Cleanup(func() { i.stop() })
	return i
}

func (i *installed) start() {
	i.t.Helper()
	cfg, err := LoadConfig(filepath.Join(i.dir, "sallyport.yaml"))
	if err != nil {
		i.t.Fatal(err)
	}
	if i.d, err = New(i.t.Context(), cfg, Options{Data: filepath.Join(i.dir, "data"), Log: slog.New(slog.NewTextHandler(i, nil))}); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installed) stop() {
	i.t.Helper()
	if err := i.d.Close(); err != nil {
		i.t.Error(err)
	}
}

func (i *installed) write(name, text string) {
	i.t.Helper()
	path := filepath.Join(i.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		i.t.Fatal(err)
	}
}

// entries are those on record with the action.
func (i *installed) entries(action string) (all []audit.Entry) {
	i.t.Helper()
	all, _, err := i.d.store.Entries(i.t.Context(), audit.Filter{Action: action, Limit: 1000})
	if err != nil {
		i.t.Fatal(err)
	}
	return all
}

// refused is why a reload was refused.
func (i *installed) refused() *console.ReloadRefused {
	i.t.Helper()
	_, err := i.d.Reload(i.t.Context(), "person:ann")
	var r *console.ReloadRefused
	if !errors.As(err, &r) {
		i.t.Fatalf("not refused: %v", err)
	}
	return r
}

// All of a configuration is in force after a reload, is on record with who and what, and is what the next start compares with.
func TestReload(t *testing.T) {
	i := install(t, "people: [{id: ann, roles: [viewer]}]\n")
	before := i.d.gate.Catalogue().ByID("comm.fetch").Class.RiskFloor
	i.write("sallyport.yaml", ownPorts+"people: [{id: ann, roles: [approver]}]\noperations: {comm.fetch: {risk: HIGH}}\napprovals: {expires: 5m}\nflow: {labels: [internal, pii, secret, board]}\n")
	i.write("agents/new.yaml", strings.Replace(fmt.Sprintf(startedAgent, "[]", "advisory"), "agentId: bot", "agentId: new", 1))
	i.write("policies/p.cedar", `forbid (principal, action, resource);`)
	if c := i.d.Configuration(); !c.Differs || c.Unusable || c.LoadedBy != byStart || !slices.Contains(c.Changed, "operations.comm.fetch.risk") || !slices.Contains(c.Changed, "the agent new") || !slices.Contains(c.Changed, policyFiles) {
		t.Errorf("before: %+v", c)
	}
	done, err := i.d.Reload(t.Context(), "person:ann")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range done.Changes {
		if f.Agent == "" {
			names = append(names, f.Field)
		}
	}
	if got := strings.Join(names, " "); got != "approvals.expires flow.labels operations.comm.fetch.risk people.ann.roles "+policyFiles {
		t.Errorf("changed: %s", got)
	}
	if now := i.d.gate.Catalogue().ByID("comm.fetch").Class.RiskFloor; before != "" || now != "HIGH" {
		t.Errorf("the operation: %q, %q", before, now)
	}
	if _, ok := i.d.gate.Agents().Get("new"); !ok {
		t.Error("the agent is not declared")
	}
	if v, ok := i.d.config().voter("ann"); !ok || !slices.Contains(v.Roles, identity.Approver) {
		t.Errorf("the person: %+v", v)
	}
	if c := done.Configuration; c.Differs || c.LoadedBy != "person:ann" || c.LoadedAt.IsZero() || c.Refused != nil {
		t.Errorf("after: %+v", c)
	}
	for action, want := range map[string]string{configAction: "changed since the configuration was loaded last: approvals.expires", agentAction: "added since the configuration was loaded last"} {
		if e := i.entries(action); len(e) != 1 || e[0].Actor != "person:ann" || !strings.HasPrefix(e[0].Reason, want) {
			t.Errorf("%s: %+v", action, e)
		}
	}
	if e := i.entries(reloadAction); len(e) != 1 || e[0].Decision != "ok" || e[0].Actor != "person:ann" || e[0].Event != audit.ConfigurationChanged {
		t.Errorf("%+v", e)
	}
	if all := i.d.changes(); len(all) != 2 {
		t.Errorf("people see %+v", all)
	}
	i.stop()
	i.start()
	if n := len(i.entries(configAction)) + len(i.entries(agentAction)); n != 2 {
		t.Errorf("the start after it found %d changes", n-2)
	}
}

// A file that can't be used changes nothing, and says field and remedy to who asked, in the log and on record.
func TestReloadRefusesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		spoil       func(i *installed)
		field, says string
	}{
		"a value":        {func(i *installed) { i.write("sallyport.yaml", ownPorts+"mode: off\n") }, "mode", "unknown word"},
		"an unknown key": {func(i *installed) { i.write("sallyport.yaml", ownPorts+"moode: enforce\n") }, "moode", "unknown key"},
		"no YAML":        {func(i *installed) { i.write("sallyport.yaml", "a: [\n") }, "", ""},
		"keys twice": {func(i *installed) {
			i.write("sallyport.yaml", ownPorts+"listen: 127.0.0.1:1\nadmin_listen: 127.0.0.1:1\n")
		}, "listen", "is there twice"},
		"a variable":      {func(i *installed) { i.write("sallyport.yaml", ownPorts+"mode: ${NOT_SET_ANYWHERE}\n") }, "", "NOT_SET_ANYWHERE is not set"},
		"a contradiction": {func(i *installed) { i.write("sallyport.yaml", ownPorts+"approvals: {medium_delay: 2h}\n") }, "approvals.medium_delay", "would expire"},
		"an operation":    {func(i *installed) { i.write("sallyport.yaml", ownPorts+"operations: {crm.read: {effect: read}}\n") }, "operations.crm.read", "no upstream"},
		"no file":         {func(i *installed) { _ = os.Remove(filepath.Join(i.dir, "sallyport.yaml")) }, "", "there is no file"},
		"a pipe": {func(i *installed) {
			p := filepath.Join(i.dir, "sallyport.yaml")
			_ = os.Remove(p)
			_ = syscall.Mkfifo(p, 0o600)
		}, "", "not a regular file"},
		"an open env file":      {func(i *installed) { i.write(envFile, "A=b\n"); _ = os.Chmod(filepath.Join(i.dir, envFile), 0o644) }, "", "others can read"},
		"a declaration":         {func(i *installed) { i.write("agents/bot.yaml", "agentId: bot\n") }, "agentName", ""},
		"a P0 of one":           {func(i *installed) { i.write("agents/bot.yaml", fmt.Sprintf(startedAgent, `["*"]`, "advisory")) }, "permissions.write", "advisory agent has write permissions"},
		"a policy":              {func(i *installed) { i.write("policies/p.cedar", "permit everything") }, "policies", "p.cedar"},
		"no folder of policies": {func(i *installed) { _ = os.RemoveAll(filepath.Join(i.dir, "policies")) }, "policies", "can't be opened"},
	} {
		t.Run(name, func(t *testing.T) {
			i := install(t, "")
			c.spoil(i)
			cfg, in, fetch := i.d.config(), i.d.loaded.Load(), i.d.gate.Catalogue().ByID("comm.fetch")
			r := i.refused()
			fields := []string{}
			for _, p := range r.Problems {
				fields = append(fields, p.Field)
			}
			if !slices.Contains(fields, c.field) || r.Restart {
				t.Errorf("fields: %q", fields)
			}
			all := fmt.Sprint(r.Problems)
			if !strings.Contains(all, c.says) {
				t.Errorf("it says %s", all)
			}
			if i.d.config() != cfg || i.d.loaded.Load() != in || i.d.gate.Catalogue().ByID("comm.fetch") != fetch {
				t.Error("something changed")
			}
			if e := i.entries(reloadAction); len(e) != 1 || e[0].Decision != "deny" || e[0].Code != string(fault.ConfigurationInvalid) || e[0].Actor != "person:ann" || e[0].Severity != audit.Warning {
				t.Errorf("on record: %+v", e)
			}
			if n := len(i.entries(configAction)) + len(i.entries(agentAction)); n != 0 {
				t.Errorf("%d changes on record", n)
			}
			if !strings.Contains(i.log.String(), "the configuration was not reloaded") {
				t.Error("the log says nothing")
			}
			_, wrong, _ := strings.Cut(i.d.Configuration().Refused.Text, ": ")
			if names := strings.Split(wrong, ", "); len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
				t.Errorf("it names something twice: %s", wrong)
			}
			if now := i.d.Configuration(); !now.Differs || !now.Unusable || now.Refused == nil || now.Refused.By != "person:ann" {
				t.Errorf("%+v", now)
			}
		})
	}
}

// every top-level key of the configuration, with what a reload does of it: a new key fails until it was considered, and stands in docs/configuration.md.
var everyKey = map[string]string{
	"mode": "reload", "people": "reload", "hosts": "reload", "operations": "reload", "unlisted_operations": "reload", "flow": "reload", "trust_tiers": "reload", "knowledge": "reload", "claims": "reload", "declarations": "reload", "breakers": "reload", "quarantine": "reload", "models": "reload",
	"approvals": "both", "threat": "both", "limits": "both", "upstreams": "both",
	"listen": "restart", "admin_listen": "restart", "store": "restart", "agents": "restart", "policies": "restart", "comm": "restart", "notify": "restart", "audit": "restart", "console": "restart",
}

func TestEveryKeyReloadsOrNot(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		does, ok := everyKey[key]
		if !ok {
			t.Errorf("%s: not considered", key)
		}
		if does != "both" && reloads(key) != (does == "reload") {
			t.Errorf("%s: %t", key, reloads(key))
		}
	}
	for field, want := range map[string]bool{
		"upstreams.crm.labels": true, "upstreams.crm.first_sight": true, "upstreams.crm.fallback": true, "upstreams.crm.labels of search": true, "upstreams.crm.command": false, "upstreams.crm.env.TOKEN": false, "upstreams.crm.url": false,
		"upstreams.crm.headers.labels": false, "upstreams.crm.env.labels": false, "upstreams.crm.timeout": false, "upstreams.crm.sandbox": false, "upstreams.crm": false, "upstreams": false, "upstreams.labels": false,
		"limits.calls_per_minute": true, "limits.comm_requests_per_minute": true, "limits.execution_budget": true, "limits.network_timeout": false, "limits.file_timeout": false, "limits.memory": false,
		"approvals.expires": true, "approvals.requester": true, "approvals.hold": false, "folder": false, projectFolder: true, policyFiles: true, "comm.allowed_domains": false, "signing.key": false, "": false,
	} {
		if reloads(field) != want {
			t.Errorf("%s: %t", field, !want)
		}
	}
}

// A change that needs a restart refuses the whole, with what could be reloaded, and names each such key. No secret is on record.
func TestReloadRefusesWhatNeedsARestart(t *testing.T) {
	t.Setenv("KEY", "hunter2hunter2")
	for field, text := range map[string]string{
		"listen":                 strings.Replace(ownPorts, "listen: 127.0.0.1:0", "listen: localhost:0", 1),
		"policies":               strings.Replace(ownPorts, "policies: policies", "policies: ./policies", 1),
		"agents":                 ownPorts + "agents: ./agents\n",
		"comm.allowed_domains":   ownPorts + "comm: {allowed_domains: [example.com]}\n",
		"comm.databases.crm":     ownPorts + "comm: {databases: {crm: \"sqlite:${KEY}\"}}\n",
		"limits.network_timeout": ownPorts + "limits: {network_timeout: 7s}\n",
		"limits.memory":          ownPorts + "limits: {memory: 777MiB}\n",
		"upstreams.crm.url":      ownPorts + "upstreams: {crm: {url: \"https://crm.example/${KEY}\"}}\n",
		"approvals.hold":         ownPorts + "approvals: {hold: 7s}\n",
		"console.public_url":     ownPorts + "console: {public_url: \"https://gate.example\"}\n",
		"notify.0.url":           ownPorts + "notify: [{kind: webhook, url: \"https://hooks.example/${KEY}\", secret: \"0123456789abcdef0123456789abcdef\", on: [alert]}]\n",
	} {
		i := install(t, "")
		i.write("sallyport.yaml", text+"mode: shadow\n")
		r := i.refused()
		if !r.Restart || !slices.ContainsFunc(r.Problems, func(p console.FileProblem) bool { return p.Field == field }) || slices.ContainsFunc(r.Problems, func(p console.FileProblem) bool { return p.Field == "mode" }) {
			t.Errorf("%s: %+v", field, r)
		}
		if i.d.config().Mode != "enforce" {
			t.Errorf("%s: the rest was applied", field)
		}
		e := i.entries(reloadAction)
		if len(e) != 1 || e[0].Code != string(fault.Conflict) || !strings.Contains(e[0].Reason, "need a restart") || !strings.Contains(e[0].Reason, field) {
			t.Errorf("%s: on record: %+v", field, e)
		}
		if strings.Contains(fmt.Sprint(e, string(e[0].Detail))+i.log.String(), "hunter2") {
			t.Errorf("%s: a secret is on record or in the log", field)
		}
	}
	i := install(t, "")
	i.write(envFile, "SOME=thing\n") // no server that runs is kept from this file
	if r := i.refused(); !r.Restart || !strings.Contains(fmt.Sprint(r.Problems), envFile) {
		t.Errorf("%+v", r)
	}
}

// A log that can't be written keeps the old configuration in force: no change is without its entry.
func TestReloadWithoutARecord(t *testing.T) {
	i := install(t, "")
	i.write("sallyport.yaml", ownPorts+"mode: shadow\n")
	if err := i.d.store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := i.d.Reload(t.Context(), "person:ann"); err == nil || i.d.config().Mode != "enforce" {
		t.Errorf("%v, and the mode is %s", err, i.d.config().Mode)
	}
}

// Reloads that come at once go one after the other, beside whoever asks what is in force, and none comes after the end.
func TestReloadsAtOnce(t *testing.T) {
	i := install(t, "")
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for range 5 {
				if _, err := i.d.Reload(t.Context(), fmt.Sprint("person:p", n)); err != nil && !fault.Is(err, fault.StoreUnavailable) {
					t.Error(err)
				}
				i.d.Configuration()
				i.d.config().voter("ann")
			}
		})
	}
	for n := range 6 {
		i.write("policies/q.cedar", fmt.Sprintf("forbid (principal, action, resource) when { %d == 0 };", n+1))
	}
	all.Wait()
	i.stop()
	if _, err := i.d.Reload(context.Background(), "person:ann"); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("after the end: %v", err)
	}
}
