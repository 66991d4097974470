package mcpapi

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"sallyport.example/internal/call"
)

// request is a request with its params taken apart. The fields are slices of the body; nil where the member is missing. Members
// that no revision gives a meaning here are ignored and go nowhere.
type request struct {
	envelope
	name, uri, arguments         json.RawMessage
	ref, argument, context       json.RawMessage
	cursor, level                json.RawMessage
	requestID                    json.RawMessage // of notifications/cancelled
	capabilities                 json.RawMessage // of initialize
	inputResponses, requestState json.RawMessage

	// From _meta.
	progressToken                 json.RawMessage
	version, clientCaps, clientIs json.RawMessage
	logLevel                      json.RawMessage
}

const metaPrefix = "io.modelcontextprotocol/"

func parseRequest(m envelope) (request, *rpcError) {
	r := request{envelope: m}
	var meta json.RawMessage
	for name, value := range call.Members(m.params) {
		switch name {
		case "name":
			r.name = value
		case "uri":
			r.uri = value
		case "arguments":
			r.arguments = value
		case "ref":
			r.ref = value
		case "argument":
			r.argument = value
		case "context":
			r.context = value
		case "cursor":
			r.cursor = value
		case "level":
			r.level = value
		case "requestId":
			r.requestID = value
		case "capabilities":
			r.capabilities = value
		case "inputResponses":
			r.inputResponses = value
		case "requestState":
			r.requestState = value
		case "_meta":
			meta = value
		}
	}
	if meta == nil {
		return r, nil
	}
	if first(meta) != '{' {
		return r, badRequest(codeInvalidParams, "_meta must be an object.")
	}
	for name, value := range call.Members(meta) {
		switch name {
		case "progressToken":
			if !validID(value) {
				return r, badRequest(codeInvalidParams, "_meta.progressToken must be a string or an integer.")
			}
			r.progressToken = value
		case metaPrefix + "protocolVersion":
			r.version = value
		case metaPrefix + "clientCapabilities":
			r.clientCaps = value
		case metaPrefix + "clientInfo":
			r.clientIs = value
		case metaPrefix + "logLevel":
			r.logLevel = value
		}
	}
	return r, nil
}

// target is the name or URI that the request is about, as revision 2026-07-28 repeats it in Mcp-Name.
func (r *request) target() (name string, has bool) {
	switch r.method {
	case "tools/call", "prompts/get":
		name, has = text(r.name)
	case "resources/read":
		name, has = text(r.uri)
	}
	return name, has
}

// isModern tells which era a message is of. A request can say so in its header or in its body; where the two disagree, it is
// modern and refused as such.
func isModern(h http.Header, r *request) bool {
	if h.Get(headerVersion) >= revision0728 {
		return true
	}
	v, _ := text(r.version)
	return v >= revision0728
}

// checkModern checks what 2026-07-28 demands of a request: known method, version in header and body, header and body agreeing on
// what is called, the client's capabilities.
func checkModern(h http.Header, r *request) *rpcError {
	if !modernMethods[r.method] {
		return &rpcError{status: http.StatusNotFound, code: codeMethodNotFound, message: "There is no method " + quoted(r.method) + " in revision 2026-07-28."}
	}
	mismatch := func(what string) *rpcError { return badRequest(codeHeaderMismatch, what) }
	header := h.Get(headerVersion)
	version, ok := text(r.version)
	switch {
	case header == "":
		return mismatch("The header " + headerVersion + " is missing.")
	case !ok:
		return badRequest(codeInvalidParams, "_meta must have "+metaPrefix+"protocolVersion.")
	case header != version:
		return mismatch("The header " + headerVersion + " is not the protocolVersion in the body.")
	}
	switch method := h.Get(headerMethod); {
	case method == "":
		return mismatch("The header " + headerMethod + " is missing.")
	case method != r.method:
		return mismatch("The header " + headerMethod + " is not the method in the body.")
	}
	switch r.method {
	case "tools/call", "prompts/get", "resources/read":
		name, has := r.target()
		header := h.Get(headerName)
		switch decoded, good := decodeHeader(header); {
		case header == "":
			return mismatch("The header " + headerName + " is missing.")
		case !has || header != name && (!good || decoded != name):
			return mismatch("The header " + headerName + " is not the name in the body.")
		}
	}
	if version != revision0728 {
		return &rpcError{
			status: http.StatusBadRequest, code: codeUnsupportedVersion, message: "This protocol version is not supported.",
			data: appendJSON(nil, map[string]any{"supported": revisions, "requested": version}),
		}
	}
	if first(r.clientCaps) != '{' {
		return badRequest(codeInvalidParams, "_meta must have "+metaPrefix+"clientCapabilities, an object.")
	}
	if r.clientIs != nil && first(r.clientIs) != '{' {
		return badRequest(codeInvalidParams, "_meta: "+metaPrefix+"clientInfo must be an object.")
	}
	return nil
}

// decodeHeader undoes the base64 form that header values outside printable ASCII have.
func decodeHeader(v string) (string, bool) {
	encoded, ok := strings.CutPrefix(v, "=?base64?")
	if !ok {
		return v, true
	}
	if encoded, ok = strings.CutSuffix(encoded, "?="); !ok {
		return v, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return string(b), err == nil
}

// What a client of 2026-07-28 can ask for, and what a client of any revision can announce. What is not here does not exist.
var (
	modernMethods = map[string]bool{
		"server/discover": true, "subscriptions/listen": true,
		"tools/list": true, "resources/list": true, "resources/templates/list": true, "prompts/list": true,
		"tools/call": true, "resources/read": true, "prompts/get": true, "completion/complete": true,
	}
	clientNotifications = map[string]bool{
		"notifications/initialized": true, "notifications/cancelled": true, "notifications/progress": true,
		"notifications/roots/list_changed": true,
	}
)

func quoted(s string) string { return string(appendJSON(nil, clip(s))) }
