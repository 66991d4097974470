package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"pgregory.net/rapid"

	canonical "sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// folder writes the given files and loads them.
func folder(t testing.TB, files map[string]string) (*Set, string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(dir)
	return s, dir, err
}

func load(t testing.TB, text string) *Set {
	t.Helper()
	s, _, err := folder(t, map[string]string{"a.cedar": text})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return s
}

func base() Request {
	return Request{Agent: "research", Operation: "mail.send", Server: "mail", Requester: "alice", Door: "mcp", Phase: "execution", Effect: "write",
		Sensitivity: "external", Level: 2, Labels: []string{"internal"}, Arguments: []byte(`{"amount":500,"to":"bob@example.com"}`), Permitted: true}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name, policies string
		change         func(*Request)
		allowed        bool
		by             string // ids, joined by a space
		reason         string
	}{
		{"none", ``, nil, true, "", ""},
		{"comments only", "// nothing\n", nil, true, "", ""},
		{"not declared", ``, func(r *Request) { r.Permitted = false }, false, "", `"research" does not permit mail.send`},
		{"a permit can't widen", `@id("all") permit (principal, action, resource);`, func(r *Request) { r.Permitted = false }, false, "", "does not permit"},
		{"a permit that matches", `permit (principal, action, resource) when { context.effect == "write" };`, nil, true, "", ""},
		{"no permit matches", `permit (principal, action, resource) when { context.effect == "read" };`, nil, false, "", "No policy permits"},
		{"one of two permits", `permit (principal == Agent::"x", action, resource); permit (principal == Agent::"research", action, resource);`, nil, true, "", ""},
		{"forbid beats permit", `permit (principal, action, resource); @id("no") forbid (principal, action, resource);`, nil, false, "no", "forbids"},
		{"by agent", `@id("a") forbid (principal == Agent::"research", action, resource);`, nil, false, "a", "forbids"},
		{"other agent", `@id("a") forbid (principal == Agent::"other", action, resource);`, nil, true, "", ""},
		{"by operation", `@id("a") forbid (principal, action == Action::"call", resource == Operation::"mail.send");`, nil, false, "a", ""},
		{"by server", `@id("a") forbid (principal, action, resource in Server::"mail");`, nil, false, "a", ""},
		{"other server", `@id("a") forbid (principal, action, resource in Server::"mai");`, nil, true, "", ""},
		{"reason", `@id("a") @reason("Mail is frozen until Monday.") forbid (principal, action, resource);`, nil, false, "a", "Mail is frozen until Monday."},
		{"by label", `@id("l") forbid (principal, action, resource) when { context.labels.contains("internal") };`, nil, false, "l", ""},
		{"no label", `@id("l") forbid (principal, action, resource) when { context.labels.contains("pii") };`, nil, true, "", ""},
		{"no labels at all", `@id("l") forbid (principal, action, resource) unless { context.labels.isEmpty() };`, func(r *Request) { r.Labels = nil }, true, "", ""},
		{"every plain attribute", `@id("c") forbid (principal, action, resource) unless { context.phase == "execution" && context.effect == "write" && context.level == 2 && context.sensitivity == "external" && context.door == "mcp" && context.requester == "alice" };`, nil, true, "", ""},
		{"level", `@id("c") forbid (principal, action, resource) when { context.level > 1 };`, nil, false, "c", ""},
		{"file and line as id", "\n\nforbid (principal, action, resource);", nil, false, "a.cedar:3", ""},
		{"two on one line", "forbid (principal, action, resource); forbid (principal, action, resource);", nil, false, "a.cedar:1 a.cedar:1:39", ""},
		{"asked for what isn't there", `@id("h") forbid (principal, action, resource) when { context has secret };`, nil, true, "", ""},
		{"all ids, sorted", `@id("z") forbid (principal, action, resource); @id("b") forbid (principal, action, resource);`, nil, false, "b z", ""},

		{"argument", `@id("big") forbid (principal, action, resource) when { context.arguments.amount > 499 };`, nil, false, "big", "forbids"},
		{"argument under", `@id("big") forbid (principal, action, resource) when { context.arguments.amount > 500 };`, nil, true, "", ""},
		{"argument like", `@id("out") forbid (principal, action, resource) unless { context.arguments.to like "*@example.com" };`, nil, true, "", ""},
		{"argument by index", `@id("big") forbid (principal, action, resource) when { context["arguments"]["amount"] > 499 };`, nil, false, "big", ""},
		{"context as a whole", `@id("big") forbid (principal, action, resource) when { {c: context}.c.arguments.amount > 499 };`, nil, false, "big", ""},
		// A policy that can't be evaluated refuses, on either side.
		{"missing argument", `@id("e") forbid (principal, action, resource) when { context.arguments.sum > 1 };`, nil, false, "e", "can't be evaluated"},
		{"missing argument, permit", `@id("e") permit (principal, action, resource) when { context.arguments.sum > 1 }; permit (principal, action, resource);`, nil, false, "e", "can't be evaluated"},
		{"missing argument asked for", `@id("e") forbid (principal, action, resource) when { context.arguments has sum && context.arguments.sum > 1 };`, nil, true, "", ""},
		{"errors and forbids", `@id("e") forbid (principal, action, resource) when { context.arguments.sum > 1 }; @id("a") forbid (principal, action, resource);`, nil, false, "a e", "can't be evaluated"},
		{"overflow", `@id("e") forbid (principal, action, resource) when { context.arguments.amount * 9223372036854775807 > 1 };`, nil, false, "e", "can't be evaluated"},
		{"fraction", `@id("e") forbid (principal, action, resource) when { context.arguments has amount && context.arguments.amount > 1000 };`,
			func(r *Request) { r.Arguments = []byte(`{"amount":99999.5}`) }, false, "e", "can't be evaluated"},
		{"fraction is text", `@id("e") forbid (principal, action, resource) unless { context.arguments.amount == "0.5" };`,
			func(r *Request) { r.Arguments = []byte(`{"amount":0.5}`) }, true, "", ""},
		{"beyond 64 bits", `@id("e") forbid (principal, action, resource) when { context.arguments has amount && context.arguments.amount > 1000 };`,
			func(r *Request) { r.Arguments = []byte(`{"amount":9223372036854775808}`) }, false, "e", "can't be evaluated"},
		{"64 bits", `@id("e") forbid (principal, action, resource) unless { context.arguments.amount == 9223372036854775807 };`,
			func(r *Request) { r.Arguments = []byte(`{"amount":9223372036854775807}`) }, true, "", ""},
		{"null is there", `@id("e") forbid (principal, action, resource) when { context.arguments has to && context.arguments.to like "*@evil.example" };`,
			func(r *Request) { r.Arguments = []byte(`{"to":null}`) }, false, "e", "can't be evaluated"},
		{"null is null", `@id("e") forbid (principal, action, resource) when { context.arguments.to == JSON::"null" };`,
			func(r *Request) { r.Arguments = []byte(`{"to":null}`) }, false, "e", "forbids"},
		{"list", `@id("e") forbid (principal, action, resource) when { context.arguments.to.contains("x") };`,
			func(r *Request) { r.Arguments = []byte(`{"to":["y","x","x",1,null,{"a":[]}]}`) }, false, "e", "forbids"},
		{"nested", `@id("e") forbid (principal, action, resource) when { context.arguments.a.b.c };`,
			func(r *Request) { r.Arguments = []byte(`{"a":{"b":{"c":true}}}`) }, false, "e", "forbids"},
		{"no arguments", `@id("e") forbid (principal, action, resource) when { context.arguments has a };`, func(r *Request) { r.Arguments = nil }, true, "", ""},
		{"not an object", `@id("e") forbid (principal, action, resource) when { context.arguments has a };`,
			func(r *Request) { r.Arguments = []byte(`[1]`) }, false, "", "not an object"},
		{"broken", `@id("e") forbid (principal, action, resource) when { context.arguments has a };`,
			func(r *Request) { r.Arguments = []byte(`{"a":`) }, false, "", "not an object"},
		{"broken but nobody looks", `@id("e") forbid (principal, action, resource) when { context.level > 5 };`,
			func(r *Request) { r.Arguments = []byte(`{"a":`) }, true, "", ""},
		{"long list", `@id("e") forbid (principal, action, resource) when { context.arguments has a };`,
			func(r *Request) { r.Arguments = []byte(`{"b":[` + strings.Repeat("1,", maxElements) + `1]}`) }, false, "", "list of more than"},
		{"many values", `@id("e") forbid (principal, action, resource) when { context.arguments has a };`,
			func(r *Request) {
				r.Arguments = []byte(`{"b":[` + strings.Repeat("["+strings.Repeat("1,", 999)+"1],", 11) + `1]}`)
			}, false, "", "more than 10000 values"},
		{"hostile names", `@id("e") forbid (principal, action, resource) when { context.level > 5 };`,
			func(r *Request) { r.Agent, r.Operation, r.Server = "\"); permit", "\x00", "" }, true, "", ""},
	} {
		r := base()
		if c.change != nil {
			c.change(&r)
		}
		d := load(t, c.policies).Decide(r)
		if d.Allowed != c.allowed || strings.Join(d.Policies, " ") != c.by || !strings.Contains(d.Reason, c.reason) || d.Allowed != (d.Reason == "") {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
	if (*Set)(nil).Decide(base()).Allowed {
		t.Error("a set that nobody loaded allows")
	}
}

// Whatever the policies are, they never allow what the declaration does not permit, and more policies of forbid never allow more.
func TestPoliciesOnlyNarrow(t *testing.T) {
	pool := []string{
		`permit (principal, action, resource);`, `permit (principal == Agent::"a", action, resource);`, `permit (principal, action, resource) when { context.arguments.n > 3 };`,
		`forbid (principal, action, resource in Server::"s") when { context.level > 1 };`, `forbid (principal, action, resource) when { context.arguments has n && context.arguments.n > 3 };`,
		`forbid (principal == Agent::"b", action, resource);`, `forbid (principal, action, resource) when { context.labels.contains("pii") };`,
	}
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		chosen := rapid.SliceOfN(rapid.SampledFrom(pool), 0, 5).Draw(rt, "policies")
		if err := os.WriteFile(filepath.Join(dir, "p.cedar"), []byte(strings.Join(chosen, "\n")), 0o600); err != nil {
			rt.Fatal(err)
		}
		s, err := Load(dir)
		if err != nil {
			rt.Fatal(err)
		}
		r := Request{Agent: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "agent"), Operation: "s.t", Server: rapid.SampledFrom([]string{"s", "u"}).Draw(rt, "server"),
			Level: rapid.IntRange(0, 2).Draw(rt, "level"), Labels: rapid.SliceOf(rapid.SampledFrom([]string{"pii", "internal"})).Draw(rt, "labels"),
			Arguments: []byte(rapid.SampledFrom([]string{`{}`, `{"n":1}`, `{"n":5}`, `{"n":5.5}`, `{"n":null}`}).Draw(rt, "arguments")), Permitted: rapid.Bool().Draw(rt, "permitted")}
		d := s.Decide(r)
		if d.Allowed && !r.Permitted {
			rt.Fatal("policies widened the declaration")
		}
		if again := s.Decide(r); again.Allowed != d.Allowed || again.Reason != d.Reason || !slices.Equal(again.Policies, d.Policies) || !slices.IsSorted(d.Policies) {
			rt.Fatalf("not one answer: %+v %+v", d, again)
		}
		forbids := slices.ContainsFunc(chosen, func(p string) bool { return strings.HasPrefix(p, "forbid") })
		if d.Allowed && forbids {
			rest := slices.DeleteFunc(slices.Clone(chosen), func(p string) bool { return strings.HasPrefix(p, "forbid") })
			os.WriteFile(filepath.Join(dir, "p.cedar"), []byte(strings.Join(rest, "\n")), 0o600)
			less, err := Load(dir)
			if err != nil || !less.Decide(r).Allowed {
				rt.Fatalf("taking the forbids away refuses: %v", err)
			}
		}
	})
}

func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"syntax", map[string]string{"a.cedar": "forbid (principal, action, resource);\nforbid (principal action, resource);"}, []string{`a.cedar:2:25: "action" stands here, where "," belongs`}},
		{"not cedar", map[string]string{"a.cedar": "hello"}, []string{"a.cedar:1:6: near"}},
		{"unknown attribute", map[string]string{"a.cedar": "\n  forbid (principal, action, resource) when { context.lables.contains(\"x\") };"}, []string{"a.cedar:2:3", "lables"}},
		{"unknown attribute beside arguments", map[string]string{"a.cedar": `forbid (principal, action, resource) when { context.lables.contains("x") && context.arguments.a };`}, []string{"a.cedar:1:1", "lables", "known are phase"}},
		{"wrong type", map[string]string{"a.cedar": `forbid (principal, action, resource) when { context.level > "x" };`}, []string{"a.cedar:1:1", "Long"}},
		{"wrong type of label", map[string]string{"a.cedar": `forbid (principal, action, resource) when { context.labels == "pii" };`}, []string{"a.cedar:1:1"}},
		{"unknown entity", map[string]string{"a.cedar": `forbid (principal == User::"x", action, resource);`}, []string{"a.cedar:1:1", "User"}},
		{"unknown entity beside arguments", map[string]string{"a.cedar": `forbid (principal == User::"x", action, resource) when { context.arguments.a };`}, []string{"a.cedar:1:1", "User"}},
		{"unknown action", map[string]string{"a.cedar": `forbid (principal, action == Action::"read", resource);`}, []string{"a.cedar:1:1", "read"}},
		{"agent as resource", map[string]string{"a.cedar": `forbid (principal, action, resource == Agent::"x");`}, []string{"a.cedar:1:1"}},
		{"one id twice", map[string]string{"a.cedar": `@id("x") forbid (principal, action, resource);`, "b.cedar": "\n" + `@id("x") forbid (principal, action, resource);`}, []string{"b.cedar:2:1", `"x"`, "a.cedar:1:1"}},
		{"empty id", map[string]string{"a.cedar": `@id("") forbid (principal, action, resource);`}, []string{"a.cedar:1:1", "@id"}},
		{"hostile id", map[string]string{"a.cedar": `@id("\u{1b}[2J") forbid (principal, action, resource);`}, []string{"@id"}},
		{"too deep", map[string]string{"a.cedar": "\nforbid (principal, action, resource) when { " + strings.Repeat("(", 100_000) + " };"}, []string{"a.cedar:2", "brackets"}},
		{"too large", map[string]string{"a.cedar": strings.Repeat("// nothing\n", 1+maxFile/11)}, []string{"a.cedar", "more than"}},
		{"invalid UTF-8", map[string]string{"a.cedar": "@id(\"\xff\") forbid (principal, action, resource);"}, []string{"a.cedar"}},
	} {
		s, dir, err := folder(t, c.files)
		if err == nil || s != nil || !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: %v\nwant %q", c.name, err, want)
			}
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: raw text: %q", c.name, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "nowhere")); !fault.Is(err, fault.ConfigurationInvalid) {
		t.Errorf("missing folder: %v", err)
	}
	dir := t.TempDir()
	os.Mkdir(filepath.Join(dir, "x.cedar"), 0o700)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("folder as file: %v", err)
	}
	s, _, err := folder(t, map[string]string{"README.md": "{{", ".a.cedar": "{{", "a.cedar.bak": "{{"})
	if err != nil || !s.Decide(base()).Allowed {
		t.Errorf("other files: %v", err)
	}
	if s, err := Load(""); err != nil || !s.Decide(base()).Allowed {
		t.Errorf("no folder: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(`@id("a") forbid (principal == Agent::"x", action, resource in Server::"s") when { context.arguments.a.b > 1 && context has phase } unless { context.labels.containsAny(["a"]) };`, `{"a":{"b":2}}`)
	f.Add(`permit (principal, action in [Action::"call"], resource is Operation) when { if context.level > 1 then ip("1.2.3.4").isLoopback() else decimal("1.5") == decimal("1.50") };`, `{}`)
	f.Add(`forbid (principal, action, resource) when { context == {} || {a: context}.a.arguments["x"] like "\u{1f600}*" };`, `{"x":null}`)
	f.Add(`forbid (principal, action, resource) when { ((((((((!!!!-(-(1)) };`, `[]`)
	f.Add(`@reason("\u{202e}") @id("é") forbid (principal, action, resource) when { resource has x && resource.x.y };`, `{"x":1e999}`)
	validator, err := newValidator()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, arguments string) {
		s := &Set{}
		if err := s.add(validator, "f.cedar", []byte(text)); err != nil {
			if !fault.Is(err, fault.ConfigurationInvalid) || !strings.HasPrefix(err.Error(), "f.cedar:") || !utf8.ValidString(err.Error()) {
				t.Fatalf("%v", err)
			}
			return
		}
		r := base()
		r.Arguments = []byte(arguments)
		d := s.Decide(r)
		if d.Allowed != (d.Reason == "") || d.Allowed && len(d.Policies) > 0 || strings.ContainsFunc(d.Reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%+v", d)
		}
		r.Permitted = false
		if s.Decide(r).Allowed {
			t.Fatal("policies widened the declaration")
		}
	})
}

// Hostile arguments against policies that look at them: no panic, and what can't be judged is refused.
func FuzzArguments(f *testing.F) {
	s := load(f, `@id("n") forbid (principal, action, resource) when { context.arguments has n && context.arguments.n > 1000 };
@id("s") forbid (principal, action, resource) when { context.arguments has s && context.arguments.s like "*@evil.example" };
@id("l") forbid (principal, action, resource) when { context.arguments has l && context.arguments.l.contains("x") };`)
	for _, seed := range []string{`{"n":1001}`, `{"n":1e9}`, `{"n":null}`, `{"n":"1"}`, `{"n":[1]}`, `{"s":"a@evil.example"}`, `{"l":["x"]}`, `{"l":[[[[]]],{},"x"]}`, `[]`, ``, `{"n":-0.5}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := base()
		r.Arguments = data
		s.Decide(r)
		if r.Arguments, _ = canonical.Canonical(data, canonical.DefaultLimits()); r.Arguments == nil {
			return
		}
		n, has := canonical.Get(r.Arguments, "n")
		// A number of five digits or more, a fraction or anything that is no number is over 1000 or can't be judged.
		if d := s.Decide(r); d.Allowed && has && (len(n) > 4 || !strings.ContainsRune("-0123456789", rune(n[0])) || strings.Contains(string(n), ".")) && n[0] != '-' {
			t.Fatalf("allowed with n = %s", n)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{0, 5, 100} {
		for _, arguments := range []bool{false, true} {
			if n == 0 && arguments {
				continue
			}
			var text strings.Builder
			for i := range n {
				condition := "context.level > 5"
				if arguments {
					condition = "context.arguments has amount && context.arguments.amount > 10000"
				}
				fmt.Fprintf(&text, "@id(\"p%d\") forbid (principal == Agent::\"agent%d\", action, resource in Server::\"mail\") when { %s };\n", i, i%10, condition)
			}
			s := load(b, text.String())
			b.Run(fmt.Sprintf("policies=%d/arguments=%v", n, arguments), func(b *testing.B) {
				r := base()
				r.Agent = "agent3"
				b.ReportAllocs()
				for b.Loop() {
					if d := s.Decide(r); !d.Allowed {
						b.Fatal(d)
					}
				}
			})
		}
	}
}

// What a set decides is what Cedar decides on the same policies as a whole, for every kind of scope and whatever fails in a condition.
func TestScopesDecideAsCedarDoes(t *testing.T) {
	validator, err := newValidator()
	if err != nil {
		t.Fatal(err)
	}
	decided := map[bool]int{}
	agents, operations, servers := []string{"research", "other", ""}, []string{"mail.send", "mail.read", "web.get"}, []string{"mail", "web", ""}
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
		agent := func() string { return fmt.Sprintf("Agent::%q", pick("agent", agents...)) }
		operation := func() string { return fmt.Sprintf("Operation::%q", pick("operation", operations...)) }
		server := func() string { return fmt.Sprintf("Server::%q", pick("server", servers...)) }
		var text strings.Builder
		for i := range rapid.IntRange(1, 6).Draw(t, "policies") {
			fmt.Fprintf(&text, "@id(\"p%d\") %s (%s, %s, %s) %s;\n", i, pick("effect", "permit", "forbid"),
				pick("principal", "principal", "principal == "+agent(), "principal in "+agent(), "principal is Agent", "principal is Agent in "+agent()),
				pick("action", "action", `action == Action::"call"`, `action in [Action::"call"]`, `action in Action::"call"`),
				pick("resource", "resource", "resource == "+operation(), "resource in "+operation(), "resource in "+server(), "resource is Operation", "resource is Operation in "+server()),
				pick("condition", "", "when { context.level > 1 }", "unless { context.arguments.amount > 499 }", "when { context.arguments has to }",
					"when { resource in "+server()+" }", "when { context.arguments.to > 5 }", "when { principal == "+agent()+" } unless { context.labels.contains(\"internal\") }"))
		}
		s := &Set{}
		if s.add(validator, "a.cedar", []byte(text.String())) != nil {
			return // the checker knows that one can't apply
		}
		whole, err := cedar.NewPolicyListFromBytes("a.cedar", []byte(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]*cedar.Policy{}
		for _, p := range whole {
			all[string(p.Annotations()["id"])] = p
		}
		r := base()
		r.Agent, r.Operation, r.Server = pick("who", agents...), pick("what", operations...), pick("where", servers...)
		fast := s.Decide(r)
		for i := range s.policies { // the whole policies, each with a scope that is left to Cedar
			s.policies[i].scope, s.policies[i].conditions = scope{ast.ScopeTypeAll{}, ast.ScopeTypeAll{}, ast.ScopeTypeAll{}}, all[s.policies[i].id]
		}
		if slow := s.Decide(r); !reflect.DeepEqual(fast, slow) {
			t.Fatalf("%s\n%+v\nfast %+v\nslow %+v", &text, r, fast, slow)
		}
		decided[fast.Allowed]++
	})
	if decided[true] == 0 || decided[false] == 0 {
		t.Errorf("decided %v", decided)
	}
}

// Of a thousand rules, all of which apply to the call.
func BenchmarkDecideApplicable(b *testing.B) {
	for _, n := range []int{10, 1000} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "@id(\"p%d\") forbid (principal, action, resource in Server::\"mail\") when { context.arguments has amount && context.arguments.amount > %d };\n", i, 10000+i)
		}
		s := load(b, text.String())
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			r := base()
			b.ReportAllocs()
			for b.Loop() {
				if d := s.Decide(r); !d.Allowed {
					b.Fatal(d)
				}
			}
		})
	}
}
