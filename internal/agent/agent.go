// Package agent holds what an operator says about an agent: its declaration, read from one YAML file, checked and linted.
//
// Promises: a declaration is strictly parsed (unknown and duplicate fields, wrong types and missing fields are errors with line and
// column, AG-2); one with an error or a P0 violation is not in the Set, so its agent is undeclared and does nothing. Permissions are
// exact ids, "server.*" or "*" and nothing else is a pattern, reads also with a root; what a list does not name is refused; an advisory agent never
// writes, whatever its list says (AG-1). The digest covers every field, and nothing of how the file is laid out (AG-3).
package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/quota"
)

// Mode is what kind of agent it is.
type Mode string

const (
	Advisory Mode = "advisory" // reads and recommends; the default
	Operator Mode = "operator" // may propose writes
)

// Phase is the phase that the agent's sessions start in.
type Phase string

const (
	Planning  Phase = "planning" // the default
	Execution Phase = "execution"
)

// Opener is who opens the agent's fresh sessions.
type Opener string

const (
	ByHost Opener = "host" // a host or a person; the default
	BySelf Opener = "self" // the agent too; such a session keeps the labels of the one before
)

// Approver is who approves the agent's plans.
type Approver string

const (
	PlansByRule   Approver = "rule"   // a rule, where no step has to be asked about; the default. A trust tier can demand more
	PlansByPerson Approver = "person" // always a person
)

// Streaming says when the text of a model's streamed answer leaves.
type Streaming string

const (
	StreamsLive Streaming = "live" // as it comes; what can act waits for the outcome in any case. The default
	StreamsHeld Streaming = "hold" // once the outcome is on record, as in a run
)

// Bounds of AG-8, in milliseconds.
const (
	DefaultExecutionTime = 30_000
	MaxExecutionTime     = 300_000
)

// Declaration is one agent's declaration. It is immutable once made by Parse, Local or Load; one made in any other way permits nothing.
type Declaration struct {
	AgentID               string          `json:"agentId"`
	AgentName             string          `json:"agentName"`
	Version               string          `json:"version"` // semantic version
	Purpose               string          `json:"purpose"`
	Capabilities          []string        `json:"capabilities"`
	DataSources           DataSources     `json:"dataSources"`
	Permissions           Permissions     `json:"permissions"`
	OutputSchema          json.RawMessage `json:"outputSchema"` // JSON Schema, canonical JSON
	OutputSchemaVersion   string          `json:"outputSchemaVersion"`
	MaxExecutionTime      int             `json:"maxExecutionTime"` // milliseconds, 1 to MaxExecutionTime (AG-8)
	MaxTokens             int             `json:"maxTokens"`
	KillSwitchEnabled     bool            `json:"killSwitchEnabled"`
	HumanApprovalRequired bool            `json:"humanApprovalRequired"`

	Mode         Mode         `json:"mode"`
	StartPhase   Phase        `json:"startPhase"`
	PlanApproval Approver     `json:"planApproval,omitempty"` // "": PlansByRule
	Sessions     Opener       `json:"sessions"`
	TrustTier    string       `json:"trustTier"`
	Quotas       Quotas       `json:"quotas"`
	DependsOn    []string     `json:"dependsOn"` // ids of the agents whose failure degrades this one
	SystemPrompt SystemPrompt `json:"systemPrompt"`
	HostedTools  []string     `json:"hostedTools"` // tools that the model's provider may run itself
	// SessionsSideBySide allows the agent's own session beside those that hosts and people open for it. False is left out, so that the digest of a
	// declaration from before there was the field stays.
	SessionsSideBySide bool `json:"sessionsSideBySide,omitempty"`
	// Structured gives a program the structured content of results that are not trusted as their server sent it, beside the fenced text. False is left
	// out, too.
	Structured bool `json:"structured,omitempty"`
	// Stream says when the text of a model's streamed answer leaves. "" is StreamsLive, and left out, too.
	Stream Streaming `json:"stream,omitempty"`
	// Knowledge says which labelled documents of the knowledge store the agent may read. None is left out, too.
	Knowledge Knowledge `json:"knowledge,omitzero"`
	// Run says how the agent's runs are carried out; nil: it has none. RecommendationActions says what each action that its output can recommend calls.
	Run                   *Run              `json:"run,omitempty"`
	RecommendationActions map[string]Action `json:"recommendationActions,omitempty"`
	// These are left out where nothing is said, for the same reason.
	Degraded    []string     `json:"degraded,omitempty"`    // operations that are left while an agent of dependsOn is aside
	Mitigations []Mitigation `json:"mitigations,omitempty"` // what is planned against violations of severity P1
	Scale       int          `json:"scale,omitempty"`       // sessions a day up to which its P2 violations don't block

	File   string `json:"-"` // where it is from; "" for the built-in one
	Digest string `json:"-"` // hex SHA-256 of the canonical JSON of all fields above

	read, write *grants
	limits      []quota.Limit
	places      map[string][2]int // line and column of each field of the file
	of          string            // of a trial agent: the agent that it stands for
	builtIn     bool              // it is Local
}

// Degraded is an agent that another one depends on, and that is aside.
type Degraded struct {
	By    string    `json:"by" doc:"The agent that is aside."`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// Knowledge is what an agent may read of the knowledge store beside documents without labels.
type Knowledge struct {
	Labels []string `json:"labels"`
}

// KnowledgePrefix begins the tables of DataSources that are collections of the knowledge store: knowledge.handbook. knowledge.* is all of them.
const KnowledgePrefix = "knowledge."

// ReadsKnowledge are the collections that the agent may read ("*": all) and the labels that documents in them may have.
func (d *Declaration) ReadsKnowledge() (collections, labels []string) {
	for _, table := range d.DataSources.Tables {
		if c, ok := strings.CutPrefix(table, KnowledgePrefix); ok && c != "" {
			collections = append(collections, c)
		}
	}
	return collections, d.Knowledge.Labels
}

// UsesModel tells whether the agent may ask a model. The built-in agent may ask each that is configured, as it may call everything else.
func (d *Declaration) UsesModel(id string) bool {
	return d.builtIn || slices.Contains(d.DataSources.Models, id)
}

// DataSources is everything the agent takes facts from (AG-9).
type DataSources struct {
	Tables []string `json:"tables"`
	APIs   []string `json:"apis"`
	Models []string `json:"models"` // pinned (AG-10)
}

// Has tells whether one of the tables and APIs is what a call reads: its operation, its server, the database that comm.query asks, or the host that comm.fetch
// fetches from. What the arguments of other operations say is the agent's own word. Models and collections of the knowledge store have checks of their own.
func (s DataSources) Has(operation string, arguments []byte) bool {
	names := func(source string) bool { return Reads(operation, arguments, source) }
	return slices.ContainsFunc(s.Tables, names) || slices.ContainsFunc(s.APIs, names)
}

// Reads tells whether the source with the name is what a call reads.
func Reads(operation string, arguments []byte, source string) bool {
	server, _, _ := strings.Cut(operation, ".")
	if source == operation || source == server {
		return true
	}
	found := false
	call.Strings(arguments, func(path, s string) bool {
		if path == "database" && operation == "comm.query" {
			found = found || s == source
		}
		if rest, ok := strings.CutPrefix(s, "https://"); ok && path == "url" && operation == "comm.fetch" {
			host, _, _ := strings.Cut(rest, "/")
			found = found || strings.EqualFold(host, source)
		}
		return !found
	})
	return found
}

// Permissions name operations: "mail.search_email", "docs.*" or "*"; reads also with a root, as "fs.read_file under docs/".
type Permissions struct {
	Read  []string `json:"read"`
	Write []string `json:"write"` // empty for advisory agents
}

// Quotas bound what the agent uses, by the resource types of TH-5. Nil is the gateway's own limit.
type Quotas struct {
	APICalls       *Calls   `json:"apiCalls,omitempty"`
	Tokens         *Amounts `json:"tokens,omitempty"`
	ComputeSeconds *Amounts `json:"computeSeconds,omitempty"`
	Cost           *Cost    `json:"cost,omitempty"`
}

// Amounts bound what is used in an hour, and in a UTC day. Nil is no bound.
type Amounts struct {
	Hour *int `json:"hour,omitempty"`
	Day  *int `json:"day,omitempty"`
}

// Calls bound calls, and how fast they come.
type Calls struct {
	Amounts
	Minute *int `json:"minute,omitempty"`
}

// limits are those of one resource, of which one is counted in so many.
func (a *Amounts) limits(r quota.Resource, unit int64) (limits []quota.Limit) {
	if a == nil {
		return nil
	}
	for _, of := range []struct {
		window quota.Window
		most   *int
	}{{quota.Hour, a.Hour}, {quota.Day, a.Day}} {
		if of.most != nil {
			limits = append(limits, quota.Limit{Resource: r, Window: of.window, Most: int64(*of.most) * unit})
		}
	}
	return limits
}

// limits are the quotas that calls are counted under.
func (q *Quotas) limits() []quota.Limit {
	var all []quota.Limit
	if q.APICalls != nil {
		all = q.APICalls.limits(quota.APICalls, 1)
	}
	all = append(all, q.ComputeSeconds.limits(quota.ComputeSeconds, 1000)...)
	return append(append(all, q.Tokens.limits(quota.Tokens, 1)...), q.Cost.limits()...)
}

// Cost bounds what the agent's models cost, in the currency of the configured prices.
type Cost struct {
	Hour json.Number `json:"hour,omitempty"`
	Day  json.Number `json:"day,omitempty"`
}

func (c *Cost) limits() (limits []quota.Limit) {
	if c == nil {
		return nil
	}
	for _, of := range []struct {
		window quota.Window
		most   json.Number
	}{{quota.Hour, c.Hour}, {quota.Day, c.Day}} {
		if most, err := of.most.Float64(); err == nil { // it was read as a plain amount; "" is none
			limits = append(limits, quota.Limit{Resource: quota.Cost, Window: of.window, Most: int64(math.Round(most * 1e6))})
		}
	}
	return limits
}

// SystemPrompt is what the agent's system message says besides the gateway's own rules (TH-1).
type SystemPrompt struct {
	Role        string   `json:"role"`
	Constraints []string `json:"constraints"`
}

// grants is a compiled permission list.
type grants struct {
	all     bool
	servers map[string]bool // of "server.*"
	exact   map[string]bool
	roots   map[string][]root // of what is permitted under a root only: operation or "server.*" -> roots
}

func compile(patterns []string) *grants {
	g := &grants{servers: map[string]bool{}, exact: map[string]bool{}, roots: map[string][]root{}}
	for _, p := range patterns {
		if pattern, at, ok := strings.Cut(p, under); ok {
			r, _ := readRoot(at) // checked when it was parsed; nothing lies below one that can't be read
			g.roots[pattern] = append(g.roots[pattern], r)
		} else if p == "*" {
			g.all = true
		} else if server, ok := strings.CutSuffix(p, ".*"); ok {
			g.servers[server] = true
		} else {
			g.exact[p] = true
		}
	}
	return g
}

func (g *grants) hold(operation string) bool {
	if g == nil {
		return false
	}
	roots, free := g.rootsOf(operation)
	return strings.Contains(operation, ".") && (free || len(roots) > 0)
}

// Permits tells whether the declaration permits the operation: reads by permissions.read, writes by permissions.write. Neither list
// includes the other. The server of an operation is what stands before its first dot. A read that is permitted under roots is permitted as
// far as the operation goes; Outside says whether a call lies below them. What is the trial's server's is for trial agents alone, whatever a list says.
func (d *Declaration) Permits(operation string, write bool) bool {
	if strings.HasPrefix(operation, TrialServer+".") {
		allowed := trialReads
		if write {
			allowed = trialWrites
		}
		return d.of != "" && slices.Contains(allowed, operation)
	}
	if write {
		return d.Mode == Operator && d.write.hold(operation)
	}
	return d.read.hold(operation)
}

// KeepsDegraded tells whether the agent may still call the operation while an agent that it depends on is aside: what it lists under degraded, else
// reads.
func (d *Declaration) KeepsDegraded(operation string, write bool) bool {
	if len(d.Degraded) == 0 {
		return !write
	}
	return compile(d.Degraded).hold(operation)
}

// checkRead says what is wrong with one permission to read, or "": it may have a root.
func checkRead(p string) string {
	pattern, at, rooted := strings.Cut(p, under)
	if !rooted {
		return checkPattern(p)
	}
	if problem := checkPattern(pattern); problem != "" {
		return problem
	}
	if pattern == "*" {
		return fmt.Sprintf("%q: name the operation, or the server, that reads under the root", p)
	}
	if _, problem := readRoot(at); problem != "" {
		return fmt.Sprintf("%q: the root %s", p, problem)
	}
	return ""
}

// checkPattern says what is wrong with one permission, or "".
func checkPattern(p string) string {
	if p == "*" {
		return ""
	}
	name := strings.TrimSuffix(p, ".*")
	server, tool, dotted := strings.Cut(p, ".")
	switch {
	case strings.Contains(p, under):
		return fmt.Sprintf("%q has a root, and only reads can: what a write changes is asked about, or not permitted", p)
	case strings.ContainsAny(name, "*?[]{}!"):
		return fmt.Sprintf("%q is not an operation id, \"server.*\" or \"*\"; there are no other patterns", p)
	case strings.ContainsAny(p, " \t\r\n"):
		return fmt.Sprintf("%q has white space in it", p)
	case !dotted || server == "" || tool == "":
		return fmt.Sprintf("%q is not an operation id: it needs a server and a tool, as in mail.search_email", p)
	case server == TrialServer:
		return fmt.Sprintf("%q: what begins with %s is for the trial agents of sallyport doctor alone", p, trialPrefix)
	case tool != "*" && strings.HasSuffix(p, ".*"):
		return fmt.Sprintf("%q: \"server.*\" is for whole servers, and a server's id has no dot", p)
	}
	return ""
}

// seal makes d usable: it fills the defaults' lists, compiles the permissions and takes the digest.
func (d *Declaration) seal() error {
	for _, list := range []*[]string{&d.Capabilities, &d.DataSources.Tables, &d.DataSources.APIs, &d.DataSources.Models,
		&d.Permissions.Read, &d.Permissions.Write, &d.DependsOn, &d.SystemPrompt.Constraints, &d.HostedTools} {
		if *list == nil {
			*list = []string{} // none and absent are one thing, also to the digest
		}
	}
	if len(d.Knowledge.Labels) == 0 {
		d.Knowledge.Labels = nil
	}
	if d.OutputSchema == nil {
		d.OutputSchema = json.RawMessage("null")
	}
	d.read, d.write = compile(d.Permissions.Read), compile(d.Permissions.Write)
	if d.limits = nil; d.of == "" { // a trial uses nothing of what its agent may
		d.limits = d.Quotas.limits()
	}
	fields, err := json.Marshal(d)
	if err != nil {
		return err
	}
	canonical, err := call.Canonical(fields, call.DefaultLimits())
	if err != nil {
		return err
	}
	d.Digest = call.HashBytes(canonical)
	return nil
}

// Set is the declarations that are in force, by agent id. The zero Set is empty. Immutable.
type Set struct {
	byID map[string]*Declaration // with those of trial agents and of the principals of recommendations
	all  []*Declaration          // by id, without them
}

// NewSet returns a set of declarations, of which no two have one id.
func NewSet(declarations ...Declaration) Set {
	s := Set{byID: make(map[string]*Declaration, 2*len(declarations))}
	for i := range declarations {
		d := &declarations[i]
		s.byID[d.AgentID] = d
		s.all = append(s.all, d)
		if t, ok := d.trial(); ok {
			s.byID[t.AgentID] = t
		}
		if r, ok := d.recommends(); ok {
			s.byID[r.AgentID] = r
		}
	}
	slices.SortFunc(s.all, func(a, b *Declaration) int { return cmp.Compare(a.AgentID, b.AgentID) })
	return s
}

// Get finds the declaration of an agent, of a trial agent, or of the principal of an agent's recommendations. Nobody may change it.
func (s Set) Get(id string) (*Declaration, bool) {
	d, ok := s.byID[id]
	return d, ok
}

// Only returns the set of those declarations that are kept, with their trial agents.
func (s Set) Only(keep func(*Declaration) bool) Set {
	var kept []Declaration
	for _, d := range s.all {
		if keep(d) {
			kept = append(kept, *d)
		}
	}
	return NewSet(kept...)
}

// All returns every declaration, by id. Trial agents have none of their own.
func (s Set) All() []*Declaration { return slices.Clone(s.all) }

// Limits are the quotas that the agent's calls are counted under, with whose they are: what people approved of its recommendations is the agent's, too.
func (d *Declaration) Limits() (agent string, limits []quota.Limit) { return Base(d.AgentID), d.limits }

// CallsPerMinute is how many calls a minute the agent may make in all of its sessions, spread evenly; 0: as many as it likes.
func (d *Declaration) CallsPerMinute() int {
	if a := d.Quotas.APICalls; a != nil && a.Minute != nil {
		return *a.Minute
	}
	return 0
}

// BuiltIn tells whether it is the gateway's own declaration (Local), which no file says.
func (d *Declaration) BuiltIn() bool { return d.builtIn }

// Local is the built-in declaration of the agent "local", for a gateway that has no agents folder: it may use everything that the
// other stages let pass, and starts in planning.
func Local() Declaration {
	d := Declaration{
		AgentID:      "local",
		AgentName:    "Local agent",
		Version:      "1.0.0",
		Purpose:      "The built-in agent of a gateway without an agents folder.",
		Capabilities: []string{"everything the gateway offers"},
		DataSources:  DataSources{Tables: []string{KnowledgePrefix + "*"}},
		Permissions:  Permissions{Read: []string{"*"}, Write: []string{"*"}},
		OutputSchema: json.RawMessage(`{"additionalProperties":false,"properties":{"answer":{"maxLength":10000,"pattern":"^[^<>]*$","type":"string","x-fact":true},` +
			`"citations":{"items":{"additionalProperties":false,"properties":{"confidence":{"type":"number"},"recordId":{"pattern":"^[^<>]*$","type":"string"},` +
			`"source":{"pattern":"^[^<>]*$","type":"string"},"timestamp":{"format":"date-time","type":"string"}},"required":["source","timestamp","confidence"],` +
			`"type":"object"},"type":"array"}},"required":["answer","citations"],"type":"object"}`),
		OutputSchemaVersion:   "1.0.0",
		MaxExecutionTime:      DefaultExecutionTime,
		MaxTokens:             100_000,
		KillSwitchEnabled:     true,
		HumanApprovalRequired: true,
		Mode:                  Operator,
		StartPhase:            Planning,
		Sessions:              ByHost,

		builtIn: true,
	}
	if err := d.seal(); err != nil {
		panic("agent: the built-in declaration is not valid: " + err.Error()) // a test calls it
	}
	return d
}

// Example is a declaration file that lints clean, for `sallyport init`.
func Example() string { return example }

const example = `# One agent. Every field without a "default" note is required. ` + "`sallyport lint`" + ` checks this file.
agentId: research-assistant          # its credential: sallyport token create --agent research-assistant
agentName: Research assistant
version: 1.0.0                       # semantic version of this declaration; raise it with every change
purpose: Answers questions from the mailbox and from the web, with sources.

capabilities:
  - search mail
  - search the web
  - recommend next steps

dataSources:                         # everything it may take facts from; a citation of anything else is refused
  tables: [mail]
  apis: [web]
  models: [claude-sonnet-4-5-20250929]   # pinned to a version: no aliases, no "latest"

permissions:                         # operations: "server.tool", "server.*" for a whole server, "*" for all; reads also "fs.read_file under docs/"
  read: [mail.search_email, web.web_search]
  write: []                          # an advisory agent has none

outputSchemaVersion: 1.0.0
outputSchema:                        # JSON Schema of what it returns; what could be free text, HTML or anything is refused
  type: object
  required: [recommendation, citations]
  additionalProperties: false
  properties:
    recommendation:
      type: object
      required: [action, confidence, reasoning]
      additionalProperties: false
      properties:
        action: {type: string, enum: [ESCALATE, INVESTIGATE, CLOSE, WAIT]}
        confidence: {type: number, minimum: 0, maximum: 1}
        reasoning: {type: string, maxLength: 2000, pattern: "^[^<>]*$", x-fact: true}   # no tag in it; a fact needs a citation
    citations:
      type: array
      minItems: 1
      items:
        type: object
        required: [source, timestamp, confidence]
        additionalProperties: false
        properties:
          source: {type: string, maxLength: 200, pattern: "^[^<>]*$"}
          recordId: {type: string, maxLength: 200, pattern: "^[^<>]*$"}
          timestamp: {type: string, format: date-time}
          confidence: {type: number, minimum: 0, maximum: 1}

maxExecutionTime: 30000              # milliseconds; 300000 (5 minutes) at most
maxTokens: 20000

killSwitchEnabled: true              # must be true
humanApprovalRequired: true          # must be true

mode: advisory                       # default; "operator" may propose writes
startPhase: planning                 # default; "execution" starts with tools open
sessions: host                       # default; "self" lets the agent open fresh sessions, which keep its labels
`
