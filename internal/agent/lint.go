package agent

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sallyport.example/internal/display"
	"sallyport.example/internal/models/wire"
)

// Lint reports which of the source's twelve violations (AG-12) can be seen in the declaration. Two can't be seen in one: an agent that others depend on
// without a file shows in Load, and a time limit over five minutes is an error of Parse.
func Lint(d *Declaration, pinned ...string) []Problem {
	var all []Problem
	add := func(code string, s Severity, field, problem, remedy string) {
		all = append(all, Problem{File: d.File, Field: field, Severity: s, Problem: problem, Remedy: remedy, Code: code})
	}

	// 1: write permissions
	if d.Mode != Operator && len(d.Permissions.Write) > 0 {
		add("A-01", P0, "permissions.write", "an advisory agent has write permissions", "write [], or set mode: operator")
	}
	// 2: autonomous execution
	if !d.HumanApprovalRequired {
		add("A-02", P0, "humanApprovalRequired", "the agent would act without a person's approval", "set it to true")
	}
	// 3: kill switch
	if !d.KillSwitchEnabled {
		add("A-03", P0, "killSwitchEnabled", "the agent can't be switched off", "set it to true")
	}
	all = append(all, lintExceptions(d)...)
	all = append(all, lintRun(d)...)
	// 4: unstructured output
	all = append(all, lintOutput(d)...) // and 10: citations
	// 5: knowledge is not the agent's to change (7: nor is what it says itself to become knowledge)
	for i, p := range d.Permissions.Write {
		if strings.HasPrefix(p, "knowledge.") {
			add("A-05", P0, "permissions.write["+strconv.Itoa(i)+"]", "the agent may write to the knowledge store, which would let it change documents or feed on its own output", "remove it; people add knowledge")
		}
	}
	for i, p := range d.Permissions.Read {
		if pattern, _, rooted := strings.Cut(p, under); rooted && coversFree(d.Permissions.Read, pattern) {
			add("", P1, "permissions.read["+strconv.Itoa(i)+"]", "the root has no effect: another entry permits the same without one", "remove one of the two")
		}
	}
	all = append(all, lintSources(d)...)
	// 6: unpinned models
	for i, m := range d.DataSources.Models {
		if !Pinned(m) && !slices.Contains(pinned, m) {
			add("A-06", P0, "dataSources.models["+strconv.Itoa(i)+"]", display.Quote(m, shownMost)+" is not pinned to a version", "name an exact version, like claude-sonnet-4-5-20250929 or anthropic.claude-v2:1")
		}
	}
	// 7: feedback loops
	for i, other := range d.DependsOn {
		if other == d.AgentID {
			add("A-07", P0, "dependsOn["+strconv.Itoa(i)+"]", "the agent depends on itself", "remove it")
		}
	}
	for _, of := range []struct {
		name string
		list []string
	}{{"dataSources.tables", d.DataSources.Tables}, {"dataSources.apis", d.DataSources.APIs}} {
		for i, source := range of.list {
			if ownOutput(d.AgentID, source) {
				add("A-07", P0, of.name+"["+strconv.Itoa(i)+"]", display.Quote(source, shownMost)+" is agent output: taking facts from it is a feedback loop", "remove it; use what people have validated")
			}
		}
	}
	// 11 and 12: versions
	if d.Version == "" {
		add("A-11", P2, "version", "the declaration is not versioned", "add a semantic version")
	}
	if d.OutputSchemaVersion == "" {
		add("A-12", P2, "outputSchemaVersion", "the output schema is not versioned", "add a semantic version")
	}
	return all
}

// lintExceptions reports what the declaration excepts the agent from.
func lintExceptions(d *Declaration) (all []Problem) {
	add := func(field, problem, remedy string) {
		all = append(all, Problem{File: d.File, Field: field, Severity: P1, Problem: problem, Remedy: remedy})
	}
	// What it reads in one session it could send in the other
	if d.SessionsSideBySide {
		add("sessionsSideBySide", "the agent may use its own session beside those that hosts and people open for it: what one refuses, it can do in the other", "remove it; the agent then uses the session_token that it is given")
	}
	for i, tool := range d.HostedTools {
		field := "hostedTools[" + strconv.Itoa(i) + "]"
		if !slices.Contains(wire.Hostable, tool) {
			add(field, "no declaration allows "+display.Quote(tool, shownMost), "write "+strings.Join(wire.Hostable, ", ")+", or remove it")
			continue
		}
		add(field, "the model's provider runs "+tool+" where no rule of this gateway holds, and what it brings is seen by nobody here before the model", "remove it, and use comm_search and comm_fetch, unless the agent needs it")
	}
	// A fence is text; a field of structured content has none
	if d.Structured {
		add("structured", "the agent gets structured content that is not trusted without a fence: a model that reads it can't tell it from what its person says", "remove it, unless a program parses the results and no model reads them")
	}
	return all
}

// coversFree tells whether an entry without a root permits what a pattern names.
func coversFree(patterns []string, pattern string) bool {
	server, _, _ := strings.Cut(pattern, ".")
	return slices.ContainsFunc(patterns, func(p string) bool { return p == "*" || p == pattern || p == server+".*" })
}

// agentOutput are the names under which what agents said is usually kept.
var agentOutput = regexp.MustCompile(`^(agents?[-_./: ]?)?(recommendations?|outputs?|responses?|runs?)$`)

// ownOutput tells whether a data source is named as the output of this agent or of agents at large.
func ownOutput(id, source string) bool {
	s, id := strings.ToLower(source), strings.ToLower(id)
	if s == "recommendations" || s == "agent:"+id {
		return true
	}
	if rest, ok := strings.CutPrefix(strings.TrimPrefix(s, "agent:"), id); ok && rest != "" && strings.ContainsRune("-_./: ", rune(rest[0])) {
		return agentOutput.MatchString(rest[1:])
	}
	return strings.HasPrefix(s, "agent") && agentOutput.MatchString(s)
}

// compileSchema compiles a JSON Schema that stands alone.
func compileSchema(schema []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(nowhere{}) // the default loader opens files
	const here = "urn:output"
	if err := c.AddResource(here, doc); err != nil {
		return nil, err
	}
	return c.Compile(here)
}

// nowhere is a schema loader that finds nothing.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("references to other documents are not allowed (%s): %w", display.Quote(url, shownMost), errors.ErrUnsupported)
}

var (
	tokens   = regexp.MustCompile(`[-_:/@. ]+`)
	revision = regexp.MustCompile(`[-_]v\d+:\d+(:\d+k)?$`)                // Bedrock: -v1:0, -v2:1:18k
	contents = regexp.MustCompile(`@(sha256:[0-9a-f]{64}|[0-9a-f]{40})$`) // a digest or a commit
	dashed   = regexp.MustCompile(`(?:^|[-_@/:])(20\d\d)-(\d\d)-(\d\d)(?:$|[-_@/:])`)
	monthDay = regexp.MustCompile(`-(\d\d)-(\d\d)$`)        // preview-05-20
	monthOf  = regexp.MustCompile(`-(\d\d)-(20\d\d)$`)      // command-r-08-2024
	stable   = regexp.MustCompile(`^0\d\d$`)                // gemini-1.5-pro-002, text-bison@001
	compact  = regexp.MustCompile(`^(20\d\d)(\d\d)(\d\d)$`) // 20250929
	four     = regexp.MustCompile(`^(\d\d)(\d\d)$`)         // 0613, 2402
)

// Pinned tells whether a model id names one version that its provider will not move: it carries a release date, a numbered
// stable version, a Bedrock revision or a content digest. Names that a provider points at ever newer models (aliases, "latest",
// a family with a bare number) are not pinned. An unknown scheme is not pinned either (AG-10).
func Pinned(model string) bool {
	m := strings.ToLower(model)
	if len(m) > 256 || strings.ContainsFunc(m, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return false
	}
	parts := tokens.Split(m, -1)
	for _, p := range parts {
		if p == "latest" {
			return false
		}
	}
	if revision.MatchString(m) || contents.MatchString(m) {
		return true
	}
	if d := dashed.FindStringSubmatch(m); d != nil && isMonth(d[2]) && isDay(d[3]) {
		return true
	}
	if d := monthDay.FindStringSubmatch(m); d != nil && isMonth(d[1]) && isDay(d[2]) {
		return true
	}
	if d := monthOf.FindStringSubmatch(m); d != nil && isMonth(d[1]) {
		return true
	}
	for _, p := range parts[1:] { // a name doesn't begin with its version
		if stable.MatchString(p) {
			return true
		}
		if d := compact.FindStringSubmatch(p); d != nil && isMonth(d[2]) && isDay(d[3]) {
			return true
		}
		if d := four.FindStringSubmatch(p); d != nil && p != "1024" { // a size far more often than October 24
			if isMonth(d[1]) && isDay(d[2]) || d[1] >= "23" && d[1] <= "39" && isMonth(d[2]) {
				return true
			}
		}
	}
	return false
}

func isMonth(s string) bool { return s >= "01" && s <= "12" }
func isDay(s string) bool   { return s >= "01" && s <= "31" }

// lintSources names the operations that the declaration permits to read and a run is refused, since no data source has their name (AG-9).
func lintSources(d *Declaration) (all []Problem) {
	if d.Run == nil {
		return nil
	}
	sources := slices.Concat(d.DataSources.Tables, d.DataSources.APIs)
	for i, p := range d.Permissions.Read {
		pattern, _, _ := strings.Cut(p, under)
		server, _, _ := strings.Cut(pattern, ".")
		switch {
		case pattern == "*", server == "knowledge", server == "comm": // what it reads shows in the call
			continue
		case slices.ContainsFunc(sources, func(source string) bool {
			return source == pattern || source == server || strings.HasSuffix(pattern, ".*") && strings.HasPrefix(source, server+".")
		}):
			continue
		}
		all = append(all, Problem{File: d.File, Field: "permissions.read[" + strconv.Itoa(i) + "]", Severity: P2,
			Problem: "a run is refused " + display.Quote(pattern, shownMost) + ": no data source has its name", Remedy: "add " + display.Quote(server, shownMost) + " to dataSources.tables or dataSources.apis, or remove the permission"})
	}
	return all
}
