package e2e

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sallyport.example/client"
	"sallyport.example/guard"
	"sallyport.example/internal/daemon"
)

// The enforcement checklist and the red lines of source 000, each in a test that has its name. A box or line that the source has and this
// file has not, or the other way round, fails TestChecklistIsWhole.
var (
	boxes = map[string]func(*testing.T, *checked){
		"Operation uses `comm.*` namespace prefix":                                 boxNamespace,
		"Declaration format includes operation, parameters, justification":         boxDeclaration,
		"Phase Gate integrated at start of execute()":                              boxPhaseGate,
		"Execution only in execution phase":                                        boxExecution,
		"Sandbox constraints defined (working dir, PATH, env vars, timeout)":       boxSandbox,
		"Audit logging for operation start and completion":                         boxAudit,
		"Attribution metadata generated with AttributionGuard":                     boxAttribution,
		"Content wrapped with ContentFence":                                        boxFence,
		"LLM prompt injection includes usage warnings":                             boxWarnings,
		"Unit tests for all three guards":                                          boxUnitTests,
		"Integration test for full flow (declare → approve → execute → attribute)": boxFullFlow,
		"Documentation updated with new operation":                                 boxDocumentation,
	}
	redLines = map[string]func(*testing.T, *checked){
		"Direct I/O in LLM code":              redDirectIO,
		"Planning-phase external operations":  redPlanning,
		"Unauthenticated external operations": redUnauthenticated,
		"Attribution bypass":                  redAttribution,
		"Content fence removal":               redFence,
		"Phase gate bypass":                   redPhaseGate,
	}
)

// checked is the gateway that the list is gone through on.
type checked struct {
	w      *world
	site   *website
	config string
}

func newChecked(t *testing.T) *checked {
	site := newWebsite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<p>Product X costs 49 euros.")
	})
	config := fmt.Sprintf(`%scomm:
  allowed_domains: [%q]
  protocols: [http]
  databases: {shop: "sqlite:%s"}
  exec: {allow: [cat, env, pwd, bash]}
%s`, people, strings.TrimPrefix(site.url, "http://"), sqliteFile(t), plenty)
	return &checked{w: start(t, config, declaration("tester"), declare("planner", "operator", "planning", []string{"*"}, []string{"*"})), site: site, config: config}
}

func TestEnforcementChecklist(t *testing.T) {
	t.Parallel()
	goThrough(t, boxes)
}

func TestRedLines(t *testing.T) { goThrough(t, redLines) }

func goThrough(t *testing.T, list map[string]func(*testing.T, *checked)) {
	c := newChecked(t)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		t.Run(name, func(t *testing.T) { list[name](t, c) })
	}
	c.w.close(t)
}

// The lists above are the source's, word for word.
func TestChecklistIsWhole(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root(), "..", "shared", "requirements", "000_*.txt"))
	requireTool(t, err == nil && len(found) == 1, "source 000 beside the repository")
	var inBoxes, inLines []string
	for line := range strings.Lines(string(read(t, found[0]))) {
		line = strings.TrimSpace(line)
		if box, ok := strings.CutPrefix(line, "- [ ] "); ok {
			inBoxes = append(inBoxes, box)
		}
		if red, ok := strings.CutPrefix(line, "❌ **"); ok {
			inLines = append(inLines, strings.TrimSuffix(red, "**:"))
		}
	}
	for name, pair := range map[string][2][]string{
		"boxes":     {inBoxes, slices.Collect(maps.Keys(boxes))},
		"red lines": {inLines, slices.Collect(maps.Keys(redLines))},
	} {
		slices.Sort(pair[0])
		slices.Sort(pair[1])
		if !slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s: the source has %q, the tests %q", name, pair[0], pair[1])
		}
	}
}

// required are the tests that sources 000 and 002 ask for, and the bypass attempts that 002 says to watch for, each with the test that is it.
var required = map[string]string{
	"000 Block comm.* in planning phase":                "guard/phase_test.go: TestPhaseGate_BlockCommInPlanning",
	"000 Allow comm.* in execution phase":               "guard/phase_test.go: TestPhaseGate_AllowCommInExecution",
	"000 Block comm.* in unknown phase":                 "guard/phase_test.go: TestPhaseGate_BlockCommInUnknownPhase",
	"000 Allow non-comm operations in all phases":       "guard/phase_test.go: TestPhaseGate_AllowNonCommInAllPhases",
	"000 Valid declaration accepted":                    "internal/declare/declare_test.go: TestDeclaration_ValidAccepted",
	"000 Missing justification rejected":                "internal/declare/declare_test.go: TestDeclaration_MissingJustificationRejected",
	"000 Invalid phase rejected":                        "internal/declare/declare_test.go: TestDeclaration_InvalidPhaseRejected",
	"000 Malformed parameters rejected":                 "internal/declare/declare_test.go: TestDeclaration_MalformedParametersRejected",
	"000 Path traversal blocked":                        "test/e2e/comm_files_test.go: TestPathAttacks",
	"000 Unauthorized network access blocked":           "test/e2e/comm_files_test.go: TestPrograms/no network",
	"000 Timeout enforced":                              "test/e2e/comm_files_test.go: TestPrograms/the time-out discards, and the whole tree is gone",
	"000 Environment variable restrictions enforced":    "test/e2e/comm_files_test.go: TestPrograms/the environment is that of EX-3",
	"000 Correct format generated":                      "guard/attribution_test.go: TestAttribution_FormatHelper",
	"000 Missing attribution rejected":                  "guard/attribution_test.go: TestAttribution_RejectMissingAttribution",
	"000 Wrong session ID rejected":                     "guard/attribution_test.go: TestAttribution_RejectWrongSession",
	"000 Attribution preserved through transformations": "guard/attribution_test.go: TestAttribution_PreservedThroughTransformations",
	"000 External content marked correctly":             "guard/fence_test.go: TestFence_ContentMarkedWhateverItIs",
	"000 LLM warning injected":                          "guard/fence_test.go: TestFence_LLMPromptInjection",
	"000 Source URL preserved":                          "guard/fence_test.go: TestFence_PreserveSourceURL",
	"000 Unwrap for display works correctly":            "guard/fence_test.go: TestFence_UnwrapForDisplay",
	"000 LLM generates declaration":                     "test/e2e/comm_flow_test.go: TestDeclareApproveExecuteAttributeFence",
	"000 Governance evaluates and approves":             "test/e2e/comm_flow_test.go: TestDeclareApproveExecuteAttributeFence",
	"000 Execution phase runs in sandbox":               "test/e2e/comm_flow_test.go: TestDeclareApproveExecuteAttributeFence",
	"000 Result attributed and fenced":                  "test/e2e/comm_flow_test.go: TestDeclareApproveExecuteAttributeFence",
	"000 Audit log created":                             "test/e2e/comm_flow_test.go: TestDeclareApproveExecuteAttributeFence",
	"000 All three guards work together":                "guard/integration_test.go: TestGuards_AllThreeWorkTogether",
	"000 Planning phase blocks properly":                "guard/integration_test.go: TestGuards_PlanningBlocks",
	"000 Attribution enforced":                          "guard/integration_test.go: TestGuards_AttributionEnforced",
	"000 Content fence applied":                         "guard/integration_test.go: TestGuards_FenceApplied",
	"000 Bypass attempts detected and blocked":          "test/e2e/comm_checklist_test.go: TestRedLines",
	"000 Malicious declarations rejected":               "internal/declare/declare_test.go: TestDeclaration_LooseJSONRejected",
	"000 Phase transitions validated":                   "guard/integration_test.go: TestGuards_PhaseTransitions",

	"002 Block comm.* operations in planning phase":  "guard/phase_test.go: TestPhaseGate_BlockCommInPlanning",
	"002 Allow comm.* operations in execution phase": "guard/phase_test.go: TestPhaseGate_AllowCommInExecution",
	"002 Block comm.* operations in unknown phase":   "guard/phase_test.go: TestPhaseGate_BlockCommInUnknownPhase",
	"002 Allow non-comm operations in all phases":    "guard/phase_test.go: TestPhaseGate_AllowNonCommInAllPhases",
	"002 Non-throwing is_allowed() method":           "guard/phase_test.go: TestPhaseGate_IsAllowedDoesNotThrow",
	"002 Phase validation":                           "guard/phase_test.go: TestPhaseGate_PhaseValidation",
	"002 Enforce correct attribution format":         "guard/attribution_test.go: TestAttribution_CorrectFormatEnforced",
	"002 Reject missing attribution":                 "guard/attribution_test.go: TestAttribution_RejectMissingAttribution",
	"002 Reject wrong prefix":                        "guard/attribution_test.go: TestAttribution_RejectWrongPrefix",
	"002 Reject wrong session ID":                    "guard/attribution_test.go: TestAttribution_RejectWrongSession",
	"002 Format helper generates valid attribution":  "guard/attribution_test.go: TestAttribution_FormatHelper",
	"002 Format validation method":                   "guard/attribution_test.go: TestAttribution_FormatValidation",
	"002 Handle missing metadata field":              "guard/attribution_test.go: TestAttribution_MissingMetadataField",
	"002 Wrap content with marker and warning":       "guard/fence_test.go: TestFence_WrapWithMarkerAndWarning",
	"002 Generate LLM prompt injection":              "guard/fence_test.go: TestFence_LLMPromptInjection",
	"002 Identify wrapped content":                   "guard/fence_test.go: TestFence_IdentifyWrappedContent",
	"002 Unwrap for display with warnings":           "guard/fence_test.go: TestFence_UnwrapForDisplay",
	"002 Reject unwrapping invalid content":          "guard/fence_test.go: TestFence_RejectUnwrappingInvalidContent",
	"002 Preserve source URL":                        "guard/fence_test.go: TestFence_PreserveSourceURL",
	"002 All three guards working together":          "guard/integration_test.go: TestGuards_AllThreeWorkTogether",
	"002 Planning phase blocks properly":             "guard/integration_test.go: TestGuards_PlanningBlocks",
	"002 Missing attribution caught":                 "guard/integration_test.go: TestGuards_MissingAttributionCaught",

	`002 Renaming operations to avoid "comm." prefix`:             "guard/phase_test.go: TestPhaseGate_BypassByRenaming",
	"002 Setting execution_phase to None or invalid values":       "guard/phase_test.go: TestPhaseGate_BypassByMissingPhase",
	"002 Wrapping comm operations in non-comm namespaces":         "guard/phase_test.go: TestPhaseGate_BypassByWrappingInOtherNamespaces",
	"002 Race conditions in phase transitions":                    "guard/phase_test.go: TestPhaseGate_BypassByRace",
	"002 Omitting attribution metadata":                           "guard/attribution_test.go: TestAttribution_BypassByOmitting",
	"002 Using incorrect attribution format":                      "guard/attribution_test.go: TestAttribution_BypassByMalforming",
	"002 Forging attribution with wrong session IDs":              "guard/attribution_test.go: TestAttribution_BypassByForeignSession",
	"002 Post-processing to remove attribution":                   "guard/attribution_test.go: TestAttribution_BypassByPostProcessing",
	"002 Wrapping attributed content without preserving markers":  "guard/attribution_test.go: TestAttribution_BypassByRepackaging",
	"002 Removing UNTRUSTED_EXTERNAL_CONTENT marker":              "guard/fence_test.go: TestFence_BypassByStrippingTheMarker",
	"002 Stripping warning messages":                              "guard/fence_test.go: TestFence_BypassByStrippingTheWarning",
	"002 Repackaging content without markers":                     "guard/fence_test.go: TestFence_BypassByRepackaging",
	"002 Instructing LLM to ignore warnings":                      "guard/fence_test.go: TestFence_BypassByInstructionsToIgnoreWarnings",
	"002 Mixing trusted and untrusted content without separation": "guard/fence_test.go: TestFence_BypassByMixing",
}

// Every test that the sources list is there by name, and the list above is theirs, word for word.
func TestRequiredTestsAreThere(t *testing.T) {
	for name, place := range required {
		file, test, _ := strings.Cut(place, ": ")
		test, part, _ := strings.Cut(test, "/")
		text := string(read(t, filepath.Join(root(), file)))
		_, body, ok := strings.Cut(text, "\nfunc "+test+"(t *testing.T) {")
		if body, _, _ = strings.Cut(body, "\nfunc "); !ok || part != "" && !strings.Contains(body, "t.Run("+strconv.Quote(part)+",") {
			t.Errorf("%s: there is no %s", name, place)
		}
	}
	var listed []string
	bypass := regexp.MustCompile(`^[0-9]+\. (.+)$`)
	for _, source := range []string{"000", "002"} {
		found, err := filepath.Glob(filepath.Join(root(), "..", "shared", "requirements", source+"_*.txt"))
		requireTool(t, err == nil && len(found) == 1, "source "+source+" beside the repository")
		section, attempts := "", false
		for line := range strings.Lines(string(read(t, found[0]))) {
			line = strings.TrimSpace(line)
			if title, ok := strings.CutPrefix(line, "## "); ok {
				section = title
			}
			attempts = strings.HasPrefix(line, "**Bypass Attempts") || attempts && line != ""
			if test, ok := strings.CutPrefix(line, "- ✅ "); ok && (section == "Testing Requirements" || section == "Test Requirements") {
				listed = append(listed, source+" "+test)
			} else if m := bypass.FindStringSubmatch(line); attempts && m != nil {
				listed = append(listed, source+" "+m[1])
			}
		}
	}
	slices.Sort(listed)
	if have := slices.Sorted(maps.Keys(required)); !slices.Equal(listed, have) {
		t.Errorf("the sources list %q, and there is %q", listed, have)
	}
}

// each calls every one of the seven, in a session that holds nothing yet, at each door.
func (c *checked) each(t *testing.T, f func(t *testing.T, v *visitor, tool string, g got)) {
	t.Helper()
	needSandbox(t)
	for _, door := range doors {
		for tool, arguments := range seven(c.site.url) {
			v := c.w.visit(door, "tester")
			v.writeFile(t, "notes.md", "product X price 2026")
			g := v.ask(t, tool, arguments)
			permit(t, v, g)
			f(t, v, tool, g)
		}
	}
}

func boxNamespace(t *testing.T, c *checked) {
	var want []string
	for tool := range seven("") {
		want = append(want, tool)
	}
	slices.Sort(want)
	for _, door := range doors[:2] {
		v := c.w.visit(door, "tester")
		tools, err := v.cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range tools.Tools {
			if !strings.HasPrefix(tool.Name, "sallyport_") && !strings.HasPrefix(tool.Name, "knowledge_") { // which reach nothing outside
				got = append(got, tool.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the tools are %q", door, got)
		}
	}
	m, err := c.w.visit("http", "tester").http.Manifest(t.Context(), client.Own)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range m.Tools {
		if !strings.HasPrefix(tool.Operation, "knowledge.") && (!strings.HasPrefix(tool.Operation, "comm.") || tool.Name != strings.Replace(tool.Operation, ".", "_", 1)) {
			t.Errorf("%s is called %s", tool.Operation, tool.Name)
		}
	}
	refuses(t, "upstreams: {comm: {url: \"http://127.0.0.1:1/mcp\"}}\n", "comm")
}

// refuses fails the test unless the configuration is refused for what is named.
func refuses(t *testing.T, config, named string) {
	t.Helper()
	p := newPlace(t, config)
	if _, err := daemon.LoadConfig(p.config); err == nil || !strings.Contains(err.Error(), named) {
		t.Errorf("%s: %v", config, err)
	}
}

func boxDeclaration(t *testing.T, c *checked) {
	for _, door := range doors {
		for tool, arguments := range seven(c.site.url) {
			v := c.w.visit(door, "tester")
			refusal(t, v.call(t, tool, arguments), "declaration.missing")
			for _, field := range []string{"user_request", "missing_knowledge", "expected_use"} {
				justification := map[string]string{"user_request": why.UserRequest, "missing_knowledge": why.MissingKnowledge, "expected_use": why.ExpectedUse}
				for _, bad := range []string{"", "stuff"} {
					justification[field] = bad
					all := maps.Clone(arguments)
					all["justification"] = justification
					g := v.call(t, tool, all)
					refusal(t, g, "declaration.invalid")
					if !slices.ContainsFunc(g.verdict.Because, func(b client.Because) bool { return b.Detail == "justification."+field }) {
						t.Errorf("%s: %s: %q: because %+v", tool, field, bad, g.verdict.Because)
					}
				}
			}
		}
	}
	v := c.w.visit("http", "tester")
	whole := map[string]any{"operation": "comm.fetch", "parameters": map[string]any{"url": c.site.url}, "justification": why, "phase": "execution", "session_id": v.session}
	for field := range whole {
		less := maps.Clone(whole)
		delete(less, field)
		body, err := json.Marshal(less)
		if err != nil {
			t.Fatal(err)
		}
		if status, b := c.w.post("/v1/session/"+v.session+"/declarations", v.token, string(body), nil); status != http.StatusUnprocessableEntity || !strings.Contains(string(b), field) {
			t.Errorf("without %s: %d %s", field, status, b)
		}
	}
}

func boxPhaseGate(t *testing.T, c *checked) {
	for _, door := range doors {
		v := c.w.visit(door, "planner")
		for tool, arguments := range seven(c.site.url) {
			for _, call := range []map[string]any{with(arguments), arguments, {}, {"url": "file:///etc/passwd", "path": "/etc/passwd", "argv": []string{"rm"}}} {
				g := v.call(t, tool, call)
				refusal(t, g, "phase.blocked") // whatever else is wrong with it
				if g.verdict.Stage != "phase" {
					t.Errorf("%s: stage %s", tool, g.verdict.Stage)
				}
			}
		}
		if acted := c.w.entriesOf(v.session, func(e client.Entry) bool { return e.Kind == "intent" }); len(acted) > 0 {
			t.Errorf("%s", show(acted))
		}
	}
}

func boxExecution(t *testing.T, c *checked) {
	for _, door := range doors {
		v := c.w.visit(door, "planner")
		for _, phase := range []string{"execution", "planning"} {
			if _, err := c.w.root.SetPhase(t.Context(), v.session, phase, "test"); err != nil {
				t.Fatal(err)
			}
			if g := v.fetch(t, c.site.url); g.ok() != (phase == "execution") {
				t.Errorf("%s: %+v", phase, g.verdict)
			}
		}
		for _, phase := range []string{"", "Execution", "EXECUTION", "execution ", "exec", "unknown", "planning,execution"} {
			if s, err := c.w.root.SetPhase(t.Context(), v.session, phase, "test"); err == nil {
				t.Errorf("the phase %q: %+v", phase, s)
			}
		}
		refusal(t, v.fetch(t, c.site.url), "phase.blocked")
	}
}

func boxSandbox(t *testing.T, c *checked) {
	needSandbox(t)
	v := c.w.visit("http", "tester")
	environment := v.run(t, "env").Stdout
	if dir := strings.TrimSpace(v.run(t, "pwd").Stdout); dir != filepath.Join(c.w.place.data, "workspace", v.session) || !strings.Contains(environment, "HOME="+dir+"\n") {
		t.Errorf("it works in %s, with %s", dir, environment)
	}
	if strings.Count(environment, "\n") != 7 || !strings.Contains(environment, "PATH=/usr/local/bin:/usr/bin:/bin\n") {
		t.Errorf("environment %s", environment)
	}
	w := start(t, people+"comm: {exec: {allow: [bash], timeout: 1s}}\n"+plenty, declaration("tester"))
	refusal(t, w.visit("http", "tester").ask(t, "comm_exec", map[string]any{"argv": []string{"bash", "-c", "while :; do :; done"}}), "time.exceeded")
	w.close(t)
}

func boxAudit(t *testing.T, c *checked) {
	c.each(t, func(t *testing.T, v *visitor, tool string, g got) {
		both := c.w.entriesOf(v.session, func(e client.Entry) bool { return e.CallID == g.callID && e.Action == "call" })
		if len(both) != 2 || both[0].Kind != "intent" || both[1].Kind != "outcome" {
			t.Fatalf("%s: %s", tool, show(both))
		}
		i, o := both[0], both[1]
		operation := strings.Replace(tool, "_", ".", 1)
		door, _, _ := strings.Cut(v.door, " ")
		if i.Operation != operation || i.Arguments == nil || i.Arguments.Size == 0 || i.Requester != "bob" || i.Agent != "tester" || i.Door != door || i.At.IsZero() ||
			detail(t, i).Declaration.Justification != why || i.Decision != "permit" {
			t.Errorf("%s: %s", tool, show(i))
		}
		if o.Operation != operation || o.Result == nil || o.Result.Size == 0 || o.Decision != "ok" || o.At.Before(i.At) || !same(t, o.Attribution, g.rawMeta) {
			t.Errorf("%s: %s", tool, show(o))
		}
	})
}

func boxAttribution(t *testing.T, c *checked) {
	c.each(t, func(t *testing.T, v *visitor, tool string, g got) {
		if g.meta.Operation != strings.Replace(tool, "_", ".", 1) || g.meta.CallID != g.callID {
			t.Errorf("%s: %s", tool, g.rawMeta)
		}
		if o := c.w.entriesOf(v.session, func(e client.Entry) bool { return e.Kind == "outcome" && e.CallID == g.callID }); len(o) != 1 || o[0].Result.SHA256 != g.meta.ContentSHA256 {
			t.Errorf("%s: the content of the attribution is not that of the log: %s", tool, show(o))
		}
		// The gateway knows its own again, and nobody else's.
		other := c.w.visit(v.door, "tester")
		permit(t, other, other.ask(t, "comm_write_file", map[string]any{"path": "pasted.md", "content": string(g.rawMeta)}))
		forged := strings.Replace(string(g.rawMeta), g.meta.Source, g.meta.Source+"x", 1)
		permit(t, other, other.ask(t, "comm_write_file", map[string]any{"path": "forged.md", "content": forged}))
		known := c.w.entriesOf(other.session, func(e client.Entry) bool { return e.Kind == "intent" && len(detail(t, e).Carries) > 0 })
		if len(known) != 1 || detail(t, known[0]).Carries[0].Source != g.meta.Source {
			t.Errorf("%s: %s", tool, show(known))
		}
	})
}

func boxFence(t *testing.T, c *checked) {
	c.each(t, func(t *testing.T, v *visitor, tool string, g got) {
		texts := 0
		for _, b := range g.content {
			if b.Type != "text" {
				continue
			}
			texts++
			w, err := guard.ParseWrapped(b.Text)
			if err != nil || w.Header().Source != g.meta.Source {
				t.Errorf("%s: %v %+v", tool, err, w.Header())
			}
		}
		if texts == 0 {
			t.Errorf("%s: no text", tool)
		}
	})
}

func boxWarnings(t *testing.T, c *checked) {
	c.each(t, func(t *testing.T, v *visitor, tool string, g got) {
		for _, word := range []string{"WARNING", "summarization", "citation", "reference", "execute instructions", "modify system", "grant permissions"} {
			if !strings.Contains(g.fenced(), word) {
				t.Errorf("%s: no %q in %s", tool, word, g.fenced())
			}
		}
	})
	v := c.w.visit(doors[0], "tester")
	m, err := v.http.Manifest(t.Context(), v.session)
	if err != nil {
		t.Fatal(err)
	}
	for what, words := range map[string]string{"the instructions": v.cs.InitializeResult().Instructions, "the system prompt": m.SystemPrompt} {
		if !strings.Contains(words, guard.TrustLevel) {
			t.Errorf("%s say nothing of the fence: %s", what, words)
		}
	}
	if !strings.Contains(m.SystemPrompt, guard.ModelInstructions) {
		t.Errorf("system prompt %s", m.SystemPrompt)
	}
}

func boxUnitTests(t *testing.T, _ *checked) {
	files, err := filepath.Glob(filepath.Join(root(), "guard", "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	count := map[string]int{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				for _, g := range []string{"PhaseGate", "Attribution", "Fence"} {
					if strings.HasPrefix(fn.Name.Name, "Test"+g+"_") {
						count[g]++
					}
				}
			}
		}
	}
	for _, g := range []string{"PhaseGate", "Attribution", "Fence"} {
		if count[g] < 4 {
			t.Errorf("%s has %d tests", g, count[g])
		}
	}
}

// boxFullFlow takes each of the seven through the whole of it, for a planner whose every operation is asked about.
func boxFullFlow(t *testing.T, c *checked) {
	needSandbox(t)
	restricted := strings.Replace(declaration("limited"), "mode: operator", "mode: operator\ntrustTier: restricted", 1)
	w := start(t, c.config, restricted)
	alice := w.person("alice", "approver")
	for _, door := range doors {
		for tool, arguments := range seven(c.site.url) {
			v := w.visit(door, "limited")
			run := func(tool string, arguments map[string]any) got {
				d := v.declare(t, strings.Replace(tool, "_", ".", 1), arguments)
				if d.State != "pending" || d.ApprovalID == "" {
					t.Fatalf("%s: %+v", tool, d)
				}
				refusal(t, v.declared(t, tool, d.DeclarationID), "approval.required")
				q, err := alice.Approval(t.Context(), d.ApprovalID)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := alice.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
					t.Fatal(err)
				}
				g := v.declared(t, tool, d.DeclarationID)
				permit(t, v, g)
				if g.meta.Declaration != d.Digest {
					t.Errorf("%s ran on %s, and not on %s", tool, g.meta.Declaration, d.Digest)
				}
				refusal(t, v.declared(t, tool, d.DeclarationID), "declaration.invalid")
				return g
			}
			if tool == "comm_read_file" {
				run("comm_write_file", seven("")["comm_write_file"])
			}
			g := run(tool, arguments)
			i := w.entriesOf(v.session, func(e client.Entry) bool { return e.Kind == "intent" && e.CallID == g.callID })
			if len(i) != 1 || !slices.Equal(i[0].Approvers, []string{"alice"}) {
				t.Errorf("%s: %s", tool, show(i))
			}
		}
	}
	w.close(t)
}

func boxDocumentation(t *testing.T, _ *checked) {
	files, err := filepath.Glob(filepath.Join(root(), "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	var all strings.Builder
	for _, file := range files {
		all.Write(read(t, file))
	}
	for tool := range seven("") {
		if operation := strings.Replace(tool, "_", ".", 1); !strings.Contains(all.String(), operation) {
			t.Errorf("no document says what %s is", operation)
		}
	}
}

// What an agent writes for itself, and a program runs, reaches nothing: its own code has no I/O but through the corridor.
func redDirectIO(t *testing.T, c *checked) {
	needSandbox(t)
	v := c.w.visit("http", "tester")
	before := len(c.site.all())
	host := strings.Replace(strings.TrimPrefix(c.site.url, "http://"), ":", "/", 1)
	v.writeFile(t, "fetch.sh", "exec 3<>/dev/tcp/"+host+"\necho -e 'GET /direct HTTP/1.0\\r\\n\\r' >&3\ncat <&3\n")
	if r := v.run(t, "bash", "fetch.sh"); r.ExitCode == 0 || strings.Contains(r.Stdout, "Product") {
		t.Errorf("%+v", r)
	}
	for _, argv := range [][]string{{"python3", "-c", "import requests"}, {"curl", c.site.url}} {
		refusal(t, v.ask(t, "comm_exec", map[string]any{"argv": argv}), "permission.denied")
	}
	if seen := c.site.all()[before:]; len(seen) > 0 {
		t.Errorf("the server was asked %q", seen)
	}
}

func redPlanning(t *testing.T, c *checked) {
	before := len(c.site.all())
	for _, door := range doors {
		v := c.w.visit(door, "planner")
		for tool, arguments := range seven(c.site.url) {
			refusal(t, v.ask(t, tool, arguments), "phase.blocked")
		}
		// To declare, to ask and to plan is thinking, and has no effect either.
		if d := v.declare(t, "comm.fetch", map[string]any{"url": c.site.url}); d.State != "approved" {
			t.Errorf("%+v", d)
		}
		if _, err := v.http.ValidatePlan(t.Context(), v.session, []client.PlannedCall{{Tool: "comm_fetch"}}); err != nil {
			t.Error(err)
		}
		if a, err := v.http.Check(t.Context(), v.session, "comm_fetch", json.RawMessage(`{"url":"`+c.site.url+`","justification":`+show(why)+`}`)); err != nil || a.Code != "phase.blocked" {
			t.Errorf("%+v %v", a, err)
		}
	}
	if seen := c.site.all()[before:]; len(seen) > 0 {
		t.Errorf("the server was asked %q", seen)
	}
	if _, err := os.Stat(filepath.Join(c.w.place.data, "workspace", "notes.md")); err == nil {
		t.Error("a file was written")
	}
}

func redUnauthenticated(t *testing.T, c *checked) {
	before := len(c.site.all())
	v := c.w.visit("http", "tester")
	closed := c.w.visit("http", "tester")
	if _, err := c.w.root.CloseSession(t.Context(), closed.session, "test"); err != nil {
		t.Fatal(err)
	}
	arguments, err := json.Marshal(with(map[string]any{"url": c.site.url + "/unauthenticated"}))
	if err != nil {
		t.Fatal(err)
	}
	overHTTP := `{"tool":"comm_fetch","arguments":` + string(arguments) + `}`
	for who, token := range map[string]string{
		"nobody": "", "an unknown token": "sp_unknown", "a person": c.w.place.secret(t, "admin.token"), "a closed session": closed.token,
		"a token with another's end": v.token[:len(v.token)-4] + "0000",
	} {
		for door, ask := range map[string]func() (int, []byte){
			"http": func() (int, []byte) { return c.w.post("/v1/session/"+v.session+"/calls", token, overHTTP, nil) },
			"mcp":  func() (int, []byte) { return c.w.raw(token, "comm_fetch", string(arguments)) },
		} {
			if status, b := ask(); status < 400 && !strings.Contains(string(b), `"session.closed"`) || strings.Contains(string(b), "Product X") {
				t.Errorf("%s at %s: %d %s", who, door, status, b)
			}
		}
	}
	// A good credential is one session's: it does not reach into another.
	other := c.w.visit("http", "tester")
	if status, b := c.w.post("/v1/session/"+v.session+"/calls", other.token, overHTTP, nil); status < 400 {
		t.Errorf("another session: %d %s", status, b)
	}
	if seen := c.site.all()[before:]; len(seen) > 0 {
		t.Errorf("the server was asked %q", seen)
	}
}

// There is no way to a result without its attribution: not by an argument, not by the operator's word.
func redAttribution(t *testing.T, c *checked) {
	for _, door := range doors {
		v := c.w.visit(door, "tester")
		for _, name := range []string{"attribution", "metadata", "_meta", "source", "trust_level", "content_sha256"} {
			for _, value := range []any{false, nil, "mine", map[string]any{}} {
				arguments := with(map[string]any{"url": c.site.url})
				arguments[name] = value
				if g := v.call(t, "comm_fetch", arguments); g.ok() {
					t.Errorf("%s: %s=%v is taken: %s", door, name, value, g.rawMeta)
				}
			}
		}
		g := v.fetch(t, c.site.url)
		permit(t, v, g)
		if a, err := v.http.Outcome(t.Context(), v.session, g.callID, 0); err == nil && a.Result != nil && !strings.Contains(string(a.Result), g.meta.Attribution) {
			t.Errorf("fetched again, it is not attributed: %s", a.Result)
		}
	}
	refuses(t, "operations: {comm.fetch: {output: trusted}}\n", "comm.fetch")
	refuses(t, "operations: {comm.fetch: {output: typed, shape: \".*\"}}\n", "comm.fetch")
}

func redFence(t *testing.T, c *checked) {
	for _, door := range doors {
		v := c.w.visit(door, "tester")
		g := v.ask(t, "comm_fetch", map[string]any{"url": c.site.url, "format": "raw"})
		permit(t, v, g)
		for _, name := range []string{"fence", "wrap", "unwrapped", "trusted"} {
			arguments := with(map[string]any{"url": c.site.url})
			arguments[name] = false
			if g := v.call(t, "comm_fetch", arguments); g.ok() {
				t.Errorf("%s: %s is taken", door, name)
			}
		}
		// Without its mark it is no longer what the gateway delivered, and nothing here takes it for that.
		stripped := strings.ReplaceAll(g.fenced(), guard.TrustLevel, "")
		if guard.IsWrapped(stripped) || len(guard.FindWrapped(stripped)) > 0 {
			t.Error("a text without its mark passes for fenced")
		}
		shown, err := guard.UnwrapForDisplay(g.fenced())
		if err != nil || !strings.HasPrefix(shown, guard.TrustLevel) {
			t.Errorf("for people: %v %s", err, shown)
		}
		// What was fenced stays so on its way through the workspace.
		permit(t, v, v.ask(t, "comm_write_file", map[string]any{"path": "page.md", "content": stripped}))
		again := v.ask(t, "comm_read_file", map[string]any{"path": "page.md"})
		permit(t, v, again)
		if !strings.HasPrefix(again.fenced(), "<<<"+guard.TrustLevel) {
			t.Errorf("%s", again.fenced())
		}
	}
}

// The gate is not about names: a tool of a server under a harmless name is as external as comm.fetch, and the operator can't take
// comm.fetch out of the gate.
func redPhaseGate(t *testing.T, c *checked) {
	config, sent := office(t)
	config = strings.Replace(config, "expose_as: web_search", "expose_as: internal_search", 1)
	w := start(t, config, declare("planner", "operator", "planning", []string{"*"}, []string{"*"}))
	for _, door := range doors {
		v := w.visit(door, "planner")
		refusal(t, v.call(t, "internal_search", map[string]any{"query": "x"}), "phase.blocked")
		for _, name := range []string{"web_search", "web.web_search", "comm.fetch", "COMM_FETCH", "sallyport_fetch"} {
			if g, err := v.try(t.Context(), name, map[string]any{"query": "x"}); err == nil && g.ok() {
				t.Errorf("%s: %+v", name, g)
			}
		}
	}
	if all := sent.all(); len(all) > 0 {
		t.Errorf("the servers got %q", all)
	}
	w.close(t)
	refuses(t, "operations: {comm.fetch: {external_io: false}}\n", "comm.fetch")
	refuses(t, "upstreams: {web: {url: \"http://127.0.0.1:1/mcp\"}}\noperations: {web.get: {expose_as: sallyport_get}}\n", "sallyport_")
}
