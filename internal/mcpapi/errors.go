package mcpapi

import (
	"encoding/json"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
)

const (
	maxBody = 4 << 20 // bytes of one request
	maxID   = 256     // bytes of a transport session's id
)

// limits of one message. The corridor bounds the arguments again.
var limits = call.Limits{Bytes: maxBody, Depth: 64 + 4, Members: 100_000 + 100}

// rpcError is a JSON-RPC error, with the HTTP status for it if no event stream has begun.
type rpcError struct {
	status  int
	code    int64
	message string
	data    json.RawMessage
	fault   fault.Code      // for the record; "": request.malformed
	raw     json.RawMessage // an upstream's own error object, in place of code, message and data
}

func (e *rpcError) object() json.RawMessage {
	if e.raw != nil {
		return e.raw
	}
	return (&mcpwire.Error{Code: e.code, Message: e.message, Data: e.data}).JSON()
}

func badRequest(code int64, message string) *rpcError {
	return &rpcError{status: 400, code: code, message: message}
}

// badMessage is the error for a message that mcpwire refuses; nil for nil.
func badMessage(e *mcpwire.Error) *rpcError {
	if e == nil {
		return nil
	}
	return badRequest(e.Code, e.Message)
}

// parse parses a client's message. With an error the message has its id, if that could be read.
func parse(body []byte) (mcpwire.Message, *rpcError) {
	m, e := mcpwire.Parse(body, limits)
	if e == nil && m.Response() && m.ID == nil {
		return m, noResponseID()
	}
	return m, badMessage(e)
}

func noResponseID() *rpcError {
	return badRequest(mcpwire.CodeInvalidRequest, "A response has the id of the request that it answers.")
}
