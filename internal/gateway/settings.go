package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/screen"
)

// Settings are the part of the configuration that can be replaced while the gateway runs (Reconfigure). They are never changed in place. Every field without
// a stated default is needed.
type Settings struct {
	Agents   agent.Set
	Policies *policy.Set
	// Classify returns the operator's classification of a server's tool, with all defaults applied. It must answer for any string.
	Classify func(server, tool string) catalogue.Classification
	Labels   []flow.Label       // the confidentiality labels
	Unlisted catalogue.Standing // what an operation is that no entry names: Unlisted (deny) or Active (ask first)
	AskOnce  bool               // a person's yes to a call of such an operation covers its later calls in the session
	Models   []catalogue.Model  // that agents may be let ask
	// Fallbacks are the servers that take the calls of one that failed, by that.
	Fallbacks map[string]string
	Mode      Mode
	Limits    Limits
	// Risk holds the thresholds of amounts (HI-1).
	Risk policy.Rules
	// Voter is who a person is today: roles and every identity that is theirs; false for people nobody knows. Needed where people approve.
	Voter func(person string) (approval.Voter, bool)
	// Identities are a person's own addresses and accounts, as configured: what goes there does not leave the person. Default: nobody has any.
	Identities func(person string) []string
	// FreeLevel1 lets writes that only the person sees and can undo run unasked after untrusted content came in.
	FreeLevel1 bool
	// Breakers are the thresholds of the circuit breakers.
	Breakers Breakers
	// Quarantine are the rules that put agents in quarantine.
	Quarantine Quarantine
	// Screens finds texts that look like orders to an agent. Default: nothing is screened.
	Screens *screen.Detector
	// HitInArguments is what a hit of screening in arguments does. Default: a person decides.
	HitInArguments judge.Screening
	// HitInResults is whether a hit in a result makes it untrusted, or is on record alone (judge.ScreenObserve). Default: it does.
	HitInResults judge.Screening
	// Judge is the id of the model that is asked about results of which Screens is not sure. Default: none is.
	Judge string
	// Tiers are the trust tiers of agents.
	Tiers map[string]Tier
}

// fill sets the defaults.
func (s *Settings) fill() {
	if s.Voter == nil {
		s.Voter = func(string) (approval.Voter, bool) { return approval.Voter{}, false }
	}
	if s.Quarantine.BreakerOpenings == 0 {
		s.Quarantine.BreakerOpenings = quarantineAfter
	}
	if s.HitInArguments == "" {
		s.HitInArguments = judge.ScreenAsk
	}
	if s.Identities == nil {
		s.Identities = func(string) []string { return nil }
	}
}

// check says why no gateway can run with the settings; nil: one can.
func (s *Settings) check() error {
	if s.Mode != Enforce && s.Mode != Observe {
		return fmt.Errorf("unknown mode %q: enforce or observe", s.Mode)
	}
	if s.Unlisted != catalogue.Unlisted && s.Unlisted != catalogue.Active {
		return fmt.Errorf("unlisted operations can be denied or asked about, not %q", s.Unlisted)
	}
	if s.Limits.ApprovalExpires <= 0 {
		return errors.New("an approval that never expires would outlive what it was given for: set how long it is good for")
	}
	if s.Limits.MediumDelay <= 0 {
		return errors.New("a call of risk MEDIUM waits to be stopped: set how long")
	}
	return nil
}

// catalogue is the part of the settings that operations are classified by.
func (s *Settings) catalogue() catalogue.Settings {
	return catalogue.Settings{Classify: s.Classify, Labels: s.Labels, Unlisted: s.Unlisted, AskOnce: s.AskOnce, Models: s.Models, Observe: s.Mode == Observe, Screen: s.Screens}
}

// settings are Settings with what follows from them.
type settings struct {
	Settings
	rules *judge.Rules
}

// inForce are the settings that calls are judged by.
type inForce struct {
	settings      atomic.Pointer[settings] // never changed in place
	swapping      sync.RWMutex             // held while settings and the catalogue's snapshot are replaced, and while a pair of them is taken
	reconfiguring sync.Mutex               // held during Reconfigure
}

// newSettings checks them and derives what the stages read.
func newSettings(s Settings) (*settings, error) {
	s.fill()
	if err := s.check(); err != nil {
		return nil, err
	}
	return &settings{s, &judge.Rules{
		Observe: s.Mode == Observe, Policies: s.Policies, Risk: s.Risk, Labels: s.Labels, MediumDelay: s.Limits.MediumDelay, FreeLevel1: s.FreeLevel1, Screen: s.HitInArguments,
	}}, nil
}

// enforcing are the same settings of a gateway that enforces.
func (s *settings) enforcing() *settings {
	next, rules := *s, *s.rules
	rules.Observe, next.rules = false, &rules
	return &next
}

// view returns the settings in force and the catalogue that was classified by them.
func (g *Gateway) view() (*settings, *catalogue.Snapshot) {
	g.swapping.RLock()
	defer g.swapping.RUnlock()
	return g.settings.Load(), g.catalogue.Snapshot()
}

// CheckSettings says why Reconfigure would refuse settings; nil: it would not.
func CheckSettings(s Settings) error {
	_, err := newSettings(s)
	return err
}

// Reconfigure puts other settings in force, as a whole: a call is judged by the old ones or by the new ones, never by some of each. Calls that wait for
// a person are judged again, and a call that was judged by the old ones and has not begun its effect is, too. What sessions hold (labels, evidence, what
// they spent) stays. It changes nothing where it returns an error.
func (g *Gateway) Reconfigure(ctx context.Context, s Settings) error {
	next, err := newSettings(s)
	if err != nil {
		return err
	}
	g.reconfiguring.Lock()
	defer g.reconfiguring.Unlock()
	closed := g.catalogue.Reconfigure(context.WithoutCancel(ctx), next.catalogue(), func(publish func()) {
		g.swapping.Lock()
		defer g.swapping.Unlock()
		publish()
		g.settings.Store(next)
	})
	g.sessions.limit(g.tierOfAgent)
	g.breakers.Configure(next.Breakers.Rules)
	g.voidStopped()                    // other agents may depend on one that is aside
	for _, operation := range closed { // its questions would run nothing
		g.desk.WithdrawOperation(context.WithoutCancel(ctx), operation, desk.Withheld)
	}
	g.desk.WakeAll() // calls that are held are judged again
	g.feed.Publish(changes.Agent, "")
	return nil
}

// Agents are the declared agents.
func (g *Gateway) Agents() agent.Set { return g.settings.Load().Agents }

// Policies is how many policies of the operator are in force.
func (g *Gateway) Policies() int { return g.settings.Load().Policies.Len() }
