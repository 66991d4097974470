package mcpapi

import (
	"encoding/json"
	"net/http"

	"sallyport.example/internal/call"
	"sallyport.example/internal/mcpwire"
)

// request is a request, or a notification, with the members of its params. Members that no revision defines are ignored.
type request struct {
	mcpwire.Message
	params
	meta mcpwire.Meta
	room call.Room // for what it brings
}

// params are the members of params by name. The fields are slices of the body; nil where the member is missing.
type params struct {
	name, uri, arguments         json.RawMessage
	ref, argument, context       json.RawMessage
	cursor, level                json.RawMessage
	requestID                    json.RawMessage // of notifications/cancelled
	capabilities                 json.RawMessage // of initialize
	inputResponses, requestState json.RawMessage
}

func parseRequest(m mcpwire.Message) (request, *rpcError) {
	r := request{Message: m}
	for name, value := range call.Members(m.Params) {
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
		}
	}
	var e *mcpwire.Error
	r.meta, e = mcpwire.ParseMeta(m.Params)
	return r, badMessage(e)
}

// isModern tells whether a message is of the modern era. The header or the body can say so; if only one of them does, the message counts as
// modern, and checkModern refuses it.
func isModern(h http.Header, r *request) bool {
	return mcpwire.Modern(h.Get(mcpwire.HeaderVersion)) || mcpwire.Modern(r.meta.Version)
}

// checkModern checks what 2026-07-28 requires of a request: a known method, equal version, method and name in headers and body, and the client's
// capabilities.
func checkModern(h http.Header, r *request) *rpcError {
	if !modernMethods[r.Method] {
		return &rpcError{status: http.StatusNotFound, code: mcpwire.CodeMethodNotFound, message: "There is no method " + mcpwire.Quote(r.Method) + " in revision 2026-07-28."}
	}
	if e := mcpwire.CheckHeaders(h, &r.Message, r.meta.Version); e != nil {
		return badMessage(e)
	}
	switch {
	case r.meta.Version != mcpwire.Revision0728:
		return unsupported(r.meta.Version)
	case !call.IsObject(r.meta.Capabilities):
		return badRequest(mcpwire.CodeInvalidParams, "_meta must have "+mcpwire.MetaCapabilities+", an object.")
	case r.meta.ClientInfo != nil && !call.IsObject(r.meta.ClientInfo):
		return badRequest(mcpwire.CodeInvalidParams, "_meta: "+mcpwire.MetaClientInfo+" must be an object.")
	}
	return nil
}

func unsupported(version string) *rpcError {
	return &rpcError{
		status: http.StatusBadRequest, code: mcpwire.CodeUnsupportedVersion, message: "This protocol version is not supported.",
		data: mcpwire.AppendJSON(nil, map[string]any{"supported": revisions, "requested": mcpwire.Clip(version)}),
	}
}

// These are all methods of 2026-07-28, and all notifications of clients of any revision.
var (
	modernMethods = map[string]bool{
		"server/discover": true, "subscriptions/listen": true,
		"tools/list": true, "resources/list": true, "resources/templates/list": true, "prompts/list": true,
		string(call.CallTool): true, string(call.ReadResource): true, string(call.GetPrompt): true, string(call.Complete): true,
	}
	clientNotifications = map[string]bool{
		"notifications/initialized": true, "notifications/cancelled": true, "notifications/progress": true,
		"notifications/roots/list_changed": true,
	}
)
