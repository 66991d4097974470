package mcpapi

import (
	"bytes"
	"encoding/json"
	"strconv"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// JSON-RPC and MCP error codes that this face answers by itself. The codes of refusals come from package fault.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeResourceNotFound   = -32002 // revisions up to 2025-11-25
	codeHeaderMismatch     = -32020
	codeClientCapability   = -32021
	codeUnsupportedVersion = -32022
)

const (
	maxBody   = 4 << 20 // bytes of one request
	maxID     = 256     // bytes of a request id or progress token, as written
	maxMethod = 128
)

// rpcError is a JSON-RPC error object on its way out, with the HTTP status it goes under where no event stream has begun.
type rpcError struct {
	status  int
	code    int64
	message string
	data    json.RawMessage
	fault   fault.Code      // what the record calls it; "": request.malformed
	raw     json.RawMessage // an upstream's own error object, in place of the three above
}

func (e *rpcError) object() json.RawMessage {
	if e.raw != nil {
		return e.raw
	}
	b := append([]byte(`{"code":`), strconv.FormatInt(e.code, 10)...)
	b = append(b, `,"message":`...)
	b = appendJSON(b, e.message)
	if len(e.data) > 0 {
		b = append(append(b, `,"data":`...), e.data...)
	}
	return append(b, '}')
}

func badRequest(code int64, message string) *rpcError {
	return &rpcError{status: 400, code: code, message: message}
}

// envelope is one JSON-RPC message. Its members are slices of the body, which is checked JSON.
type envelope struct {
	id     json.RawMessage // as written: a string or an integer; nil for a notification
	method string          // "" for a response
	params json.RawMessage // an object, or nil
	result json.RawMessage // of a response: this or err
	err    json.RawMessage
}

// limits of one message; the arguments within are bounded again by the corridor.
var limits = call.Limits{Bytes: maxBody, Depth: 64 + 4, Members: 100_000 + 100}

// parseEnvelope parses one message strictly. The id comes back even with an error, once it is known to be one, so that the
// answer can carry it. Batches and members that JSON-RPC does not have are refused: nothing here may be read in two ways.
func parseEnvelope(body []byte) (envelope, *rpcError) {
	var m envelope
	if err := call.Check(body, limits); err != nil {
		return m, badRequest(codeParse, "The body is not strict JSON: "+fault.Of(err).Public())
	}
	switch first(body) {
	case '{':
	case '[':
		return m, badRequest(codeInvalidRequest, "Batches are not accepted. Send one message per request.")
	default:
		return m, badRequest(codeInvalidRequest, "A message is a JSON object.")
	}
	var version, method json.RawMessage
	var stranger string
	for name, value := range call.Members(body) {
		switch name {
		case "jsonrpc":
			version = value
		case "id":
			if !validID(value) {
				return m, badRequest(codeInvalidRequest, "id must be a string or an integer, of at most 256 bytes.")
			}
			m.id = value
		case "method":
			method = value
		case "params":
			m.params = value
		case "result":
			m.result = value
		case "error":
			m.err = value
		default:
			stranger = name
		}
	}
	switch {
	case stranger != "":
		return m, badRequest(codeInvalidRequest, "unknown member "+strconv.QuoteToASCII(clip(stranger))+": a message has jsonrpc, id, method and params.")
	case string(version) != `"2.0"`:
		return m, badRequest(codeInvalidRequest, `jsonrpc must be "2.0".`)
	case method == nil:
		if m.id == nil || m.params != nil || (m.result == nil) == (m.err == nil) {
			return m, badRequest(codeInvalidRequest, "A message has a method, or is a response with an id and either a result or an error.")
		}
		return m, nil
	case m.result != nil || m.err != nil:
		return m, badRequest(codeInvalidRequest, "A request has no result and no error.")
	case m.params != nil && first(m.params) != '{':
		return m, badRequest(codeInvalidParams, "params must be an object.")
	}
	if m.method, _ = text(method); m.method == "" || len(m.method) > maxMethod {
		return m, badRequest(codeInvalidRequest, "method must be a string of at most 128 bytes.")
	}
	return m, nil
}

// first is the first byte of a JSON value, past white space.
func first(value []byte) byte {
	for _, c := range value {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// text decodes a JSON string; false if the value is none.
func text(value json.RawMessage) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	var s string
	err := json.Unmarshal(value, &s)
	return s, err == nil
}

// validID accepts what MCP accepts as a request id or a progress token: a string or an integer.
func validID(value json.RawMessage) bool {
	if len(value) == 0 || len(value) > maxID {
		return false
	}
	if value[0] == '"' {
		return true
	}
	digits := bytes.TrimPrefix(value, []byte("-"))
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(digits) > 0 && len(digits) <= 19
}

// idKey is equal for ids that are equal, however a string is escaped.
func idKey(id json.RawMessage) string {
	if s, ok := text(id); ok {
		return "s" + s
	}
	return "n" + string(id)
}

// appendJSON appends v as JSON without HTML escapes. Everything it is used for encodes.
func appendJSON(b []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return append(b, "null"...)
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// clip shortens hostile text for an error message.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// oneLine returns JSON that has no line breaks, so that it can be one data line of an event, and nothing in it begins another.
func oneLine(value []byte) []byte {
	if bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0 {
		return value
	}
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return []byte("null")
	}
	return b.Bytes()
}
