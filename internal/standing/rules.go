package standing

import (
	"slices"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// TokenRules say who may have a token: a declared agent, a host, or a person with no more roles than the configuration gives them. The same rules
// hold for tokens that are made while no gateway runs.
type TokenRules struct {
	Agents agent.Set
	People map[string][]identity.Role // the configured roles by person; a person that is not in it may have any
}

// WantedToken is a token that somebody asks for.
type WantedToken struct {
	Kind, ID string
	Roles    []string  // of a person
	Expires  time.Time // zero: never
}

// Subject returns the principal that a wanted token stands for. Its errors name the field that is wrong.
func (r TokenRules) Subject(w WantedToken, now time.Time) (identity.Principal, error) {
	p := identity.Principal{Kind: identity.Kind(w.Kind), ID: w.ID}
	if err := identity.CheckID(w.ID); err != nil {
		return p, fault.Wrap(err, fault.RequestMalformed, "%v.", err).At("id")
	}
	if !w.Expires.IsZero() {
		if !w.Expires.After(now) {
			return p, fault.New(fault.RequestMalformed, "That time is over.").At("expires")
		}
		p.Expires = w.Expires.UTC()
	}
	if p.Kind != identity.Person && len(w.Roles) > 0 {
		return p, fault.New(fault.RequestMalformed, "Only persons have roles.").At("roles")
	}
	switch p.Kind {
	case identity.Host:
	case identity.Agent:
		if _, ok := r.Agents.Get(w.ID); !ok || agent.IsTrial(w.ID) {
			return p, fault.New(fault.AgentUndeclared, "No agent %q is declared.", w.ID).At("id").Try("Add a file for it to the agents folder, and reload the configuration (sallyport reload).")
		}
	case identity.Person:
		var err error
		p.Roles, err = r.roles(w.ID, w.Roles)
		return p, err
	default:
		return p, fault.New(fault.RequestMalformed, "A token is for an agent, a host or a person.").At("kind")
	}
	return p, nil
}

// roles returns the wanted roles, each once, if the configuration gives them to the person.
func (r TokenRules) roles(person string, wanted []string) ([]identity.Role, error) {
	if len(wanted) == 0 {
		return nil, fault.New(fault.RequestMalformed, "Name at least one role.").At("roles")
	}
	configured, known := r.People[person]
	var roles []identity.Role
	for _, word := range wanted {
		role, err := identity.ParseRole(word)
		if err != nil {
			return nil, fault.Wrap(err, fault.RequestMalformed, "%v.", err).At("roles")
		}
		if known && !slices.Contains(configured, role) && !slices.Contains(configured, identity.Admin) {
			return nil, fault.New(fault.PermissionDenied, "The configuration does not give %s the role %s.", person, role).At("roles").
				Try("Add it under people in sallyport.yaml, and reload it (sallyport reload).")
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return roles, nil
}
