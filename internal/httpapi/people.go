package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/anchor"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/console"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/stored"
)

var (
	readers  = console.Readers
	operator = []identity.Role{identity.Operator}
	auditor  = []identity.Role{identity.Auditor}
	admin    = []identity.Role{identity.Admin}
)

// SessionPage is a page of sessions, newest first. Next is "after" for the next page; the last page has none.
type SessionPage struct {
	Sessions []gateway.Status  `json:"sessions"`
	Aside    []session.Damaged `json:"set_aside,omitempty" doc:"Sessions of this part of the list whose rows in the store are damaged. Nothing can be done in them."`
	Next     string            `json:"next,omitempty"`
}

// PathID names a session, an agent or a token in a path.
type PathID struct {
	ID string `path:"id" maxLength:"128"`
}

// PhaseBody moves a session.
type PhaseBody struct {
	Phase  string `json:"phase" enum:"planning,execution"`
	Reason string `json:"reason" required:"false" maxLength:"2000"`
}

// HookKey is the key of a client's prompt hook. It is shown only here.
type HookKey struct {
	SessionID string `json:"session_id"`
	Key       string `json:"hook_key"`
}

// NextBody names the agent whose next conversation is to be fresh.
type NextBody struct {
	Agent string `json:"agent_id" maxLength:"64"`
}

// ReleaseBody takes labels off a session, or off stored data.
type ReleaseBody struct {
	Labels []string `json:"labels" minItems:"1" maxItems:"64"`
	Reason string   `json:"reason" maxLength:"2000" doc:"Goes on the record."`
}

func (b *ReleaseBody) labels() (labels []flow.Label, err error) {
	for _, word := range b.Labels {
		l, err := flow.ParseLabel(word)
		if err != nil {
			return nil, fault.Wrap(err, fault.RequestMalformed, "%.80q is not a label.", word).At("labels")
		}
		labels = append(labels, l)
	}
	return labels, nil
}

// StoredList is the labels of what was written to servers.
type StoredList struct {
	Stored []stored.Mark `json:"stored"`
}

func (a *API) storedRoutes(s *side) {
	handle(s, route{method: http.MethodGet, path: "/v1/stored", roles: readers, summary: "The labels of what was written to servers"},
		func(context.Context, identity.Principal, *none) (StoredList, error) {
			return StoredList{Stored: a.g.Stored().List()}, nil
		})
	handle(s, route{method: http.MethodPost, path: "/v1/stored/{id}/release", roles: operator, summary: "Take labels off stored data"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ReleaseBody
		}) (stored.Mark, error) {
			labels, err := in.Body.labels()
			if err != nil {
				return stored.Mark{}, err
			}
			return a.g.ReleaseStored(ctx, in.ID, labels, p.String(), in.Body.Reason)
		})
}

// DigestBody names the plan that the person has read.
type DigestBody struct {
	Digest string `json:"digest" maxLength:"128"`
	Reason string `json:"reason" required:"false" maxLength:"2000"`
}

// openingRoutes are about sessions that begin.
func (a *API) openingRoutes(s *side) {
	hookKey := func(_, out any) ([]string, time.Duration) { // sallyport run makes the session's key right behind it
		return []string{"/v1/sessions/" + out.(OpenedSession).SessionID + "/hook-key"}, time.Minute
	}
	handle(s, route{method: http.MethodPost, path: "/v1/sessions", roles: operator, status: http.StatusCreated, covers: hookKey, summary: "Open a session for an agent"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body OpenBody }) (OpenedSession, error) {
			return a.open(ctx, p, in.Body)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/sessions/next", roles: operator, summary: "Let an agent's next conversation be a fresh session of its own, once"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body NextBody }) (gateway.NextSession, error) {
			return a.g.OrderNext(ctx, in.Body.Agent, p.String())
		})
	handle(s, route{method: http.MethodPost, path: "/v1/sessions/{id}/hook-key", roles: operator, summary: "Make a key with which a client's prompt hook adds the person's words to this session"},
		func(ctx context.Context, p identity.Principal, in *PathID) (HookKey, error) {
			key, err := a.g.HookKey(ctx, in.ID, p.String())
			return HookKey{SessionID: in.ID, Key: key}, err
		})
}

func (a *API) sessionRoutes(s *side) {
	a.openingRoutes(s)
	const at = "/v1/sessions/{id}"
	handle(s, route{method: http.MethodGet, path: "/v1/sessions", roles: readers, summary: "Sessions, newest first"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			State string `query:"state" enum:"open,closed"`
			After string `query:"after" maxLength:"128" doc:"Next of the page before."`
			Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
		}) (SessionPage, error) {
			found, err := a.store.SessionsPage(ctx, in.After, in.Limit+1, session.State(in.State))
			page := SessionPage{Sessions: []gateway.Status{}, Aside: found.Aside}
			if len(found.Sessions) > in.Limit {
				found.Sessions = found.Sessions[:in.Limit]
				page.Next = found.Sessions[in.Limit-1].ID
			}
			for _, f := range found.Sessions {
				page.Sessions = append(page.Sessions, gateway.StatusOf(f))
			}
			return page, err
		})
	handle(s, route{method: http.MethodGet, path: at, roles: readers, summary: "A session with its plan and labels"},
		func(ctx context.Context, _ identity.Principal, in *PathID) (gateway.Status, error) {
			return status(a.g.SessionByID(ctx, in.ID))
		})
	handle(s, route{method: http.MethodPost, path: at + "/phase", roles: operator, summary: "Move a session to a phase"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body PhaseBody
		}) (gateway.Status, error) {
			return status(a.g.SetPhase(ctx, in.ID, session.Phase(in.Body.Phase), p.String(), in.Body.Reason))
		})
	handle(s, route{method: http.MethodPost, path: at + "/words", roles: operator, summary: "Add what the person asked for later to a session"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body WordsBody
		}) (gateway.Words, error) {
			return a.g.AddWords(ctx, p, in.ID, in.Body.Text)
		})
	handle(s, route{method: http.MethodPost, path: at + "/release", roles: operator, summary: "Take labels off a session"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ReleaseBody
		}) (gateway.Status, error) {
			labels, err := in.Body.labels()
			if err != nil {
				return gateway.Status{}, err
			}
			return status(a.g.Release(ctx, in.ID, labels, p.String(), in.Body.Reason))
		})
	handle(s, route{method: http.MethodPost, path: at + "/close", roles: operator, emptyBody: true, noConfirmation: true, summary: "End a session for good"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ReasonBody
		}) (gateway.Status, error) {
			return status(a.g.CloseSession(ctx, in.ID, p.String(), in.Body.Reason))
		})
	handle(s, route{method: http.MethodPost, path: at + "/remove-files", roles: operator, emptyBody: true, summary: "Remove the files of a closed session's workspace"},
		func(ctx context.Context, p identity.Principal, in *PathID) (gateway.Status, error) {
			if err := a.g.RemoveFiles(ctx, in.ID, p.String()); err != nil {
				return gateway.Status{}, err
			}
			return status(a.g.SessionByID(ctx, in.ID))
		})
	for _, act := range []struct {
		path, summary string
		approve       bool
	}{{"/plan/approve", "Approve the plan that waits", true}, {"/plan/reject", "Reject the plan that waits", false}} {
		handle(s, route{method: http.MethodPost, path: at + act.path, roles: operator, summary: act.summary},
			func(ctx context.Context, p identity.Principal, in *struct {
				PathID
				Body DigestBody
			}) (gateway.Status, error) {
				return status(a.g.DecidePlan(ctx, in.ID, in.Body.Digest, act.approve, p.String(), in.Body.Reason))
			})
	}
}

func status(s session.Session, err error) (gateway.Status, error) {
	if err != nil {
		return gateway.Status{}, err
	}
	return gateway.StatusOf(s), nil
}

// Agent is a declared agent. Lists leave Declaration out.
type Agent struct {
	AgentID    string               `json:"agent_id"`
	Name       string               `json:"agent_name"`
	Version    string               `json:"version"`
	Purpose    string               `json:"purpose"`
	Mode       agent.Mode           `json:"mode"`
	StartPhase agent.Phase          `json:"start_phase"`
	Sessions   agent.Opener         `json:"sessions" doc:"who may open fresh ones"`
	Standing   string               `json:"standing" enum:"approved,unapproved,quarantined,undeclared"`
	Digest     string               `json:"digest"`
	Killed     bool                 `json:"killed" doc:"by its own switch or the global one"`
	Kill       *Switch              `json:"kill,omitempty"`
	Quarantine *standing.Quarantine `json:"quarantine,omitempty" doc:"since when it is put aside, by whom and why"`
	Degraded   *agent.Degraded      `json:"degraded,omitempty" doc:"an agent that it depends on is aside, so it can do less"`
	Approval   *approved.Standing   `json:"approval,omitempty" doc:"how its declaration stands, and who approved it"`

	Declaration *agent.Declaration `json:"declaration,omitempty"`
}

func (a *API) agentOf(d *agent.Declaration, kill standing.Switches, aside map[string]standing.Quarantine) Agent {
	out := Agent{
		AgentID: d.AgentID, Name: d.AgentName, Version: d.Version, Purpose: d.Purpose, Mode: d.Mode, StartPhase: d.StartPhase, Sessions: d.Sessions,
		Standing: "unapproved", Digest: d.Digest, Killed: kill.Global.Active,
	}
	said := a.o.Approved.Of(d)
	if out.Approval = &said; said.State == approved.Approved {
		out.Standing = "approved"
	}
	if sw, ok := kill.Agents[d.AgentID]; ok {
		own := switchOf(sw)
		out.Kill, out.Killed = &own, out.Killed || sw.Active
	}
	if q, ok := aside[d.AgentID]; ok {
		out.Standing, out.Quarantine = "quarantined", &q
	}
	out.Degraded = a.g.Degraded(d.AgentID)
	return out
}

// AgentList, ToolList and ServerList are whole lists.
type (
	AgentList struct {
		Agents []Agent `json:"agents"`
	}
	ToolList struct {
		Tools []catalogue.Tool `json:"tools"`
	}
	ServerList struct {
		Servers []console.ServerStatus `json:"servers"`
	}
)

// AcceptBody names the definition that the person has read.
type AcceptBody struct {
	Hash string `json:"definition_hash" maxLength:"128"`
}

// AcceptAllBody names the definitions that the person has read.
type AcceptAllBody struct {
	Definitions []catalogue.Acceptance `json:"definitions" minItems:"1" maxItems:"1000"`
}

// Accepted is the outcome for one definition, AcceptedList for all of them.
type (
	Accepted struct {
		Operation string `json:"operation"`
		Problem   string `json:"problem,omitempty" doc:"Why it was not accepted."`
	}
	AcceptedList struct {
		Results []Accepted `json:"results"`
	}
)

// AsideBody is the reason to quarantine or restore an agent.
type AsideBody struct {
	Reason     string `json:"reason" maxLength:"2000" doc:"Goes on the record."`
	Undeclared bool   `json:"undeclared,omitempty" doc:"Put it aside although no agent of this id is declared. Without it that is an error, which names the ids that are near."`
}

// quarantine quarantines an agent. If the store fails, its error says that the quarantine holds all the same until a restart.
func (a *API) quarantine(ctx context.Context, agent string, body AsideBody, by string) error {
	act := a.g.Standing().Quarantine
	if body.Undeclared {
		act = a.g.Standing().QuarantineUndeclared
	}
	err := act(ctx, agent, body.Reason, by)
	if _, holds := a.g.Standing().Quarantines()[agent]; err != nil && holds {
		return fault.Wrap(err, fault.Of(err).Code, "The agent is put aside, but only until the gateway is restarted: the store did not take it.").
			Try("See to the store, then restore the agent and put it aside again.")
	}
	return err
}

// agentByID is one agent with its declaration.
func (a *API) agentByID(id string) (Agent, error) {
	d, ok := a.o.Agents().Get(id)
	if !ok {
		return Agent{}, a.g.Standing().Declared(id)
	}
	out := a.agentOf(d, a.g.Standing().KillStatus(), a.g.Standing().Quarantines())
	out.Declaration = d
	return out, nil
}

// undeclared is what there is to say of an agent that nobody declared.
func (a *API) undeclared(id string) Agent {
	out := Agent{AgentID: id, Standing: "undeclared"}
	if q, ok := a.g.Standing().Quarantined(id); ok {
		out.Standing, out.Quarantine = "quarantined", &q
	}
	return out
}

func (a *API) catalogueRoutes(s *side) {
	handle(s, route{method: http.MethodGet, path: "/v1/agents", roles: readers, summary: "The declared agents"},
		func(context.Context, identity.Principal, *none) (AgentList, error) {
			list, kill, aside := AgentList{Agents: []Agent{}}, a.g.Standing().KillStatus(), a.g.Standing().Quarantines()
			for _, d := range a.o.Agents().All() {
				list.Agents = append(list.Agents, a.agentOf(d, kill, aside))
			}
			return list, nil
		})
	handle(s, route{method: http.MethodGet, path: "/v1/agents/{id}", roles: readers, summary: "An agent with its declaration"},
		func(_ context.Context, _ identity.Principal, in *PathID) (Agent, error) {
			return a.agentByID(in.ID)
		})
	for _, act := range []struct {
		path, summary string
		stops         bool
		do            func(ctx context.Context, agent string, body AsideBody, by string) error
	}{
		{"/quarantine", "Put an agent aside: its calls are refused, its sessions stay", true, a.quarantine},
		{"/restore", "End an agent's quarantine", false, func(ctx context.Context, agent string, body AsideBody, by string) error {
			return a.g.Standing().Restore(ctx, agent, body.Reason, by)
		}},
	} {
		handle(s, route{method: http.MethodPost, path: "/v1/agents/{id}" + act.path, roles: operator, noConfirmation: act.stops, summary: act.summary},
			func(ctx context.Context, p identity.Principal, in *struct {
				PathID
				Body AsideBody
			}) (Agent, error) {
				if err := act.do(ctx, in.ID, in.Body, p.String()); err != nil {
					return Agent{}, err
				}
				if _, declared := a.o.Agents().Get(in.ID); !declared {
					return a.undeclared(in.ID), nil
				}
				return a.agentByID(in.ID)
			})
	}
	handle(s, route{method: http.MethodGet, path: "/v1/tools", roles: readers, summary: "Everything that servers offer or offered"},
		func(context.Context, identity.Principal, *none) (ToolList, error) {
			list := ToolList{Tools: a.g.Catalogue().Tools()}
			if list.Tools == nil {
				list.Tools = []catalogue.Tool{}
			}
			return list, nil
		})
	handle(s, route{method: http.MethodPost, path: "/v1/tools/{operation}/accept", roles: operator, summary: "Accept the definition that waits, named by its hash"},
		func(ctx context.Context, p identity.Principal, in *struct {
			Operation string `path:"operation" maxLength:"256"`
			Body      AcceptBody
		}) (catalogue.Tool, error) {
			if err := a.g.Catalogue().AcceptTool(ctx, in.Operation, in.Body.Hash, p.String()); err != nil {
				return catalogue.Tool{}, err
			}
			for _, t := range a.g.Catalogue().Tools() {
				if t.Operation == in.Operation {
					return t, nil
				}
			}
			return catalogue.Tool{}, fault.New(fault.NotFound, "The definition is accepted, but no server that is connected offers %.80q.", in.Operation)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/tools/accept", roles: operator, summary: "Accept definitions that wait, or that only a rule accepted, each named by its hash"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body AcceptAllBody }) (AcceptedList, error) {
			errs, err := a.g.Catalogue().AcceptTools(ctx, in.Body.Definitions, p.String())
			if err != nil {
				return AcceptedList{}, err
			}
			list := AcceptedList{Results: []Accepted{}}
			for i, d := range in.Body.Definitions {
				one := Accepted{Operation: d.Operation}
				if errs[i] != nil {
					one.Problem = fault.Of(errs[i]).Public()
				}
				list.Results = append(list.Results, one)
			}
			return list, nil
		})
}

// ModeStatus tells whether the gateway enforces.
type ModeStatus struct {
	Mode     string           `json:"mode"`           // enforce or observe
	Text     string           `json:"text,omitempty"` // of observe: what it means
	Observed gateway.Observed `json:"observed"`       // calls since the start that were let through, and would have been asked about or refused; 0 where the gateway enforces
}

// aroundRoutes are about what stands around the gateway: its mode, its configuration, the servers behind it, and the anchor of its log.
func (a *API) aroundRoutes(s *side) {
	handle(s, route{method: http.MethodGet, path: "/v1/mode", roles: readers, summary: "Whether the gateway enforces or only observes"},
		func(context.Context, identity.Principal, *none) (ModeStatus, error) {
			observed, is := a.g.Observing()
			if !is {
				return ModeStatus{Mode: string(gateway.Enforce)}, nil
			}
			return ModeStatus{string(gateway.Observe), gateway.ObservingWords, observed}, nil
		})
	handle(s, route{method: http.MethodGet, path: "/v1/configuration", roles: readers, summary: "Since when the configuration is in force, and whether its files differ from it"},
		func(context.Context, identity.Principal, *none) (console.Configuration, error) {
			return a.o.Configuration(), nil
		})
	handle(s, route{method: http.MethodPost, path: "/v1/reload", roles: admin, summary: "Read the configuration again and put it in force as a whole, or not at all"},
		func(ctx context.Context, p identity.Principal, _ *none) (console.Reloaded, error) {
			return a.o.Reload(ctx, p.String())
		})
	handle(s, route{method: http.MethodGet, path: "/v1/anchor", roles: readers, summary: "How the log stands to its anchor outside the data directory"},
		func(ctx context.Context, _ identity.Principal, _ *none) (anchor.Status, error) {
			if a.o.Anchor == nil {
				return anchor.NotConfigured(), nil
			}
			return a.o.Anchor(ctx), nil
		})
	handle(s, route{method: http.MethodGet, path: "/v1/servers", roles: readers, summary: "The upstream servers and their states"},
		func(context.Context, identity.Principal, *none) (ServerList, error) {
			list := ServerList{Servers: a.o.Upstreams()}
			if list.Servers == nil {
				list.Servers = []console.ServerStatus{}
			}
			return list, nil
		})
}

// Token is a credential without its secret.
type Token struct {
	TokenID string          `json:"token_id"`
	Kind    identity.Kind   `json:"kind"`
	ID      string          `json:"id"`
	AgentID string          `json:"agent_id,omitempty"`
	Roles   []identity.Role `json:"roles,omitempty"`
	Created time.Time       `json:"created"`
	Expires time.Time       `json:"expires,omitzero"`
	Revoked time.Time       `json:"revoked,omitzero"`
}

// TokenList is every token, oldest first.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// CreatedToken is a new token with its secret, which is shown only here.
type CreatedToken struct {
	Token
	Secret string `json:"token"`
}

// TokenBody asks for a token.
type TokenBody struct {
	Kind    string    `json:"kind" enum:"agent,host,person"`
	ID      string    `json:"id" maxLength:"64"`
	Roles   []string  `json:"roles" required:"false" maxItems:"8"`
	Expires time.Time `json:"expires,omitzero" required:"false"`
}

func tokenOf(t identity.Token) Token {
	return Token{
		TokenID: t.ID, Kind: t.Subject.Kind, ID: t.Subject.ID, AgentID: t.Subject.Agent, Roles: t.Subject.Roles,
		Created: t.Created, Expires: t.Subject.Expires, Revoked: t.Revoked,
	}
}

func (a *API) tokenRoutes(s *side) {
	handle(s, route{method: http.MethodGet, path: "/v1/tokens", roles: admin, summary: "Every token, without its secret"},
		func(context.Context, identity.Principal, *none) (TokenList, error) {
			list := TokenList{Tokens: []Token{}}
			for _, t := range a.g.Standing().ListTokens() {
				list.Tokens = append(list.Tokens, tokenOf(t))
			}
			return list, nil
		})
	handle(s, route{method: http.MethodPost, path: "/v1/tokens", roles: admin, status: http.StatusCreated, summary: "Make a token; its secret is shown this once"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body TokenBody }) (CreatedToken, error) {
			rules := standing.TokenRules{Agents: a.o.Agents(), People: a.o.People()}
			subject, err := rules.Subject(standing.WantedToken{Kind: in.Body.Kind, ID: in.Body.ID, Roles: in.Body.Roles, Expires: in.Body.Expires}, a.clock())
			if err != nil {
				return CreatedToken{}, err
			}
			secret, t, err := a.g.Standing().IssueToken(ctx, subject, p.String())
			return CreatedToken{Token: tokenOf(t), Secret: secret}, err
		})
	handle(s, route{method: http.MethodDelete, path: "/v1/tokens/{id}", roles: admin, summary: "End a token at once"},
		func(ctx context.Context, p identity.Principal, in *PathID) (Token, error) {
			if err := a.g.Standing().RevokeToken(ctx, in.ID, p.String()); err != nil {
				return Token{}, err
			}
			all := a.g.Standing().ListTokens()
			i := slices.IndexFunc(all, func(t identity.Token) bool { return t.ID == in.ID }) // tokens never go away
			return tokenOf(all[i]), nil
		})
}
