package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"sallyport.example/internal/call"
	"sallyport.example/internal/caller"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/web"
)

// route is one endpoint. Only this says who may use it.
type route struct {
	method, path   string
	summary        string
	roles          []identity.Role // of which a person needs one; none: any person, or on the agents' side any credential of it
	status         int             // of a success; 0: 200
	emptyBody      bool            // no body at all counts as {}
	hooks          bool            // the key of a client's prompt hook may use it: nothing else is open to that
	asks           string          // what people are asked to confirm; "": the summary
	noConfirmation bool            // it only stops, ends or reads something, so nobody has to confirm it at a terminal
	covers         covers          // what a confirmed request covers besides itself; nil: nothing
	twin           bool            // the people's side has the same path, and the document describes it there
	limit          int64           // of the body, in bytes; 0: maxBody
	listsFields    bool            // the handler reads the body's fields strictly itself, to list everything that is wrong with them
}

// whoKey is the key of the who of a request.
type whoKey struct{}

// who is who asks, and from where.
type who struct {
	identity.Principal
	remote    string
	confirmed caller.Process // whose request was confirmed at its terminal; the zero value: none was
	room      *memory.Hold   // for what the request brings; nil: there is no bound
}

// handle serves a route with a typed input and answer. huma passes only a context and the input to a handler, so the principal travels in the
// context from the middleware to the handler here, and from here on as an argument.
func handle[I, O any](s *side, rt route, h func(ctx context.Context, p identity.Principal, in *I) (O, error)) {
	op := s.operation(rt)
	op.Security = []map[string][]string{{"bearer": {}}}
	body, hasBody := bodyShape(reflect.TypeFor[I]())
	if op.SkipValidateBody = rt.listsFields; rt.listsFields {
		body = nil
	}
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		p, err := s.admit(r, rt.roles)
		if err == nil && p.Kind == identity.Hook && !rt.hooks {
			err = fault.New(fault.CredentialWrongKind, "This key is for the person's words alone.")
		}
		asking := who{Principal: p, remote: web.Remote(r)}
		var b []byte
		if err == nil && !s.people { // people's requests wait for nothing that agents do
			asking.room, err = s.a.o.Memory.Take(r.Context(), p.Whose(), web.Announced(r, maxBody))
			defer asking.room.Release() // when the answer has left
		}
		if err == nil && hasBody {
			b, err = readBody(w, r, cmp.Or(rt.limit, maxBody), body, rt.emptyBody, asking.room)
			r.Body = io.NopCloser(bytes.NewReader(b))
			r.Header.Set("Content-Type", "application/json")
		}
		if err == nil {
			asking.confirmed, err = s.confirmed(r, p, rt, b)
		}
		if err != nil {
			s.recordRefusal(r.Context(), asking, rt, err)
			s.refuse(w, r, err)
			return
		}
		next(huma.WithValue(ctx, whoKey{}, asking))
	}}
	type answer struct{ Body O }
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*answer, error) {
		asking := ctx.Value(whoKey{}).(who)
		out, err := h(ctx, asking.Principal, in)
		if err != nil {
			s.recordRefusal(ctx, asking, rt, err)
			return nil, s.fail(ctx, err)
		}
		if rt.covers != nil && asking.confirmed.PID != 0 {
			paths, d := rt.covers(in, out)
			s.a.confirmations.Cover(asking.confirmed, paths, d)
		}
		return &answer{out}, nil
	})
}

// recordRefusal records a refusal that has no entry yet: each for want of a credential or of a permission, and for agents and hosts every other, too.
// Other mistakes of people have none.
func (s *side) recordRefusal(ctx context.Context, p who, rt route, err error) {
	var declared *declare.Invalid
	mistake := (s.people || p.Kind == "") && !web.Unauthorized(err)
	if mistake || errors.As(err, &declared) || errors.As(err, new(judged)) || errors.As(err, new(desk.OnRecord)) {
		return
	}
	v := fault.RefuseErr("door", fault.ForTheRecord(err))
	v.RequestID = web.RequestID(ctx)
	s.a.g.Refused(gateway.Attempt{Principal: p.Principal, Door: "http", People: s.people, What: rt.method + " " + rt.path, Remote: p.remote}, v)
}

// judged is a refusal by the corridor, which has recorded it.
type judged struct{ error }

func (j judged) Unwrap() error { return j.error }

// raw serves a route whose answer is not JSON of ours, or that needs no credential (open). media is the media type of the answer.
func (s *side) raw(rt route, pattern string, open bool, media string, params []*huma.Param, h func(w http.ResponseWriter, r *http.Request) error) {
	op := s.operation(rt)
	op.Parameters = params
	schema := &huma.Schema{Type: "string"}
	if strings.HasSuffix(media, "json") {
		schema.Type = "object"
	}
	op.Responses["200"] = &huma.Response{Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{media: {Schema: schema}}}
	if !open {
		op.Security = []map[string][]string{{"bearer": {}}}
	}
	s.api.OpenAPI().AddOperation(&op)
	s.mux.HandleFunc(rt.method+" "+pattern, func(w http.ResponseWriter, r *http.Request) {
		asking := who{remote: web.Remote(r)}
		var err error
		if !open {
			asking.Principal, err = s.admit(r, rt.roles)
		}
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.recordRefusal(r.Context(), asking, rt, err)
			s.refuse(w, r, err)
		}
	})
}

func (s *side) operation(rt route) huma.Operation {
	problem := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[web.Problem](), true, "")
	summary := rt.summary
	if len(rt.roles) > 0 {
		summary += " (role: " + identity.RoleWords(rt.roles, " or ") + ")"
	}
	return huma.Operation{
		OperationID: strings.ToLower(rt.method) + strings.NewReplacer("/", "-", "{", "", "}", "").Replace(rt.path),
		Method:      rt.method, Path: rt.path, Summary: summary, Tags: []string{s.tag}, DefaultStatus: rt.status, Hidden: rt.twin,
		MaxBodyBytes:    cmp.Or(rt.limit, maxBody),
		BodyReadTimeout: -1, // readBody has read it; a deadline of huma's would end the request while a long call runs
		Responses: map[string]*huma.Response{"default": {
			Description: "Refused", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: problem}},
		}},
	}
}

// shape lists the members that a JSON object may have, in their order.
type shape []member

// member is one of them, with the shape of its elements if it is a list of objects of ours.
type member struct {
	name     string
	elements shape
}

// bodyShape is the shape of the input's body; ok is false if it has none.
func bodyShape(input reflect.Type) (s shape, ok bool) {
	body, ok := input.FieldByName("Body")
	if !ok {
		return nil, false
	}
	return shapeOf(body.Type), true
}

func shapeOf(t reflect.Type) (s shape) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			m := member{name: name}
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				m.elements = shapeOf(f.Type.Elem())
			}
			s = append(s, m)
		}
	}
	return s
}

// check refuses names that are not in the shape; huma would accept them in another case. at is the path of the object. Values of a wrong type
// are left to huma.
func (s shape) check(at string, object json.RawMessage) error {
	for name, value := range call.Members(object) {
		i := slices.IndexFunc(s, func(m member) bool { return m.name == name })
		if i < 0 {
			var names []string
			for _, m := range s {
				names = append(names, m.name)
			}
			return fault.New(fault.RequestMalformed, "There is no such field here.").At(at+fmt.Sprintf("%.80s", name)).
				Try("The fields are %s.", strings.Join(names, ", "))
		}
		var list []json.RawMessage
		if s[i].elements == nil || json.Unmarshal(value, &list) != nil {
			continue
		}
		for k, element := range list {
			if err := s[i].elements.check(fmt.Sprintf("%s%s[%d].", at, name, k), element); err != nil {
				return err
			}
		}
	}
	return nil
}

// none is the input of a route that takes nothing.
type none struct{}
