package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/console"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/statement"
)

// reloading is the configuration in force, and what replaces it.
type reloading struct {
	cfg     atomic.Pointer[Config] // in force; never changed in place
	loaded  atomic.Pointer[loaded]
	refused atomic.Pointer[console.ReloadRefusal] // the newest, since the configuration in force was loaded; nil: none
	changed atomic.Pointer[[]console.Change]      // what starts and reloads changed lately, the newest first

	turn sync.Mutex // held during a reload
	over bool       // the daemon stops; guarded by turn

	looking sync.Mutex // guards looked
	looked  onDisk
}

// loaded says when and by whom the configuration in force was loaded, and what it was.
type loaded struct {
	at    time.Time
	by    string
	state *startState
	kept  []string // the gateway's own files that the servers which run were kept from
}

// onDisk is how the files stood to the configuration in force when somebody last asked.
type onDisk struct {
	stamp   string // of the files, and of what was in force
	differs []string
	problem bool
}

// config is the configuration in force.
func (d *Daemon) config() *Config { return d.cfg.Load() }

// changes are what starts and reloads changed lately, the newest first.
func (d *Daemon) changes() []console.Change {
	if all := d.changed.Load(); all != nil {
		return *all
	}
	return nil
}

// findChanges reads them from the record.
func (d *Daemon) findChanges(ctx context.Context) error {
	all, err := d.recentChanges(ctx)
	if err == nil {
		d.changed.Store(&all)
	}
	return err
}

// endReloads waits for a reload that runs, and lets none begin.
func (d *Daemon) endReloads() {
	d.turn.Lock()
	defer d.turn.Unlock()
	d.over = true
}

// prepared is a whole configuration that was read, checked and built, and is not in force yet.
type prepared struct {
	cfg      *Config
	settings gateway.Settings
	state    startState
}

// prepare reads the files and builds what would be in force. It changes nothing.
func (d *Daemon) prepare() (*prepared, error) {
	now := d.config()
	cfg, err := LoadConfig(now.file)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(cfg.file, "sallyport.yaml")
	problems := cfg.problems(name, d.o.Data)
	agents, declared := cfg.declarations()
	problems = append(problems, declared...)
	policies, err := policy.Load(cfg.path(cfg.Policies))
	if err != nil {
		problems = append(problems, Problem{File: cfg.path(cfg.Policies), Field: "policies", Severity: agent.Error, Problem: fault.Of(err).Public()})
	}
	if stop := slices.DeleteFunc(problems, func(p Problem) bool { return !p.Blocks() }); len(stop) > 0 {
		return nil, &ConfigError{stop}
	}
	p := &prepared{cfg: cfg}
	if p.settings, err = cfg.settings(d.commands(), agents, policies); err == nil {
		err = gateway.CheckSettings(p.settings)
	}
	if err != nil {
		return nil, err
	}
	key, err := d.configKey()
	if err != nil {
		return nil, err
	}
	p.state, err = startStateOf(d.o.Version, key, cfg, agents, policies)
	return p, err
}

// restarts are the changed fields that only a restart puts in force.
func (p *prepared) restarts(in *loaded, data string) (fields []string) {
	for _, c := range p.state.configChanges(in.state) {
		if !reloads(c.Field) {
			fields = append(fields, c.Field)
		}
	}
	// What servers are kept from was fixed when they were started.
	if paths, err := p.cfg.gatewayPaths(data); err != nil || len(fields) == 0 && !slices.Equal(in.kept, paths.Secrets) {
		fields = append(fields, "the places of the gateway's own files ("+envFile+" among them)")
	}
	return fields
}

// maxReloadProblems bounds the problems that stand in the entry about a refused reload.
const maxReloadProblems = 20

// Reload reads the configuration again, with the declarations and policies that it names, and puts it in force as a whole, for calls that begin later. Where
// anything is wrong with it, or needs a restart, nothing changes, and the error is a *console.ReloadRefused. Both are on record, with by.
func (d *Daemon) Reload(ctx context.Context, by string) (console.Reloaded, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.over {
		return console.Reloaded{}, fault.New(fault.StoreUnavailable, "The gateway is stopping.")
	}
	ctx = context.WithoutCancel(ctx)
	if by == bySignal && d.config().People.confirms() {
		return console.Reloaded{}, d.refuseReload(ctx, by, &console.ReloadRefused{Problems: []console.FileProblem{{
			File: d.config().file, Field: peopleConfirm, Problem: "a signal reloads nothing, because nobody has confirmed it at a terminal",
			Remedy: "use sallyport reload in a terminal, or the button of the console",
		}}})
	}
	p, err := d.prepare()
	if err != nil {
		return console.Reloaded{}, d.refuseReload(ctx, by, refusalOf(err))
	}
	before := d.loaded.Load()
	if fields := p.restarts(before, d.o.Data); len(fields) > 0 {
		return console.Reloaded{}, d.refuseReload(ctx, by, restartNeeded(p.cfg, fields))
	}
	p.state.loadedBy(before.state, by)
	l := loading{reloadAction, by, "the configuration was loaded last"}
	entry, err := l.entry(&p.state)
	if err != nil {
		return console.Reloaded{}, err
	}
	entries := append([]audit.Entry{entry}, l.changes(before.state, &p.state)...)
	if err := d.store.Record(ctx, entries...); err != nil { // on record before it is in force
		return console.Reloaded{}, err
	}
	if err := d.findChanges(ctx); err != nil { // they only inform
		d.o.Log.Warn("what changed lately can't be read for the console", "error", err)
	}
	d.cfg.Store(p.cfg)
	d.loaded.Store(&loaded{at: time.Now().UTC(), by: by, state: &p.state, kept: before.kept})
	d.refused.Store(nil)
	d.asks.Replace(p.cfg.providers())
	d.books.EmbedSoon()
	if err := d.gate.Reconfigure(ctx, p.settings); err != nil { // prepare has checked that
		return console.Reloaded{}, err
	}
	if p.cfg.parses() {
		d.warming.Go(statement.Warm)
	}
	out := console.Reloaded{Configuration: d.Configuration(), Changes: changesOf(before.state, &p.state)}
	d.o.Log.Info("the configuration was reloaded", "by", by, "changed", len(out.Changes))
	for _, w := range p.cfg.Warnings(cmp.Or(p.cfg.file, "sallyport.yaml")) {
		d.o.Log.Warn("configuration", "problem", w.String())
	}
	return out, nil
}

// bySignal is who reloads by a signal: whoever may send one to the process.
const bySignal = "gateway:signal"

// ReloadBySignal is Reload for nobody who could be answered: the log says what became of it.
func (d *Daemon) ReloadBySignal(ctx context.Context) {
	_, err := d.Reload(ctx, bySignal)
	if refused := (*console.ReloadRefused)(nil); err != nil && !errors.As(err, &refused) { // each problem of that is in the log
		d.o.Log.Error("the configuration was not reloaded, and nothing changed", "by", bySignal, "error", err)
	}
}

// changesOf are the fields that differ, as the record has them.
func changesOf(before, now *startState) []console.ChangedField {
	all := []console.ChangedField{}
	for _, c := range now.configChanges(before) {
		all = append(all, console.ChangedField{Field: c.Field, From: c.From, To: c.To})
	}
	for _, a := range now.agentChanges(before) {
		for _, c := range a.fields {
			all = append(all, console.ChangedField{Agent: a.id, Field: c.Field, From: c.From, To: c.To})
		}
	}
	return all
}

// refusalOf says what is wrong with files that can't be loaded.
func refusalOf(err error) *console.ReloadRefused {
	var invalid *ConfigError
	if !errors.As(err, &invalid) {
		f := fault.Of(err)
		message := f.Public()
		if f.Code == fault.Internal { // of the operator's own file, whose error may be read
			message = err.Error()
		}
		return &console.ReloadRefused{Problems: []console.FileProblem{{Field: f.Field, Problem: message, Remedy: f.Remedy}}}
	}
	r := &console.ReloadRefused{}
	for _, p := range invalid.Problems {
		r.Problems = append(r.Problems, console.FileProblem{File: p.File, Line: p.Line, Field: p.Field, Problem: p.Problem, Remedy: p.Remedy})
	}
	return r
}

// restartNeeded says which fields only a restart puts in force.
func restartNeeded(cfg *Config, fields []string) *console.ReloadRefused {
	r := &console.ReloadRefused{Restart: true}
	for _, field := range fields {
		line, _ := whereIs(cfg.root, field)
		r.Problems = append(r.Problems, console.FileProblem{File: cfg.file, Line: line, Field: field, Problem: "it was changed, and only a restart puts that in force", Remedy: "restart the gateway, or undo the change and reload"})
	}
	return r
}

// refuseReload says that a reload changed nothing: in the log, on record and to who asked.
func (d *Daemon) refuseReload(ctx context.Context, by string, r *console.ReloadRefused) error {
	for _, p := range r.Problems {
		d.o.Log.Error("the configuration was not reloaded, and nothing changed", "by", by, "problem", p.String())
	}
	var fields []string
	for _, p := range r.Problems {
		if name := cmp.Or(p.Field, p.File); !slices.Contains(fields, name) { // a file can have several problems
			fields = append(fields, name)
		}
	}
	why := "nothing changed, because these are wrong: "
	if r.Restart {
		why = "nothing changed, because these need a restart: "
	}
	shown := slices.Clone(r.Problems[:min(len(r.Problems), maxReloadProblems)])
	for i, p := range shown {
		if !isPublic(p.Field) && !r.Restart { // its words may have a value in them
			shown[i].Problem, shown[i].Remedy = "", ""
		}
	}
	detail, _ := json.Marshal(struct { // of strings and numbers: can't fail
		Problems []console.FileProblem `json:"problems"`
		More     int                   `json:"more,omitempty"`
	}{shown, len(r.Problems) - len(shown)})
	if len(detail) > maxChangeDetail {
		detail = nil
	}
	e := audit.Entry{
		Kind: audit.Change, Action: reloadAction, Actor: by, Decision: string(fault.Deny), Code: string(r.Fault().Code), Reason: audit.Clip(why + strings.Join(fields, ", ")), Detail: detail,
	}
	d.refused.Store(&console.ReloadRefusal{At: time.Now().UTC(), By: by, Text: e.Reason})
	if err := d.gate.RecordRefusal(ctx, e); err != nil {
		return errors.Join(r, err)
	}
	return r
}

// Configuration says since when the configuration is in force, and whether the files differ from it.
func (d *Daemon) Configuration() console.Configuration {
	in, cfg := d.loaded.Load(), d.config()
	c := console.Configuration{File: cfg.file, LoadedAt: in.at, LoadedBy: in.by, Refused: d.refused.Load()}
	d.looking.Lock()
	defer d.looking.Unlock()
	if stamp := d.stamp(in, cfg); stamp != d.looked.stamp {
		d.looked = onDisk{stamp: stamp}
		if p, err := d.prepare(); err != nil {
			d.looked.problem = true
		} else {
			for _, f := range p.state.configChanges(in.state) {
				d.looked.differs = append(d.looked.differs, f.Field)
			}
			for _, a := range p.state.agentChanges(in.state) {
				d.looked.differs = append(d.looked.differs, "the agent "+a.id)
			}
		}
	}
	c.Differs, c.Unusable = d.looked.problem || len(d.looked.differs) > 0, d.looked.problem
	c.Changed = d.looked.differs[:min(len(d.looked.differs), maxChanged)]
	return c
}

// stamp changes when the files may have changed, or what is in force has.
func (d *Daemon) stamp(in *loaded, cfg *Config) string {
	var b strings.Builder
	fmt.Fprint(&b, in.at.UnixNano())
	add := func(st fs.FileInfo, err error) {
		if err != nil {
			fmt.Fprint(&b, "\x00-")
			return
		}
		fmt.Fprint(&b, "\x00", st.Name(), st.Size(), st.ModTime().UnixNano(), st.Mode())
	}
	file := cmp.Or(cfg.file, "sallyport.yaml")
	add(os.Stat(file))
	add(os.Stat(filepath.Join(cfg.Dir, envFile)))
	for _, dir := range []string{cfg.path(cmp.Or(cfg.Agents, "agents")), cfg.path(cfg.Policies)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			fmt.Fprint(&b, "\x00-")
			continue
		}
		for _, e := range entries {
			add(e.Info())
		}
	}
	return b.String()
}
