package propose

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/clients"
	"sallyport.example/internal/console"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/store"
	"sallyport.example/lab/replay"
)

const (
	deskDays = 7 * 24 * time.Hour
	deskKeep = time.Minute      // how long a list is shown again: making one takes seconds
	deskMost = 30 * time.Second // for making one
	// added is the action of the entry that says which labels a person took.
	added = "labels.add"
)

// Desk proposes labels on the console of a running gateway, within tighter bounds than From. It looks at the configuration file as it is, which can say more
// than the gateway has read. Safe for concurrent use; lists are made one at a time.
type Desk struct {
	config, data string
	record       func(ctx context.Context, e audit.Entry) error
	now          func() time.Time

	trying  sync.Mutex // held while a configuration is tried
	mu      sync.Mutex
	made    time.Time
	text    []byte // of the configuration that the list is for
	list    console.LabelList
	answers map[string]Option // by digest
}

// NewDesk returns a Desk for a configuration file and a data directory. Record puts on record what a person takes, before the file changes.
func NewDesk(config, data string, record func(ctx context.Context, e audit.Entry) error) *Desk {
	return &Desk{config: config, data: data, record: record, now: time.Now}
}

// Proposed is the list.
func (d *Desk) Proposed(ctx context.Context) (console.LabelList, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.look(ctx)
	return d.list, err
}

// Sections are those of the configuration file that can be tried.
func (d *Desk) Sections(context.Context) (string, error) {
	text, err := d.file()
	if err != nil {
		return "", err
	}
	sections, err := daemon.Sections(text)
	return string(sections), err
}

// file is the configuration file as it is now.
func (d *Desk) file() ([]byte, error) {
	text, err := os.ReadFile(d.config)
	if err != nil {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "The configuration file can't be read.").Try("Look whether it is still there, on the machine of the gateway.")
	}
	return text, nil
}

// Try implements console.LabelDesk.
func (d *Desk) Try(ctx context.Context, sections string, since time.Duration) (console.Trial, error) {
	if !d.trying.TryLock() {
		return console.Trial{}, fault.New(fault.LimitRate, "Another configuration is being tried.").Try("Try again once that is done.")
	}
	defer d.trying.Unlock()
	text, err := d.file()
	if err != nil {
		return console.Trial{}, err
	}
	var configs [2]replay.Config
	for i, given := range []string{"", sections} {
		cfg, err := daemon.WithSections(d.config, text, filepath.Dir(d.config), []byte(given))
		if err == nil {
			configs[i], err = Rules(cfg)
		}
		if err != nil {
			return console.Trial{}, fault.Wrap(err, fault.ConfigurationInvalid, "The configuration can't be tried: %.2000s", err).At("sections").Try("Mend it, and try again.")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, deskMost)
	defer cancel()
	log, err := store.OpenReadOnly(d.data)
	if err != nil {
		return console.Trial{}, err
	}
	defer log.Close()
	c, err := replay.Compare(ctx, log, configs[0], configs[1], d.now().Add(-since), func(int64, int64) {})
	if ctx.Err() != nil {
		return console.Trial{}, fault.New(fault.TimeExceeded, "There is too much recorded work to judge it in time.").Try("Choose a shorter time, or use sallyport flow eval --from in a terminal.")
	}
	if err != nil {
		return console.Trial{}, err
	}
	t := console.Trial{Since: c.Since, Sessions: c.Sessions, Was: console.Judged(c.Was), Now: console.Judged(c.Now), More: c.More, Notes: c.Notes}
	for _, o := range c.Totals {
		t.Operations = append(t.Operations, console.TriedOperation{Operation: o.Operation, Was: console.Judged(o.Was), Now: console.Judged(o.Now), Changed: o.Changed})
	}
	for _, o := range c.Otherwise {
		t.Otherwise = append(t.Otherwise, console.TriedCall{Session: o.Session, Agent: o.Agent, CallID: o.CallID, At: o.At, Operation: o.Operation, Was: string(o.Was), Now: string(o.Now), Reason: o.Reason})
	}
	return t, nil
}

// Rules are those of a configuration, for a replay.
func Rules(c *daemon.Config) (replay.Config, error) {
	risk, err := c.RiskRules()
	return configOf(c, risk), err
}

func configOf(c *daemon.Config, risk policy.Rules) replay.Config {
	return replay.Config{Classify: c.Classifier(nil), Labels: c.Flow.Labels, FreeLevel1: c.Flow.FreeLevel1, Own: c.IdentitiesOf, Unlisted: c.Unlisted, Risk: risk}
}

// look makes the list anew if it is old, or for another configuration. d.mu is held.
func (d *Desk) look(ctx context.Context) error {
	text, err := d.file()
	if err != nil {
		return err
	}
	if !d.made.IsZero() && d.now().Sub(d.made) < deskKeep && bytes.Equal(text, d.text) {
		return nil
	}
	d.made = time.Time{}
	cfg, err := daemon.ParseConfig(d.config, text, filepath.Dir(d.config))
	if err != nil {
		return fault.Wrap(err, fault.ConfigurationInvalid, "The configuration file can't be used as it is now.").Try("See what sallyport lint says of it.")
	}
	ctx, cancel := context.WithTimeout(ctx, deskMost)
	defer cancel()
	log, err := store.OpenReadOnly(d.data)
	if err != nil {
		return err
	}
	defer log.Close()
	l, err := from(ctx, log, cfg, d.now().Add(-deskDays), beside)
	if err != nil {
		return err
	}
	d.list, d.answers = shown(l)
	d.text, d.made = text, d.now()
	return nil
}

// shown is a list as the console shows it, with its answers by their digests.
func shown(l *List) (console.LabelList, map[string]Option) {
	list := console.LabelList{Since: l.Since, Work: l.Work(), Without: Figures(l.Now), Notes: l.Notes}
	answers := map[string]Option{}
	for _, c := range l.Choices {
		choice := console.LabelChoice{Server: c.Server, Work: c.Work(), Why: c.Why}
		for _, operation := range c.Operations {
			_, tool, _ := strings.Cut(operation, ".")
			choice.Tools = append(choice.Tools, tool)
		}
		for _, o := range c.Options {
			a := Additions(o)
			answer := console.LabelAnswer{Digest: o.Digest, Means: o.Means, Frees: o.Frees, Entries: a.Entries(), With: Figures(o.With)}
			for _, server := range a.Catalogue {
				answer.Entries = append(answer.Entries, "upstreams."+server+".labels: catalogue")
			}
			choice.Answers, answers[o.Digest] = append(choice.Answers, answer), o
		}
		list.Choices = append(list.Choices, choice)
	}
	for _, left := range l.Left {
		list.Left = append(list.Left, console.LeftTool(left))
	}
	return list, answers
}

// Take adds an answer to the configuration file.
func (d *Desk) Take(ctx context.Context, digest, by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.look(ctx); err != nil {
		return err
	}
	o, ok := d.answers[digest]
	if !ok {
		return fault.New(fault.Conflict, "This is not proposed any more.").Try("Look at the list as it is now.")
	}
	a := Additions(o)
	a.Note = "from recorded work, " + d.now().UTC().Format(time.DateOnly) + ", by " + by
	next, err := daemon.Added(d.config, d.text, filepath.Dir(d.config), a)
	if err != nil {
		return fault.Wrap(err, fault.Conflict, "The configuration file is written so that labels can't be added.").Try("Paste the entries that are shown into it.")
	}
	detail, err := json.Marshal(map[string]any{"operations": a.Operations, "catalogue": a.Catalogue})
	if err != nil {
		return err
	}
	e := audit.Entry{Kind: audit.Change, Action: added, Actor: by, Door: "console", Decision: "ok", Reason: "labels from recorded work go into the configuration file", Detail: detail}
	if err := d.record(ctx, e); err != nil {
		return err
	}
	if err := clients.Replace(d.config, d.text, next); err != nil {
		e.Decision, e.Reason = "error", "the configuration file was not changed"
		failed := fault.Wrap(err, fault.Conflict, "The configuration file was not changed.").Try("Look at the list as it is now, or add the entries that are shown yourself.")
		if err := d.record(ctx, e); err != nil {
			return err
		}
		return failed
	}
	d.made = time.Time{}
	return nil
}
