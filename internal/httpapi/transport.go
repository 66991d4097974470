package httpapi

import (
	"bytes"
	"net/http"
	"slices"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/web"
)

const maxBody = 4 << 20

// handler serves the routes, and answers requests that match none.
func (s *side) handler() http.Handler {
	return s.web.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if serve, pattern := s.mux.Handler(r); pattern == "" {
			s.unrouted(w, r, serve)
			return
		}
		s.mux.ServeHTTP(w, r)
	}))
}

// unrouted answers a request that no route takes. The mux tells which other methods the path has.
func (s *side) unrouted(w http.ResponseWriter, r *http.Request, mux http.Handler) {
	probe := &headOnly{header: http.Header{}}
	mux.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		s.refuse(w, r, web.WithStatus(http.StatusMethodNotAllowed, fault.New(fault.RequestMalformed, "The method here is %s.", allow)))
		return
	}
	s.refuse(w, r, fault.New(fault.NotFound, "Page not found.").Try("The overview is at / and the API is described at /openapi.json, both on the people's side."))
}

// headOnly takes a status and headers and drops the body.
type headOnly struct {
	header http.Header
	status int
}

func (h *headOnly) Header() http.Header         { return h.header }
func (h *headOnly) WriteHeader(status int)      { h.status = status }
func (h *headOnly) Write(b []byte) (int, error) { return len(b), nil }

// admit returns the principal of the request, and refuses one that may not use the route. Of roles a person needs one; none: any person may.
func (s *side) admit(r *http.Request, roles []identity.Role) (identity.Principal, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if s.people {
			if p, ok := s.a.console.Principal(r); ok { // which has looked at who sent it
				return p, hasRole(p, roles)
			}
		}
		return identity.Principal{}, fault.New(fault.CredentialMissing, "A token is needed, as Authorization: Bearer TOKEN.").Try("%s", s.whereTokens())
	}
	secret, ok := identity.Bearer(header)
	if !ok {
		return identity.Principal{}, fault.New(fault.CredentialMissing, "What stands in Authorization is not a token of this gateway.").Try("%s", s.whereTokens())
	}
	p, err := s.a.g.Standing().Authenticate(secret)
	if err != nil {
		return p, err
	}
	if err := web.Claim(r, p.Whose()); err != nil && !stops(r) {
		return p, err
	}
	if !s.people {
		if p.Kind == identity.Person {
			return p, wrongSide(p, false)
		}
		if p.Kind == identity.Host { // a program of a governed session would open itself a clean one
			return p, outside(r)
		}
		return p, nil
	}
	if p, err = s.a.person(p, nil); err != nil {
		return p, err
	}
	if err := outside(r); err != nil {
		return p, err
	}
	return p, hasRole(p, roles)
}

func (s *side) whereTokens() string {
	if s.people {
		return "The first start wrote one to admin.token in the data directory; sallyport token create --person makes more."
	}
	return "Make one with: sallyport token create --agent ID"
}

func hasRole(p identity.Principal, roles []identity.Role) error {
	if len(roles) == 0 || slices.ContainsFunc(roles, p.Has) {
		return nil
	}
	return fault.New(fault.RoleMissing, "This needs the role %s.", identity.RoleWords(roles, " or ")).Try("Ask an admin for a token with it.")
}

// readBody reads a JSON object of at most limit bytes strictly, of the shape if that is not nil. With optional, no body at all is an empty object.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, s shape, optional bool, room call.Room) ([]byte, error) {
	b, err := web.JSON(w, r, limit, optional, room)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 && optional {
		return []byte("{}"), nil
	}
	lim := call.DefaultLimits()
	lim.Bytes = max(lim.Bytes, int(limit))
	if err := call.Check(b, lim); err != nil {
		return nil, err
	}
	if b = bytes.TrimLeft(b, " \t\r\n"); b[0] != '{' {
		return nil, fault.New(fault.RequestMalformed, "The body must be a JSON object.")
	}
	if s != nil {
		if err := s.check("", b); err != nil {
			return nil, err
		}
	}
	return b, nil
}
