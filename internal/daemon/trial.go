package daemon

import (
	"context"
	"path/filepath"
	"slices"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
	"sallyport.example/internal/trial"
)

// withTrial adds the gateway's own word on the operations of the trial's server to the operator's on all others.
func withTrial(said func(server, tool string) catalogue.Classification, labels []flow.Label) func(server, tool string) catalogue.Classification {
	emits := trial.Emits(labels)
	return func(server, tool string) catalogue.Classification {
		if server == agent.TrialServer {
			return trial.Classify(tool, emits)
		}
		return said(server, tool)
	}
}

// trials makes what `sallyport doctor --live` tries the controls with.
func (d *Daemon) trials() (*trial.Trials, error) {
	folder, err := filepath.Abs(filepath.Join(d.o.Data, "workspace"))
	if err != nil {
		return nil, err
	}
	here := func() trial.Here {
		cfg := d.config()
		h := trial.Here{
			Mode: cfg.Mode, Confirm: cfg.People.Confirm, Labels: slices.Clone(cfg.Flow.Labels), Programs: cfg.Comm.Exec.Allow, Domains: cfg.Comm.AllowedDomains, Workspace: folder,
		}
		h.Enforced = enforcedLabels(cfg, h.Labels)
		for id := range cfg.Comm.Databases {
			h.Databases = append(h.Databases, id)
		}
		slices.Sort(h.Databases)
		return h
	}
	return trial.New(trial.Options{
		Gateway: d.gate, Agents: func() agent.Set { return d.gate.Agents().Only(d.approved.Approved) }, Here: here, Log: d.o.Log,
		Sessions: d.openSessions,
	}), nil
}

// pageOfSessions is how many sessions are read at once.
const pageOfSessions = 200

// openSessions are all open sessions.
func (d *Daemon) openSessions(ctx context.Context) (all []session.Session, err error) {
	for after := ""; ; after = all[len(all)-1].ID {
		page, err := d.store.SessionsPage(ctx, after, pageOfSessions, session.Open)
		all = append(all, page.Sessions...)
		if err != nil || len(page.Sessions) < pageOfSessions {
			return all, err
		}
	}
}

// enforcedLabels are those of the confidentiality labels that block in the configuration's mode.
func enforcedLabels[L ~string](cfg *Config, labels []L) []L {
	if gateway.Mode(cfg.Mode) == gateway.Observe {
		return judge.EnforcedLabels(labels)
	}
	return slices.Clone(labels)
}
