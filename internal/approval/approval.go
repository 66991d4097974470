// Package approval holds a person's answer to one request, named by its digest (docs/design.md, rule 2), as a pure state machine.
//
// Promises: an answer counts only for the digest that was shown; CRITICAL takes two people, everything else one, and of MEDIUM, where it was
// asked so, nobody's no for a stated time is enough (HI-2); nobody answers what they asked for themselves, and nobody approves arguments that
// they wrote, whatever name they use; one no is a no; what is approved is good for one call, until it expires, and only as long as every byte
// that was shown is as it was; final is final. Whether an approval covers a call now has one implementation: Covers. Nothing here reads a
// clock; all callers of one store must pass one clock's time.
//
// The moves:
//
//	pending, deferred  -> approved    as many votes as needed (Approve)
//	pending            -> approved    by silence: computed when read (Silent, StateAt)
//	pending            -> deferred    later (Defer); pending again once that time has come
//	pending, deferred, approved -> rejected    one no (Reject), up to the moment it is spent
//	pending, deferred, approved -> superseded  the request, its definition or the rules changed (Supersede), or a person changed the
//	                                           arguments: another approval takes its place (Modify)
//	pending, deferred, approved -> expired     computed when read (StateAt)
//	approved           -> spent       by one call (Spend)
package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// State is what became of an approval. Rejected, expired, spent and superseded are final.
type State string

const (
	Pending    State = "pending"
	Approved   State = "approved"
	Rejected   State = "rejected"
	Deferred   State = "deferred"
	Expired    State = "expired"
	Spent      State = "spent"
	Superseded State = "superseded"
)

// States is the closed list.
var States = []State{Pending, Approved, Rejected, Deferred, Expired, Spent, Superseded}

// Final tells whether nothing can follow the state. An unknown state is final.
func (s State) Final() bool { return s != Pending && s != Deferred && s != Approved }

// Decision is what a person answered.
type Decision string

const (
	Approve  Decision = "approve"
	Reject   Decision = "reject"
	Deferral Decision = "defer"
)

// maxText bounds what a person writes with an answer, in bytes.
const maxText = 2000

// Reason is why a person is asked: the stage that asked, its code and its words.
type Reason struct {
	Stage string `json:"stage"`
	Code  string `json:"code"` // a fault.Code, or the rule that gave the risk, as risk.amount
	Text  string `json:"text"`
}

// Vote is one person's answer. A person has at most one in an approval; the latest.
type Vote struct {
	Person   string    `json:"person"`
	Decision Decision  `json:"decision"`
	At       time.Time `json:"at"`
	Comment  string    `json:"comment,omitempty"`
	// Aliases are the person's other identities at that time, so that they can't vote again as one of them.
	Aliases []string `json:"aliases,omitempty"`
}

// Finding says where one value of the arguments came from, and who vouches for it: flow.Finding, as it was shown.
type Finding struct {
	Argument  string `json:"argument"` // name, or path into it
	Role      string `json:"role"`
	Value     string `json:"value"` // hostile
	Vouched   bool   `json:"vouched"`
	By        string `json:"by,omitempty"` // words, plan, own, approval, trusted, system, delegated, payee
	Text      string `json:"text"`
	Operation string `json:"operation,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Record    int    `json:"record,omitempty"` // of the result of that call, from 1
	Field     string `json:"field,omitempty"`
	Covers    bool   `json:"covers,omitempty"` // a yes also covers other values that the system set in this record, for this argument
}

// Approval is one request for a person's answer, whole. Treat it as a value: moves return a new one and share no slice that they changed.
type Approval struct {
	ID             string          `json:"approval_id"`
	State          State           `json:"state"` // as it was last written; StateAt knows about time
	Digest         string          `json:"digest"`
	CallDigest     string          `json:"call_digest"`
	Risk           string          `json:"risk"` // LOW, MEDIUM, HIGH, CRITICAL
	Operation      string          `json:"operation"`
	DefinitionHash string          `json:"definition_hash"`
	Arguments      json.RawMessage `json:"arguments"` // canonical; whoever stores or encodes it keeps its bytes (no HTML escapes)
	Session        string          `json:"session_id"`
	Agent          string          `json:"agent_id"`
	Requester      string          `json:"requester"`
	OpenedBy       string          `json:"opened_by"` // principal, as kind:id
	DeclarationID  string          `json:"declaration_id,omitempty"`
	Justification  json.RawMessage `json:"justification,omitempty"` // canonical
	Reasons        []Reason        `json:"reasons"`
	Labels         []string        `json:"labels"`          // what the session holds
	SessionVersion int64           `json:"session_version"` // of those labels
	PolicyVersion  string          `json:"policy_version"`
	Environment    string          `json:"environment"`           // which gateway asked: an answer to another one is none to this
	Amount         string          `json:"amount,omitempty"`      // as "1250 EUR"; "unreadable"
	Consequence    string          `json:"consequence,omitempty"` // what could go wrong (HI-3)
	Destinations   []string        `json:"destinations,omitempty"`
	Evidence       []Finding       `json:"evidence,omitempty"`      // where the arguments came from, where that was looked at
	SilenceAt      time.Time       `json:"silence_at,omitzero"`     // risk MEDIUM: from then on silence permits (HI-2); zero: it never does
	ModifiedFrom   string          `json:"modified_from,omitempty"` // the approval whose arguments a person changed
	ModifiedBy     string          `json:"modified_by,omitempty"`   // that person
	ModifiedReason string          `json:"modified_reason,omitempty"`
	Nonce          string          `json:"nonce"`
	Votes          []Vote          `json:"votes"`
	Needed         int             `json:"needed"` // distinct people who must approve
	CreatedAt      time.Time       `json:"created_at"`
	ExpiresAt      time.Time       `json:"expires_at"` // whole milliseconds
	DeferredUntil  time.Time       `json:"deferred_until,omitzero"`
	SpentBy        string          `json:"spent_by,omitempty"`    // call id
	ReplacedBy     string          `json:"replaced_by,omitempty"` // of a superseded one: the approval with the changed arguments
	SpokenAt       time.Time       `json:"spoken_at,omitzero"`    // when a person last said anything but yes
	Reason         string          `json:"reason,omitempty"`      // of the rejection
}

const medium = "MEDIUM"

// needed is how many people a risk takes where people have to answer; 0 for a word that is no risk.
func needed(risk string) int {
	switch risk {
	case "LOW", medium, "HIGH":
		return 1
	case "CRITICAL":
		return 2
	}
	return 0
}

// New completes a request for approval: id, nonce, times, people needed, digest; pending. It needs of a the call digest and what a person
// is shown: risk, operation, definition hash, arguments, session, agent, who asked and why. An incomplete one is a fault.Internal. That
// call digest and arguments are of one call is for whoever has the call to answer for.
func New(a Approval, now time.Time, life time.Duration) (Approval, error) {
	arguments, err := object(a.Arguments)
	if err != nil {
		return a, err
	}
	a.Arguments = arguments
	if len(a.Justification) > 0 {
		if a.Justification, err = object(a.Justification); err != nil {
			return a, err
		}
	}
	a.Needed = needed(a.Risk)
	if a.Needed == 0 {
		return a, fault.New(fault.Internal, "unknown risk %q", a.Risk)
	}
	if !a.SilenceAt.IsZero() {
		if a.Risk != medium {
			return a, fault.New(fault.Internal, "silence permits nothing of risk %s", a.Risk)
		}
		a.Needed, a.SilenceAt = 0, a.SilenceAt.UTC().Truncate(time.Millisecond)
	}
	if a.CallDigest == "" || a.Session == "" || a.Agent == "" || a.Operation == "" || a.OpenedBy == "" || life <= 0 {
		return a, fault.New(fault.Internal, "an approval without call, session, agent, operation, who opened the session, or life")
	}
	a.ID, a.Nonce = call.NewID("appr_", now), call.NewID("", now)
	a.CreatedAt = now.UTC()
	// Whole milliseconds, so that a store that keeps no more can't change the digest. Never longer than asked for.
	a.ExpiresAt = now.Add(life).UTC().Truncate(time.Millisecond)
	a.State, a.Votes, a.DeferredUntil, a.SpentBy, a.Reason, a.ReplacedBy, a.SpokenAt = Pending, []Vote{}, time.Time{}, "", "", "", time.Time{}
	a.Reasons, a.Labels = orEmpty(slices.Clone(a.Reasons)), orEmpty(slices.Clone(a.Labels))
	a.Digest = a.digest()
	return a, nil
}

// Begin returns a question that nobody has seen yet as one that is asked at now: its silence begins then. Its end stays where it was, which may
// be that of a declaration.
func (a Approval) Begin(now time.Time) Approval {
	if !a.SilenceAt.IsZero() {
		a.SilenceAt = a.SilenceAt.Add(now.UTC().Truncate(time.Millisecond).Sub(a.CreatedAt.Truncate(time.Millisecond)))
	}
	a.CreatedAt = now.UTC()
	a.Digest = a.digest()
	return a
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func object(raw json.RawMessage) (json.RawMessage, error) {
	canonical, err := call.Canonical(raw, call.DefaultLimits())
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "an approval of what is not strict JSON")
	}
	if canonical[0] != '{' {
		return nil, fault.New(fault.Internal, "an approval of what is no object")
	}
	return canonical, nil
}

// digest is the SHA-256, in hex, of everything that a person is shown: a domain word, then each field after its length and each list
// after its count, so that none can run into the next. What happens later (state, votes, deferral, spending) is not in it.
func (a Approval) digest() string {
	h := sha256.New()
	put := func(fields ...string) {
		for _, s := range fields {
			h.Write(strconv.AppendInt(nil, int64(len(s)), 10))
			h.Write([]byte{':'})
			h.Write([]byte(s))
		}
	}
	number := func(n int64) { put(strconv.FormatInt(n, 10)) }
	put("sallyport/approval/v2", a.Environment, a.ID, a.CallDigest, a.Risk, a.Operation, a.DefinitionHash, string(a.Arguments), a.Session, a.Agent,
		a.Requester, a.OpenedBy, a.DeclarationID, string(a.Justification), a.PolicyVersion, a.Nonce)
	number(a.SessionVersion)
	number(int64(a.Needed))
	number(a.ExpiresAt.UnixMilli())
	number(int64(len(a.Reasons)))
	for _, r := range a.Reasons {
		put(r.Stage, r.Code, r.Text)
	}
	number(int64(len(a.Labels)))
	put(a.Labels...)
	number(int64(len(a.Destinations)))
	put(a.Destinations...)
	put(a.Amount, a.Consequence, a.ModifiedFrom, a.ModifiedBy, a.ModifiedReason)
	silence := int64(0)
	if !a.SilenceAt.IsZero() {
		silence = a.SilenceAt.UnixMilli()
	}
	number(silence)
	if len(a.Evidence) > 0 { // an approval that was made before there was any keeps its digest
		put("evidence")
		number(int64(len(a.Evidence)))
		for _, f := range a.Evidence {
			put(f.Argument, f.Role, f.Value, strconv.FormatBool(f.Vouched), f.By, f.Text, f.Operation, f.CallID, strconv.Itoa(f.Record), f.Field, strconv.FormatBool(f.Covers))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Intact tells whether everything that was shown is as it was. What is not can be neither answered nor used.
func (a Approval) Intact() bool { return a.Digest == a.digest() }

// StateAt is the state at a time: what is not final when its time is up is expired, and what was put off to an earlier time is pending.
func (a Approval) StateAt(now time.Time) State {
	if a.State.Final() {
		return a.State
	}
	if !now.Before(a.ExpiresAt) {
		return Expired
	}
	if a.State == Deferred && !a.DeferredUntil.IsZero() && !now.Before(a.DeferredUntil) {
		return Pending
	}
	if a.Silent(now) {
		return Approved
	}
	return a.State
}

// Silent tells whether silence permits by now: of risk MEDIUM, its time is up, and no person has said anything at all (HI-2). Who put it
// off has spoken: from then on it takes a yes.
func (a Approval) Silent(now time.Time) bool {
	return a.State == Pending && a.Risk == medium && !a.SilenceAt.IsZero() && len(a.Votes) == 0 && !now.Before(a.SilenceAt) && now.Before(a.ExpiresAt)
}

// Voter is who answers: a person, their roles now, and every other identity that is theirs: other names, mail addresses, and principals
// that act for them, as kind:id ("agent:a", "host:ci").
type Voter struct {
	Person  string
	Roles   []identity.Role
	Aliases []string
}

// names is what the voter is known by.
func (v Voter) names() []string { return append([]string{v.Person}, v.Aliases...) }

// is tells whether one of the names is the voter's. A person may be written as a principal or not, in any case.
func (v Voter) is(names ...string) bool {
	own := v.names()
	return slices.ContainsFunc(names, func(n string) bool {
		n = bare(n)
		return n != "" && slices.ContainsFunc(own, func(o string) bool { return strings.EqualFold(bare(o), n) })
	})
}

func bare(name string) string {
	const person = "person:"
	if name = strings.TrimSpace(name); len(name) >= len(person) && strings.EqualFold(name[:len(person)], person) {
		name = strings.TrimSpace(name[len(person):])
	}
	return name
}

// Entitled tells whether the voter may answer at all: an approver or an admin who neither asked for it, nor opened the session, nor owns
// the agent.
func (a Approval) Entitled(v Voter) error {
	if bare(v.Person) == "" {
		return fault.New(fault.CredentialMissing, "An answer is a person's.")
	}
	if !slices.Contains(v.Roles, identity.Approver) && !slices.Contains(v.Roles, identity.Admin) {
		return fault.New(fault.RoleMissing, "Answering takes the role approver or admin.")
	}
	if v.is(a.Requester, a.OpenedBy, "agent:"+a.Agent) {
		return fault.New(fault.RoleMissing, "You asked for this, or somebody or something that acts for you did.").Try("Ask another person to answer it.")
	}
	return nil
}

// mayApprove is what a yes takes besides: whoever wrote the arguments asks for them, and others answer.
func (a Approval) mayApprove(v Voter) error {
	if err := a.Entitled(v); err != nil {
		return err
	}
	if v.is(a.ModifiedBy) {
		return fault.New(fault.RoleMissing, "You wrote these arguments, so another person has to approve them.").Try("Ask another person to approve it. You may reject it.")
	}
	return nil
}

// mayAnswer is what every answer is checked for: who, whether it can still be answered, and what was shown to whoever answers.
func (a Approval) mayAnswer(v Voter, digest, text string, now time.Time) error {
	if err := a.Entitled(v); err != nil {
		return err
	}
	if err := a.open(now); err != nil {
		return err
	}
	if digest == "" || digest != a.Digest || !a.Intact() {
		return fault.New(fault.ApprovalMismatch, "The answer is for something else than what is asked now.").At("digest").Try("Look at the request again.")
	}
	if len(text) > maxText || !utf8.ValidString(text) {
		return fault.New(fault.RequestMalformed, "A comment or reason has at most %d bytes of UTF-8.", maxText).At("reason")
	}
	return nil
}

// open refuses what is final.
func (a Approval) open(now time.Time) error {
	switch at := a.StateAt(now); {
	case at == Expired:
		return a.expired()
	case at.Final():
		return fault.New(fault.Conflict, "The approval is %s already.", at)
	}
	return nil
}

func (a Approval) expired() error {
	return fault.New(fault.ApprovalExpired, "The approval expired at %s.", a.ExpiresAt.Format(time.RFC3339)).Try("Make the call again to ask again.")
}

// of finds the vote of the same human: whoever voted is one of the voter's names, or the voter one of theirs.
func (a Approval) of(v Voter) (Vote, bool) {
	for _, vote := range a.Votes {
		if v.is(vote.Person) || (Voter{Person: vote.Person, Aliases: vote.Aliases}).is(v.names()...) {
			return vote, true
		}
	}
	return Vote{}, false
}

// vote puts the voter's answer in place of what they said before.
func (a Approval) vote(v Voter, d Decision, text string, now time.Time) Approval {
	votes := make([]Vote, 0, len(a.Votes)+1)
	for _, old := range a.Votes {
		if _, same := (Approval{Votes: []Vote{old}}).of(v); !same {
			votes = append(votes, old)
		}
	}
	a.Votes = append(votes, Vote{Person: v.Person, Decision: d, At: now.UTC(), Comment: text, Aliases: slices.Clone(v.Aliases)})
	return a
}

// ByPeople tells whether people approved it, as many as it takes, and no silence did.
func (a Approval) ByPeople() bool { return (a.State == Approved || a.State == Spent) && a.quorum() }

// quorum tells whether enough distinct people approved and nobody rejected. What the risk takes counts, not only what Needed says.
func (a Approval) quorum() bool {
	least := needed(a.Risk)
	if least == 0 {
		return false
	}
	yes := 0
	for i, vote := range a.Votes {
		if vote.Decision == Reject {
			return false
		}
		if _, again := (Approval{Votes: a.Votes[:i]}).of(Voter{Person: vote.Person, Aliases: vote.Aliases}); !again && vote.Decision == Approve {
			yes++
		}
	}
	return yes >= max(least, a.Needed)
}

// Approvers are those whose yes counts; nobody's does once it is rejected.
func (a Approval) Approvers() (people []string) {
	for _, v := range a.Votes {
		if v.Decision == Approve && a.State != Rejected {
			people = append(people, v.Person)
		}
	}
	return people
}

// Approve is a yes to what the digest names. With enough of them the approval is approved. Errors: fault.RoleMissing,
// fault.ApprovalMismatch, fault.ApprovalExpired, fault.Conflict.
func (a Approval) Approve(v Voter, digest, comment string, now time.Time) (Approval, error) {
	if err := a.mayAnswer(v, digest, comment, now); err != nil {
		return a, err
	}
	if err := a.mayApprove(v); err != nil {
		return a, err
	}
	if earlier, voted := a.of(v); voted && earlier.Decision != Deferral {
		return a, fault.New(fault.Conflict, "You have approved this already.").Try("Another person has to.")
	}
	if a.State == Approved {
		return a, fault.New(fault.Conflict, "The approval is approved already.")
	}
	a = a.vote(v, Approve, comment, now)
	a.DeferredUntil = time.Time{}
	a.State = Pending
	if a.quorum() {
		a.State = Approved
	}
	return a, nil
}

// Reject is a no, with a reason (HI-3). One no of anybody entitled is enough, also after others approved, also of one who approved, up to
// the moment that the approval is spent.
func (a Approval) Reject(v Voter, digest, reason string, now time.Time) (Approval, error) {
	if err := a.mayAnswer(v, digest, reason, now); err != nil {
		return a, err
	}
	if !says(reason) {
		return a, fault.New(fault.RequestMalformed, "is missing: say why not").At("reason")
	}
	a = a.vote(v, Reject, reason, now)
	a.State, a.Reason, a.DeferredUntil, a.SpokenAt = Rejected, reason, time.Time{}, now.UTC()
	return a, nil
}

// Defer puts the answer off: until a time, or, with the zero time, until somebody takes it up again. It never moves the expiry.
func (a Approval) Defer(v Voter, digest string, until, now time.Time) (Approval, error) {
	if err := a.mayAnswer(v, digest, "", now); err != nil {
		return a, err
	}
	if a.StateAt(now) == Approved {
		return a, fault.New(fault.Conflict, "The approval is approved already.").Try("Reject it to stop it.")
	}
	if earlier, voted := a.of(v); voted && earlier.Decision == Approve {
		return a, fault.New(fault.Conflict, "You have approved this already.").Try("Reject it to take that back.")
	}
	if !until.IsZero() && (!until.After(now) || until.After(a.ExpiresAt)) {
		return a, fault.New(fault.RequestMalformed, "must lie between now and %s, when the request expires", a.ExpiresAt.Format(time.RFC3339)).At("until")
	}
	a = a.vote(v, Deferral, "", now)
	a.State, a.DeferredUntil, a.SpokenAt = Deferred, time.Time{}, now.UTC()
	if !until.IsZero() {
		a.DeferredUntil = until.UTC()
	}
	return a, nil
}

// Supersede voids the approval: what it was asked for, or the rules that asked, changed.
func (a Approval) Supersede(now time.Time) (Approval, error) {
	if err := a.open(now); err != nil {
		return a, err
	}
	a.State = Superseded
	return a, nil
}

// Modify voids the approval because the voter wants other arguments, which are asked about in their place under the id next. What was
// approved by others before is for the old arguments alone. Errors as of Reject.
func (a Approval) Modify(v Voter, digest, reason, next string, now time.Time) (Approval, error) {
	if err := a.mayAnswer(v, digest, reason, now); err != nil {
		return a, err
	}
	if !says(reason) {
		return a, fault.New(fault.RequestMalformed, "is missing: say what was wrong with the arguments").At("reason")
	}
	a.State, a.Reason, a.ReplacedBy, a.SpokenAt = Superseded, reason, next, now.UTC()
	return a, nil
}

// says tells whether a reason has any word in it.
func says(reason string) bool {
	return strings.ContainsFunc(reason, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
}

// Recount leaves out the yes of everybody who is not entitled any more, as voter tells it, and takes the approval back to pending if too
// few are left; to deferred where silence would permit it then. For the moment of dispatch: roles are looked up again then, as expiry is. voter returns false for people it
// doesn't know. Written back, it can be answered again.
func (a Approval) Recount(voter func(person string) (Voter, bool)) Approval {
	a.Votes = slices.Clone(a.Votes)
	for i, vote := range a.Votes { // two accounts that are one person's by now are one vote
		if v, known := voter(vote.Person); known {
			a.Votes[i].Aliases = append(slices.Clone(vote.Aliases), v.Aliases...)
		}
	}
	a.Votes = slices.DeleteFunc(a.Votes, func(vote Vote) bool {
		if vote.Decision != Approve {
			return false
		}
		v, known := voter(vote.Person)
		return !known || !strings.EqualFold(v.Person, vote.Person) || a.mayApprove(v) != nil
	})
	if a.State == Approved && !a.quorum() {
		a.State = Pending
		if !a.SilenceAt.IsZero() { // somebody has spoken: silence does not come back with the vote gone
			a.State = Deferred
		}
	}
	return a
}

// Covers tells whether the approval permits a call now, which is named by its call digest: nil, or why not. Errors:
// fault.ApprovalRequired while it waits for an answer; fault.ApprovalRejected with the reason; fault.ApprovalExpired; fault.ApprovalMismatch
// for another call, for one that was superseded, and for an approval of which a byte that was shown has changed; fault.Conflict after it
// was used: the next call is asked about anew.
func (a Approval) Covers(callDigest string, now time.Time) error {
	if callDigest == "" || callDigest != a.CallDigest || !a.Intact() {
		return fault.New(fault.ApprovalMismatch, "The approval is for another call.")
	}
	switch at := a.StateAt(now); at {
	case Approved:
		if !a.Silent(now) && !a.quorum() {
			return fault.New(fault.ApprovalRequired, "Too few people have approved this.")
		}
		return nil
	case Pending, Deferred:
		return fault.New(fault.ApprovalRequired, "A person has to answer first; the approval is %s.", at)
	case Rejected:
		return fault.New(fault.ApprovalRejected, "A person rejected this: %s", a.Reason)
	case Expired:
		return a.expired()
	case Spent:
		return fault.New(fault.Conflict, "The approval was used by %s; one is for one call.", a.SpentBy)
	case Superseded:
		if a.ReplacedBy != "" {
			return fault.New(fault.ApprovalMismatch, "A person wants other arguments for this call: %s", a.Reason)
		}
		return fault.New(fault.ApprovalMismatch, "The request changed after it was asked for.").Try("Make the call again to ask again.")
	default:
		return fault.New(fault.Internal, "unknown approval state %q", at)
	}
}

// Spend uses the approval up for one call. A second time is a fault.Conflict.
func (a Approval) Spend(callID string, now time.Time) (Approval, error) {
	if err := a.Covers(a.CallDigest, now); err != nil {
		return a, err
	}
	if callID == "" {
		return a, fault.New(fault.Internal, "an approval is spent by a call")
	}
	a.State, a.SpentBy = Spent, callID
	return a, nil
}
