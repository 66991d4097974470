// Package identity holds who may speak to the gateway: people, agents, hosts and sessions, their credentials and roles.
//
// Promises: who somebody is comes from the credential alone, never from a header or an argument (docs/design.md, rule 8). A token is
// 160 random bits; only its SHA-256 is kept, so a stolen database opens nothing. Roles are a closed list.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Kind is what a credential speaks for.
type Kind string

const (
	Agent   Kind = "agent"   // a declared agent; stands for its one open session
	Host    Kind = "host"    // a trusted program of a person's that opens sessions for agents
	Session Kind = "session" // one session
	Person  Kind = "person"  // a human, on the people's side only
	Hook    Kind = "hook"    // the prompt hook of a client in one session: adds the person's words to it, and nothing else
)

// EnvToken is the environment variable in which programs find their token.
const EnvToken = "SALLYPORT_TOKEN"

// Role is what a person may do. Roles don't include one another, except that Admin includes all.
type Role string

const (
	Viewer   Role = "viewer"   // sees requests, sessions, tools, agents, as whoever has a role does
	Approver Role = "approver" // answers approvals
	Operator Role = "operator" // switches, accepts tools, phases, releases, closes
	Auditor  Role = "auditor"  // reads the audit
	Admin    Role = "admin"    // all of it, and tokens
)

// Roles is the closed list.
var Roles = []Role{Viewer, Approver, Operator, Auditor, Admin}

// ParseRole refuses what is not in the list.
func ParseRole(s string) (Role, error) {
	for _, r := range Roles {
		if string(r) == s {
			return r, nil
		}
	}
	return "", fmt.Errorf("unknown role %q: one of viewer, approver, operator, auditor, admin", s)
}

// RoleWords are roles in a sentence.
func RoleWords(roles []Role, between string) string {
	var words []string
	for _, r := range roles {
		words = append(words, string(r))
	}
	return strings.Join(words, between)
}

// Principal is who a credential speaks for.
type Principal struct {
	Kind    Kind
	ID      string // agent id, host name, session id (also for Hook) or person id
	Agent   string // for Session and Hook: the session's agent
	Roles   []Role // for Person
	TokenID string
	Expires time.Time // zero: never
	// Conversation is set for Agent by a door that knows conversations: one more than the Piece of the own session that was the agent's when this
	// one began. In a session of another piece it is over. 0: the door knows none.
	Conversation int64
}

// Has tells whether the person has the role, or is an admin.
func (p Principal) Has(role Role) bool {
	if p.Kind != Person {
		return false
	}
	for _, r := range p.Roles {
		if r == role || r == Admin {
			return true
		}
	}
	return false
}

// String is for logs: kind and id.
func (p Principal) String() string { return string(p.Kind) + ":" + p.ID }

// Shown names for people who did something, as records have it (kind:id): a person by the name alone, anybody else with the kind in front. Records, logs and the
// API keep kind:id.
func Shown(actor string) string {
	kind, name, ok := strings.Cut(actor, ":")
	switch {
	case !ok:
		return actor
	case kind == string(Person):
		return name
	}
	return kind + " " + name
}

// Whose is who the credential counts for where something is shared out, as kind:id: the sessions of an agent are the agent, so that opening sessions gives
// nobody more room.
func (p Principal) Whose() string {
	if p.Kind == Session || p.Kind == Hook {
		return string(Agent) + ":" + p.Agent
	}
	return p.String()
}

// Token is a stored credential; the secret itself is not in it.
type Token struct {
	ID      string // "tok_…", for listing and revoking
	Hash    string // hex SHA-256 of the secret
	Subject Principal
	Created time.Time
	Revoked time.Time // zero: not revoked
}

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// prefixes lets a person (and a secret scanner) see what a leaked token opens.
var prefixes = map[Kind]string{Agent: "spt_agent_", Host: "spt_host_", Session: "spt_session_", Person: "spt_person_", Hook: "spt_hook_"}

// Mint returns a new secret for the kind and the hash to keep of it.
func Mint(kind Kind) (secret, hash string) {
	var b [20]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program when it can't
	secret = prefixes[kind] + encoding.EncodeToString(b[:])
	return secret, HashSecret(secret)
}

// KindOf tells what a token claims to be, by its prefix alone; "" if it has none of ours.
func KindOf(token string) Kind {
	for kind, prefix := range prefixes {
		if strings.HasPrefix(token, prefix) {
			return kind
		}
	}
	return ""
}

// HashSecret is what is stored and looked up in place of the secret. A token is long and random, so one SHA-256 is enough.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Bearer takes the token out of an Authorization header value. It refuses what can't be a token of ours before any look-up.
func Bearer(header string) (string, bool) {
	const scheme = "bearer "
	if len(header) <= len(scheme) || len(header) > 256 || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", false
	}
	token := header[len(scheme):]
	if !strings.HasPrefix(token, "spt_") || strings.ContainsAny(token, " \t,") {
		return "", false
	}
	return token, true
}

var idPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

// CheckID refuses ids of agents, people, hosts and servers that could not be shown or stored plainly.
func CheckID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%q is not a valid id: letters, digits, '.', '_' and '-', starting with a letter or digit, at most 64", id)
	}
	return nil
}
