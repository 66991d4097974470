package agent

import "strings"

// TrialServer is the id of the server that `sallyport doctor --live` tries the controls with. It runs in the gateway's own process, only as long as a
// trial does. No server of a configuration can have the id.
const TrialServer = "doctor"

// trialPrefix begins the id of each trial agent. No declaration can have such an id.
const trialPrefix = TrialServer + "."

// What a trial agent may do besides what its agent may. It may not use doctor.forbidden, so that there is something to refuse.
var (
	trialReads  = []string{"doctor.read", "doctor.secret", "doctor.wait", "doctor.explain", "doctor.change"}
	trialWrites = []string{"doctor.send", "doctor.pay"}
)

// Trial is the id of an agent's trial agent: it may do what the agent may, and has a kill switch, sessions and limits of its own. So a person can try
// what the gateway refuses the agent, and disturbs nobody. No token is made for it, and only people open its sessions.
func Trial(id string) string { return trialPrefix + id }

// IsTrial tells whether an agent is a trial agent.
func IsTrial(id string) bool { return strings.HasPrefix(id, trialPrefix) }

// trial is the declaration of the agent's trial agent; false where its id would be too long for an agent.
func (d *Declaration) trial() (*Declaration, bool) {
	t := *d
	t.AgentID, t.of = Trial(d.AgentID), d.AgentID
	return &t, checkID(t.AgentID) == "" && t.seal() == nil
}

// JudgedAs is the agent by whose id policies judge: of a trial agent the one that it stands for.
func (d *Declaration) JudgedAs() string {
	if d.of != "" {
		return d.of
	}
	return d.AgentID
}
