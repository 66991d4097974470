// Package approval holds a person's answer to one request, named by its digest (docs/design.md, rule 2), as a pure state machine.
//
// Promises: an answer counts only for the digest that was shown, and only of people with the role that the operation asks for. CRITICAL needs two
// people, every other risk one; a MEDIUM call that was asked about with a delay runs if nobody rejects it in that time (HI-2). Nobody answers their own request, and nobody approves arguments that they
// wrote, whatever name they use. One rejection is enough. An approval permits one call, until it expires, and only while every byte that was
// shown is unchanged. A final state stays. Only Covers decides whether an approval covers a call now. Nothing here reads a clock; all callers
// of one store must pass the time of one clock.
//
// The moves:
//
//	pending, deferred  -> approved    as many votes as needed (Approve)
//	pending            -> approved    by silence: computed when read (Silent, StateAt)
//	pending            -> deferred    later (Defer); pending again once that time has come
//	pending, deferred, approved -> rejected    one rejection (Reject), until it is spent
//	pending, deferred, approved -> superseded  the request, its definition or the rules changed, or the agent was stopped (Supersede), or a
//	                                           person changed the arguments: another approval takes its place (Modify)
//	pending, deferred, approved -> expired     computed when read (StateAt)
//	approved           -> spent       by one call (Spend)
package approval

import (
	"cmp"
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

// State is the state of an approval. Rejected, expired, spent and superseded are final.
type State string

const (
	Pending    State = "pending"
	Approved   State = "approved"
	Rejected   State = "rejected"
	Deferred   State = "deferred"
	Expired    State = "expired"
	Spent      State = "spent"
	Superseded State = "superseded"
	// Damaged is a row of the store that is not the one that the log says. It is listed by its id, and nothing can be done with it. It is never written.
	Damaged State = "damaged"
)

// States are all of them.
var States = []State{Pending, Approved, Rejected, Deferred, Expired, Spent, Superseded}

// words are the states as people read them (docs/glossary.md).
var words = map[State]string{Pending: "waiting", Deferred: "postponed", Spent: "used", Superseded: "withdrawn"}

// Words is the state as people read it.
func (s State) Words() string { return cmp.Or(words[s], string(s)) }

// Final reports whether no state can follow. An unknown state is final.
func (s State) Final() bool { return s != Pending && s != Deferred && s != Approved }

// Decision is a person's answer.
type Decision string

const (
	Approve  Decision = "approve"
	Reject   Decision = "reject"
	Deferral Decision = "defer"
)

// maxText bounds the text that a person writes with an answer, in bytes.
const maxText = 2000

// Reason is one reason to ask a person: the stage that asked, its code and its sentence.
type Reason struct {
	Stage string `json:"stage"`
	Code  string `json:"code"` // a fault.Code, the rule that gave the risk, as risk.amount, or what is said about the call, as justification.missing
	Text  string `json:"text"`
}

// NoReason is among the reasons of a question of risk HIGH or CRITICAL about a call for which the agent gave none. Whatever shows the question shows it first.
var NoReason = Reason{Stage: "declare", Code: "justification.missing", Text: "The agent did not say why."}

// Vote is one person's answer. A person has at most one in an approval; the latest.
type Vote struct {
	Person   string    `json:"person"`
	Decision Decision  `json:"decision"`
	At       time.Time `json:"at"`
	Comment  string    `json:"comment,omitempty"`
	// Aliases are the person's other identities at that time, so that they can't vote again as one of them.
	Aliases []string `json:"aliases,omitempty"`
	// Own: the person asked for the call, opened its session, added to what was asked for in it or owns the agent.
	Own bool `json:"own"`
}

// Finding says where one value of the arguments came from, as the person was shown: provenance.Finding.
type Finding struct {
	Argument  string `json:"argument"` // name, or path into it
	Role      string `json:"role"`
	Value     string `json:"value"` // hostile
	Confirmed bool   `json:"vouched"`
	By        string `json:"by,omitempty"` // words, plan, own, approval, trusted, system, delegated, payee
	Text      string `json:"text"`
	Operation string `json:"operation,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Record    int    `json:"record,omitempty"` // of the result of that call, from 1
	Field     string `json:"field,omitempty"`
	Covers    bool   `json:"covers,omitempty"` // an approval also covers other values that the system set in this record, for this argument
}

// Approval is one request for a person's answer, complete. Treat it as a value: moves return a new one and share no slice that they changed.
type Approval struct {
	ID             string          `json:"approval_id"`
	State          State           `json:"state"` // as last stored; StateAt knows about time
	Digest         string          `json:"digest"`
	CallDigest     string          `json:"call_digest"`
	Risk           string          `json:"risk"` // LOW, MEDIUM, HIGH, CRITICAL
	Operation      string          `json:"operation"`
	DefinitionHash string          `json:"definition_hash"`
	LaunchHash     string          `json:"launch_hash,omitempty"` // of how the tool's server is started or reached; "": it has none
	Arguments      json.RawMessage `json:"arguments"`             // canonical; stored and encoded byte for byte (no HTML escapes)
	Session        string          `json:"session_id"`
	Agent          string          `json:"agent_id"`
	Requester      string          `json:"requester"`
	OpenedBy       string          `json:"opened_by"`          // principal, as kind:id
	WordsBy        []string        `json:"words_by,omitempty"` // who else had added to the person's request: principals
	DeclarationID  string          `json:"declaration_id,omitempty"`
	Justification  json.RawMessage `json:"justification,omitempty"` // canonical
	Reasons        []Reason        `json:"reasons"`
	Labels         []string        `json:"labels"`          // labels that the session holds
	SessionVersion int64           `json:"session_version"` // of those labels
	PolicyVersion  string          `json:"policy_version"`
	Environment    string          `json:"environment"`           // the gateway that asked: an answer to another gateway does not count
	Amount         string          `json:"amount,omitempty"`      // as "1250 EUR"; "unreadable"
	Consequence    string          `json:"consequence,omitempty"` // the harm if the call is wrong (HI-3)
	Destinations   []string        `json:"destinations,omitempty"`
	Evidence       []Finding       `json:"evidence,omitempty"`      // where the arguments came from; empty if they were not traced
	Inputs         *call.Inputs    `json:"inputs,omitempty"`        // what the call reads of the workspace; nil: nothing
	SilenceAt      time.Time       `json:"silence_at,omitzero"`     // silence permits the call from then on (risk MEDIUM, HI-2); zero: never
	ModifiedFrom   string          `json:"modified_from,omitempty"` // the approval whose arguments a person changed
	ModifiedBy     string          `json:"modified_by,omitempty"`   // that person
	ModifiedReason string          `json:"modified_reason,omitempty"`
	// StopEpoch counts the stops (kill switch pulled, quarantine) that had reached the agent when the call was judged. After one more, the approval
	// covers nothing.
	StopEpoch     int64         `json:"stop_epoch,omitempty"`
	Nonce         string        `json:"nonce"`
	Votes         []Vote        `json:"votes"`
	Needed        int           `json:"needed"`         // number of distinct people who must approve
	Role          identity.Role `json:"role,omitempty"` // only people with this role can answer: admin; "": those with the role approver or admin (DE-6)
	CreatedAt     time.Time     `json:"created_at"`
	ExpiresAt     time.Time     `json:"expires_at"` // whole milliseconds
	DeferredUntil time.Time     `json:"deferred_until,omitzero"`
	SpentBy       string        `json:"spent_by,omitempty"`    // call id
	ReplacedBy    string        `json:"replaced_by,omitempty"` // the approval with the changed arguments, if this one is superseded
	IntervenedAt  time.Time     `json:"spoken_at,omitzero"`    // when a person last rejected, deferred or changed it
	Reason        string        `json:"reason,omitempty"`      // of the rejection, or why it is superseded
}

const (
	medium   = "MEDIUM"
	critical = "CRITICAL"
)

// Purpose is why the call is needed, in one text of the agent: what it wants the result for, or its step of the plan. "" where it gave none.
func (a Approval) Purpose() string {
	var given struct {
		Use  string `json:"expected_use"`
		Step string `json:"plan_step"`
	}
	if len(a.Justification) == 0 || json.Unmarshal(a.Justification, &given) != nil {
		return ""
	}
	return cmp.Or(given.Use, given.Step)
}

// Unexplained tells whether people have to be told that the agent gave no reasons.
func (a Approval) Unexplained() bool { return slices.Contains(a.Reasons, NoReason) }

// Needed is how many people have to approve a risk if silence can't; 0 for an unknown risk.
func Needed(risk string) int {
	switch risk {
	case "LOW", medium, "HIGH":
		return 1
	case critical:
		return 2
	}
	return 0
}

// New completes a request for approval: id, nonce, times, people needed, digest; pending. a needs the call digest and everything that a person is
// shown: risk, operation, definition hash, arguments, session, agent, who asked and why. An incomplete one is a fault.Internal. The caller makes
// sure that call digest and arguments belong to one call.
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
	a.Needed = Needed(a.Risk)
	if a.Needed == 0 {
		return a, fault.New(fault.Internal, "unknown risk %q", a.Risk)
	}
	if !a.SilenceAt.IsZero() {
		if a.Risk != medium {
			return a, fault.New(fault.Internal, "silence can't permit risk %s", a.Risk)
		}
		a.Needed, a.SilenceAt = 0, a.SilenceAt.UTC().Truncate(time.Millisecond)
	}
	if a.Role != "" && a.Role != identity.Admin {
		return a, fault.New(fault.Internal, "people with the role %q answer nothing", a.Role)
	}
	if a.Role != "" && a.Needed == 0 {
		return a, fault.New(fault.Internal, "silence is no answer of an administrator")
	}
	if a.CallDigest == "" || a.Session == "" || a.Agent == "" || a.Operation == "" || a.OpenedBy == "" || life <= 0 {
		return a, fault.New(fault.Internal, "an approval lacks its call, session, agent, operation, opener or lifetime")
	}
	a.ID, a.Nonce = call.NewID("appr_", now), call.NewID("", now)
	a.CreatedAt = now.UTC()
	// Whole milliseconds, so that a store that keeps no more can't change the digest. Never longer than asked for.
	a.ExpiresAt = now.Add(life).UTC().Truncate(time.Millisecond)
	a.State, a.Votes, a.DeferredUntil, a.SpentBy, a.Reason, a.ReplacedBy, a.IntervenedAt = Pending, []Vote{}, time.Time{}, "", "", "", time.Time{}
	a.Reasons, a.Labels = orEmpty(slices.Clone(a.Reasons)), orEmpty(slices.Clone(a.Labels))
	a.Digest = a.digest()
	return a, nil
}

// Begin returns a question that nobody has seen yet as one that is asked at now: its silence begins then. Its expiry stays, because it may be that
// of a declaration.
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
		return nil, fault.Wrap(err, fault.Internal, "the arguments of an approval are not strict JSON")
	}
	if canonical[0] != '{' {
		return nil, fault.New(fault.Internal, "the arguments of an approval are not an object")
	}
	return canonical, nil
}

// digest is the SHA-256, in hex, of everything that a person is shown: a domain separator, then each field after its length and each list after its
// count, so that no field can run into the next. State, votes, deferral and spending come later and are not in it.
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
	if len(a.Evidence) > 0 { // approvals without evidence keep the digest of old versions
		put("evidence")
		number(int64(len(a.Evidence)))
		for _, f := range a.Evidence {
			put(f.Argument, f.Role, f.Value, strconv.FormatBool(f.Confirmed), f.By, f.Text, f.Operation, f.CallID, strconv.Itoa(f.Record), f.Field, strconv.FormatBool(f.Covers))
		}
	}
	if a.LaunchHash != "" {
		put("launch", a.LaunchHash)
	}
	if a.Inputs != nil {
		put("inputs")
		number(int64(len(a.Inputs.Files)))
		for _, f := range a.Inputs.Files {
			put(f.Path, f.SHA256)
			number(f.Size)
		}
		if w := a.Inputs.Workspace; w != nil {
			put("workspace", w.SHA256)
			number(int64(w.Entries))
			number(w.Size)
		}
	}
	if a.StopEpoch != 0 { // agents that were never stopped keep the digest of old versions
		put("stops")
		number(a.StopEpoch)
	}
	if len(a.WordsBy) > 0 {
		put("words by")
		number(int64(len(a.WordsBy)))
		put(a.WordsBy...)
	}
	if a.Role != "" {
		put("role", string(a.Role))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Intact reports whether everything that was shown is unchanged. An approval that is not intact can't be answered or used.
func (a Approval) Intact() bool { return a.Digest == a.digest() }

// StateAt is the state at a time: an approval that is not final expires when its time is up, and a deferred one is pending again after its time.
func (a Approval) StateAt(now time.Time) State {
	if a.State.Final() || a.State == Damaged {
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

// Silent reports whether silence permits the call at this time: the risk is MEDIUM, the delay is over, and no person has answered (HI-2). A
// deferral is an answer: after it, only an approval permits the call.
func (a Approval) Silent(now time.Time) bool {
	return a.State == Pending && a.Risk == medium && !a.SilenceAt.IsZero() && len(a.Votes) == 0 && !now.Before(a.SilenceAt) && now.Before(a.ExpiresAt)
}

// Voter is the person who answers: their name, their roles now, and all their other identities: other names, mail addresses, and principals that
// act for them, as kind:id ("agent:a", "host:ci").
type Voter struct {
	Person  string
	Roles   []identity.Role
	Aliases []string
	// AnswersOwn lets the person answer what they asked for themselves, up to HIGH (approvals.requester).
	AnswersOwn bool
	// Others returns everybody else who is known today, so that a person who is the only one can answer what they asked for. nil: not known, and then
	// they can't.
	Others func() []Voter
}

// Answers reports whether the voter has a role that answers.
func (v Voter) Answers() bool {
	return slices.Contains(v.Roles, identity.Approver) || slices.Contains(v.Roles, identity.Admin)
}

// Alone reports whether nobody else of those known today has a role that answers.
func (v Voter) Alone() bool {
	return v.Others != nil && !slices.ContainsFunc(v.Others(), func(o Voter) bool { return o.Answers() && !v.Is(o.names()...) })
}

// Same reports whether both are the same human: one of their names is the same.
func (v Voter) Same(o Voter) bool { return v.Is(o.names()...) || o.Is(v.names()...) }

// names are all names of the voter.
func (v Voter) names() []string { return append([]string{v.Person}, v.Aliases...) }

// Is reports whether one of the names is the voter's. A person may be written as a principal or not, and in any letter case.
func (v Voter) Is(names ...string) bool {
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

// Own reports whether the voter asked for the call, opened its session, added to what was asked for in it or owns the agent.
func (a Approval) Own(v Voter) bool {
	return v.Is(a.Requester, a.OpenedBy, "agent:"+a.Agent) || v.Is(a.WordsBy...)
}

// mayAnswerOwn reports whether the voter may answer although it is their own call: never at CRITICAL; below it where the operator lets requesters
// answer, and where nobody else could (HI-2).
func (a Approval) mayAnswerOwn(v Voter) bool {
	if Needed(a.Risk) != 1 { // CRITICAL, or a risk that nobody knows
		return false
	}
	if v.AnswersOwn && a.Role == "" { // an administrator's answer is another administrator's
		return true
	}
	return v.Others != nil && !slices.ContainsFunc(v.Others(), func(o Voter) bool { return a.withRole(o) && !v.Is(o.names()...) && !a.Own(o) })
}

// withRole reports whether the voter has a role that answers this request.
func (a Approval) withRole(v Voter) bool {
	return v.Answers() && (a.Role == "" || slices.Contains(v.Roles, a.Role))
}

// Entitled checks whether the voter may answer at all: an approver or an admin, or an admin alone where the operation says so. Who asked for the
// call, opened the session, added to the request or owns the agent may up to risk HIGH where nobody else could, or where the operator lets them.
func (a Approval) Entitled(v Voter) error {
	if bare(v.Person) == "" {
		return fault.New(fault.CredentialMissing, "Only a person can answer.")
	}
	if !v.Answers() {
		return fault.New(fault.RoleMissing, "Only the roles approver and admin can answer.")
	}
	if !a.withRole(v) {
		return fault.New(fault.RoleMissing, "Only people with the role %s can answer this.", a.Role).Try("Ask one of them, or sign in with a credential that has the role. operations.%s.approvals in sallyport.yaml says so.", a.Operation)
	}
	if a.Own(v) && !a.mayAnswerOwn(v) {
		return fault.New(fault.RoleMissing, "You asked for this, or somebody or something that acts for you did.").Try("%s", a.askAnother())
	}
	return nil
}

// askAnother says what a person can do who may not answer their own call.
func (a Approval) askAnother() string {
	if a.Risk == critical {
		return "Two other people have to approve what is CRITICAL."
	}
	return "Ask another person to answer it. The operator can let requesters answer up to HIGH: approvals.requester."
}

// mayApprove checks the additional condition for an approval: nobody approves arguments that they wrote.
func (a Approval) mayApprove(v Voter) error {
	if err := a.Entitled(v); err != nil {
		return err
	}
	if v.Is(a.ModifiedBy) {
		return fault.New(fault.RoleMissing, "You wrote these arguments, so another person has to approve them.").Try("Ask another person to approve it. You may reject it.")
	}
	return nil
}

// mayAnswer checks every answer: who answers, whether the approval is still open, and what they were shown.
func (a Approval) mayAnswer(v Voter, digest, text string, now time.Time) error {
	if err := a.Entitled(v); err != nil {
		return err
	}
	if err := a.open(now); err != nil {
		return err
	}
	if digest == "" || digest != a.Digest || !a.Intact() {
		return fault.New(fault.ApprovalMismatch, "The request is not the one that you were shown.").At("digest").Try("Look at the request again.")
	}
	if len(text) > maxText || !utf8.ValidString(text) {
		return fault.New(fault.RequestMalformed, "A comment or reason has at most %d bytes of UTF-8.", maxText).At("reason")
	}
	return nil
}

// open refuses a final approval.
func (a Approval) open(now time.Time) error {
	switch at := a.StateAt(now); {
	case at == Expired:
		return a.expired()
	case at.Final():
		return fault.New(fault.Conflict, "The approval is %s already.", at).Try("If the call is still wanted, the agent makes it again and people are asked anew.")
	}
	return nil
}

func (a Approval) expired() error {
	return fault.New(fault.ApprovalExpired, "The approval expired at %s.", a.ExpiresAt.Format(time.RFC3339)).Try("Make the call again to ask again.")
}

// of finds the vote of the same human: one of the names is the same.
func (a Approval) of(v Voter) (Vote, bool) {
	for _, vote := range a.Votes {
		if v.Same(Voter{Person: vote.Person, Aliases: vote.Aliases}) {
			return vote, true
		}
	}
	return Vote{}, false
}

// vote replaces the voter's earlier answer.
func (a Approval) vote(v Voter, d Decision, text string, now time.Time) Approval {
	votes := make([]Vote, 0, len(a.Votes)+1)
	for _, old := range a.Votes {
		if _, same := (Approval{Votes: []Vote{old}}).of(v); !same {
			votes = append(votes, old)
		}
	}
	a.Votes = append(votes, Vote{Person: v.Person, Decision: d, At: now.UTC(), Comment: text, Aliases: slices.Clone(v.Aliases), Own: a.Own(v)})
	return a
}

// ByPeople reports whether enough people approved it, rather than silence.
func (a Approval) ByPeople() bool { return (a.State == Approved || a.State == Spent) && a.quorum() }

// quorum reports whether enough distinct people approved and nobody rejected. It takes as many as the risk needs, even if Needed is lower.
func (a Approval) quorum() bool {
	least := Needed(a.Risk)
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

// Approvers are the people whose approval counts; none once it is rejected.
func (a Approval) Approvers() (people []string) {
	for _, v := range a.Votes {
		if v.Decision == Approve && a.State != Rejected {
			people = append(people, v.Person)
		}
	}
	return people
}

// Approve records an approval of the digest. With enough of them, the call is approved. Errors: fault.RoleMissing, fault.ApprovalMismatch,
// fault.ApprovalExpired, fault.Conflict.
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

// Reject records a rejection with its reason (HI-3). One rejection by an entitled person is enough, also after others approved, and also by one who
// approved, until the approval is spent.
func (a Approval) Reject(v Voter, digest, reason string, now time.Time) (Approval, error) {
	if err := a.mayAnswer(v, digest, reason, now); err != nil {
		return a, err
	}
	if !says(reason) {
		return a, fault.New(fault.RequestMalformed, "is missing: say why not").At("reason")
	}
	a = a.vote(v, Reject, reason, now)
	a.State, a.Reason, a.DeferredUntil, a.IntervenedAt = Rejected, reason, time.Time{}, now.UTC()
	return a, nil
}

// Defer postpones the answer: until a time, or with the zero time until somebody takes it up again. It never moves the expiry.
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
	a.State, a.DeferredUntil, a.IntervenedAt = Deferred, time.Time{}, now.UTC()
	if !until.IsZero() {
		a.DeferredUntil = until.UTC()
	}
	return a, nil
}

// Supersede voids the approval because its subject, or the rules that asked, changed, or the agent was stopped. reason says it to people.
func (a Approval) Supersede(reason string, now time.Time) (Approval, error) {
	if err := a.open(now); err != nil {
		return a, err
	}
	a.State, a.Reason = Superseded, reason
	return a, nil
}

// Modify voids the approval because the voter wants other arguments. Those are asked about in a new approval with the id next. Earlier votes are
// for the old arguments alone. Errors as for Reject.
func (a Approval) Modify(v Voter, digest, reason, next string, now time.Time) (Approval, error) {
	if err := a.mayAnswer(v, digest, reason, now); err != nil {
		return a, err
	}
	if !says(reason) {
		return a, fault.New(fault.RequestMalformed, "is missing: say what was wrong with the arguments").At("reason")
	}
	a.State, a.Reason, a.ReplacedBy, a.IntervenedAt = Superseded, reason, next, now.UTC()
	return a, nil
}

// says reports whether a reason has any text.
func says(reason string) bool {
	return strings.ContainsFunc(reason, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
}

// Recount removes the approvals of people who are no longer entitled. If too few are left, the approval is pending again, or deferred if silence
// would permit it then. The caller applies it at dispatch, when it looks up roles and expiry again. voter returns false for unknown people. The
// result can be stored and answered again.
func (a Approval) Recount(voter func(person string) (Voter, bool)) Approval {
	a.Votes = slices.Clone(a.Votes)
	for i, vote := range a.Votes { // two accounts of one person are one vote
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
		if !a.SilenceAt.IsZero() { // a person has answered: silence permits nothing even without their vote
			a.State = Deferred
		}
	}
	return a
}

// Covers checks whether the approval permits a call now, named by its call digest: nil, or why not. Errors: fault.ApprovalRequired while it waits
// for an answer; fault.ApprovalRejected with the reason; fault.ApprovalExpired; fault.ApprovalMismatch for another call, for a superseded approval,
// and for one that is not intact; fault.Conflict after it was used, because the next call needs a new approval.
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
		return fault.New(fault.Conflict, "The approval was used by %s; an approval is for one call.", a.SpentBy)
	case Superseded:
		if a.ReplacedBy != "" {
			return fault.New(fault.ApprovalMismatch, "A person wants other arguments for this call: %s", a.Reason)
		}
		return fault.New(fault.ApprovalMismatch, "The request counts no more: %s", cmp.Or(a.Reason, "it changed after it was asked for.")).Try("Make the call again to ask again.")
	default:
		return fault.New(fault.Internal, "unknown approval state %q", at)
	}
}

// Spend uses the approval for one call. A second time is a fault.Conflict.
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
