package planned

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// A fault says which field of which step is wrong. What is only asked about needs no reasons, and may be a name.
func TestRead(t *testing.T) {
	for body, at := range map[string]string{
		`{"steps":[{"tool":"a","justification":"x"}]}`: "-",
		`{"steps":["a"]}`:                              "steps[0]",
		`{"steps":[{"tool":"a"}]}`:                     "steps[0].justification",
		`{"steps":[{"tool":"a","justification":" "}]}`: "steps[0].justification",
		`{"steps":[{"tool":"a","justification":"` + strings.Repeat("x", 2001) + `"}]}`: "steps[0].justification",
		`{"steps":[{"tool":"","justification":"x"}]}`:                                  "steps[0].tool",
		`{"steps":[{"Tool":"a","justification":"x"}]}`:                                 "steps[0].Tool",
		`{"steps":[{"tool":"a","arguments":[],"justification":"x"}]}`:                  "steps[0].arguments",
		`{"steps":[{"tool":"a","from":{"b":{"step":0,"field":"c"}}}]}`:                 "steps[0].from.b.step",
		`{"steps":[]}`:   "steps",
		`{"steps":null}`: "steps",
		`{"steps":{}}`:   "steps",
		`{"steps":[` + strings.Repeat(`"a",`, 200) + `"a"]}`:                            "steps",
		`{"planned_calls":["a"],"more":1}`:                                              "more",
		`{"planned_calls":[` + strings.Repeat(`"a",`, 200) + `"a"]}`:                    "planned_calls",
		`{"planned_calls":["a",{"tool":"b"},{"tool":"c","arguments":{"y":1,"x":2.0}}]}`: "-",
		`{"planned_calls":[{"tool":"a"},{"tool":"a","each":1}]}`:                        "planned_calls[1].each",
		`[]`: "",
	} {
		list := Submitted
		if strings.Contains(body, string(Asked)) {
			list = Asked
		}
		steps, err := Read(json.RawMessage(body), list)
		if at == "-" {
			if err != nil || len(steps) == 0 {
				t.Errorf("%s: %v", body, err)
			}
			continue
		}
		if f := fault.Of(err); err == nil || f.Code != fault.RequestMalformed || f.Field != at {
			t.Errorf("%.80s: %v at %q, want %q", body, err, f.Field, at)
		}
	}
}

// What a step needs is what it says, and the steps that its arguments come from, each once.
func TestNeeds(t *testing.T) {
	steps, err := Read(json.RawMessage(`{"planned_calls":["a","b",{"tool":"c","after":[1],"from":{"x":{"step":1,"field":"f"},"y":{"step":0,"field":"f"}}}]}`), Asked)
	if err != nil {
		t.Fatal(err)
	}
	if got := steps[2].Needs(); len(got) != 2 || got[0] != 1 || got[1] != 0 {
		t.Errorf("%v", got)
	}
}

// Whatever is read is within the bounds, has canonical arguments, and takes arguments from earlier steps alone.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"steps":[{"tool":"a","justification":"x"},{"tool":"b","arguments":{"z":1,"a":[]},"from":{"to":{"step":0,"field":"sender"}},"each":0,"open":["body"],"after":[0],"justification":"y"}]}`,
		`{"steps":[{"tool":"a","from":{"b":{"step":0,"role":"destination"}},"justification":"x"}]}`,
		`{"planned_calls":["a",{"tool":"b","arguments":{}}]}`, `{"steps":[null]}`, `{"steps":[1]}`, `[]`, ``, `{"steps":[{"tool":"a","after":[-1,9]}]}`,
	} {
		f.Add([]byte(s))
	}
	none := func(string) *catalogue.Operation { return nil }
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, list := range []List{Submitted, Asked} {
			steps, err := Read(body, list)
			if err != nil {
				if f := fault.Of(err); f.Code != fault.RequestMalformed || strings.Contains(f.Message, "%!") {
					t.Errorf("%v", err)
				}
				continue
			}
			if len(steps) == 0 || len(steps) > maxSteps {
				t.Errorf("%d steps", len(steps))
			}
			for i, st := range steps {
				if canonical, err := call.Canonical(st.Arguments, call.DefaultLimits()); st.Arguments != nil && (err != nil || string(canonical) != string(st.Arguments)) {
					t.Errorf("step %d: arguments %s, %v", i, st.Arguments, err)
				}
				for name, from := range st.From {
					if name == "" || from.Step < 0 || from.Step >= i || from.Role == provenance.Credential {
						t.Errorf("step %d: %q from %+v", i, name, from)
					}
				}
				if st.Tool == "" && list == Submitted || len(st.Open) > maxOpen || len(st.From) > maxFrom {
					t.Errorf("step %d: %+v", i, st)
				}
			}
			_ = checkSources(steps, list, none)
		}
	})
}

// Where no other step would do, the way out of the refusal is the suggestion.
func TestSuggestion(t *testing.T) {
	way := fault.Remedy{Kind: "ask_person", Text: "A person approves the declaration."}
	for code, want := range map[fault.Code]string{fault.AgentUnapproved: way.Text, fault.SessionClosed: way.Text, fault.PermissionDenied: "leave this step out, or use another tool"} {
		if got := suggestion(fault.Refuse("standing", code, "", way)); got != want {
			t.Errorf("%s: %q", code, got)
		}
	}
}
