package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/store"
)

// IssueToken makes a token straight in a data directory that no gateway runs on; it fails where one does. The rules are those of the
// HTTP API: a declared agent, a host, or a person with no more roles than configured. Whoever can write the directory may do this.
func IssueToken(ctx context.Context, cfg *Config, data string, subject identity.Principal) (secret string, err error) {
	d := &Daemon{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	bad := func(format string, args ...any) error { return fault.New(fault.RequestMalformed, format, args...) }
	now := time.Now().UTC()
	if err := identity.CheckID(subject.ID); err != nil {
		return "", bad("%v", err)
	}
	if !subject.Expires.IsZero() && !subject.Expires.After(now) {
		return "", bad("The token would have expired already.")
	}
	switch subject.Kind {
	case identity.Agent:
		agents, err := d.declarations()
		if err != nil {
			return "", err
		}
		if _, ok := agents.Get(subject.ID); !ok {
			return "", fault.New(fault.AgentUndeclared, "No agent %q is declared.", subject.ID).Try("Add a file for it to the agents folder.")
		}
	case identity.Person:
		configured, known := d.people()[subject.ID]
		for _, r := range subject.Roles {
			if known && !slices.Contains(configured, r) && !slices.Contains(configured, identity.Admin) {
				return "", fault.New(fault.PermissionDenied, "The configuration does not give %s the role %s.", subject.ID, r).
					Try("Add it under people in sallyport.yaml.")
			}
		}
	case identity.Host:
	default:
		return "", fmt.Errorf("no token is made for a %s here", subject.Kind)
	}
	db, err := store.Open(data, store.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	secret, hash := identity.Mint(subject.Kind)
	t := identity.Token{ID: call.NewID("tok_", now), Hash: hash, Subject: subject, Created: now}
	t.Subject.TokenID = t.ID
	err = db.AddToken(ctx, t, audit.Entry{
		Kind: audit.Change, Action: "token.create", Actor: "gateway:offline", Decision: "ok", Reason: "for " + subject.String(), CallID: t.ID,
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}
