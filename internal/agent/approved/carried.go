package approved

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// Approvals that one gateway's people gave are carried to another: signed with the key of the first one's log, and taken over by the second where its
// configuration names that key. What is taken over approves what its own people could have approved, and nothing more: the digest that is loaded, with as many
// votes as it takes here, of people who can approve here.

const (
	// bundleKind is the first line of what is signed.
	bundleKind = "sallyport-approvals v1"
	// MaxBundle bounds a bundle, in bytes.
	MaxBundle = 1 << 20
	// BundleLife is how long a bundle can be taken over, and maxBundleLife the longest.
	BundleLife    = 7 * 24 * time.Hour
	maxBundleLife = 90 * 24 * time.Hour
	// maxAhead is how far the clock of another gateway may be ahead.
	maxAhead = 5 * time.Minute
)

// ExportAction is the action of the entries about approvals that were exported.
const ExportAction = "agent.export"

// bundle is what is signed.
type bundle struct {
	At        time.Time `json:"at"`
	Expires   time.Time `json:"expires"`
	Approvals []carried `json:"approvals"`
}

// carried is one approval in a bundle.
type carried struct {
	Agent   string `json:"agent"`
	Version string `json:"version"` // for people
	Digest  string `json:"digest"`
	Votes   []Vote `json:"votes"`
}

// Bundle are approvals for other gateways.
type Bundle struct {
	Text    string    `json:"bundle" doc:"what agents approvals import takes"`
	Agents  []string  `json:"agents" doc:"whose approvals are in it"`
	Key     string    `json:"key" doc:"the public key under which it is accepted: declarations.trusted of the other gateway"`
	Expires time.Time `json:"expires_at"`
}

// Export signs the approvals of agents; none named: of all that people approved as they are loaded. life is how long they can be taken over; 0: BundleLife.
func (b *Book) Export(ctx context.Context, by string, ids []string, life time.Duration) (Bundle, error) {
	if life == 0 {
		life = BundleLife
	}
	if life < 0 || life > maxBundleLife {
		return Bundle{}, fault.New(fault.RequestMalformed, "must be between 1 second and 90 days").At("expires_in")
	}
	now := b.o.Now()
	out, in := Bundle{Agents: []string{}, Key: b.o.Signer.PublicKey(), Expires: now.Add(life)}, bundle{At: now, Expires: now.Add(life)}
	for _, d := range b.o.Agents().All() {
		r, _ := b.record(d)
		named := slices.Contains(ids, d.AgentID)
		if len(ids) > 0 && !named {
			continue
		}
		if r.InForce == nil || r.InForce.Digest != d.Digest || len(r.InForce.Votes) == 0 || r.InForce.Rule != "" || r.InForce.SignedBy != "" {
			if named && r.InForce != nil && r.InForce.SignedBy != "" {
				return Bundle{}, fault.New(fault.Conflict, "The approval of %s came from another gateway, which has to sign it itself.", d.AgentID).At("agents").Try("Export it there.")
			}
			if named {
				return Bundle{}, fault.New(fault.Conflict, "People have not approved the declaration of %s as it is loaded, so there is nothing to export.", d.AgentID).At("agents")
			}
			continue
		}
		out.Agents = append(out.Agents, d.AgentID)
		in.Approvals = append(in.Approvals, carried{d.AgentID, d.Version, d.Digest, r.InForce.Votes})
	}
	for _, id := range ids {
		if !slices.Contains(out.Agents, id) {
			return Bundle{}, fault.New(fault.NotFound, "No agent %.80q is declared.", id).At("agents")
		}
	}
	if len(out.Agents) == 0 {
		return Bundle{}, fault.New(fault.Conflict, "People have approved no declaration as it is loaded, so there is nothing to export.")
	}
	line, err := call.Encode(in)
	if err != nil {
		return Bundle{}, err
	}
	signed, err := b.o.Signer.SignText(bundleKind, string(line))
	if err != nil {
		return Bundle{}, err
	}
	if len(signed) > MaxBundle {
		return Bundle{}, fault.New(fault.RequestMalformed, "The approvals have more than %d bytes together: name fewer agents.", MaxBundle).At("agents")
	}
	out.Text = string(signed)
	var entries []audit.Entry
	for _, c := range in.Approvals {
		e := audit.Entry{Kind: audit.Change, Action: ExportAction, Agent: c.Agent, Actor: by, Decision: "ok"}
		e.Detail, _ = json.Marshal(map[string]any{"digest": c.Digest, "bundle_sha256": call.HashBytes(signed), "expires_at": in.Expires}) // of plain values: can't fail
		entries = append(entries, e)
	}
	return out, b.o.Store.SaveAgentApprovals(context.WithoutCancel(ctx), nil, entries...)
}

// Imported says what became of a bundle.
type Imported struct {
	SignedBy string      `json:"signed_by" doc:"the name of the key"`
	SignedAt time.Time   `json:"signed_at"`
	Agents   []TakenOver `json:"agents"`
}

// TakenOver is what became of one approval of a bundle.
type TakenOver struct {
	AgentID string `json:"agent_id"`
	Digest  string `json:"digest"`
	Taken   bool   `json:"imported"`
	Why     string `json:"why,omitempty" doc:"why it was not"`
}

// Import takes over the approvals of a bundle, those of them that hold here. by is who brings it.
func (b *Book) Import(ctx context.Context, by, text string) (Imported, error) {
	keys := b.o.Trusted()
	switch {
	case len(keys) == 0:
		return Imported{}, fault.New(fault.Conflict, "This gateway accepts approvals of no other.").Try("An operator names the other gateway's key (its audit.pub) under declarations.trusted.")
	case len(text) > MaxBundle:
		return Imported{}, fault.New(fault.RequestMalformed, "has more than %d bytes", MaxBundle).At("bundle")
	}
	line, key, err := audit.OpenText([]byte(text), bundleKind, keys)
	if errors.Is(err, audit.ErrUntrusted) {
		return Imported{}, fault.New(fault.PermissionDenied, "It is not signed with a key that declarations.trusted names, or it was changed since.").At("bundle")
	}
	if err != nil {
		return Imported{}, fault.Wrap(err, fault.RequestMalformed, "is not what agents approvals export writes: %v", err).At("bundle")
	}
	var in bundle
	if err := call.Decode([]byte(line), &in); err != nil {
		return Imported{}, fault.Wrap(err, fault.RequestMalformed, "is not what agents approvals export writes").At("bundle")
	}
	now := b.o.Now()
	switch {
	case in.At.After(now.Add(maxAhead)):
		return Imported{}, fault.New(fault.RequestMalformed, "was signed at %s, which is still to come: compare the clocks.", in.At.Format(time.RFC3339)).At("bundle")
	case !now.Before(in.Expires) || in.Expires.Sub(in.At) > maxBundleLife:
		return Imported{}, fault.New(fault.ApprovalExpired, "It could be taken over until %s.", in.Expires.Format(time.RFC3339)).At("bundle").Try("Export it again.")
	}
	name, _, _ := strings.Cut(key, "+")
	out := Imported{SignedBy: name, SignedAt: in.At, Agents: []TakenOver{}}
	b.saving.Lock()
	defer b.saving.Unlock()
	var records []Record
	var entries []audit.Entry
	for _, c := range in.Approvals {
		t := TakenOver{AgentID: c.Agent, Digest: c.Digest}
		next, e, err := b.takeOver(ctx, c, in.At, name, by)
		if t.Taken = err == nil; t.Taken {
			about, _ := json.Marshal(map[string]string{"bundle_sha256": call.HashBytes([]byte(text)), "key": strings.TrimSpace(key)})
			e.Detail = merged(e.Detail, about)
			records, entries = append(records, next), append(entries, e)
		} else {
			t.Why = fault.Of(err).Public()
		}
		out.Agents = append(out.Agents, t)
	}
	if len(records) == 0 {
		return out, nil
	}
	return out, b.save(ctx, records, entries...)
}

// merged are the members of two objects.
func merged(a, b json.RawMessage) json.RawMessage {
	all := map[string]json.RawMessage{}
	_, _ = json.Unmarshal(a, &all), json.Unmarshal(b, &all) // both are ours
	out, _ := json.Marshal(all)
	return out
}

// takeOver is the record of an agent with an approval that another gateway signed, and the entry about it. saving is held.
func (b *Book) takeOver(ctx context.Context, c carried, signed time.Time, name, by string) (Record, audit.Entry, error) {
	d, ok := b.o.Agents().Get(c.Agent)
	if !ok || d.JudgedAs() != c.Agent || agent.Base(c.Agent) != c.Agent {
		return Record{}, audit.Entry{}, fault.New(fault.NotFound, "No agent %.80q is declared here.", c.Agent)
	}
	r, _ := b.record(d)
	refuse := func(code fault.Code, format string, args ...any) (Record, audit.Entry, error) {
		return r, audit.Entry{}, fault.New(code, format, args...)
	}
	switch {
	case d.BuiltIn():
		return refuse(fault.Conflict, "The agent is the gateway's own.")
	case c.Digest != d.Digest:
		return refuse(fault.ApprovalMismatch, "The declaration that is loaded here has the digest %s.", d.Digest)
	case r.InForce != nil && r.InForce.Digest == c.Digest && r.InForce.Rule == "":
		return refuse(fault.Conflict, "It is approved here already.")
	case r.InForce != nil && !signed.After(r.InForce.since()):
		return refuse(fault.Conflict, "Something newer was approved here at %s: an approval from before that counts no more.", r.InForce.since().Format(time.RFC3339))
	}
	switch last, err := b.o.LastAside(ctx, c.Agent); {
	case err != nil:
		return r, audit.Entry{}, err
	case !signed.After(last):
		return refuse(fault.AgentQuarantined, "The agent was put aside at %s, after this was signed.", last.Format(time.RFC3339))
	}
	now, broken, blocked, err := r.followedBy(d)
	if err != nil {
		return r, audit.Entry{}, err
	}
	if blocked != "" {
		return refuse(fault.Conflict, "%s", blocked)
	}
	loader := b.o.LoadedBy(c.Agent)
	w := Word{Digest: c.Digest, Declaration: now, Needed: b.o.Needed(d), At: b.o.Now(), SignedBy: name, SignedAt: signed}
	for _, v := range c.Votes {
		known, ok := b.o.Voter(v.Person)
		if !ok || !known.Answers() || v.At.After(signed) || len(v.Reason) > maxReason {
			continue // nobody who can approve here
		}
		known.Aliases = append(slices.Clone(known.Aliases), v.Aliases...)
		if voted(w.Votes, known) {
			continue
		}
		w.Votes = append(w.Votes, Vote{Person: v.Person, Aliases: known.Aliases, At: v.At, Reason: v.Reason, Own: v.Own || known.Is(loader)})
	}
	if len(w.Votes) < w.Needed {
		return refuse(fault.RoleMissing, "It takes %d people here who have the role approver, and it has %d of them.", w.Needed, len(w.Votes))
	}
	e := entry(d, &w, by, "signed by "+name+" at "+signed.UTC().Format(time.RFC3339), r.InForce)
	own := slices.ContainsFunc(w.Votes, func(v Vote) bool { return v.Own })
	e.Detail, _ = json.Marshal(detail{ // of plain values: can't fail
		Digest: c.Digest, Version: d.Version, Own: &own, LoadedBy: loader, Needed: w.Needed, Votes: len(w.Votes), InForce: true, Before: r.before(), Breaking: broken[:min(len(broken), 20)], SignedBy: name, SignedAt: signed,
	})
	r.Agent, r.InForce, r.Waiting = c.Agent, &w, nil
	return r, e, nil
}

// since is when it was said: of what another gateway signed, when that was.
func (w *Word) since() time.Time {
	if !w.SignedAt.IsZero() {
		return w.SignedAt
	}
	return w.At
}
