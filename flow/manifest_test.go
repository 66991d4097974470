package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What source 004 shows, byte for byte but for JSON white space.
const (
	goldenTools = `[
{
"name": "search_email",
"sensitivity": "internal_source",
"consequence": "calling this tool will block: web_search, slack_post, external_api"
},
{
"name": "search_docs",
"sensitivity": "internal_source",
"consequence": "calling this tool will block: web_search, slack_post, external_api"
},
{
"name": "web_search",
"sensitivity": "external",
"consequence": "none — safe to call before internal tools"
},
{
"name": "github_create_pr",
"sensitivity": "external",
"consequence": "none — safe to call before internal tools"
}
]`
	goldenHint   = "complete all external tool calls before calling internal_source tools"
	goldenPrompt = `Tool ordering constraint (enforced by authorization layer):
- Tools marked [internal] will restrict your access to tools marked [external] for the remainder of this session.
- If your task requires both internal and external tools, call external tools first.
- Affected tools: search_email [internal], search_docs [internal] → blocks web_search, slack_post
- Safe to call in any order: github_create_pr, github_read_file`
)

func TestManifestOfSource004(t *testing.T) {
	ops := source004(t, "search_email", "search_docs", "web_search", "github_create_pr", "slack_post", "external_api")
	type line struct {
		Name        string `json:"name"`
		Sensitivity string `json:"sensitivity"`
		Consequence string `json:"consequence"`
	}
	b, err := json.Marshal(Manifest(ops, nil)[:4]) // the source lists these four
	if err != nil {
		t.Fatal(err)
	}
	var got, want []line
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(goldenTools), &want); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if h := OrderingHint(ops); h != goldenHint {
		t.Errorf("hint %q", h)
	}
}

func TestSystemPromptOfSource004(t *testing.T) {
	got := SystemPrompt(source004(t, "search_email", "search_docs", "web_search", "slack_post", "github_create_pr", "github_read_file"), nil)
	if got != goldenPrompt {
		t.Errorf("got\n%s\nwant\n%s", got, goldenPrompt)
	}
}

func TestManifestJSON(t *testing.T) {
	ops := source004(t, "search_email", "web_search")
	tools := Manifest(ops, []Held{{Label: "internal", Operation: "mail.search_email", CallID: "call_1"}})
	tools[1].Risk = "LOW"
	b, _ := json.Marshal(tools)
	want := `[{"name":"search_email","operation":"mail.search_email","sensitivity":"internal_source","effect":"read","blocks":["web_search"],"blocked_by_session":false,"consequence":"calling this tool will block: web_search"},` +
		`{"name":"web_search","operation":"web.web_search","sensitivity":"external","effect":"read","risk":"LOW","blocks":[],"blocked_by_session":true,"consequence":"none — safe to call before internal tools"}]`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

func TestPromptAndHintOfOtherCatalogues(t *testing.T) {
	mail := source004(t, "search_email")[0]
	web := source004(t, "web_search")[0]
	pr := source004(t, "github_create_pr")[0]
	sync := resolve(t, Spec{Name: "sync", Sensitivity: Both})
	clock := resolve(t, Spec{Name: "clock", Sensitivity: None})
	people := resolve(t, Spec{Name: "people", Sensitivity: None, Emits: &[]Label{"pii"}})
	narrow := resolve(t, Spec{Name: "narrow", BlockedBy: &[]Label{"pii"}})
	wary := resolve(t, Spec{Name: "wary", BlockedBy: &[]Label{Untrusted}})
	fetch := resolve(t, Spec{Name: "fetch", Untrusted: true})

	const head = "Tool ordering constraint (enforced by authorization layer):"
	const rules = head + "\n- Tools marked [internal] will restrict your access to tools marked [external] for the remainder of this session." +
		"\n- If your task requires both internal and external tools, call external tools first."
	const nothing = head + " none. No tool's declared results restrict another tool; call them in any order."
	const free = "any order is safe: no tool here blocks another"
	held := []Held{{Label: "internal", Operation: "mail.search_email", CallID: "call_1"}}
	for _, tt := range []struct {
		name         string
		ops          []Operation
		held         []Held
		prompt, hint string
	}{
		{"empty", nil, nil, nothing, free},
		{"only externals", []Operation{web, pr}, nil, nothing, free},
		{"only externals, contaminated", []Operation{web, pr}, held, nothing + "\n- Blocked now: web_search, because mail.search_email (call_1) loaded internal data", free},
		{"only sources", []Operation{mail, clock}, nil, nothing, free},
		{"a sink that nothing blocks", []Operation{mail, pr}, held, nothing, free},
		{"contaminated", []Operation{mail, web, pr}, held,
			rules + "\n- Affected tools: search_email [internal] → blocks web_search\n- Safe to call in any order: github_create_pr" +
				"\n- Blocked now: web_search, because mail.search_email (call_1) loaded internal data", goldenHint},
		{"held from the start", []Operation{mail, web}, []Held{{Label: "pii"}},
			rules + "\n- Affected tools: search_email [internal] → blocks web_search\n- Safe to call in any order: none" +
				"\n- Blocked now: web_search, because this session holds pii data from the start", goldenHint},
		{"both", []Operation{sync, web, clock}, nil,
			rules + "\n- Affected tools: sync [internal, external] → blocks sync, web_search\n- Safe to call in any order: clock", goldenHint},
		{"groups", []Operation{mail, people, web, narrow}, nil,
			rules + "\n- Affected tools: search_email [internal] → blocks web_search; people [internal] → blocks web_search, narrow\n- Safe to call in any order: none", goldenHint},
		{"own labels on tools that are no source", []Operation{people, narrow}, nil,
			rules + "\n- Affected tools: people [internal] → blocks narrow\n- Safe to call in any order: none", "call each tool that blocks others after the tools it blocks"},
		{"untrusted where it is named", []Operation{fetch, wary, web}, nil,
			rules + "\n- Affected tools: fetch [internal] → blocks wary\n- Safe to call in any order: web_search", "call each tool that blocks others after the tools it blocks"},
		{"undescribed", []Operation{{ID: "a.b", Name: "b"}, clock}, nil, nothing + "\n- Blocked now: b", free},
	} {
		if got := SystemPrompt(tt.ops, tt.held); got != tt.prompt {
			t.Errorf("%s: prompt\n got %s\nwant %s", tt.name, got, tt.prompt)
		}
		if got := OrderingHint(tt.ops); got != tt.hint {
			t.Errorf("%s: hint %q, want %q", tt.name, got, tt.hint)
		}
	}
}

// Whatever the catalogue, the manifest says what Judge says.
func TestManifestAgreesWithJudge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(genOperation(), 0, 8).Draw(t, "ops")
		for i := range ops {
			ops[i].Name = string(rune('a' + i))
		}
		held := genHeld(3).Draw(t, "held")
		tools := Manifest(ops, held)
		prompt := SystemPrompt(ops, held)
		_, safe, _ := strings.Cut(prompt, "in any order: ")
		safe, _, _ = strings.Cut(safe, "\n")
		for i, tool := range tools {
			if tool.Name != ops[i].Name || tool.Operation != ops[i].ID {
				t.Fatalf("line %d is %s", i, tool.Name)
			}
			if tool.BlockedBySession == Judge(ops[i], held).Allowed {
				t.Fatalf("%s: blocked_by_session %v", tool.Name, tool.BlockedBySession)
			}
			var want []string
			for _, o := range ops {
				if !Judge(o, Raise(nil, ops[i], "c")).Allowed {
					want = append(want, o.Name)
				}
			}
			if !slices.Equal(tool.Blocks, want) {
				t.Fatalf("%s blocks %v, manifest says %v", tool.Name, want, tool.Blocks)
			}
			if (len(want) == 0) != (tool.Consequence == blocksNothing) {
				t.Fatalf("%s: %s", tool.Name, tool.Consequence)
			}
			// Safe in any order: after any calls, and before any.
			if slices.Contains(strings.Split(safe, ", "), tool.Name) {
				now := held
				for _, o := range ops {
					now = Raise(now, o, "c")
				}
				if !Judge(ops[i], now).Allowed || len(want) > 0 {
					t.Fatalf("%s is called safe in any order", tool.Name)
				}
			}
		}
	})
}

// A server is named in place of its tools where all of them belong there, whatever the catalogue, and the prompt stays short.
func TestPromptNamesServers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(genOperation(), 0, 40).Draw(t, "ops")
		of := map[string][]int{}
		for i := range ops {
			server := rapid.SampledFrom([]string{"a", "bee", "sea"}).Draw(t, "server")
			ops[i].ID, ops[i].Name = fmt.Sprintf("%s.t%d", server, i), fmt.Sprintf("%s_t%d", server, i)
			of[server] = append(of[server], i)
		}
		held := genHeld(3).Draw(t, "held")
		prompt := SystemPrompt(ops, held)
		if len(prompt) > promptMost {
			t.Fatalf("%d bytes", len(prompt))
		}
		_, safe, _ := strings.Cut(prompt, "in any order: ")
		safe, _, _ = strings.Cut(safe, "\n")
		all := held
		for _, o := range ops {
			all = Raise(all, o, "c")
		}
		isSafe := func(i int) bool {
			return Judge(ops[i], all).Allowed && len(Manifest(ops, nil)[i].Blocks) == 0
		}
		for server, tools := range of {
			name := fmt.Sprintf("all %d tools of %s", len(tools), server)
			every := len(tools) >= wholeServer
			for _, i := range tools {
				every = every && isSafe(i)
			}
			if said := slices.Contains(strings.Split(safe, ", "), name); said != every && (said || !strings.Contains(safe, " more") && strings.Contains(prompt, "in any order: ")) {
				t.Fatalf("%s safe: %v, in %s", name, every, prompt)
			}
			named := strings.Split(safe, ", ")
			if slices.Contains(named, name) && slices.ContainsFunc(named, func(one string) bool { return strings.HasPrefix(one, server+"_t") }) {
				t.Fatalf("%s is named twice: %s", server, safe)
			}
		}
	})
	mail := func(n int) (ops []Operation) {
		for i := range n {
			ops = append(ops, resolve(t, Spec{ID: fmt.Sprintf("mail.get%d", i), Name: fmt.Sprintf("get%d", i), Sensitivity: InternalSource}))
		}
		return append(ops, resolve(t, Spec{ID: "web.search", Name: "search"}))
	}
	for n, want := range map[int]string{2: "get0 [internal], get1 [internal] → blocks search", 3: "all 3 tools of mail [internal] → blocks search"} {
		if got := SystemPrompt(mail(n), nil); !strings.Contains(got, "- Affected tools: "+want+"\n") {
			t.Errorf("%d tools: %s", n, got)
		}
	}
}

func TestManifestSharesNothing(t *testing.T) {
	tools := Manifest(source004(t, "search_email", "search_docs", "web_search"), nil)
	tools[0].Blocks[0] = "x"
	if tools[1].Blocks[0] != "web_search" {
		t.Error("two tools share one Blocks")
	}
}
