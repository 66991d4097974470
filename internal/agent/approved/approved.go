// Package approved holds which declarations of agents people approved.
//
// Promises: a declaration counts only with the digest that was approved, and one agent has one such digest at a time, so any change needs approving again,
// also one back to what was approved before. An approval names the digest that the person was shown. It counts once it is durable, with its entry; reading
// waits for nothing. Where two people have to approve, they are two by all their names, and a vote that waits for another counts until it expires, and only while
// its person can answer. What only a rule approved says so.
package approved

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/diff"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sentence"
)

// The rules that approve. Everything else that approves is a person.
const (
	ByBuiltIn = "rule:built-in" // the gateway's own agent, which is no file of anybody's
	ByUpgrade = "rule:upgrade"  // what ran before there were approvals
)

// Vote is one person's yes to a declaration.
type Vote struct {
	Person  string    `json:"person"`
	Aliases []string  `json:"aliases,omitempty"` // every other name of the person, on that day
	At      time.Time `json:"at"`
	Own     bool      `json:"own"` // the person wrote or loaded the declaration, or nobody else could have approved it
	Reason  string    `json:"reason,omitempty"`
}

// Word is what was said of one version of a declaration.
type Word struct {
	Digest      string          `json:"digest"`
	Declaration json.RawMessage `json:"declaration"` // canonical
	Needed      int             `json:"needed"`
	Votes       []Vote          `json:"votes"`
	Rule        string          `json:"rule,omitempty"` // the rule that approved it; "": people
	At          time.Time       `json:"at"`             // of the newest vote, or when the rule approved it
	// SignedBy names the key of the gateway that the votes were given at, and SignedAt is when it signed them; "": they were given here.
	SignedBy string    `json:"signed_by,omitempty"`
	SignedAt time.Time `json:"signed_at,omitzero"`
}

// Record is what is kept of one agent.
type Record struct {
	Agent   string `json:"agent"`
	InForce *Word  `json:"in_force,omitempty"` // the one digest that counts
	Waiting *Word  `json:"waiting,omitempty"`  // a digest that more people have to approve
}

// Store keeps records. Each method is one transaction, durable when it returns nil. Errors are fault errors. Safe for concurrent use.
type Store interface {
	// AgentApprovals returns every record, by agent. SaveAgentApprovals writes records with their entries.
	AgentApprovals(ctx context.Context) (map[string]Record, error)
	SaveAgentApprovals(ctx context.Context, records []Record, entries ...audit.Entry) error
}

// Options are the options of New. Every field without a word about that is needed.
type Options struct {
	Store  Store
	Agents func() agent.Set // those that are declared now
	// Needed is how many people have to approve a declaration.
	Needed func(d *agent.Declaration) int
	// Voter is who a person is today; false for people nobody knows.
	Voter func(person string) (approval.Voter, bool)
	// People are all who are known today, and Expires is how long a vote waits for another.
	People  func() []approval.Voter
	Expires func() time.Duration
	// LoadedBy is who loaded the agent's declaration as it is now, as kind:id.
	LoadedBy func(agent string) string
	Now      func() time.Time
	// Changed is called after an approval. It must not block.
	Changed func(agent string)

	// Signer signs approvals for other gateways, Trusted are the public keys of those whose approvals are taken over, and LastAside is when the agent was put
	// aside last; zero: never. They are needed by Export and Import alone.
	Signer    *audit.Signer
	Trusted   func() []string
	LastAside func(ctx context.Context, agent string) (time.Time, error)
}

// Book holds the approvals. Make it with New. Safe for concurrent use.
type Book struct {
	o Options

	saving  sync.Mutex   // held while approvals are written, before mu
	mu      sync.RWMutex // guards byAgent
	byAgent map[string]Record
}

// New reads the approvals.
func New(ctx context.Context, o Options) (*Book, error) {
	all, err := o.Store.AgentApprovals(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading which declarations are approved: %w", err)
	}
	return &Book{o: o, byAgent: all}, nil
}

// State is how a declaration stands.
type State string

const (
	Approved   State = "approved"
	Waiting    State = "waiting"    // more people have to approve it
	Changed    State = "changed"    // another version was approved
	Unapproved State = "unapproved" // no version ever was
)

// Standing is how a declaration stands, and what was said of it.
type Standing struct {
	State  State  `json:"state" enum:"approved,waiting,changed,unapproved"`
	Text   string `json:"text"`
	Digest string `json:"digest"` // as it is loaded
	Needed int    `json:"needed" doc:"how many people have to approve it"`
	Votes  []Vote `json:"votes" doc:"those that count"`
	Rule   string `json:"rule,omitempty" doc:"the rule that approved it; absent: people"`
	// StillNeeded is how many more people have to approve it, and MayApprove who can. ExpiresAt is when the first of the votes stops counting.
	StillNeeded int       `json:"still_needed"`
	MayApprove  []string  `json:"may_approve,omitempty" doc:"who can give a vote that is still needed"`
	ExpiresAt   time.Time `json:"expires_at,omitzero" doc:"when the oldest of the votes stops counting, unless enough have come by then"`
	// Before is the digest of the version that was approved, and BeforeVersion that version, where it is another one.
	Before        string `json:"approved_digest,omitempty"`
	BeforeVersion string `json:"approved_version,omitempty"`
	LoadedBy      string `json:"loaded_by,omitempty"`
}

// record is what is kept of an agent; a trial agent stands as the agent that it is of.
func (b *Book) record(d *agent.Declaration) (Record, *agent.Declaration) {
	if id := d.JudgedAs(); id != d.AgentID {
		if of, ok := b.o.Agents().Get(id); ok {
			d = of
		}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.byAgent[d.AgentID], d
}

// Approved tells whether a declaration may be used. It waits for nothing.
func (b *Book) Approved(d *agent.Declaration) bool {
	r, d := b.record(d)
	return d.BuiltIn() || r.InForce != nil && r.InForce.Digest == d.Digest
}

// Of says how a declaration stands.
func (b *Book) Of(d *agent.Declaration) Standing {
	r, d := b.record(d)
	s := Standing{Digest: d.Digest, LoadedBy: b.o.LoadedBy(d.AgentID), Votes: []Vote{}}
	if d.BuiltIn() {
		s.State, s.Rule, s.Text = Approved, ByBuiltIn, "It is the gateway's own agent, and approved by rule."
		return s
	}
	if r.InForce != nil && r.InForce.Digest == d.Digest {
		s.State, s.Needed, s.Votes, s.Rule, s.Text = Approved, r.InForce.Needed, r.InForce.Votes, r.InForce.Rule, "Approved by "+r.InForce.by()+"."
		return s
	}
	s.State, s.Needed, s.Text = Unapproved, b.o.Needed(d), "Nobody has approved it."
	if r.InForce != nil {
		s.State, s.Before, s.BeforeVersion = Changed, r.InForce.Digest, r.InForce.version()
		s.Text = "It changed since " + r.InForce.by() + " approved version " + s.BeforeVersion + "."
	}
	if w := r.Waiting; w != nil && w.Digest == d.Digest {
		counting, gone := b.counting(w)
		if len(counting) > 0 {
			s.State, s.Votes, s.ExpiresAt = Waiting, counting, counting[0].At.Add(b.o.Expires())
			s.Text = fmt.Sprintf("%s approved it, and %d have to.", (&Word{Votes: counting}).by(), s.Needed)
		}
		for _, why := range gone {
			s.Text += " " + why
		}
	}
	s.StillNeeded = max(1, s.Needed-len(s.Votes))
	for _, p := range b.o.People() {
		if p.Answers() && !voted(s.Votes, p) {
			s.MayApprove = append(s.MayApprove, p.Person)
		}
	}
	slices.Sort(s.MayApprove)
	s.Text += s.still()
	return s
}

// shownMost is how many people a text names.
const shownMost = 5

// still says what is missing, in words.
func (s *Standing) still() string {
	who := ", and nobody else can. List another person with the role approver under people"
	if n := len(s.MayApprove); n >= s.StillNeeded {
		who = " (" + sentence.Names(s.MayApprove[:min(n, shownMost)])
		if n > shownMost {
			who += fmt.Sprintf(" and %d more", n-shownMost)
		}
		who += ")"
	}
	text := fmt.Sprintf(" Still needed: %s%s.", sentence.Count(s.StillNeeded, "person"), who)
	if !s.ExpiresAt.IsZero() {
		text += " The first vote counts until " + s.ExpiresAt.UTC().Format(time.RFC3339) + "."
	}
	return text
}

// counting are the votes of a word that waits which count today, and why others don't.
func (b *Book) counting(w *Word) (votes []Vote, gone []string) {
	now, life := b.o.Now(), b.o.Expires()
	for _, v := range w.Votes {
		known, ok := b.o.Voter(v.Person)
		switch until := v.At.Add(life); {
		case !now.Before(until):
			gone = append(gone, "The vote of "+v.Person+" expired at "+until.UTC().Format(time.RFC3339)+".")
		case !ok || !known.Answers():
			gone = append(gone, "The vote of "+v.Person+" counts no more: only who has the role approver or admin can approve.")
		case voted(votes, known):
			gone = append(gone, "The vote of "+v.Person+" counts no more: the configuration says by now that another voter is the same person.")
		default:
			v.Aliases = slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.Aliases, known.Aliases)))) // by the names of today, too
			votes = append(votes, v)
		}
	}
	return votes, gone
}

// voted tells whether one of the votes is the person's, by any of their names.
func voted(votes []Vote, by approval.Voter) bool {
	return slices.ContainsFunc(votes, func(v Vote) bool { return by.Same(approval.Voter{Person: v.Person, Aliases: v.Aliases}) })
}

// by names who approved.
func (w *Word) by() string {
	if w.Rule != "" {
		return w.Rule
	}
	var people []string
	for _, v := range w.Votes {
		name := v.Person
		if v.Own {
			name += " (their own)"
		}
		people = append(people, name)
	}
	text := strings.Join(people, " and ")
	if w.SignedBy != "" {
		text += " (signed by " + w.SignedBy + ")"
	}
	return text
}

// version is the version that the declaration names.
func (w *Word) version() string {
	var d struct {
		Version string `json:"version"`
	}
	_ = json.Unmarshal(w.Declaration, &d) // without one there is none to name
	return d.Version
}

// Refusal says why calls of an agent are refused, and what a person can do; "" where its declaration is approved.
func (b *Book) Refusal(d *agent.Declaration) (reason, remedy string) {
	if b.Approved(d) {
		return "", ""
	}
	_, d = b.record(d)
	return "The declaration of the agent " + d.AgentID + " is not approved. " + b.Of(d).Text,
		fmt.Sprintf("A person with the role approver has to look at it and approve it, in the console or with: sallyport agents diff %s, then sallyport agents approve %s --digest %s", d.AgentID, d.AgentID, d.Digest)
}

// Difference is what a person decides on: the declaration as it is, compared with the one that was approved.
type Difference struct {
	AgentID  string       `json:"agent_id"`
	Digest   string       `json:"digest"`
	Against  string       `json:"against,omitempty" doc:"the digest that was approved; absent: none was, and all fields are new"`
	Approval string       `json:"approval" doc:"how it stands, and who still has to approve it"`
	Fields   []diff.Field `json:"fields"`
	// Breaking is what in the output schema breaks who reads outputs. Blocked says why the declaration can't be approved as it is.
	Breaking []string `json:"breaking,omitempty"`
	Blocked  string   `json:"blocked,omitempty"`
}

// Difference compares the declaration with what was approved of the agent.
func (b *Book) Difference(d *agent.Declaration) (Difference, error) {
	r, d := b.record(d)
	now, err := canonical(d)
	if err != nil {
		return Difference{}, err
	}
	out := Difference{AgentID: d.AgentID, Digest: d.Digest, Approval: b.Of(d).Text}
	var before json.RawMessage
	if r.InForce != nil {
		out.Against, before = r.InForce.Digest, r.InForce.Declaration
	}
	out.Fields = diff.Fields(before, now)
	if before != nil {
		out.Breaking, out.Blocked = breaking(before, d)
	}
	return out, nil
}

// breaking says what in the output schema breaks readers, and why that can't be approved: the version has to say it.
func breaking(before json.RawMessage, d *agent.Declaration) (found []string, blocked string) {
	var was struct {
		OutputSchema        json.RawMessage `json:"outputSchema"`
		OutputSchemaVersion string          `json:"outputSchemaVersion"`
	}
	if json.Unmarshal(before, &was) != nil {
		return nil, "what was approved before can't be read"
	}
	found = agent.Breaking(was.OutputSchema, d.OutputSchema)
	switch before, now := was.OutputSchemaVersion, d.OutputSchemaVersion; {
	case len(found) == 0 || agent.NewMajor(before, now):
	case now == "":
		blocked = fmt.Sprintf("The output schema breaks who reads outputs (%s), and no outputSchemaVersion says so: write one with a new major.", found[0])
	default:
		blocked = fmt.Sprintf("The output schema breaks who reads outputs (%s), and outputSchemaVersion %s has the same major as %s: raise it.", found[0], now, before)
	}
	return found, blocked
}

func canonical(d *agent.Declaration) (json.RawMessage, error) {
	fields, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return call.Canonical(fields, call.DefaultLimits())
}

// maxReason bounds the reason of an approval, in bytes.
const maxReason = 2000

// Approve records a person's yes to an agent's declaration, named by its digest. by is the person with the roles of the credential.
func (b *Book) Approve(ctx context.Context, id, digest, reason string, by approval.Voter) (Standing, error) {
	known, ok := b.o.Voter(by.Person)
	switch {
	case !ok:
		return Standing{}, fault.New(fault.RoleMissing, "Nobody knows who %.80s is: who approves must be listed under people in sallyport.yaml.", by.Person)
	case !by.Answers():
		return Standing{}, fault.New(fault.RoleMissing, "Only the roles approver and admin can approve a declaration.")
	case len(reason) > maxReason:
		return Standing{}, fault.New(fault.RequestMalformed, "at most %d bytes", maxReason).At("reason")
	}
	by.Aliases, by.Others = append(slices.Clone(by.Aliases), known.Aliases...), known.Others
	b.saving.Lock()
	defer b.saving.Unlock()
	d, ok := b.o.Agents().Get(id)
	if !ok || d.JudgedAs() != id {
		return Standing{}, fault.New(fault.NotFound, "No agent %.80q is declared.", id).At("id")
	}
	r, _ := b.record(d)
	next, e, err := b.vote(r, d, digest, reason, by)
	if err != nil {
		return Standing{}, err
	}
	if err := b.save(ctx, []Record{next}, e); err != nil {
		return Standing{}, err
	}
	return b.Of(d), nil
}

// vote returns the record with one more yes, and the entry about it.
func (b *Book) vote(r Record, d *agent.Declaration, digest, reason string, by approval.Voter) (Record, audit.Entry, error) {
	switch {
	case d.BuiltIn():
		return r, audit.Entry{}, fault.New(fault.Conflict, "The agent %s is the gateway's own, and approved by rule.", d.AgentID)
	case digest != d.Digest:
		return r, audit.Entry{}, fault.New(fault.ApprovalMismatch, "The declaration that is loaded has the digest %s.", d.Digest).At("digest").Try("Look at it again: sallyport agents diff %s", d.AgentID)
	case r.InForce != nil && r.InForce.Digest == digest && r.InForce.Rule == "":
		return r, audit.Entry{}, fault.New(fault.Conflict, "%s approved this declaration already.", r.InForce.by())
	}
	now, broken, blocked, err := r.followedBy(d)
	if err != nil {
		return r, audit.Entry{}, err
	}
	if blocked != "" {
		return r, audit.Entry{}, fault.New(fault.Conflict, "%s", blocked).At("digest")
	}
	w := Word{Digest: digest, Declaration: now}
	if r.Waiting != nil && r.Waiting.Digest == digest {
		w.Votes, _ = b.counting(r.Waiting)
	}
	if voted(w.Votes, by) {
		return r, audit.Entry{}, fault.New(fault.Conflict, "You have approved this declaration already, and another person has to.")
	}
	at, loader := b.o.Now(), b.o.LoadedBy(d.AgentID)
	w.Needed, w.At = b.o.Needed(d), at
	vote := Vote{Person: by.Person, Aliases: by.Aliases, At: at, Reason: reason, Own: by.Is(loader) || !strings.HasPrefix(loader, "person:") && by.Alone()}
	w.Votes = append(w.Votes, vote)
	e := entry(d, &w, "person:"+by.Person, reason, r.InForce)
	e.Detail, _ = json.Marshal(detail{ // of plain values: can't fail
		Digest: digest, Version: d.Version, Own: &vote.Own, LoadedBy: loader, Needed: w.Needed, Votes: len(w.Votes), InForce: len(w.Votes) >= w.Needed, Before: r.before(), Breaking: broken[:min(len(broken), 20)],
	})
	if len(w.Votes) >= w.Needed {
		r.InForce, r.Waiting = &w, nil
	} else {
		r.Waiting = &w
	}
	r.Agent = d.AgentID
	return r, e, nil
}

// followedBy returns the fields of a declaration that is to come into force, how its output schema breaks readers of the one in force, and why it can't for that.
func (r Record) followedBy(d *agent.Declaration) (fields json.RawMessage, broken []string, blocked string, err error) {
	if fields, err = canonical(d); err == nil && r.InForce != nil {
		broken, blocked = breaking(r.InForce.Declaration, d)
	}
	return fields, broken, blocked, err
}

// detail is what an entry about an approval says.
type detail struct {
	Digest   string   `json:"digest"`
	Version  string   `json:"version"`
	Own      *bool    `json:"own,omitempty"`
	LoadedBy string   `json:"loaded_by,omitempty"`
	Needed   int      `json:"needed,omitempty"`
	Votes    int      `json:"votes,omitempty"`
	InForce  bool     `json:"in_force"`
	Before   string   `json:"before,omitempty"`
	Breaking []string `json:"breaking,omitempty"`

	SignedBy string    `json:"signed_by,omitempty"`
	SignedAt time.Time `json:"signed_at,omitzero"`
}

func (r Record) before() string {
	if r.InForce == nil {
		return ""
	}
	return r.InForce.Digest
}

// Action is the action of the entries about approvals of declarations.
const Action = "agent.approve"

func entry(d *agent.Declaration, w *Word, by, reason string, before *Word) audit.Entry {
	e := audit.Entry{Kind: audit.Change, Action: Action, Agent: d.AgentID, Actor: by, Decision: "ok", Reason: audit.Clip(reason)}
	for _, v := range w.Votes {
		e.Approvers = append(e.Approvers, v.Person)
	}
	if e.Reason == "" && before != nil {
		e.Reason = "version " + d.Version + " in place of " + before.version()
	}
	return e
}

// Adopt approves declarations by a rule, where nothing is known of their agents yet: ByUpgrade for what ran before there were approvals.
func (b *Book) Adopt(ctx context.Context, rule string, declarations ...*agent.Declaration) error {
	return b.adopt(ctx, declarations, func(d *agent.Declaration, w *Word) (string, string) {
		w.Rule = rule
		return rule, "It ran before declarations were approved, and runs on until its next change."
	})
}

// AdoptPrograms approves by ByUpgrade the programs that belong to declarations which people approved before there was more than the name of a program in
// them: those declarations have the digests that were approved, but for the programs.
func (b *Book) AdoptPrograms(ctx context.Context, declarations ...*agent.Declaration) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	var records []Record
	var entries []audit.Entry
	for _, d := range declarations {
		r, _ := b.record(d)
		if r.InForce == nil || r.InForce.Digest == d.Digest || r.InForce.Digest != d.WithoutFiles() {
			continue
		}
		fields, err := canonical(d)
		if err != nil {
			return err
		}
		w := Word{Digest: d.Digest, Declaration: fields, At: b.o.Now(), Votes: []Vote{}, Rule: ByUpgrade}
		e := entry(d, &w, ByUpgrade, "What it runs belongs to the declaration since this version; it runs on until its next change. Before, approved by "+r.InForce.by()+".", nil)
		e.Detail, _ = json.Marshal(detail{Digest: d.Digest, Version: d.Version, InForce: true, Before: r.before()}) // of plain values: can't fail
		r.Agent, r.InForce = d.AgentID, &w
		records, entries = append(records, r), append(entries, e)
	}
	return b.save(ctx, records, entries...)
}

// Write approves declarations that somebody has just written to a new data directory, by is who: the account at the terminal.
func (b *Book) Write(ctx context.Context, by string, declarations ...*agent.Declaration) error {
	return b.adopt(ctx, declarations, func(d *agent.Declaration, w *Word) (string, string) {
		w.Needed, w.Votes = 1, []Vote{{Person: by, At: w.At, Own: true}}
		return by, "It was written to a new installation."
	})
}

func (b *Book) adopt(ctx context.Context, declarations []*agent.Declaration, say func(*agent.Declaration, *Word) (by, reason string)) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	var records []Record
	var entries []audit.Entry
	for _, d := range declarations {
		if r, _ := b.record(d); r.InForce != nil || r.Waiting != nil || d.BuiltIn() {
			continue
		}
		fields, err := canonical(d)
		if err != nil {
			return err
		}
		w := Word{Digest: d.Digest, Declaration: fields, At: b.o.Now(), Votes: []Vote{}}
		by, reason := say(d, &w)
		e := entry(d, &w, by, reason, nil)
		own := len(w.Votes) > 0
		about := detail{Digest: d.Digest, Version: d.Version, InForce: true, Needed: w.Needed, Votes: len(w.Votes)}
		if own {
			about.Own = &own
		}
		e.Detail, _ = json.Marshal(about) // of plain values: can't fail
		records, entries = append(records, Record{Agent: d.AgentID, InForce: &w}), append(entries, e)
	}
	if len(records) == 0 {
		return nil
	}
	return b.save(ctx, records, entries...)
}

// atOnce is how many records are written in one transaction.
const atOnce = 50

// save writes records, and takes over what is written. saving is held.
func (b *Book) save(ctx context.Context, records []Record, entries ...audit.Entry) error {
	for from := 0; from < len(records); from += atOnce {
		to := min(from+atOnce, len(records))
		if err := b.o.Store.SaveAgentApprovals(context.WithoutCancel(ctx), records[from:to], entries[from:to]...); err != nil {
			return err
		}
		b.mu.Lock()
		next := maps.Clone(b.byAgent)
		for _, r := range records[from:to] {
			next[r.Agent] = r
		}
		b.byAgent = next
		b.mu.Unlock()
		for _, r := range records[from:to] {
			b.o.Changed(r.Agent)
		}
	}
	return nil
}

// Records are all that is kept, by agent.
func (b *Book) Records() map[string]Record {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.byAgent)
}

// Pending are the declared agents whose declarations are not approved, by id.
func (b *Book) Pending() (ids []string) {
	for _, d := range b.o.Agents().All() {
		if !b.Approved(d) {
			ids = append(ids, d.AgentID)
		}
	}
	return ids
}
