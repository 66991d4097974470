package httpapi

import (
	"context"

	"sallyport/internal/audit"
	"sallyport/internal/console"
	"sallyport/internal/gateway"
	"sallyport/internal/identity"
)

const (
	shownSessions = 50
	shownEntries  = 20
)

// overview collects what the person's roles let them see. A part that can't be had is left out and said to be missing.
func (a *API) overview(ctx context.Context, p identity.Principal) console.Page {
	page := console.Page{Viewer: p.Has(identity.Viewer), Auditor: p.Has(identity.Auditor)}
	missing := func(what string, err error) {
		a.log.Error("the console could not show something", "what", what, "error", err)
		page.Missing = append(page.Missing, what)
	}
	if page.Switches = page.Viewer || p.Has(identity.Operator); page.Switches {
		page.Kill = a.g.KillStatus()
	}
	if page.Viewer {
		for _, s := range a.o.Upstreams() {
			page.Servers = append(page.Servers, console.Server{ID: s.ID, State: s.State, Definitions: s.Definitions, LastError: s.LastError})
		}
		for _, t := range a.g.Tools() {
			if t.Standing == gateway.Quarantined {
				page.Waiting = append(page.Waiting, t)
			}
		}
		var err error
		if page.Sessions, err = a.store.SessionsPage(ctx, "", shownSessions, ""); err != nil {
			missing("the sessions", err)
		}
	}
	if page.Auditor {
		size, err := a.store.Size(ctx)
		if err == nil {
			page.Entries, _, err = a.store.Entries(ctx, audit.Filter{Min: max(0, size-shownEntries), Limit: shownEntries})
		}
		if err != nil {
			missing("the audit log", err)
		}
	}
	return page
}
