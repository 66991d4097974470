package gateway

import (
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/catalogue"
)

// unlimited is a call of an agent without quotas, at a server whose breaker is closed, in a gateway that has no store: a statement would panic.
func unlimited() *crossing {
	return &crossing{
		g:       &Gateway{breakers: breaker.New(time.Now, breaker.Rules{})},
		speaker: speaker{agent: "a", decl: &agent.Declaration{AgentID: "a"}},
		subject: subject{op: &catalogue.Operation{ID: "crm.get", Server: "crm"}},
	}
}

// passLimits is all that quotas and breakers do on the way of a call.
func (c *crossing) passLimits(tb testing.TB, now time.Time) {
	over, err := c.overQuota(now)
	blocked := c.g.breakers.Look(c.agent, c.server())
	claim := c.claims()
	try, met := c.g.breakers.Take(c.agent, c.server())
	if over != nil || err != nil || blocked != nil || claim != nil || met != nil {
		tb.Fatal(over, err, blocked, claim, met)
	}
	if events := try.End(breaker.Answered); len(events) > 0 {
		tb.Fatal(events)
	}
}

// TestNoLimitsCostNoStatement: a call of an agent without quotas asks the store for none, and takes nothing of any.
func TestNoLimitsCostNoStatement(t *testing.T) { unlimited().passLimits(t, time.Now()) }

// BenchmarkUnlimited is what quotas and breakers cost a call where there are no quotas and the breakers are closed.
func BenchmarkUnlimited(b *testing.B) {
	c, now := unlimited(), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		c.passLimits(b, now)
	}
}
