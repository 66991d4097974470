package flow

import (
	"fmt"
	"testing"
)

func BenchmarkJudge(b *testing.B) {
	sink := resolve(b, Spec{ID: "web.web_search", Name: "web_search"})
	pr := resolve(b, Spec{ID: "github.create_pr", Name: "github_create_pr", BlockedBy: nobody()})
	held := []Held{{Label: "untrusted", Operation: "web.fetch", CallID: "call_1"}, {Label: "internal", Operation: "mail.search_email", CallID: "call_2"}, {Label: "pii", Operation: "mail.search_email", CallID: "call_2"}}
	for _, c := range []struct {
		name    string
		op      Operation
		held    []Held
		allowed bool
	}{
		{"allowed clean", sink, nil, true},
		{"allowed tainted", sink, held[:1], true},
		{"allowed free", pr, held, true},
		{"refused", sink, held, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if Judge(c.op, c.held).Allowed != c.allowed {
					b.Fatal("wrong decision")
				}
			}
		})
	}
}

func BenchmarkRaise(b *testing.B) {
	source := resolve(b, Spec{ID: "mail.search_email", Name: "search_email", Sensitivity: InternalSource, Untrusted: true})
	held := Raise(nil, source, "call_1")
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Raise(nil, source, "call_1", "pii")
		}
	})
	b.Run("nothing new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Raise(held, source, "call_2")
		}
	})
}

func catalogue(b *testing.B, n int) []Operation {
	ops := make([]Operation, n)
	for i := range ops {
		s := Spec{ID: fmt.Sprint("srv.tool_", i), Name: fmt.Sprint("srv_tool_", i), Sensitivity: []Sensitivity{InternalSource, External, None, Both}[i%4], Untrusted: i%3 == 0}
		if i%8 == 3 { // few are both, or no plan would be possible
			s.Sensitivity = None
		}
		ops[i] = resolve(b, s)
	}
	return ops
}

func BenchmarkManifest200(b *testing.B) {
	ops := catalogue(b, 200)
	held := []Held{{Label: "internal", Operation: "srv.tool_0", CallID: "call_1"}}
	b.ReportAllocs()
	for b.Loop() {
		Manifest(ops, held)
	}
}

func BenchmarkSystemPrompt200(b *testing.B) {
	ops := catalogue(b, 200)
	b.ReportAllocs()
	for b.Loop() {
		SystemPrompt(ops, nil)
	}
}

// BenchmarkValidate takes plans of the shapes that cost most.
func BenchmarkValidate(b *testing.B) {
	source := resolve(b, Spec{Name: "source", Sensitivity: InternalSource})
	sink := resolve(b, Spec{Name: "sink"})
	both := resolve(b, Spec{Name: "both", Sensitivity: Both})
	free := resolve(b, Spec{Name: "free", Sensitivity: None})
	each := func(n int, step func(i int) Step) []Step {
		steps := make([]Step, n)
		for i := range steps {
			steps[i] = step(i)
		}
		return steps
	}
	before := func(i int) []int { return upTo(i) }
	alternate := func(i int) Step { return Step{Op: []Operation{source, sink}[i%2]} }
	for _, c := range []struct {
		name  string
		steps []Step
		safe  bool
	}{
		{"100 reordered", each(100, alternate), true},
		{"1000 reordered", each(1000, alternate), true},
		{"1000 every one needs all before", each(1000, func(i int) Step { return Step{Op: free, After: before(i)} }), true},
		{"1000 both", each(1000, func(int) Step { return Step{Op: both} }), false},
		{"1000 in one ring", each(1000, func(i int) Step {
			switch i {
			case 0:
				return Step{Op: source}
			case 999:
				return Step{Op: sink, After: []int{998}}
			}
			return Step{Op: free, After: []int{i - 1}}
		}), false},
		{"1000 dense rings", each(1000, func(i int) Step { return Step{Op: []Operation{source, sink}[i%2], After: before(i)} }), false},
		{"1000 with a label each", each(1000, func(i int) Step {
			l := func(k int) []Label { return []Label{Label(fmt.Sprint("l", (k+1000)%1000))} }
			return Step{Op: Operation{Name: "own", Sensitivity: Both, Emits: l(i), BlockedBy: append(l(i-1), l(i+500)...)}}
		}), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := Validate(c.steps, nil)
				if err != nil || (r.Order != nil) != c.safe {
					b.Fatal(r.Impossible, err)
				}
			}
		})
	}
}
