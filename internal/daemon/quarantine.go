package daemon

import "sallyport.example/internal/gateway"

// QuarantineConfig holds the rules that put agents in quarantine.
type QuarantineConfig struct {
	BreakerOpenings int `yaml:"breaker_openings,omitempty" json:"breaker_openings,omitempty" jsonschema:"How often within an hour an agent's own circuit breaker opens until the agent is put in quarantine: 1 to 100. Default 3."`
	FailedRuns      int `yaml:"failed_runs,omitempty" json:"failed_runs,omitempty" jsonschema:"How many runs of an agent fail or time out within an hour until it is put in quarantine: 1 to 1000. Default: that puts none there."`
	InvalidOutputs  int `yaml:"invalid_outputs,omitempty" json:"invalid_outputs,omitempty" jsonschema:"How many runs of an agent have an invalid output within an hour until it is put in quarantine: 1 to 1000. Default: that puts none there."`
	HitsWritten     int `yaml:"hits_written,omitempty" json:"hits_written,omitempty" jsonschema:"How many hits of screening in what an agent writes (arguments of its calls and of functions that its model calls, and messages to models) put it in quarantine within an hour: 1 to 1000. Default: that puts none there."`
}

func (c *Config) checkQuarantine(p *complaints) {
	q := c.Quarantine
	for _, rule := range []struct {
		key     string
		n, most int
	}{{"breaker_openings", q.BreakerOpenings, 100}, {"failed_runs", q.FailedRuns, 1000}, {"invalid_outputs", q.InvalidOutputs, 1000}, {"hits_written", q.HitsWritten, 1000}} {
		if rule.n < 0 || rule.n > rule.most {
			p.bad("quarantine."+rule.key, "write how many within an hour, or leave it out", "%d is not from 1 to %d", rule.n, rule.most)
		}
	}
}

func (c *Config) quarantine() gateway.Quarantine {
	return gateway.Quarantine{BreakerOpenings: c.Quarantine.BreakerOpenings, FailedRuns: c.Quarantine.FailedRuns, InvalidOutputs: c.Quarantine.InvalidOutputs, HitsWritten: c.Quarantine.HitsWritten}
}
