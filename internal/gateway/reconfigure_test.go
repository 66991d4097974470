package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
)

// reconfigure puts the world's settings in force, changed.
func (w *world) reconfigure(change func(s *gateway.Settings)) {
	w.t.Helper()
	s := w.o.Settings
	change(&s)
	if err := w.g.Reconfigure(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

// classified changes how one operation is classified.
func classified(id string, change func(c *catalogue.Classification)) func(s *gateway.Settings) {
	return func(s *gateway.Settings) {
		inner := s.Classify
		s.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server+"."+tool == id {
				change(&c)
			}
			return c
		}
	}
}

// permitted gives all agents these permissions.
func permitted(t testing.TB, read, write string) agent.Set {
	d := strings.Replace(fmt.Sprintf(declaration, "worker", "execution", "host"), `["mail.*", "web.*", "docs.*", "shy.*", "comm.*"], write: ["slack.*"]`, read+", write: "+write, 1)
	return gatewaytest.Options(t, d).Agents
}

// cedar are the policies of a folder with this one.
func cedar(t testing.TB, text string) *policy.Set {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.cedar"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := policy.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// What a person was asked about, or approved, does not run once the operation is forbidden: whether the call is held, or made again afterwards.
func TestReconfigureForbidsWhatWaits(t *testing.T) {
	unlisted := classified("slack.publish", func(c *catalogue.Classification) { c.Listed, c.Named = false, false })
	for name, c := range map[string]struct {
		forbid    func(t *testing.T) func(s *gateway.Settings)
		code      fault.Code
		withdrawn bool
	}{
		"unlisted": {func(*testing.T) func(*gateway.Settings) { return unlisted }, fault.ToolUnknown, true},
		"its permission": {func(t *testing.T) func(*gateway.Settings) {
			return func(s *gateway.Settings) { s.Agents = permitted(t, `["mail.*"]`, `["slack.post"]`) }
		}, fault.PermissionDenied, false},
		"its agent": {func(*testing.T) func(*gateway.Settings) {
			return func(s *gateway.Settings) { s.Agents = agent.NewSet() }
		}, fault.AgentUndeclared, false},
		"a policy": {func(t *testing.T) func(*gateway.Settings) {
			return func(s *gateway.Settings) { s.Policies = cedar(t, `forbid (principal, action, resource);`) }
		}, fault.PermissionDenied, false},
		"a label that it has": {func(*testing.T) func(*gateway.Settings) {
			return classified("slack.publish", func(c *catalogue.Classification) { c.Flow.BlockedBy = &[]flow.Label{"internal"} })
		}, fault.FlowContaminated, false},
		"an unfit name": {func(*testing.T) func(*gateway.Settings) {
			return classified("slack.publish", func(c *catalogue.Classification) { c.ExposeAs = "sallyport_x" })
		}, fault.ToolUnknown, true},
		"a label nobody knows": {func(*testing.T) func(*gateway.Settings) {
			return func(s *gateway.Settings) { s.Labels = []flow.Label{"pii"} }
		}, fault.ToolUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPeopleWorld(t, func(o *gateway.Options) {
				classified("slack.publish", func(c *catalogue.Classification) { c.Flow.Emits = &[]flow.Label{"internal"} })(&o.Settings)
			})
			p := w.open("worker", "erin", widgets)
			w.mustPermit(w.do(p, "search_email", `{}`, ""))
			const other = `{"text":"y"}`
			approved := w.mustAsk(w.do(p, "slack_publish", other, ""))
			w.mustRespond("bob", approved, approval.Approve, "")
			h := w.hold(p, "slack_publish", `{"text":"x"}`, time.Minute)
			waits := h.waits().ApprovalID
			w.reconfigure(c.forbid(t))
			if a := h.ends(); a.Verdict.Decision != fault.Deny {
				t.Errorf("the held call: %+v", a.Verdict)
			}
			if c.withdrawn {
				for _, id := range []string{waits, approved} {
					if q := w.question(id); q.State != approval.Superseded {
						t.Errorf("the question is %s", q.State)
					}
				}
			} else {
				w.mustRespond("bob", waits, approval.Approve, "")
			}
			for _, arguments := range []string{`{"text":"x"}`, other} {
				if a := w.do(p, "slack_publish", arguments, ""); a.Verdict.Decision != fault.Deny || a.Verdict.Code != c.code {
					t.Errorf("what was approved: %+v", a.Verdict)
				}
			}
			if n := w.sent("publish"); n != 0 {
				t.Errorf("%d calls ran", n)
			}
		})
	}
}

// What a person answers while a read or a prompt is held is judged by the class that it has by then, as that of a tool's call is.
func TestReconfigureReachesHeldReads(t *testing.T) {
	for method, kind := range map[call.Method]call.Kind{call.ReadResource: call.Resource, call.GetPrompt: call.Prompt, call.CallTool: call.Tool} {
		t.Run(string(method), func(t *testing.T) {
			w := unlistedWorld(t)
			name := map[call.Kind]string{call.Resource: "shy://customers", call.Prompt: "greet", call.Tool: "look"}[kind]
			raw := json.RawMessage(`{"name":"` + name + `","uri":"` + name + `"}`)
			if kind != call.Tool {
				w.offer("shy", call.Definition{Server: "shy", Name: name, Kind: kind, JSON: raw, Hash: call.HashBytes(raw)})
			}
			var ran atomic.Int64
			w.up.answers["shy."] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
				ran.Add(1)
				return json.RawMessage(`{"contents":[],"messages":[],"content":[]}`), nil
			}
			if kind == call.Tool {
				w.up.answers["shy.look"] = w.up.answers["shy."]
			}
			p := w.open("worker", "erin", "x")
			tool := name
			if kind != call.Resource {
				tool = "shy_" + name
			}
			h := w.holdOf(gateway.Request{Principal: p, Method: method, Tool: tool, Door: "mcp", Hold: time.Minute})
			id := h.waits().ApprovalID
			w.reconfigure(func(s *gateway.Settings) {
				inner := s.Classify
				s.Classify = func(server, tool string) catalogue.Classification {
					c := inner(server, tool)
					if server == "shy" {
						c.RiskFloor = policy.Critical
					}
					return c
				}
			})
			if err := w.respond("bob", &id, approval.Approve, ""); err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.ApprovalMismatch) { // it was asked anew already
				t.Fatal(err)
			}
			for waits := false; !waits; {
				select {
				case x := <-h.waiting:
					waits = w.question(x.ApprovalID).State == approval.Pending
				case a := <-h.answer:
					t.Fatalf("one person's yes carries out what takes two by now: %+v, %d ran", a.Verdict, ran.Load())
				}
			}
			h.hangUp()
			if h.ends(); ran.Load() != 0 {
				t.Errorf("%d ran", ran.Load())
			}
		})
	}
}

// An answer stands where nothing that the person was shown got worse, and is asked for anew where it did.
func TestReconfigureAndAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T) func(s *gateway.Settings)
		stands bool
	}{
		"nothing": {func(*testing.T) func(*gateway.Settings) { return func(*gateway.Settings) {} }, true},
		"another one": {func(*testing.T) func(*gateway.Settings) {
			return classified("slack.pay", func(c *catalogue.Classification) { c.RiskFloor = policy.Critical })
		}, true},
		"a higher risk": {func(*testing.T) func(*gateway.Settings) {
			return classified("slack.publish", func(c *catalogue.Classification) { c.RiskFloor = policy.Critical })
		}, false},
		"the policies": {func(t *testing.T) func(*gateway.Settings) {
			return func(s *gateway.Settings) {
				s.Policies = cedar(t, `forbid (principal, action, resource) when { false };`)
			}
		}, false},
		"who may answer": {func(*testing.T) func(*gateway.Settings) {
			return func(s *gateway.Settings) {
				s.Voter = func(string) (approval.Voter, bool) { return approval.Voter{}, false }
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPeopleWorld(t)
			p := w.open("worker", "erin", widgets)
			id := w.mustAsk(w.do(p, "slack_publish", `{"text":"x"}`, ""))
			w.mustRespond("bob", id, approval.Approve, "")
			w.reconfigure(c.change(t))
			if a := w.do(p, "slack_publish", `{"text":"x"}`, ""); (a.Verdict.Decision == fault.Permit) != c.stands || a.Verdict.Decision == fault.Deny {
				t.Errorf("%+v", a.Verdict)
			}
		})
	}
}

// A session keeps its labels, whatever the operator says of the operation that brought them, and a label that the configuration has no more
// blocks every sink.
func TestReconfigureKeepsLabels(t *testing.T) {
	for name, change := range map[string]func(s *gateway.Settings){
		"it brings nothing any more": classified("mail.search_email", func(c *catalogue.Classification) { c.Flow.Emits, c.Flow.Sensitivity = &[]flow.Label{}, flow.None }),
		"it is not listed any more":  classified("mail.search_email", func(c *catalogue.Classification) { c.Listed, c.Named = false, false }),
		"the label is gone": func(s *gateway.Settings) {
			classified("mail.search_email", func(c *catalogue.Classification) { c.Flow.Emits = &[]flow.Label{} })(s)
			s.Labels = []flow.Label{"pii"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mustPermit(w.call("worker", "search_email"))
			w.reconfigure(change)
			w.mustRefuse(w.call("worker", "web_search"), fault.FlowContaminated)
			s, err := w.g.SessionFor(t.Context(), as("worker"))
			if err != nil || !s.Holds("internal") {
				t.Errorf("the session holds %v, %v", s.Labels, err)
			}
		})
	}
}

// The result of a call that runs while its operation gets other labels brings both: what is in force when it enters the session counts, too.
func TestReconfigureWhileACallRuns(t *testing.T) {
	w := newWorld(t)
	w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		w.reconfigure(classified("docs.think", func(c *catalogue.Classification) { c.Flow.Emits = &[]flow.Label{"internal"} }))
		return text("ok"), nil
	}
	w.mustPermit(w.call("worker", "think"))
	w.mustRefuse(w.call("worker", "web_search"), fault.FlowContaminated)
}

// A call that was judged by the old settings and has not begun is judged again by the new ones.
func TestReconfigureWhileACallIsJudged(t *testing.T) {
	var w *world
	forbid := func() {}
	w = newWorld(t, func(o *gateway.Options) {
		o.Identities = func(string) []string { // asked for while the facts are gathered
			forbid()
			return nil
		}
	})
	w.mustPermit(w.call("worker", "search_email"))
	sent := w.up.count()
	forbid = func() {
		forbid = func() {}
		w.reconfigure(func(s *gateway.Settings) { s.Agents = permitted(t, `["docs.*"]`, `[]`) })
	}
	w.mustRefuse(w.call("worker", "search_email"), fault.PermissionDenied)
	if w.up.count() != sent {
		t.Error("it ran")
	}
}

// What a session has seen confirms nothing any more once the operator says something else of where it came from.
func TestReconfigureDropsEvidenceOfOtherWords(t *testing.T) {
	trusting := func(s *gateway.Settings) {
		classified("docs.think", func(c *catalogue.Classification) {
			c.Facts.TrustedFields, c.Facts.IDKind, c.Roles = []string{"id"}, "person", map[string]string{}
		})(s)
		classified("slack.send", func(c *catalogue.Classification) {
			c.Roles = map[string]string{"to": "identity"}
			c.Facts.IDKind = "person"
		})(s)
	}
	w := newPeopleWorld(t, func(o *gateway.Options) { trusting(&o.Settings) })
	w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[],"structuredContent":{"id":"person-4711"}}`), nil
	}
	p := w.open("worker", "erin", widgets)
	w.mustPermit(w.do(p, "web_search", `{}`, "")) // untrusted from here on
	w.mustPermit(w.do(p, "think", `{}`, ""))
	judged := func() string {
		t.Helper()
		a, err := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_send", Arguments: json.RawMessage(`{"to":"person-4711"}`), Door: "http", DryRun: true}), error(nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict.Stage
	}
	if stage := judged(); stage == "flow" {
		t.Fatal("set-up: the id is confirmed by a trusted field")
	}
	w.reconfigure(classified("docs.think", func(c *catalogue.Classification) { c.Facts.TrustedFields = nil }))
	if stage := judged(); stage != "flow" {
		t.Errorf("an id of a field that nobody trusts any more is still confirmed: %s", stage)
	}
}

// Limits change for sessions that are open, and what they used stays used. Their budget of time stays what it was when they were opened.
func TestReconfigureLimits(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.CallsPerMinute = 4 })
	for range 3 {
		w.mustPermit(w.call("worker", "think"))
	}
	limited := func(n int) func(s *gateway.Settings) {
		return func(s *gateway.Settings) { s.Limits.CallsPerMinute, s.Limits.Budget = n, time.Nanosecond }
	}
	w.reconfigure(limited(3))
	w.mustRefuse(w.call("worker", "think"), fault.LimitRate)
	w.reconfigure(limited(5))
	w.mustPermit(w.call("worker", "think"))
	w.mustPermit(w.call("worker", "think"))
	w.mustRefuse(w.call("worker", "think"), fault.LimitRate)
}

// A plan that was sealed stays sealed, and its steps are judged as they are called: a step that is forbidden by then is refused.
func TestReconfigureForbidsAStepOfASealedPlan(t *testing.T) {
	w := newWorld(t)
	answer, err := w.g.SubmitPlan(t.Context(), as("planner"), "", json.RawMessage(`{"steps":[{"tool":"web_search","justification":"look it up"},{"tool":"search_email","justification":"find the mail"}]}`))
	if err != nil || answer.(gateway.PlanAnswer).State != session.PlanPending {
		t.Fatalf("set-up: %+v, %v", answer, err)
	}
	w.decide("planner", answer.(gateway.PlanAnswer).Digest)
	w.reconfigure(classified("web.web_search", func(c *catalogue.Classification) { c.Listed, c.Named = false, false }))
	w.mustRefuse(w.call("planner", "web_search"), fault.ToolUnknown)
	w.mustPermit(w.call("planner", "search_email"))
}

// Settings that no gateway can run with change nothing.
func TestReconfigureRefuses(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(s *gateway.Settings){
		"a mode": func(s *gateway.Settings) { s.Mode = "off" }, "a standing": func(s *gateway.Settings) { s.Unlisted = "gone" },
		"no expiry": func(s *gateway.Settings) { s.Limits.ApprovalExpires = 0 }, "no delay": func(s *gateway.Settings) { s.Limits.MediumDelay = 0 },
	} {
		s := w.o.Settings
		s.Agents = agent.NewSet()
		change(&s)
		if err := w.g.Reconfigure(t.Context(), s); err == nil || gateway.CheckSettings(s) == nil {
			t.Errorf("%s: taken", name)
		}
		w.mustPermit(w.call("worker", "think"))
	}
}

// One configuration forbids the operation, the other forbids the agent: no call runs, however often they take each other's place. It would where a
// call is judged by some of each.
func TestReconfigureIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	listed := func(s *gateway.Settings) { s.Agents = permitted(t, `["docs.*"]`, `[]`) }
	unlisted := classified("mail.search_email", func(c *catalogue.Classification) { c.Listed, c.Named = false, false })
	w.reconfigure(listed)
	end := w.g.Catalogue().Subscribe(func() { // in between, if there is a between
		if a := w.call("worker", "search_email"); a.Verdict.Decision == fault.Permit {
			t.Errorf("it ran while the settings were replaced: %+v", a.Verdict)
		}
	})
	defer end()
	var calls sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := w.call("worker", "search_email"); a.Verdict.Decision == fault.Permit {
					t.Errorf("it ran: %+v", a.Verdict)
				}
				if v, err := w.g.ValidatePlan(t.Context(), as("worker"), "", json.RawMessage(`{"planned_calls":["search_email"]}`)); err == nil {
					if b, _ := json.Marshal(v); strings.Contains(string(b), `"valid":true`) {
						t.Errorf("a plan with it is valid: %s", b)
					}
				}
			}
		})
	}
	for range 50 {
		w.reconfigure(unlisted)
		w.reconfigure(listed)
	}
	close(stop)
	calls.Wait()
	if n := w.up.count(); n != 0 {
		t.Errorf("%d calls reached a server", n)
	}
}

// Agents that come with a reload may call, and those that go may not, without a new connection.
func TestReconfigureAgents(t *testing.T) {
	w := newWorld(t)
	w.mustPermit(w.call("worker", "think"))
	w.reconfigure(func(s *gateway.Settings) { s.Agents = agent.NewSet() })
	w.mustRefuse(w.call("worker", "think"), fault.AgentUndeclared)
	if len(w.g.Operations(t.Context(), as("worker"))) != 0 || len(w.g.Agents().All()) != 0 || w.g.Standing().Declared("worker") == nil {
		t.Error("it is still declared somewhere")
	}
	w.reconfigure(func(s *gateway.Settings) { s.Agents = permitted(t, `["mail.*"]`, `[]`) })
	w.mustRefuse(w.call("worker", "think"), fault.PermissionDenied)
	w.mustPermit(w.call("worker", "search_email"))
	names := []string{}
	for _, op := range w.g.Operations(t.Context(), as("worker")) {
		names = append(names, op.Name)
	}
	if !slices.Equal(names, []string{"search_email"}) {
		t.Errorf("it sees %q", names)
	}
}
