package daemon

import (
	"context"
	"errors"
	"time"

	"sallyport.example/internal/identity"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/store"
)

// IssueToken makes a token straight in a data directory that no gateway runs on; it fails where one does. The rules are those of a running
// gateway. Write access to the directory is enough.
func IssueToken(ctx context.Context, cfg *Config, data string, want standing.WantedToken) (secret string, err error) {
	now := time.Now().UTC()
	rules := standing.TokenRules{People: cfg.persons()}
	if want.Kind == string(identity.Agent) { // declarations that can't be read keep nobody else from a token
		var problems []Problem
		rules.Agents, problems = cfg.declarations()
		if err := blocking(problems); err != nil {
			return "", err
		}
	}
	subject, err := rules.Subject(want, now)
	if err != nil {
		return "", err
	}
	db, err := store.Open(data, store.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	secret, _, err = standing.MakeToken(ctx, db, subject, "gateway:offline", now)
	return secret, err
}
