// Package propose makes labels from recorded work, as a short list of choices for a person to confirm, and counts by replay what each would change.
//
// Promises: it reads, and writes nothing. Only tools that were called are proposed, with the definition that they had then and have now. What was done in a
// session that held any label is no reason for anything: such calls say that a tool is used, and count in the figures. What a server says about its tools
// proposes, and never decides: a choice that rests on it takes a person's key (Choice.Sure is false). Texts of servers are in it as they are: who shows
// them makes them safe to show.
package propose

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/store"
	"sallyport.example/lab/replay"
)

// Bounds of what is looked at: the newest entries since the time asked for, and the newest sessions among them.
type bounds struct {
	scanned  int64
	sessions int
	entries  int   // of one session
	kept     int64 // bytes of bodies in memory
}

// alone are the bounds of a program of its own, beside those of one that other work depends on.
var (
	alone  = bounds{200_000, 300, 20_000, 64 << 20}
	beside = bounds{20_000, 40, 2_000, 4 << 20}
)

const maxChoices = 40

// Basis is what speaks for a choice.
type Basis string

const (
	Catalogue Basis = "catalogue" // the gateway's own labels for a well-known server
	Record    Basis = "record"    // recorded work, in sessions that held no label
	Server    Basis = "server"    // what the server says about its tools, and nothing else
	Nothing   Basis = "nothing"   // only that the tools are called
)

// List is what recorded work proposes.
type List struct {
	Since    time.Time      `json:"since"`
	Sessions int            `json:"sessions"`
	Now      replay.Counted `json:"now"` // under the configuration as it is, once it enforces
	Choices  []Choice       `json:"choices"`
	Left     []Left         `json:"left"` // tools that were called, and why nothing is proposed for them
	Notes    []string       `json:"notes"`

	config   *daemon.Config
	risk     policy.Rules
	hashes   map[string]string // of the accepted definitions, by operation
	tapes    []*replay.Tape
	baseline []replay.Counted // of each tape
}

// Choice is one question: tools of one server, for which the same is proposed.
type Choice struct {
	Server     string   `json:"server"`
	Operations []string `json:"operations"`
	Calls      int      `json:"calls"` // since the time asked for
	Clean      int      `json:"clean"` // of these, those that ran well in a session that held no label, with this definition and without HIGH risk
	Basis      Basis    `json:"basis"`
	Why        string   `json:"why"`
	Sure       bool     `json:"sure"` // the catalogue or clean work supports the first option, so that it needs no key (--yes)
	Options    []Option `json:"options"`
}

// Option is one answer.
type Option struct {
	Key        string                            `json:"key"`
	Means      string                            `json:"means"`                // what a person says with it
	Operations map[string]daemon.OperationConfig `json:"operations,omitempty"` // entries for the configuration
	Catalogue  []string                          `json:"catalogue,omitempty"`  // servers that get labels: catalogue
	Frees      []string                          `json:"frees,omitempty"`      // tool(argument, …): arguments that need no confirmation
	With       replay.Counted                    `json:"with"`                 // with this option alone
	Digest     string                            `json:"digest"`               // of what it adds, and of the definitions that it is for
}

// Left is a tool that was called and for which nothing is proposed.
type Left struct {
	Operation string `json:"operation"`
	Why       string `json:"why"`
}

// Work is how much the list looked at.
func (l *List) Work() string {
	return sentence.Count(l.Now.Calls, "call") + " in " + sentence.Count(l.Sessions, "session")
}

// Work is how much of it was of these tools.
func (c *Choice) Work() string {
	return fmt.Sprintf("%s, %d in clean sessions", sentence.Count(c.Calls, "call"), c.Clean)
}

// Figures are counts in words.
func Figures(n replay.Counted) string {
	return sentence.Count(n.Questions, "question") + ", " + sentence.Count(n.Refused, "call") + " refused"
}

// From makes the list from what a data directory has on record since a time. A gateway may run on the directory.
func From(ctx context.Context, log *store.Reader, c *daemon.Config, since time.Time) (*List, error) {
	return from(ctx, log, c, since, alone)
}

func from(ctx context.Context, log *store.Reader, c *daemon.Config, since time.Time, most bounds) (*List, error) {
	l := &List{Since: since.UTC(), Choices: []Choice{}, Left: []Left{}, Notes: []string{}, config: c, hashes: map[string]string{}}
	var err error
	if l.risk, err = c.RiskRules(); err != nil {
		return nil, err
	}
	pins, err := log.Pins(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]catalogue.Pin{}
	for _, p := range pins {
		known[p.Operation], l.hashes[p.Operation] = p, p.Hash
	}
	ids, err := l.scan(ctx, log, most)
	if err != nil {
		return nil, err
	}
	uses, keeps := map[string]*use{}, most.kept
	for _, id := range ids {
		t, err := replay.Load(ctx, log, id, most.entries, &keeps)
		if err != nil {
			return nil, err
		}
		entries, whole := t.Recorded()
		if !whole {
			l.Notes = append(l.Notes, "the beginning of "+id+" was archived, so its calls count as those of a session that holds labels")
		}
		if t.Cut() {
			l.Notes = append(l.Notes, fmt.Sprintf("only the first %d entries of %s were looked at", most.entries, id))
		}
		observe(uses, entries, whole, since)
		l.tapes = append(l.tapes, t)
	}
	l.Sessions = len(l.tapes)
	l.Choices, l.Left = choices(c, known, uses)
	if more := len(l.Choices) - maxChoices; more > 0 {
		l.Choices = l.Choices[:maxChoices]
		l.Notes = append(l.Notes, sentence.Count(more, "choice")+" more: run it again after these")
	}
	return l, l.count(ctx)
}

// scan finds the newest sessions with calls of servers' tools, the oldest first.
func (l *List) scan(ctx context.Context, log *store.Reader, most bounds) ([]string, error) {
	size, err := log.Size(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string // by their newest call
	for next := max(log.Oldest(), size-most.scanned); next >= 0 && next < size; {
		page, last, err := log.Entries(ctx, audit.Filter{From: l.Since, Min: next, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if server, _, _ := strings.Cut(e.Operation, "."); !isCall(&e) || e.Session == "" || !l.configured(server) {
				continue
			}
			if i := slices.Index(ids, e.Session); i < 0 {
				ids = append(ids, e.Session)
			} else if i < len(ids)-1 {
				ids = append(slices.Delete(ids, i, i+1), e.Session)
			}
		}
		if next = -1; last >= 0 {
			next = last + 1
		}
	}
	if gone := log.Archived(audit.Filter{From: l.Since}); gone != nil {
		l.Notes = append(l.Notes, fmt.Sprintf("entries before %d were archived and not looked at", gone.Before))
	}
	if size > most.scanned {
		l.Notes = append(l.Notes, fmt.Sprintf("at most the newest %d entries were looked at", most.scanned))
	}
	if more := len(ids) - most.sessions; more > 0 {
		ids = ids[more:]
		l.Notes = append(l.Notes, sentence.Count(more, "older session")+" were not looked at")
	}
	return ids, nil
}

func (l *List) configured(server string) bool {
	_, ok := l.config.Upstreams[server]
	return ok
}

// count fills in the figures.
func (l *List) count(ctx context.Context) error {
	rules := l.rules(l.config)
	for _, t := range l.tapes {
		n, err := t.Count(ctx, rules, l.Since)
		if err != nil {
			return err
		}
		l.baseline = append(l.baseline, n)
		l.Now = l.Now.Add(n)
	}
	refuses := false
	for i := range l.Choices {
		for j := range l.Choices[i].Options {
			o := &l.Choices[i].Options[j]
			var err error
			if o.With, err = l.Count(ctx, *o); err != nil {
				return err
			}
			if o.Digest, err = l.digest(&l.Choices[i], o); err != nil {
				return err
			}
			refuses = refuses || o.With.Refused > l.Now.Refused
		}
	}
	if refuses {
		l.Notes = append(l.Notes, "where an answer has more calls refused: once a session has read private data, tools without a label are refused; answer the other questions, too")
	}
	return nil
}

// digest is of what an option adds, and of the definitions that it was proposed for.
func (l *List) digest(c *Choice, o *Option) (string, error) {
	definitions := map[string]string{}
	for _, operation := range c.Operations {
		definitions[operation] = l.hashes[operation]
	}
	b, err := json.Marshal([]any{o.Operations, o.Catalogue, definitions})
	return call.HashBytes(b), err
}

// Count judges the recorded calls anew, with these options taken.
func (l *List) Count(ctx context.Context, taken ...Option) (replay.Counted, error) {
	a := Additions(taken...)
	rules, total := l.rules(l.config.With(a)), l.Now
	for i, t := range l.tapes {
		if !slices.ContainsFunc(t.Called(l.Since), func(operation string) bool {
			server, _, _ := strings.Cut(operation, ".")
			_, named := a.Operations[operation]
			return named || slices.Contains(a.Catalogue, server)
		}) {
			continue
		}
		n, err := t.Count(ctx, rules, l.Since)
		if err != nil {
			return replay.Counted{}, err
		}
		total = total.Without(l.baseline[i]).Add(n)
	}
	return total, nil
}

// Additions are the options as additions to a configuration.
func Additions(taken ...Option) daemon.Additions {
	a := daemon.Additions{Operations: map[string]daemon.OperationConfig{}}
	for _, o := range taken {
		maps.Copy(a.Operations, o.Operations)
		a.Catalogue = append(a.Catalogue, o.Catalogue...)
	}
	return a
}

// rules are what a configuration says, for a replay, with the definitions that were accepted.
func (l *List) rules(c *daemon.Config) replay.Config { return configOf(c, l.risk).Pinned(l.hashes) }
