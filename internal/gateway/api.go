package gateway

import (
	"encoding/json"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// Request is one call as a door hands it to the corridor. Who calls is the Principal alone.
type Request struct {
	Principal   identity.Principal
	Session     string // only for principals with several sessions to speak for (hosts); otherwise "" or the principal's own
	Method      call.Method
	Tool        string             // exposed tool name, exposed prompt name, or resource URI, by Method
	Arguments   json.RawMessage    // as received; the corridor parses strictly and judges the canonical form. For call.Complete: {"ref":…,"argument":…,"context":…}
	Declaration string             // id of the declaration that the call runs on, where the door has a place of its own for it
	Door        string             // "mcp", "http" or "recommendation"
	ToolUse     string             // the id by which the agent's model asked for the call, where its client says so: the result is known again by it and its text. It chooses neither agent nor session
	DryRun      bool               // judge only: no effect, no intent (check)
	Hold        time.Duration      // how long the call may be held while a person decides; 0: it is answered at once. Where silence permits, the call is held until then anyway
	Waiting     func(desk.Waiting) // told while the call is held, from the goroutine of the call; nil: nobody
	Exchange    call.Exchange
	// Stream takes the pieces of a result that may leave before the outcome, from one goroutine at a time; its error ends the call. nil: nothing leaves before.
	Stream func(piece []byte) error
	// Lowered is told, before anything of the result leaves, how many tokens a model's answer may have where that is fewer than the request asked for. nil: nobody.
	Lowered func(tokens int64)
	// Instead is told, before anything of the result leaves, that another model is asked because the one of the request failed. nil: nobody.
	Instead func(model string)

	// composed: a built-in operation made it, of texts that the log must not have. Nobody is asked about it: what a person would have to answer is refused.
	composed bool

	failed  string   // id of the call that failed, whose fallback this one is
	standIn *standIn // of the fallback of a tool's call; nil of all else
}

// Answer is what the corridor gives back. Result is there only when the verdict permits and the call has run.
type Answer struct {
	CallID  string
	Session string
	Verdict fault.Verdict
	// Result is the MCP result object to hand over (tools/call, resources/read, prompts/get, completion/complete), labelled,
	// fenced and attributed. It may say isError: that is the upstream's own word. For upstream failures (upstream.failed,
	// time.exceeded, result.invalid …) it is nil and Verdict says why.
	Result json.RawMessage
	// RPCError is the upstream's own JSON-RPC error object, to be passed on as it is; Result is nil then.
	RPCError json.RawMessage
	// Metadata is the attribution of what a built-in external operation brought (docs/external.md, "What comes back"); nil of
	// everything else, which has it in its _meta.
	Metadata json.RawMessage
	// Brings is what the result brings into the session: who keeps it for later hands it out only to a session that holds all of it.
	Brings []flow.Label

	fallback  string          // the model or tool that can be asked in place of the one that failed; "": none
	arguments json.RawMessage // of that
	standIn   *standIn        // of a tool
	failure   string          // why that failed
}

// Clock is read wherever time is decided on.
type Clock func() time.Time
