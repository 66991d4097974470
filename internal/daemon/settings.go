package daemon

import (
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
)

// settings are what the gateway judges by: of the start, and of every reload.
func (c *Config) settings(builtin []catalogue.Command, agents agent.Set, policies *policy.Set) (s gateway.Settings, err error) {
	labels, err := c.labels()
	if err != nil {
		return s, err
	}
	risk, err := c.Approvals.rules()
	if err != nil {
		return s, err
	}
	screening := c.rules()
	if screening.err != nil {
		return s, screening.err
	}
	unlisted := catalogue.Unlisted
	if c.Unlisted == "ask" || c.Unlisted == "ask_once" {
		unlisted = catalogue.Active
	}
	return gateway.Settings{
		Agents: agents, Policies: policies, Classify: withTrial(c.Classifier(builtin), enforcedLabels(c, labels)), Labels: labels, Unlisted: unlisted, AskOnce: c.Unlisted == "ask_once", Mode: gateway.Mode(c.Mode), Models: c.catalogueModels(), Fallbacks: c.fallbacks(),
		Limits: gateway.Limits{
			CallsPerMinute: c.Limits.CallsPerMinute, CommRequestsPerMinute: c.Limits.CommRequestsPerMinute,
			Budget: time.Duration(c.Limits.ExecutionBudget), ApprovalExpires: time.Duration(c.Approvals.Expires),
			MediumDelay: time.Duration(c.Approvals.MediumDelay), DrillEvery: c.Approvals.DrillEvery, AsksPerMinute: asksPerMinute,
		},
		Risk: risk, Voter: c.voter, Identities: c.IdentitiesOf, FreeLevel1: c.Flow.FreeLevel1, Screens: screening.detector, HitInArguments: c.Threat.input(), HitInResults: c.Threat.results(), Judge: c.Threat.Judge, Tiers: c.tiers(), Breakers: c.breakers(), Quarantine: c.quarantine(),
	}, nil
}

// reloads tells whether a reload can put another value of a field in force, by the field's name in the record. What opens files, starts processes,
// listens or is confined by the field needs a restart.
func reloads(field string) bool {
	if field == "approvals.hold" {
		return false
	}
	for _, section := range []string{
		"mode", "threat.input", "threat.results", "threat.judge", "people", "hosts", "operations", "unlisted_operations", "flow", "knowledge", "claims", "trust_tiers", "approvals", "declarations", "breakers", "quarantine", "models",
		"limits.calls_per_minute", "limits.comm_requests_per_minute", "limits.execution_budget",
		projectFolder, policyFiles, patternsFile,
	} {
		if field == section || strings.HasPrefix(field, section+".") {
			return true
		}
	}
	server, ok := strings.CutPrefix(field, "upstreams.")
	if !ok {
		return false
	}
	_, of, _ := strings.Cut(server, ".")
	return of == "labels" || of == "first_sight" || of == "fallback" || strings.HasPrefix(of, labelsOf)
}

// The names in the record of what decides and is in no field of the file.
const (
	projectFolder = "flow.project (the folder)"
	policyFiles   = "policies (the files)"
	patternsFile  = "threat.patterns (the file)"
	labelsOf      = "labels of "
)
