package declare

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// State is the state of a declaration. Rejected, spent and expired are final.
type State string

const (
	Pending  State = "pending"
	Approved State = "approved"
	Rejected State = "rejected"
	Spent    State = "spent"
	Expired  State = "expired"
)

// States are all of them.
var States = []State{Pending, Approved, Rejected, Spent, Expired}

// ByRule is the decider if no person decided (DE-5).
const ByRule = "rule"

// Declaration is a checked request with its digest and its state. Treat it as a value: moves return a new one.
type Declaration struct {
	ID             string          `json:"declaration_id"`
	Session        string          `json:"session_id"`
	Agent          string          `json:"agent_id"`
	Requester      string          `json:"requester,omitempty"`
	Operation      string          `json:"operation"`
	DefinitionHash string          `json:"definition_hash"`
	Parameters     json.RawMessage `json:"parameters"` // canonical
	Justification  Justification   `json:"justification"`
	Flags          []string        `json:"flags"`
	Digest         string          `json:"digest"`
	CallDigest     string          `json:"call_digest"` // of the one call that it is for
	State          State           `json:"state"`       // as it was last written; At knows about expiry
	DecidedBy      string          `json:"decided_by,omitempty"`
	Reason         string          `json:"reason,omitempty"`
	ApprovalID     string          `json:"approval_id,omitempty"`
	Risk           string          `json:"risk,omitempty"`
	CreatedAt      time.Time       `json:"created_at"`
	ExpiresAt      time.Time       `json:"expires_at"`
	SpentBy        string          `json:"spent_by,omitempty"` // call id
}

// Digest is the SHA-256, in hex, of a declaration: a domain separator, then each field after its length, so that no field can run into the next.
// parameters are canonical.
func Digest(agent, session, operation, defHash string, parameters json.RawMessage, j Justification) string {
	h := sha256.New()
	for _, s := range []string{"sallyport/declaration/v1", agent, session, operation, defHash, string(parameters),
		j.UserRequest, j.MissingKnowledge, j.ExpectedUse} {
		h.Write(strconv.AppendInt(nil, int64(len(s)), 10))
		h.Write([]byte{':'})
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// New completes a declaration made of a checked request: id, digests, times; pending. d needs session, agent, operation, definition hash,
// parameters and justification. An incomplete one is a fault.Internal.
func New(d Declaration, now time.Time, life time.Duration) (Declaration, error) {
	canonical, err := call.Canonical(d.Parameters, call.DefaultLimits())
	if err != nil || canonical[0] != '{' {
		return d, fault.Wrap(err, fault.DeclarationInvalid, "must be an object").At("parameters")
	}
	if d.Session == "" || d.Agent == "" || d.Operation == "" || d.DefinitionHash == "" || life <= 0 {
		return d, fault.New(fault.Internal, "a declaration lacks its session, agent, operation, definition or lifetime")
	}
	d.Parameters = canonical
	d.ID = call.NewID("decl_", now)
	d.Digest = Digest(d.Agent, d.Session, d.Operation, d.DefinitionHash, d.Parameters, d.Justification)
	d.CallDigest = call.Digest(d.Agent, d.Session, d.Operation, d.DefinitionHash, d.Parameters)
	d.State, d.DecidedBy, d.Reason, d.SpentBy = Pending, "", "", ""
	d.CreatedAt, d.ExpiresAt = now.UTC(), now.Add(life).UTC()
	if d.Flags == nil {
		d.Flags = []string{}
	}
	return d, nil
}

// At is the state at a time: a declaration that is not final expires when its time is up, stored or not.
func (d Declaration) At(now time.Time) State {
	if (d.State == Pending || d.State == Approved) && !now.Before(d.ExpiresAt) {
		return Expired
	}
	return d.State
}

// Decide answers a pending declaration, or rejects an approved one. by is ByRule or a principal. A rejection has a reason.
func (d Declaration) Decide(approve bool, by, reason string, now time.Time) (Declaration, error) {
	switch at := d.At(now); {
	case at == Expired:
		return d, d.expired()
	case at != Pending && (at != Approved || approve): // it can be rejected until it is spent
		return d, fault.New(fault.Conflict, "The declaration is %s already.", at)
	case by == "":
		return d, fault.New(fault.Internal, "a decision has no decider")
	case !approve && strings.TrimSpace(reason) == "":
		return d, fault.New(fault.RequestMalformed, "is missing: say why not").At("reason")
	}
	d.State = Rejected
	if approve {
		d.State = Approved
	}
	d.DecidedBy, d.Reason = by, reason
	return d, nil
}

// Covers checks whether the declaration permits a call now, named by its call digest: nil, or why not.
func (d Declaration) Covers(callDigest string, now time.Time) error {
	if callDigest == "" || callDigest != d.CallDigest {
		return fault.New(fault.DeclarationInvalid, "The call is not the one that was declared.").Try("Declare it as it is to be called.")
	}
	switch at := d.At(now); at {
	case Approved:
		return nil
	case Pending:
		return fault.New(fault.ApprovalRequired, "The declaration waits for a person's answer.")
	case Rejected:
		return fault.New(fault.ApprovalRejected, "The declaration was rejected: %s", d.Reason)
	case Expired:
		return d.expired()
	case Spent:
		return fault.New(fault.DeclarationInvalid, "The declaration was used by %s; a declaration is for one call.", d.SpentBy).Try("Declare the next call.")
	default:
		return fault.New(fault.Internal, "unknown declaration state %q", at)
	}
}

func (d Declaration) expired() error {
	return fault.New(fault.ApprovalExpired, "The declaration expired at %s.", d.ExpiresAt.Format(time.RFC3339)).Try("Declare the need again.")
}

// Spend uses the declaration for one call. A second time is a fault.Conflict.
func (d Declaration) Spend(callID string, now time.Time) (Declaration, error) {
	if d.State == Spent {
		return d, fault.New(fault.Conflict, "The declaration was used by %s already.", d.SpentBy)
	}
	if err := d.Covers(d.CallDigest, now); err != nil {
		return d, err
	}
	if callID == "" {
		return d, fault.New(fault.Internal, "a declaration is spent by a call")
	}
	d.State, d.SpentBy = Spent, callID
	return d, nil
}

// Key groups similar declarations that can be answered as one batch (DE-5): the same agent, session, operation, definition and risk, and the same
// target: scheme, host and port of parameters.url and the name in parameters.database, if they are there. An unreadable URL is a target of its own.
// Every declaration keeps its own digest: a batch is a list of digests.
func (d Declaration) Key() string {
	var origin, database string
	if raw, ok := call.Get(d.Parameters, "url"); ok {
		origin = string(raw)
		var s string
		if json.Unmarshal(raw, &s) == nil {
			if u, err := url.Parse(s); err == nil && u.Host != "" {
				scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
				if port == "" {
					port = map[string]string{"https": "443", "http": "80"}[scheme]
				}
				origin = scheme + "://" + host + ":" + port
			}
		}
	}
	if raw, ok := call.Get(d.Parameters, "database"); ok {
		database = string(raw)
	}
	key, err := json.Marshal([]string{d.Agent, d.Session, d.Operation, d.DefinitionHash, d.Risk, origin, database})
	if err != nil { // strings always encode
		panic("declare: " + err.Error())
	}
	return string(key)
}
