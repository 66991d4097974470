// Package call holds one operation call as the gateway sees it: strictly parsed once, in canonical bytes, under a digest that
// everything else (approval, audit, dispatch) refers to; and the shapes that cross the line to an upstream server.
//
// Promises: what was judged is what is sent (docs/design.md, rule 5). Canonical bytes are the only form in which arguments are kept,
// hashed, shown and forwarded. JSON with duplicate or case-variant keys, trailing data, a byte order mark or invalid UTF-8 is refused.
package call

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// Kind is what an upstream offers.
type Kind string

const (
	Tool     Kind = "tool"
	Resource Kind = "resource" // the operation <server>.read_resource
	Prompt   Kind = "prompt"   // the operation <server>.get_prompt

	Model Kind = "model" // a model that the operator has configured: the operation model.<id>
)

// Method is what is asked for, by MCP's name for it. Records and digests have the same name.
type Method string

// The methods that go through the corridor.
const (
	CallTool     Method = "tools/call"
	ReadResource Method = "resources/read"
	Subscribe    Method = "resources/subscribe"
	Unsubscribe  Method = "resources/unsubscribe"
	GetPrompt    Method = "prompts/get"
	Complete     Method = "completion/complete"

	AskModel Method = "models/request" // of the model door; no method of MCP
)

// Definition is one thing that an upstream offers, as it described it. Everything in it is hostile.
type Definition struct {
	Server string // the operator's id of the server
	Name   string // the server's name for the thing; for resources the URI or URI template
	Kind   Kind
	JSON   []byte // canonical JSON of the whole definition
	Hash   string // hex SHA-256 of JSON; pins the definition: every string of it counts
	Fault  string // why it can't be exposed (bad name, schema too large …); "" if it can
}

// HashBytes is the hex SHA-256 that definitions, payloads and declarations are known by.
func HashBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Exchange is what may pass between agent and upstream while a call runs, besides its result. A nil func is not offered.
type Exchange struct {
	// Progress and Log carry the params object of notifications/progress and notifications/message. They are called from one
	// goroutine at a time and must not block for long.
	Progress func(params json.RawMessage)
	Log      func(params json.RawMessage)
	// Ask carries a server-to-client request (elicitation/create, sampling/createMessage, roots/list) to the agent's client.
	Ask func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
	// Agent is whose call it is; "" means the gateway's own.
	Agent string
	// ClientKey separates upstream conversations in which the server may ask back: one per downstream connection.
	// "" means the conversation that all callers share, in which questions of servers are refused.
	ClientKey string
	// ClientCapabilities is the capabilities object of the agent's client, for upstreams that may ask it.
	ClientCapabilities json.RawMessage
	// Multi-round-trip requests (MCP 2026-07-28): the client's answers and the server's own opaque state, already unsealed.
	InputResponses json.RawMessage
	RequestState   string
	// Room takes the memory for what comes back.
	Room Room
}

// Room takes memory for bytes more before they are read, or fails. A nil one has always room.
type Room interface{ More(bytes int) error }

// RPCError is a JSON-RPC error that was answered in place of a result. JSON is its error object, strictly parsed and bounded.
type RPCError struct{ JSON json.RawMessage }

func (e *RPCError) Error() string { return "upstream answered with an error: " + string(e.JSON) }

// Digest is the call digest: agent, session, operation, definition hash and canonical arguments, in a form in which
// no field can run into the next.
func Digest(agent, session, operation, definitionHash string, arguments []byte) string {
	h := sha256.New()
	for _, s := range []string{"sallyport call v1", agent, session, operation, definitionHash} {
		h.Write(strconv.AppendInt(nil, int64(len(s)), 10))
		h.Write([]byte{':'})
		h.Write([]byte(s))
	}
	h.Write(arguments)
	return hex.EncodeToString(h.Sum(nil))
}
