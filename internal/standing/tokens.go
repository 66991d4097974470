package standing

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// tokens holds every token by its hash, so that authenticating costs one hash and one look-up.
type tokens struct {
	mu     sync.RWMutex // guards byHash
	byHash map[string]identity.Token
}

// Authenticate returns the principal that a secret stands for. The error says whether the token is unknown, revoked or expired.
func (s *Standing) Authenticate(secret string) (identity.Principal, error) {
	c := &s.tokens
	hash := identity.HashSecret(secret)
	c.mu.RLock()
	t, ok := c.byHash[hash]
	c.mu.RUnlock()
	switch {
	case !ok:
		return identity.Principal{}, fault.New(fault.CredentialMissing, "The token is not known here.").
			Try("Make one with: sallyport token create")
	case !t.Revoked.IsZero():
		return identity.Principal{}, fault.New(fault.CredentialMissing, "The token was revoked.").
			Try("Make a new one with: sallyport token create")
	case !t.Subject.Expires.IsZero() && !s.o.Now().Before(t.Subject.Expires):
		return identity.Principal{}, fault.New(fault.CredentialMissing, "The token expired at %s.", t.Subject.Expires.Format(time.RFC3339)).
			Try("Make a new one with: sallyport token create")
	}
	return t.Subject, nil
}

// StillValid checks the principal's token again: a call can be held for longer than its token is valid.
func (s *Standing) StillValid(p identity.Principal) error {
	c := &s.tokens
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, t := range c.byHash {
		if t.ID == p.TokenID && (!t.Revoked.IsZero() || !t.Subject.Expires.IsZero() && !s.o.Now().Before(t.Subject.Expires)) {
			return fault.New(fault.CredentialMissing, "The token was revoked or expired while the call waited.").
				Try("Make a new one with: sallyport token create")
		}
	}
	return nil
}

// IssueToken makes a token for the subject and returns its secret, which is kept nowhere.
func (s *Standing) IssueToken(ctx context.Context, subject identity.Principal, by string) (secret string, t identity.Token, err error) {
	secret, t, err = MakeToken(ctx, s.o.Store, subject, by, s.o.Now())
	if err != nil {
		return "", t, err
	}
	s.tokens.mu.Lock()
	s.tokens.byHash[t.Hash] = t
	s.tokens.mu.Unlock()
	return secret, t, nil
}

// MakeToken makes a token in the store. Use IssueToken where there is a Standing, which would not know this one.
func MakeToken(ctx context.Context, store TokenStore, subject identity.Principal, by string, now time.Time) (secret string, t identity.Token, err error) {
	if !subject.Expires.IsZero() && !subject.Expires.After(now) {
		return "", t, fault.New(fault.RequestMalformed, "It would have expired by %s, the time on record.", now.UTC().Format(time.RFC3339)).At("expires").
			Try("Choose a later time. Was the clock set back? Time goes on from the newest entry on record.")
	}
	secret, hash := identity.Mint(subject.Kind)
	t = identity.Token{ID: call.NewID("tok_", now), Hash: hash, Subject: subject, Created: now}
	t.Subject.TokenID = t.ID
	e := audit.Entry{Kind: audit.Change, Action: "token.create", Actor: by, Decision: "ok", Reason: "for " + subject.String(), CallID: t.ID}
	if subject.Kind == identity.Session || subject.Kind == identity.Hook {
		e.Session, e.Agent = subject.ID, subject.Agent
	}
	if err := store.AddToken(ctx, t, e); err != nil {
		return "", t, err
	}
	return secret, t, nil
}

// RevokeToken ends a token at once, by its id.
func (s *Standing) RevokeToken(ctx context.Context, id, by string) error {
	s.tokens.mu.RLock()
	var found identity.Token
	for _, t := range s.tokens.byHash {
		if t.ID == id {
			found = t
		}
	}
	s.tokens.mu.RUnlock()
	if found.ID == "" {
		return fault.New(fault.NotFound, "There is no token %s.", id)
	}
	// Memory comes first, so that a revoked token is not valid during a slow commit. The store is asked each time, because it may have failed
	// at an earlier attempt.
	if found.Revoked.IsZero() {
		found.Revoked = s.o.Now()
		s.tokens.mu.Lock()
		s.tokens.byHash[found.Hash] = found
		s.tokens.mu.Unlock()
	}
	err := s.o.Store.RevokeToken(ctx, id, found.Revoked, audit.Entry{
		Kind: audit.Change, Action: "token.revoke", Actor: by, Decision: "ok", Reason: "of " + found.Subject.String(), CallID: id,
	})
	if fault.Is(err, fault.Conflict) { // an earlier attempt was written
		return nil
	}
	return err
}

// ListTokens returns every token, oldest first; none carries its secret.
func (s *Standing) ListTokens() []identity.Token {
	s.tokens.mu.RLock()
	defer s.tokens.mu.RUnlock()
	all := make([]identity.Token, 0, len(s.tokens.byHash))
	for _, t := range s.tokens.byHash {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b identity.Token) int { return strings.Compare(a.ID, b.ID) })
	return all
}
