// Package mcpwire holds the form of MCP messages, in which the gateway speaks to agents, to servers and to its own bridge: the JSON-RPC
// envelope, its ids and errors, the revisions of the protocol, the headers and the _meta members that carry them, and how messages stand
// in event streams, in bodies and on lines.
//
// Promises: a message that is parsed is strict JSON within the caller's limits and can be read in one way only; ids that are equal have
// equal keys; what is written is one line; nothing that is read grows beyond the caller's limit. What a message means, and who may
// send it, is for the callers.
package mcpwire

// The revisions of the protocol. They are dates, so a later one sorts after an earlier one.
const (
	Revision1105 = "2024-11-05"
	Revision0326 = "2025-03-26"
	Revision0618 = "2025-06-18"
	Revision1125 = "2025-11-25"
	Revision0728 = "2026-07-28"
)

// Modern tells whether a revision is of the modern era, which begins with 2026-07-28. There every request stands alone: it says version
// and capabilities in _meta and repeats what it is about in headers, a server asks the client in its result, and closing a stream
// cancels. In the legacy era, before that, initialize opens a session, a GET stream carries what the server says by itself, and a
// server asks the client by requests of its own.
func Modern(revision string) bool { return revision >= Revision0728 }

// Headers of the streamable HTTP transport.
const (
	HeaderSession = "Mcp-Session-Id" // legacy era only
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method" // modern era only, like the next one
	HeaderName    = "Mcp-Name"
	HeaderEventID = "Last-Event-Id"
)

// Members of _meta that the modern era gives a meaning.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo   = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel     = "io.modelcontextprotocol/logLevel"
	MetaServerInfo   = "io.modelcontextprotocol/serverInfo"

	// MetaToolUse is Claude Code's own member: by which id its model asked for the call.
	MetaToolUse = "claudecode/toolUseId"
)

// Media types of a message and of a stream of messages.
const (
	TypeJSON   = "application/json"
	TypeEvents = "text/event-stream"
)

// Error codes of JSON-RPC, then of MCP.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeResourceNotFound   = -32002 // legacy era only; CodeInvalidParams since
	CodeHeaderMismatch     = -32020
	CodeClientCapability   = -32021
	CodeUnsupportedVersion = -32022
)
