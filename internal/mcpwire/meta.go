package mcpwire

import (
	"encoding/json"

	"sallyport.example/internal/call"
)

// Meta holds the members of a request's _meta that belong to the protocol. A nil or empty field is absent.
type Meta struct {
	ProgressToken json.RawMessage // a string or an integer

	// Of the modern era.
	Version      string          // "" also where it is no string
	ClientInfo   json.RawMessage // any JSON, like the next two
	Capabilities json.RawMessage
	LogLevel     json.RawMessage

	ToolUse string // the id by which the client's model asked for the call, where the client says so; it is handed on to nobody
}

// maxToolUse bounds such an id, in bytes.
const maxToolUse = 256

// ParseMeta reads the _meta of checked params. Members that neither a revision nor MetaToolUse gives a meaning are left out.
func ParseMeta(params json.RawMessage) (Meta, *Error) {
	var m Meta
	raw, has := call.Get(params, "_meta")
	if !has {
		return m, nil
	}
	if !call.IsObject(raw) {
		return m, refuse(CodeInvalidParams, "_meta must be an object.")
	}
	for name, value := range call.Members(raw) {
		switch name {
		case "progressToken":
			if !ValidID(value) {
				return m, refuse(CodeInvalidParams, "_meta.progressToken must be a string or an integer.")
			}
			m.ProgressToken = value
		case MetaVersion:
			m.Version, _ = call.Text(value)
		case MetaClientInfo:
			m.ClientInfo = value
		case MetaCapabilities:
			m.Capabilities = value
		case MetaLogLevel:
			m.LogLevel = value
		case MetaToolUse:
			if id, ok := call.Text(value); ok && len(id) <= maxToolUse {
				m.ToolUse = id
			}
		}
	}
	return m, nil
}

// JSON is the _meta object; nil if it would be empty.
func (m *Meta) JSON() json.RawMessage {
	var b []byte
	for _, part := range [...]struct {
		name  string
		value json.RawMessage
	}{{MetaVersion, nil}, {MetaClientInfo, m.ClientInfo}, {MetaCapabilities, m.Capabilities}, {MetaLogLevel, m.LogLevel}, {"progressToken", m.ProgressToken}} {
		if part.name == MetaVersion && m.Version != "" {
			part.value = AppendJSON(nil, m.Version)
		}
		if part.value == nil {
			continue
		}
		if b == nil {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), part.name...), `":`...), part.value...)
	}
	if b == nil {
		return nil
	}
	return append(b, '}')
}
