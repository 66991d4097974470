package audit

import (
	"encoding/json"
	"time"

	"sallyport.example/internal/display"
)

// Kind says what an entry records.
type Kind string

const (
	Intent   Kind = "intent"   // a call is about to have its effect
	Outcome  Kind = "outcome"  // the end of an intent; an intent without an outcome is unknown
	Decision Kind = "decision" // a call, plan or declaration was judged and nothing was done
	Change   Kind = "change"   // a person or the gateway changed state: session, label, switch, tool, token
)

// Entry is one record. Index and At are set by the log when it is appended; At never runs backwards.
// The JSON names are public: /v1/audit shows them (docs/openapi.json).
type Entry struct {
	Index     int64     `json:"index"`
	At        time.Time `json:"at"`
	Kind      Kind      `json:"kind"`
	Severity  Severity  `json:"severity,omitempty"` // what the log gives it: see Classify; absent in entries of old versions
	Action    string    `json:"action"`             // "call", "session.open", "kill.disable", …
	Event     Event     `json:"event,omitempty"`    // what it means for security, if anything: see Classify
	Agent     string    `json:"agent,omitempty"`
	Session   string    `json:"session,omitempty"`
	Requester string    `json:"requester,omitempty"`
	Actor     string    `json:"actor,omitempty"`  // the credential that acted, as kind:id
	Door      string    `json:"door,omitempty"`   // mcp, http, console
	Remote    string    `json:"remote,omitempty"` // of what a door turned away: the address that it came from
	RequestID string    `json:"request_id,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Type      string    `json:"action_type,omitempty"` // the operation's action in the risk rules: transfer_money, …
	CallID    string    `json:"call_id,omitempty"`
	Digest    string    `json:"call_digest,omitempty"`
	DefHash   string    `json:"definition_hash,omitempty"`

	Decision string `json:"decision,omitempty"` // permit, ask, deny; for outcomes ok, error, unknown, discarded
	Stage    string `json:"stage,omitempty"`
	Code     string `json:"code,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"` // it was let through, and stage, code and reason are of the verdict it would have had (mode: observe)

	Risk      string   `json:"risk,omitempty"`
	Amount    string   `json:"amount,omitempty"`
	Approvers []string `json:"approvers,omitempty"`
	Model     string   `json:"model,omitempty"`

	Arguments   *Payload        `json:"arguments,omitempty"`
	Result      *Payload        `json:"result,omitempty"`
	Labels      []string        `json:"labels,omitempty"` // labels that this entry raised or released
	Attribution json.RawMessage `json:"attribution,omitempty"`
	Detail      json.RawMessage `json:"detail,omitempty"` // what the action changed; small
	DurationMS  int64           `json:"duration_ms,omitempty"`

	// Rows are the rows of the store's state that changed in the same transaction. The store sets them.
	Rows []Row `json:"rows,omitempty"`
}

// Adopt is the action of the entry that takes over rows of a store that were there before the log named rows, or before their MACs covered
// all their columns.
const Adopt = "state.adopt"

// Row says what an entry did to one row of the store's state. So each row has its history in the log, and the newest entry that names it says
// how it must look.
type Row struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	Was   int64  `json:"was"`           // the entry that changed it before; -1: the row is new
	MAC   string `json:"mac,omitempty"` // of the row as it is now, base64; "": the row was removed
}

// Payload is arguments or a result: always by hash, shown with secrets redacted, and kept apart when it is large.
type Payload struct {
	SHA256   string          `json:"sha256"` // of the exact bytes
	Size     int64           `json:"size"`
	Shown    json.RawMessage `json:"shown,omitempty"`    // redacted, when small enough to stand in the entry
	Stored   bool            `json:"stored,omitempty"`   // the redacted bytes are in the payload table under Key
	Key      string          `json:"key,omitempty"`      // hex SHA-256 of the stored (redacted) bytes
	Redacted bool            `json:"redacted,omitempty"` // Shown or stored bytes differ from the exact ones
	Bytes    []byte          `json:"-"`                  // what to store under Key, when Stored
}

// Folded is the action of an entry that stands for many refusals of one actor for one cause (internal/refusals).
const Folded = "refusals"

// maxReason bounds a reason, in bytes.
const maxReason = 2000

// Clip bounds the text of a reason.
func Clip(s string) string { return display.Clip(s, maxReason) }
