package provenance

import (
	"testing"

	"sallyport.example/flow"
)

// An argument that no label names may be one that the tool doesn't have, and an agent can add it with a word of the request or the person's own
// address. It has to be confirmed, and it frees nothing: it doesn't say where a call goes, and doesn't stand for what the call lacks.
func TestUnlabelledArgumentsFreeNothing(t *testing.T) {
	untrusted, internal := flow.Held{Label: flow.Untrusted}, flow.Held{Label: "internal"}
	post := &Profile{Level: 2, Args: map[string]Role{"text": Content}}
	diary := &Profile{Level: 2, Args: map[string]Role{"participants": Destination, "title": Name, "start": Time}}
	note := &Profile{Level: 1, Args: map[string]Role{"title": Name}}
	search := &Profile{Level: 0, Args: map[string]Role{"q": Query}}
	for name, c := range map[string]struct {
		op      flow.Operation
		profile *Profile
		held    []flow.Held
		rest    string // of the arguments
		want    Verdict
	}{
		"content after untrusted data":  {flow.Operation{ID: "a.post", Sensitivity: flow.External}, post, []flow.Held{untrusted}, `"text":"s"`, Ask},
		"content after private data":    {flow.Operation{ID: "a.post", Sensitivity: flow.External, BlockedBy: []flow.Label{"internal"}}, post, []flow.Held{internal}, `"text":"s"`, Deny},
		"content after both":            {flow.Operation{ID: "a.post", Sensitivity: flow.External, BlockedBy: []flow.Label{"internal"}}, post, []flow.Held{internal, untrusted}, `"text":"s"`, Deny},
		"a search after private data":   {flow.Operation{ID: "a.search", Sensitivity: flow.External, Effect: flow.Read, BlockedBy: []flow.Label{"internal"}}, search, []flow.Held{internal}, `"q":"the secret plan"`, Deny},
		"an entry in the own calendar":  {flow.Operation{ID: "a.add", Sensitivity: flow.None}, diary, []flow.Held{untrusted}, `"participants":["carol@corp.example"],"title":"day off","start":"2026-11-30"`, Ask},
		"a note that nobody spoke of":   {flow.Operation{ID: "a.note", Sensitivity: flow.None}, note, []flow.Held{untrusted}, `"title":"day off"`, Ask},
		"nothing but such an argument":  {flow.Operation{ID: "a.note", Sensitivity: flow.None}, note, []flow.Held{untrusted}, `"text":"Falcon"`, Ask},
		"content without private words": {flow.Operation{ID: "a.post", Sensitivity: flow.External, BlockedBy: []flow.Label{"internal"}}, post, []flow.Held{internal, {Label: flow.Unasked}}, `"text":"x"`, Deny},
	} {
		for _, more := range []string{"", `,"x":"Falcon"`, `,"x":"carol@corp.example"`, `,"x":["Falcon"]`, `,"x":{"Falcon":1}`} {
			s := Situation{Held: c.held, Request: ParseRequest("Summarise what Falcon wrote"), Own: []string{"carol@corp.example"}, Evidence: &Evidence{}}
			if r := JudgeCall(c.op, c.profile, []byte("{"+c.rest+more+"}"), s); r.Verdict != c.want {
				t.Errorf("%s, {%s%s}: %s, want %s: %s", name, c.rest, more, r.Verdict, c.want, r.Reason)
			}
		}
	}
}
