package mcpwire

import (
	"bytes"
	"encoding/json"
	"strconv"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

const (
	maxID     = 256 // bytes of an id or a progress token, as it is written
	maxMethod = 128
)

// Message is one JSON-RPC message: a request has an ID and a Method, a notification a Method alone, a response an ID and either a Result
// or an Error. The response to a request that could not be read has no ID. In a parsed message the members are slices of what was parsed.
type Message struct {
	ID     json.RawMessage // a string or an integer
	Method string
	Params json.RawMessage // an object, or nil
	Result json.RawMessage
	Error  json.RawMessage
}

// Response tells whether the message answers a request.
func (m *Message) Response() bool { return m.Method == "" }

// Error is a JSON-RPC error object.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// JSON is the error as it stands in a response.
func (e *Error) JSON() json.RawMessage { return AppendJSON(nil, e) }

func refuse(code int64, message string) *Error { return &Error{Code: code, Message: message} }

// Parse parses one message strictly. With an error the message has its ID all the same, once that is known to be one, so that the answer
// can carry it. Batches and members that JSON-RPC does not have are refused.
func Parse(data []byte, lim call.Limits) (Message, *Error) {
	var m Message
	if err := call.Check(data, lim); err != nil {
		return m, refuse(CodeParse, "The message is not strict JSON: "+fault.Of(err).Public())
	}
	switch bytes.TrimLeft(data, " \t\r\n")[0] {
	case '{':
	case '[':
		return m, refuse(CodeInvalidRequest, "Batches are not accepted. Send one message at a time.")
	default:
		return m, refuse(CodeInvalidRequest, "A message is a JSON object.")
	}
	var version, method json.RawMessage
	var unknown string
	nullID := false
	for name, value := range call.Members(data) {
		switch name {
		case "jsonrpc":
			version = value
		case "id":
			if nullID = string(value) == "null"; nullID {
				continue
			}
			if !ValidID(value) {
				return m, refuse(CodeInvalidRequest, "id must be a string or an integer, of at most 256 bytes.")
			}
			m.ID = value
		case "method":
			method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		default:
			unknown = name
		}
	}
	switch {
	case unknown != "":
		return m, refuse(CodeInvalidRequest, "unknown member "+strconv.QuoteToASCII(Clip(unknown))+": a message has jsonrpc, id, method and params.")
	case string(version) != `"2.0"`:
		return m, refuse(CodeInvalidRequest, `jsonrpc must be "2.0".`)
	case nullID && (method != nil || m.Error == nil):
		return m, refuse(CodeInvalidRequest, "id must not be null.")
	case method == nil:
		if m.ID == nil && !nullID || m.Params != nil || (m.Result == nil) == (m.Error == nil) {
			return m, refuse(CodeInvalidRequest, "A message has a method, or is a response with an id and either a result or an error.")
		}
		return m, nil
	case m.Result != nil || m.Error != nil:
		return m, refuse(CodeInvalidRequest, "A request has no result and no error.")
	case m.Params != nil && !call.IsObject(m.Params):
		return m, refuse(CodeInvalidParams, "params must be an object.")
	}
	if m.Method, _ = call.Text(method); m.Method == "" || len(m.Method) > maxMethod {
		m.Method = ""
		return m, refuse(CodeInvalidRequest, "method must be a string of at most 128 bytes.")
	}
	return m, nil
}

// Append writes the message on one line.
func (m *Message) Append(b []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if m.ID != nil {
		b = append(append(b, `,"id":`...), m.ID...)
	} else if m.Response() {
		b = append(b, `,"id":null`...)
	}
	if m.Method != "" {
		b = AppendJSON(append(b, `,"method":`...), m.Method)
	}
	for _, part := range [...]struct {
		member string
		value  json.RawMessage
	}{{`,"params":`, m.Params}, {`,"result":`, m.Result}, {`,"error":`, m.Error}} {
		if len(part.value) > 0 {
			b = append(append(b, part.member...), OneLine(part.value)...)
		}
	}
	return append(b, '}')
}

// ValidID accepts what MCP accepts as a request id or a progress token: a string or an integer.
func ValidID(value json.RawMessage) bool {
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

// IDKey is a key for an id. Equal ids have equal keys, however a string is escaped.
func IDKey(id json.RawMessage) string {
	if s, ok := call.Text(id); ok {
		return "s" + s
	}
	return "n" + string(id)
}

// AppendJSON appends v as JSON without HTML escapes. What can't be encoded is null.
func AppendJSON(b []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return append(b, "null"...)
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// OneLine returns checked JSON without line breaks, so that it can be one line of a stream.
func OneLine(value []byte) []byte {
	if bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0 {
		return value
	}
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return []byte("null")
	}
	return b.Bytes()
}

// Clip shortens hostile text for an error message.
func Clip(s string) string { return display.Clip(s, 60) }

// Quote writes hostile text for an error message: clipped, as a JSON string.
func Quote(s string) string { return string(AppendJSON(nil, Clip(s))) }
