package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/planned"
	"sallyport.example/internal/session"
)

// ownSession stands in place of an id for the session that the credential itself stands for. It can't be an id.
const ownSession = "self"

// maxWait bounds how long a request may wait for a call to end.
const maxWait = 55 * time.Second

// SessionRef names a session in a path.
type SessionRef struct {
	ID string `path:"id" maxLength:"128" doc:"A session's id, or self for the one that the credential stands for."`
}

// session is the id for the gateway.
func (r SessionRef) session() string {
	if r.ID == ownSession {
		return ""
	}
	return r.ID
}

// OpenBody asks for a session. It is gateway.OpenRequest with the tags that huma needs.
type OpenBody struct {
	Agent       string   `json:"agent_id" required:"false" maxLength:"64"`
	UserRequest string   `json:"user_request" required:"false" doc:"The person's own words; they are what arguments are traced to."`
	Requester   string   `json:"requester" required:"false" maxLength:"64" doc:"The person whom the session works for."`
	Labels      []string `json:"labels" required:"false" maxItems:"64" doc:"Labels that the session starts with."`
}

// WordsBody is what the person asked for later.
type WordsBody struct {
	Text string `json:"text" minLength:"1" maxLength:"65536" doc:"The person's own words. Arguments are traced to them as to user_request."`
}

// OpenedSession is a new session. The token is shown only here.
type OpenedSession struct {
	SessionID    string           `json:"session_id"`
	SessionToken string           `json:"session_token"`
	Phase        session.Phase    `json:"phase"`
	Manifest     gateway.Manifest `json:"manifest"`
	SystemPrompt string           `json:"system_prompt"`
}

// CallBody is one call. Arguments is a JSON object; it is kept as it was sent, and the corridor judges it.
type CallBody struct {
	Tool          string          `json:"tool" minLength:"1" maxLength:"256"`
	Arguments     json.RawMessage `json:"arguments" required:"false"`
	DeclarationID string          `json:"declaration_id" required:"false" maxLength:"128" doc:"Of the declaration that the call runs on; the arguments may be left out then."`
}

// DeclareBody describes a declaration (DE-1). It is kept as it was sent: the gateway reads it strictly itself, so that one answer lists
// everything that is wrong with it.
type DeclareBody struct {
	Operation     string                `json:"operation" doc:"The operation, such as comm.fetch."`
	Parameters    json.RawMessage       `json:"parameters" doc:"The object that the operation will be called with."`
	Justification declare.Justification `json:"justification"`
	Phase         session.Phase         `json:"phase" enum:"execution"`
	SessionID     string                `json:"session_id"`

	sent json.RawMessage
}

// UnmarshalJSON keeps the body.
func (b *DeclareBody) UnmarshalJSON(sent []byte) error {
	b.sent = bytes.Clone(sent)
	return nil
}

// CallAnswer is the outcome of a call. Result is the MCP result object; of a built-in external operation it is {"results": its content,
// "metadata": its attribution}. Error is the server's own JSON-RPC error, in place of a result.
type CallAnswer struct {
	CallID  string          `json:"call_id"`
	Verdict fault.Verdict   `json:"verdict"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// ValidateBody and PlanBody only name their field; the gateway reads the steps strictly itself.
type (
	ValidateBody struct {
		PlannedCalls []json.RawMessage `json:"planned_calls" doc:"Tool names, or objects {tool, arguments?, from?, after?}."`
	}
	PlanBody struct {
		Steps []json.RawMessage `json:"steps" doc:"Objects {tool, arguments?, from?, open?, each?, after?, justification}. from: argument to {step, field} or {step, role}, where in an earlier step's result it comes from; open: arguments chosen when it is called; each: the earlier step for each record of whose result it is called once."`
	}
)

func (a *API) agentRoutes(s *side) {
	const at = "/v1/session/{id}"
	handle(s, route{method: http.MethodPost, path: "/v1/session", status: http.StatusCreated, summary: "Open a fresh session"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body OpenBody }) (OpenedSession, error) {
			return a.open(ctx, p, in.Body)
		})
	handle(s, route{method: http.MethodGet, path: at, summary: "Where a session stands"},
		func(ctx context.Context, p identity.Principal, in *SessionRef) (gateway.Status, error) {
			return answer[gateway.Status](a.g.Status(ctx, p, in.session()))
		})
	handle(s, route{method: http.MethodPost, path: at + "/words", hooks: true, summary: "Add what the person asked for later; for hosts and the prompt hooks of clients"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Body WordsBody
		}) (gateway.Words, error) {
			return a.g.AddWords(ctx, p, in.session(), in.Body.Text)
		})
	handle(s, route{method: http.MethodGet, path: at + "/manifest", summary: "The tools, and what calling each blocks"},
		func(ctx context.Context, p identity.Principal, in *SessionRef) (gateway.Manifest, error) {
			return answer[gateway.Manifest](a.g.Manifest(ctx, p, in.session()))
		})
	handle(s, route{method: http.MethodPost, path: at + "/validate-plan", summary: "Whether planned calls would run in this order, in which they would, and what people would be asked"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Body ValidateBody
		}) (planned.Report, error) {
			body, err := json.Marshal(in.Body) // the steps as they came
			if err != nil {
				return planned.Report{}, err
			}
			return answer[planned.Report](a.g.ValidatePlan(ctx, p, in.session(), body))
		})
	handle(s, route{method: http.MethodPost, path: at + "/plan", summary: "Submit a plan; an approved one is sealed and opens the execution phase"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Body PlanBody
		}) (gateway.PlanAnswer, error) {
			body, err := json.Marshal(in.Body) // the steps as they came
			if err != nil {
				return gateway.PlanAnswer{}, err
			}
			return answer[gateway.PlanAnswer](a.g.SubmitPlan(ctx, p, in.session(), body))
		})
	handle(s, route{method: http.MethodPost, path: at + "/declarations", status: http.StatusCreated, listsFields: true, summary: "Declare an external need before it is met"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Body DeclareBody
		}) (gateway.DeclareAnswer, error) {
			return answer[gateway.DeclareAnswer](a.g.Declare(ctx, p, in.session(), in.Body.sent))
		})
	handle(s, route{method: http.MethodGet, path: at + "/declarations/{declaration_id}", summary: "What became of a declaration"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Declaration string `path:"declaration_id" maxLength:"128"`
		}) (declare.Declaration, error) {
			return a.g.Declaration(ctx, p, in.session(), in.Declaration)
		})
	a.callRoutes(s, at)
}

func (a *API) callRoutes(s *side, at string) {
	handle(s, route{method: http.MethodPost, path: at + "/check", summary: "What the verdict on a call would be; nothing is called"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Body CallBody
		}) (fault.Verdict, error) {
			r := in.Body.request(p, in.session())
			r.DryRun = true
			ans := a.g.Call(ctx, r)
			return ans.Verdict, malformed(ans.Verdict)
		})
	handle(s, route{method: http.MethodPost, path: at + "/calls", summary: "Call a tool; answers when it has run or was refused"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Body CallBody
		}) (CallAnswer, error) {
			return a.call(ctx, p, in.session(), in.Body)
		})
	handle(s, route{method: http.MethodGet, path: at + "/calls/{call_id}", summary: "What became of a call"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Call string `path:"call_id" maxLength:"64"`
			Wait string `query:"wait" doc:"How long to wait for the call to end, such as 55s, which is the most."`
		}) (CallOutcome, error) {
			wait, err := waitOf(in.Wait)
			if err != nil {
				return CallOutcome{}, err
			}
			return a.outcome(ctx, p, in.session(), in.Call, wait)
		})
}

func waitOf(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxWait {
		return 0, fault.New(fault.RequestMalformed, "It must be a time from 0s to %s.", maxWait).At("wait")
	}
	return d, nil
}

// answer gives the gateway's answer its type back.
func answer[T any](v any, err error) (T, error) {
	t, ok := v.(T)
	if err == nil && !ok {
		err = fmt.Errorf("the gateway answered with a %T", v)
	}
	return t, err
}

func (a *API) open(ctx context.Context, p identity.Principal, b OpenBody) (OpenedSession, error) {
	s, secret, err := a.g.OpenSession(ctx, p, gateway.OpenRequest{Agent: b.Agent, UserRequest: b.UserRequest, Requester: b.Requester, Labels: b.Labels})
	if err != nil {
		return OpenedSession{}, err
	}
	m := a.g.ManifestOf(s)
	return OpenedSession{SessionID: s.ID, SessionToken: secret, Phase: s.Phase, Manifest: m, SystemPrompt: m.SystemPrompt}, nil
}

// malformed returns an error for a request that names no call at all, such as one in another agent's session or with arguments that are no
// object. The gateway has recorded it, as it has calls that were judged.
func malformed(v fault.Verdict) error {
	if v.Stage != "resolve" {
		return nil
	}
	switch v.Code {
	case fault.NotFound, fault.CredentialWrongKind, fault.RequestMalformed:
		e := fault.New(v.Code, "%s", v.Reason)
		if len(v.Because) > 0 {
			e.Field = v.Because[0].Detail
		}
		return judged{e}
	}
	return nil
}

func (b CallBody) request(p identity.Principal, sessionID string) gateway.Request {
	return gateway.Request{
		Principal: p, Session: sessionID, Method: call.CallTool, Tool: b.Tool, Arguments: b.Arguments, Declaration: b.DeclarationID, Door: "http",
	}
}

func (a *API) call(ctx context.Context, p identity.Principal, sessionID string, b CallBody) (CallAnswer, error) {
	r := b.request(p, sessionID)
	r.Exchange.Room = ctx.Value(whoKey{}).(who).room
	ans := a.g.Call(ctx, r)
	if err := malformed(ans.Verdict); err != nil {
		return CallAnswer{}, err
	}
	out := CallAnswer{CallID: ans.CallID, Verdict: ans.Verdict, Result: ans.Result, Error: ans.RPCError}
	if ans.Metadata != nil && ans.Result != nil {
		if out.Result = external(ans); out.Result == nil {
			return CallAnswer{}, errors.New("the result of a built-in operation has no content")
		}
	}
	a.calls.keep(ans.Session, out, ans.Brings)
	return out, nil
}

// external is the result of a built-in external operation (docs/external.md, "What comes back"), fenced as it is; nil if it
// has no content.
func external(ans gateway.Answer) json.RawMessage {
	content, ok := call.Get(ans.Result, "content")
	if !ok {
		return nil
	}
	b := append([]byte(`{"results":`), content...)
	if failed, ok := call.Get(ans.Result, "isError"); ok && string(failed) == "true" {
		b = append(b, `,"is_error":true`...)
	}
	b = append(append(b, `,"metadata":`...), ans.Metadata...)
	return append(b, '}')
}
