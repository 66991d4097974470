package gateway_test

import (
	"encoding/json"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/screen"
)

// The sample that people judge has only calls whose arguments and result were screened and had no hit. A person's word about any other entry is refused.
func TestOnlyCleanCallsAreInTheSample(t *testing.T) {
	observes := func(o *gateway.Options) { o.HitInArguments, o.HitInResults = judge.ScreenObserve, judge.ScreenObserve }
	for name, c := range map[string]struct {
		tweak     func(*gateway.Options)
		arguments string
		in        bool
	}{
		"clean":               {screened(t, observes), `{"q":"widgets"}`, true},
		"a hit in arguments":  {screened(t, observes), `{"q":"` + ordersAgent + `"}`, false},
		"nothing is screened": {observes, `{"q":"widgets"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.tweak)
			for range 500 {
				a := w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "web_search", Arguments: json.RawMessage(c.arguments), Door: "mcp"})
				if a.Verdict.Decision != fault.Permit {
					t.Fatalf("%+v", a.Verdict)
				}
				if !screen.Sampled(a.CallID) {
					continue
				}
				in := false
				for _, e := range w.entriesOf(a.CallID) {
					is := gateway.InSample(e)
					in = in || is
					if is == (w.g.SayOfScreening(t.Context(), e, false, "person:ann") != nil) && e.Event == "" {
						t.Errorf("entry %d, in the sample: %t, and a person's word about it is taken otherwise", e.Index, is)
					}
				}
				if in != c.in {
					t.Errorf("in the sample: %t", in)
				}
				return
			}
			t.Fatal("no call of 500 is drawn")
		})
	}
}
