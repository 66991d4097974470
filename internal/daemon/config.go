package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v4"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/notify"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/project"
	"sallyport.example/internal/reading"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/upstream"
	"sallyport.example/provenance"
)

// maxConfig bounds the configuration file.
const maxConfig = 1 << 20

// Config is sallyport.yaml. Every field has a default; unknown keys are errors. Paths are relative to the file. "${NAME}" in a
// value is replaced by what sallyport.env beside it says of NAME, else by the environment variable NAME; one of them has to say it.
type Config struct {
	Listen      string `yaml:"listen,omitempty" json:"listen,omitempty" jsonschema:"Address for agents and hosts (/mcp and /v1/session). Default 127.0.0.1:7575; port 0 picks a free one."`
	AdminListen string `yaml:"admin_listen,omitempty" json:"admin_listen,omitempty" jsonschema:"Address for people and the command line. Default 127.0.0.1:7576."`
	Store       string `yaml:"store,omitempty" json:"store,omitempty" jsonschema:"Where state is kept. Default and only choice of this version: sqlite."`
	Mode        string `yaml:"mode,omitempty" json:"mode,omitempty" jsonschema:"enforce (default), or observe: questions up to HIGH and refusals of flow, phase, declaration and unlisted operations are recorded, not enforced; a secret still goes to no sink, and all else holds. shadow is the old name of observe."`
	Agents      string `yaml:"agents,omitempty" json:"agents,omitempty" jsonschema:"Folder of agent declarations. Default ./agents if it is there, else one built-in operator agent named local."`
	Policies    string `yaml:"policies,omitempty" json:"policies,omitempty" jsonschema:"Folder of *.cedar policies. They can only narrow what declarations grant."`

	People     PeopleConfig               `yaml:"people,omitempty" json:"people,omitzero" jsonschema:"People who may act on the people's side: a list of them, or a map with the list and with confirm."`
	Hosts      []HostConfig               `yaml:"hosts,omitempty" json:"hosts,omitempty" jsonschema:"Hosts that may start runs, and for whom, or add documents to the knowledge store. A host that isn't listed opens sessions and does neither."`
	Upstreams  map[string]UpstreamConfig  `yaml:"upstreams,omitempty" json:"upstreams,omitempty" jsonschema:"MCP servers behind the gateway, by the id that operations are known under."`
	Operations map[string]OperationConfig `yaml:"operations,omitempty" json:"operations,omitempty" jsonschema:"The operator's word on each operation, by <server>.<tool>; <server>.* is a default for a server."`
	Unlisted   string                     `yaml:"unlisted_operations,omitempty" json:"unlisted_operations,omitempty" jsonschema:"What happens to operations that no entry names: deny (default), ask, or ask_once: a yes covers the tool for the session."`
	Threat     ThreatConfig               `yaml:"threat,omitempty" json:"threat,omitzero" jsonschema:"What a hit of screening does."`
	Flow       FlowConfig                 `yaml:"flow,omitempty" json:"flow,omitempty" jsonschema:"Labels of the flow rules, and what is free."`
	Limits     LimitsConfig               `yaml:"limits,omitempty" json:"limits,omitempty" jsonschema:"Limits of one session."`

	Comm         CommConfig            `yaml:"comm,omitempty" json:"comm,omitempty" jsonschema:"What the built-in external operations (comm.fetch, comm.search, comm.query, comm.exec) may reach."`
	TrustTiers   map[string]TierConfig `yaml:"trust_tiers,omitempty" json:"trust_tiers,omitempty" jsonschema:"Limits of agents by their declaration's trustTier. Built in: restricted, standard (of agents that name none) and trusted; an entry replaces what it names."`
	Knowledge    KnowledgeConfig       `yaml:"knowledge,omitempty" json:"knowledge,omitzero" jsonschema:"The knowledge store."`
	Claims       ClaimsConfig          `yaml:"claims,omitempty" json:"claims,omitzero" jsonschema:"Against what claims are checked."`
	Approvals    ApprovalsConfig       `yaml:"approvals,omitempty" json:"approvals,omitempty" jsonschema:"People's approvals."`
	Declarations DeclarationsConfig    `yaml:"declarations,omitempty" json:"declarations,omitempty" jsonschema:"Who approves the declarations of agents."`
	Breakers     BreakersConfig        `yaml:"breakers,omitempty" json:"breakers,omitzero" jsonschema:"Circuit breakers of servers, models and agents."`
	Quarantine   QuarantineConfig      `yaml:"quarantine,omitempty" json:"quarantine,omitzero" jsonschema:"Rules that put agents in quarantine, until a person restores them."`
	Notify       []notify.Config       `yaml:"notify,omitempty" json:"notify,omitempty" jsonschema:"Who is told of requests and alerts, and how."`
	Audit        AuditConfig           `yaml:"audit,omitempty" json:"audit,omitempty" jsonschema:"The audit log's files, and its anchor outside the data directory."`
	Models       []ModelConfig         `yaml:"models,omitempty" json:"models,omitempty" jsonschema:"Models that agents may be let ask through the gateway; a declaration names those that its agent may."`
	Console      ConsoleConfig         `yaml:"console,omitempty" json:"console,omitempty" jsonschema:"The web page of the people's side."`

	// Dir is the folder that relative paths start from.
	Dir string `yaml:"-" json:"-"`

	file    string           // where it was read; empty for the defaults
	project *project.Project // of flow.project; nil: none
	root    *yaml.Node       // the file as it was read, to say where things stand
	argless map[string]bool  // operations whose schema takes no argument, once that was compared
	known   map[string]known // of servers with labels: catalogue, their entry in it
	rules   func() ownRules  // of screening, read when they are first needed
}

// HostConfig is a host with the authority of people to start runs.
type HostConfig struct {
	ID      string   `yaml:"id" json:"id" jsonschema:"The host, as in sallyport token create --host."`
	RunsFor []string `yaml:"runs_for,omitempty" json:"runs_for,omitempty" jsonschema:"The people whose authority it has: it may start runs that one of them asked it for, and has to name them."`
	AddsTo  []string `yaml:"adds_to,omitempty" json:"adds_to,omitempty" jsonschema:"The collections of the knowledge store that it may add documents and versions to. Default none."`
}

// UpstreamConfig is one MCP server: a command to start, or a URL to reach.
type UpstreamConfig struct {
	Command        []string          `yaml:"command,omitempty" json:"command,omitempty" jsonschema:"Program and arguments of a stdio server. No shell is involved."`
	Env            map[string]string `yaml:"env,omitempty" json:"env,omitempty" jsonschema:"Environment variables for the command, besides PATH, HOME, USER, LANG, LC_ALL and TMPDIR."`
	Cwd            string            `yaml:"cwd,omitempty" json:"cwd,omitempty" jsonschema:"Folder that the command starts in, and that relative paths in it start from. Default: the file's folder."`
	URL            string            `yaml:"url,omitempty" json:"url,omitempty" jsonschema:"Address of a streamable HTTP server."`
	Headers        map[string]string `yaml:"headers,omitempty" json:"headers,omitempty" jsonschema:"Headers for every request to the server: its own credential belongs here. The agent's token is never forwarded."`
	Sandbox        string            `yaml:"sandbox,omitempty" json:"sandbox,omitempty" jsonschema:"How a stdio server is confined: full (its folder, and the hosts that egress lists), partial (default: also what its command and environment name, and the network) or none (it can do what the gateway can, as read its keys)."`
	Folder         string            `yaml:"folder,omitempty" json:"folder,omitempty" jsonschema:"The confined server's own folder, which is its home, too. Default: one in the data directory."`
	Paths          []string          `yaml:"paths,omitempty" json:"paths,omitempty" jsonschema:"More files and folders that the server may read and write in the sandbox partial, beside those that its command and environment name."`
	Egress         Egress            `yaml:"egress,omitempty" json:"egress,omitempty" jsonschema:"What a confined server may reach of the network: any (default in partial), none (default in full), or a list of hosts, which it reaches through a proxy of the gateway's. A program that honours no proxy reaches nothing then."`
	Fallback       string            `yaml:"fallback,omitempty" json:"fallback,omitempty" jsonschema:"Another upstream, whose tool of the same name gets a call that this one failed before it had it, or that only reads. Both have to be permitted."`
	Timeout        Duration          `yaml:"timeout,omitempty" json:"timeout,omitempty" jsonschema:"Longest time for one call. Default limits.network_timeout."`
	ClientFeatures []string          `yaml:"client_features,omitempty" json:"client_features,omitempty" jsonschema:"What the server may ask of the agent's client while a call runs: elicitation, sampling, roots. Default none."`
	Labels         string            `yaml:"labels,omitempty" json:"labels,omitempty" jsonschema:"catalogue: the gateway's own labels for the tools of this well-known server hold where operations say nothing else. Default none."`
	FirstSight     string            `yaml:"first_sight,omitempty" json:"first_sight,omitempty" jsonschema:"ask (default): a session that lists definitions which no person has accepted holds untrusted. trust: it does not, and the server's words can steer an agent that has read nothing else."`
}

// OperationConfig holds the operator's settings for an operation. Fields that are left out come from the "server.*" entry, then from the defaults. That
// entry's args hold unless the operation has another role for the same argument, its risk unless the operation's is higher, and its
// egress_url whatever the operation says. Lists that are given, empty ones too, replace the server's.
type OperationConfig struct {
	ExposeAs      string                `yaml:"expose_as,omitempty" json:"expose_as,omitempty" jsonschema:"Tool name that the agent sees. Default <server>_<tool>, or <tool> where that begins with the server's id. In a <server>.* entry, {tool} stands for the server's own name."`
	Sensitivity   string                `yaml:"sensitivity,omitempty" json:"sensitivity,omitempty" jsonschema:"internal_source, external (default), both or none."`
	Effect        string                `yaml:"effect,omitempty" json:"effect,omitempty" jsonschema:"read or write (default)."`
	Level         *int                  `yaml:"level,omitempty" json:"level,omitempty" jsonschema:"Finer than effect: 0 reads, 1 writes that only the person sees and can undo, 2 the rest."`
	Emits         *[]string             `yaml:"emits,omitempty" json:"emits,omitempty" jsonschema:"Labels that results bring in. Default: internal for an internal_source."`
	BlockedBy     *[]string             `yaml:"blocked_by,omitempty" json:"blocked_by,omitempty" jsonschema:"Labels that refuse the call. Default: every confidentiality label for an external operation."`
	ExternalIO    *bool                 `yaml:"external_io,omitempty" json:"external_io,omitempty" jsonschema:"Default true. false lets the operation run in the planning phase."`
	Output        string                `yaml:"output,omitempty" json:"output,omitempty" jsonschema:"trusted, untrusted (default: text comes fenced), typed (trusted while every string matches shape) or echo."`
	Shape         string                `yaml:"shape,omitempty" json:"shape,omitempty" jsonschema:"Regular expression (RE2) that every string and number of a trusted or typed result has to match, or the whole result is untrusted. Begin it with ^ and end it with $. Example: ^[A-Za-z0-9 .,:-]{0,80}$"`
	TrustedFields []string              `yaml:"trusted_fields,omitempty" json:"trusted_fields,omitempty" jsonschema:"Fields that the system sets in an otherwise untrusted record, as its id or size: their values count as confirmed. Never one that somebody outside can write."`
	Names         []string              `yaml:"names,omitempty" json:"names,omitempty" jsonschema:"Fields by which a person refers to a record, as its title or file name: where the person's request has the value, the request singles the record out."`
	Delegable     []string              `yaml:"delegable,omitempty" json:"delegable,omitempty" jsonschema:"Structured fields, never free text, that may say who gets something once the person's request singles the record out, as the sender of a mail."`
	IDKind        string                `yaml:"id_kind,omitempty" json:"id_kind,omitempty" jsonschema:"What the ids in results and in arguments are of, as event or file: an id confirms only an argument of its own kind."`
	Boundary      string                `yaml:"boundary,omitempty" json:"boundary,omitempty" jsonschema:"Where what it is given ends up: none (stays with the person), internal, external (default), or by_arg (leaves where a destination is given that is not the person's own)."`
	EgressURL     bool                  `yaml:"egress_url,omitempty" json:"egress_url,omitempty" jsonschema:"Calling it makes a request whose address can carry data out, so its address is looked at although it is a read."`
	Args          map[string]string     `yaml:"args,omitempty" json:"args,omitempty" jsonschema:"Role of each argument, by its name or path (payment.amount). After untrusted content destination, url, amount, credential, identity, selector, target, path, repository, table and code have to be confirmed; time and name where there is none of those; content (but for its links), query, flag and currency are free. An argument without a role has to be confirmed. For the risk count amount, currency and destination."`
	MayOmit       []string              `yaml:"may_omit,omitempty" json:"may_omit,omitempty" jsonschema:"Arguments with the role destination or url: leaving one out of a call keeps what is stored, as in an update. A call that has a value for no destination and no url is asked about or refused otherwise."`
	Code          map[string]CodeConfig `yaml:"code,omitempty" json:"code,omitempty" jsonschema:"Of a read: what each argument with the role code may say. A read is a write of level 2 where such an argument says something else, or has no entry here."`
	Action        string                `yaml:"action,omitempty" json:"action,omitempty" jsonschema:"What the operation does, by its name in the risk rules: transfer_money, delete_data, grant_access, publish_content (HIGH), send_email, schedule_meeting, book_appointment (MEDIUM). Any other is LOW."`
	Risk          string                `yaml:"risk,omitempty" json:"risk,omitempty" jsonschema:"Raises the risk: LOW, MEDIUM, HIGH or CRITICAL."`
	Approvals     OperationApprovals    `yaml:"approvals,omitempty" json:"approvals,omitzero" jsonschema:"Who answers questions about the operation."`
	Stores        *bool                 `yaml:"stores,omitempty" json:"stores,omitempty" jsonschema:"Default true: a write keeps what it is given, so in a session that holds confidentiality labels it gives them to what it wrote, or to all that the server gives back. false: it keeps nothing, as a mail that is sent or a calculator."`
	Declare       string                `yaml:"declare,omitempty" json:"declare,omitempty" jsonschema:"required: a call of the tool has to say why, as one of comm.* does (a justification, a declaration, or a step of the sealed plan), and the person who is asked sees it. An entry <server>.* holds for all of its tools."`
	Invisible     []string              `yaml:"allow_invisible,omitempty" json:"allow_invisible,omitempty" jsonschema:"Arguments in which characters that show nothing are marked and not refused, as they are in those with the role content."`
	Screen        string                `yaml:"screen,omitempty" json:"screen,omitempty" jsonschema:"observe: what screening finds in the operation's arguments and results is noted, and nothing follows from it. Default: what threat says."`
	Description   string                `yaml:"description,omitempty" json:"description,omitempty" jsonschema:"Replaces the server's description."`
}

// OperationApprovals says who answers questions about an operation.
type OperationApprovals struct {
	Role string `yaml:"role,omitempty" json:"role,omitempty" jsonschema:"admin: a person decides about each call of the operation, whatever its risk, and only one with the role admin. Silence permits nothing."`
}

// CodeConfig limits what an argument that holds code may contain. One of the two fields is set.
type CodeConfig struct {
	Shape string `yaml:"shape,omitempty" json:"shape,omitempty" jsonschema:"Regular expression (RE2) that the whole argument has to match, as git (status|log)."`
	Class string `yaml:"class,omitempty" json:"class,omitempty" jsonschema:"select: one plain SELECT by PostgreSQL's grammar, that names no function but such as only compute."`
}

// FlowConfig names the confidentiality labels, and what is free, and where.
type FlowConfig struct {
	Labels     []string `yaml:"labels,omitempty" json:"labels,omitempty" jsonschema:"Confidentiality labels. Default internal, pii, secret. The integrity label untrusted is always there."`
	Project    string   `yaml:"project,omitempty" json:"project,omitempty" jsonschema:"Folder that agents work in. With it a write of level 1 to a file is one of level 2 where the file lies outside of the folder, or is run or read as orders later, as a git hook, an agent's instructions or a client's configuration."`
	FreeLevel1 bool     `yaml:"free_level_1,omitempty" json:"free_level_1,omitempty" jsonschema:"Writes of level 1 run without a question after untrusted content. Default false."`
}

// LimitsConfig bounds one session.
type LimitsConfig struct {
	CommRequestsPerMinute int      `yaml:"comm_requests_per_minute,omitempty" json:"comm_requests_per_minute,omitempty" jsonschema:"External requests (comm.fetch, comm.search, comm.query) in any minute. Default 10."`
	CallsPerMinute        int      `yaml:"calls_per_minute,omitempty" json:"calls_per_minute,omitempty" jsonschema:"Calls in any minute. Default 600."`
	NetworkTimeout        Duration `yaml:"network_timeout,omitempty" json:"network_timeout,omitempty" jsonschema:"Longest network operation, also of upstreams without a timeout of their own. Default 30s."`
	FileTimeout           Duration `yaml:"file_timeout,omitempty" json:"file_timeout,omitempty" jsonschema:"Longest file operation. Default 10s."`
	ExecutionBudget       Duration `yaml:"execution_budget,omitempty" json:"execution_budget,omitempty" jsonschema:"Time in operations over a session's life. Default 300s."`
	Memory                Bytes    `yaml:"memory,omitempty" json:"memory,omitempty" jsonschema:"Memory of the gateway's process, as 512MiB or 2GiB; at least 192MiB. Half of it is for requests. Default an eighth of the machine's or the control group's."`
}

// MemoryLimit is the memory of the process: what the file says, or a share of the machine's.
func (c *Config) MemoryLimit() int64 {
	if c.Limits.Memory > 0 {
		return int64(c.Limits.Memory)
	}
	return memory.Default()
}

// CommConfig says what the built-in external operations may reach.
type CommConfig struct {
	AllowedDomains []string          `yaml:"allowed_domains,omitempty" json:"allowed_domains,omitempty" jsonschema:"Where comm.fetch may go. Empty: every public address. Entries: example.com, *.example.com, an address or prefix (10.0.0.0/8), each with :port if need be. A listed address is opened although it is not public; 127.0.0.1, ::1 and localhost on every port if none is given."`
	Protocols      []string          `yaml:"protocols,omitempty" json:"protocols,omitempty" jsonschema:"Of https and http. Default https."`
	Methods        []string          `yaml:"methods,omitempty" json:"methods,omitempty" jsonschema:"Methods of comm.fetch besides GET and HEAD, such as POST. A call with one of them is a write."`
	Search         SearchConfig      `yaml:"search,omitempty" json:"search,omitempty" jsonschema:"Who answers comm.search."`
	Databases      map[string]string `yaml:"databases,omitempty" json:"databases,omitempty" jsonschema:"Databases of comm.query by name: postgres://user@host/db, or sqlite:PATH. Use a role that can only read."`
	Exec           ExecConfig        `yaml:"exec,omitempty" json:"exec,omitempty" jsonschema:"Programs of comm.exec."`
}

// SearchConfig names a search provider.
type SearchConfig struct {
	Provider string `yaml:"provider,omitempty" json:"provider,omitempty" jsonschema:"local (default: what the session has fetched and its files), searxng, brave, tavily or opensearch."`
	URL      string `yaml:"url,omitempty" json:"url,omitempty" jsonschema:"Address of the provider. For opensearch a template with {query} and {count}."`
	Key      string `yaml:"key,omitempty" json:"key,omitempty" jsonschema:"Key of the account."`
	Results  string `yaml:"results,omitempty" json:"results,omitempty" jsonschema:"opensearch: where the list of results is in the answer, as data.items."`
	Title    string `yaml:"title,omitempty" json:"title,omitempty" jsonschema:"opensearch: where a result's title is. Default title."`
	Link     string `yaml:"link,omitempty" json:"link,omitempty" jsonschema:"opensearch: where a result's address is. Default url."`
	Snippet  string `yaml:"snippet,omitempty" json:"snippet,omitempty" jsonschema:"opensearch: where a result's text is. Default snippet."`
}

// ExecConfig says what comm.exec may run, and how.
type ExecConfig struct {
	Allow     []string `yaml:"allow,omitempty" json:"allow,omitempty" jsonschema:"Programs, by name or absolute path. Default none."`
	Plain     []string `yaml:"plain,omitempty" json:"plain,omitempty" jsonschema:"Those of allow that run nothing and read only the files that their arguments name: a person who is asked about one answers for these files alone, not for the whole workspace. Default cat, grep, head, tail, wc, sort."`
	Network   bool     `yaml:"network,omitempty" json:"network,omitempty" jsonschema:"Whether programs have the network. Default false. With it, comm.exec counts as external."`
	Timeout   Duration `yaml:"timeout,omitempty" json:"timeout,omitempty" jsonschema:"Longest run of a program. Default 30s."`
	CPUTime   Duration `yaml:"cpu_time,omitempty" json:"cpu_time,omitempty" jsonschema:"Processor time of a program. Default 10s."`
	MemoryMiB int      `yaml:"memory_mib,omitempty" json:"memory_mib,omitempty" jsonschema:"Memory of a process. Default 512."`
	Processes int      `yaml:"processes,omitempty" json:"processes,omitempty" jsonschema:"Processes and threads at a time. Default 64."`
	OutputKiB int      `yaml:"output_kib,omitempty" json:"output_kib,omitempty" jsonschema:"What is kept of standard output and of standard error, each. Default 256."`
}

// TierConfig is a trust tier. Limits that are left out are those of the section limits.
type TierConfig struct {
	CommRequestsPerMinute int      `yaml:"comm_requests_per_minute,omitempty" json:"comm_requests_per_minute,omitempty" jsonschema:"External requests of a session in any minute."`
	CallsPerMinute        int      `yaml:"calls_per_minute,omitempty" json:"calls_per_minute,omitempty" jsonschema:"Calls of a session in any minute."`
	ExecutionBudget       Duration `yaml:"execution_budget,omitempty" json:"execution_budget,omitempty" jsonschema:"Time in operations over a session's life."`
	PlanApproval          string   `yaml:"plan_approval,omitempty" json:"plan_approval,omitempty" jsonschema:"Who approves plans: rule (default), where no step has to be asked about, or always a person."`
	AskFrom               string   `yaml:"ask_from,omitempty" json:"ask_from,omitempty" jsonschema:"Risk from which a person decides on a declared operation: LOW, MEDIUM or HIGH (default). On HIGH and CRITICAL people always decide."`
}

// requesterHigh is the value of approvals.requester that lets people answer what they asked for, up to risk HIGH.
const requesterHigh = "high"

// ApprovalsConfig says how people are asked.
type ApprovalsConfig struct {
	Expires        Duration           `yaml:"expires,omitempty" json:"expires,omitempty" jsonschema:"How long a declaration, and a question to a person, is good for. Default 30m."`
	Hold           Duration           `yaml:"hold,omitempty" json:"hold,omitempty" jsonschema:"How long a call over MCP is held while a person decides. Default 50s."`
	MediumDelay    Duration           `yaml:"medium_delay,omitempty" json:"medium_delay,omitempty" jsonschema:"How long a call of risk MEDIUM waits to be stopped before it runs. Default 10s."`
	Requester      string             `yaml:"requester,omitempty" json:"requester,omitempty" jsonschema:"high: people may answer what they asked for themselves, up to risk HIGH. Default: only where nobody else could."`
	DrillEvery     int                `yaml:"drill_every,omitempty" json:"drill_every,omitempty" jsonschema:"One drill for so many questions: a request that no agent made and that should be rejected, to see whether people read. Default 0: none."`
	HighAmount     float64            `yaml:"high_amount,omitempty" json:"high_amount,omitempty" jsonschema:"Amount from which a call is HIGH, in currency. Default 1000."`
	CriticalAmount float64            `yaml:"critical_amount,omitempty" json:"critical_amount,omitempty" jsonschema:"Amount from which a call that moves money or deletes data is CRITICAL, in currency. Default 10000."`
	Currency       string             `yaml:"currency,omitempty" json:"currency,omitempty" jsonschema:"Currency of the amounts above, and of amounts that name none (ISO 4217). Default USD."`
	Rates          map[string]float64 `yaml:"rates,omitempty" json:"rates,omitempty" jsonschema:"What one unit of another currency is in currency, as {EUR: 1.08}. An amount in a currency that is not here can't be read, and is CRITICAL."`
}

// RiskRules are the thresholds of the risk rules of a configuration that was read.
func (c *Config) RiskRules() (policy.Rules, error) { return c.Approvals.rules() }

// rules are the thresholds of the risk rules.
func (c *ApprovalsConfig) rules() (policy.Rules, error) {
	return policy.NewRules(c.HighAmount, c.CriticalAmount, c.Currency, c.Rates)
}

// ConsoleConfig is the web page.
type ConsoleConfig struct {
	PublicURL string      `yaml:"public_url,omitempty" json:"public_url,omitempty" jsonschema:"Address that people reach the console at, where a proxy stands before admin_listen, as https://sallyport.example. It stands in links, and is where an identity provider sends people back to."`
	OIDC      *OIDCConfig `yaml:"oidc,omitempty" json:"oidc,omitempty" jsonschema:"Sign-in with an identity provider (OpenID Connect)."`
}

// OIDCConfig is an identity provider. The person who signs in is found by people[].identities: an address that the provider has verified, or
// issuer|subject. Roles are those of the configuration.
type OIDCConfig struct {
	Issuer       string   `yaml:"issuer" json:"issuer" jsonschema:"Address of the provider, as it stands in its tokens."`
	ClientID     string   `yaml:"client_id" json:"client_id" jsonschema:"Id that the provider knows this gateway under."`
	ClientSecret string   `yaml:"client_secret,omitempty" json:"client_secret,omitempty" jsonschema:"Its secret."`
	Scopes       []string `yaml:"scopes,omitempty" json:"scopes,omitempty" jsonschema:"What is asked for. Default openid, email."`
}

// Duration is written as Go writes it: 20s, 5m.
type Duration time.Duration

// Bytes is written with its unit: 512MiB, 2GiB.
type Bytes int64

// UnmarshalYAML reads a number of bytes; a bare number is refused because it has no unit.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	for i, unit := range byteUnits {
		if number, ok := strings.CutSuffix(n.Value, unit); ok {
			if v, err := strconv.ParseUint(number, 10, 20); err == nil && v > 0 {
				*b = Bytes(v) << (10 * (i + 2))
				return nil
			}
		}
	}
	return fmt.Errorf("%q is not a size such as 512MiB or 2GiB", n.Value)
}

// byteUnits are the units of Bytes, each 1,024 times the one before.
var byteUnits = []string{"MiB", "GiB"}

// MarshalYAML writes it back the same way.
func (b Bytes) MarshalYAML() (any, error) { return fmt.Sprintf("%dMiB", b>>20), nil }

// UnmarshalYAML reads a duration; a bare number is refused because it has no unit.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v <= 0 {
		return fmt.Errorf("%q is not a time such as 20s or 5m", n.Value)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes it back the same way.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// Problem is one thing wrong with a file, in the form that the lint of declarations has.
type Problem = agent.Problem

// ConfigError is a configuration that can't be used, with everything that is wrong with it.
type ConfigError struct{ Problems []Problem }

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// readConfig reads a configuration file.
func readConfig(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in its place is not waited for
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s (sallyport init writes a sallyport.yaml)", path)
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfig {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxConfig)
	}
	return data, nil
}

// LoadConfig reads the file. With path "" it takes sallyport.yaml in the working directory if that is there, else the defaults.
func LoadConfig(path string) (*Config, error) {
	if path == "" {
		const local = "sallyport.yaml"
		switch _, err := os.Lstat(local); {
		case err == nil:
			path = local
		case errors.Is(err, os.ErrNotExist):
			return ParseConfig("(defaults)", nil, ".")
		default:
			return nil, err
		}
	}
	data, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(path, data, filepath.Dir(path))
	if err == nil {
		c.file = path
	}
	return c, err
}

// ParseConfig reads a configuration strictly, expands the environment, applies the defaults and checks it as a whole. Every
// problem is reported, not only the first.
func ParseConfig(file string, data []byte, dir string) (*Config, error) {
	vars, problems := readEnvFile(filepath.Join(dir, envFile))
	if len(problems) > 0 {
		return nil, &ConfigError{problems}
	}
	return parseConfig(file, data, dir, vars)
}

// parseConfig does so with these values for references, before those of the environment.
func parseConfig(file string, data []byte, dir string, vars map[string]string) (*Config, error) {
	c := &Config{Dir: dir}
	c.rules = sync.OnceValue(c.readRules)
	var root yaml.Node
	if !blank(data) {
		if err := yaml.Load(data, &root); err != nil {
			return nil, &ConfigError{loadProblems(file, nil, err)}
		}
		var problems []Problem
		expandEnv(file, &root, vars, &problems)
		if len(problems) > 0 {
			return nil, &ConfigError{problems}
		}
		if err := root.Load(c, yaml.WithKnownFields()); err != nil {
			return nil, &ConfigError{loadProblems(file, &root, err)}
		}
	}
	c.root = &root
	c.defaults()
	if problems := c.check(file, &root); len(problems) > 0 {
		return nil, &ConfigError{problems}
	}
	return c, nil
}

// blank tells whether a file is empty. The library takes that for an error, but it means the same as no file.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// loadProblems translates the library's errors into the terms of the file. root is nil if the file is not YAML.
func loadProblems(file string, root *yaml.Node, err error) []Problem {
	var all *yaml.LoadErrors
	if !errors.As(err, &all) {
		return []Problem{agent.Syntax(file, err)}
	}
	var problems []Problem
	for _, e := range all.Errors {
		p := Problem{File: file, Line: e.Mark.Line, Column: e.Mark.Column, Severity: "error", Problem: goField.ReplaceAllString(e.Message, `unknown key "$1"`)}
		if m := goField.FindStringSubmatch(e.Message); m != nil {
			if near := sentence.Near(m[1], configKeys()[m[2]]); near != nil {
				p.Remedy = "near it: " + strings.Join(near, ", ")
			}
		}
		if m := twice.FindStringSubmatch(e.Message); m != nil {
			p.Problem, p.Remedy = fmt.Sprintf("the key %s is there twice, in line %s, too", m[1], m[2]), "keep one of the two, with all that belongs under it"
		}
		if root != nil {
			p.Field = fieldAt(root, p.Line, p.Column, p.Problem != e.Message)
		}
		if m := goType.FindStringSubmatch(p.Problem); m != nil {
			is, ok := yamlKinds[m[1]]
			if !ok {
				is = "a value of another kind"
			}
			want, form := formOf(p.Field, m[2])
			p.Problem, p.Remedy = fmt.Sprintf("%s stands here, where %s belongs", is, want), form
		}
		problems = append(problems, p)
	}
	return problems
}

// twice matches the library's message for a key that a map has already.
var twice = regexp.MustCompile(`^mapping key ("(?:.*)") already defined at line (\d+)$`)

// goType matches the library's message for a value of the wrong kind.
var goType = regexp.MustCompile(`^cannot construct !!(\w+)(?:\s.*)? into (\S+)$`)

var yamlKinds = map[string]string{"seq": "a list", "map": "a map", "str": "text", "int": "a number", "float": "a number", "bool": "true or false", "null": "nothing"}

// formOf says what kind of value a field of a Go type takes, and how to write it.
func formOf(field, goType string) (want, form string) {
	name := field[strings.LastIndexByte(field, '.')+1:]
	switch {
	case name == "args":
		return "each argument with its role", "write it as args: {to: destination}"
	case goType == "string":
		return "one text", "write it as " + name + ": text"
	case goType == "int":
		return "a whole number", "write it as " + name + ": 1"
	case goType == "float64":
		return "a number", "write it as " + name + ": 1.5"
	case goType == "bool":
		return "true or false", "write it as " + name + ": true"
	case goType == "[]string":
		return "a list", "write it as " + name + ": [one, another]"
	case strings.HasPrefix(goType, "[]"):
		return "a list of entries", "begin each with - and indent its keys"
	case goType == "map[string]string", goType == "map[string]float64":
		return "a map", "write it as " + name + ": {name: value}"
	}
	return "a map", "write its keys below it, indented, each with a value"
}

// fieldAt returns the dotted field whose value begins at a place, or for an unknown key, the field whose key begins there.
func fieldAt(n *yaml.Node, line, column int, key bool) string {
	for i, v := range n.Content {
		at, here := "", v
		switch {
		case n.Kind == yaml.DocumentNode:
			return fieldAt(v, line, column, key)
		case n.Kind == yaml.SequenceNode:
			at = fmt.Sprintf("[%d]", i)
		case n.Kind != yaml.MappingNode || i%2 == 0:
			continue
		default:
			at = n.Content[i-1].Value
			if key {
				here = n.Content[i-1]
			}
		}
		if here.Line == line && here.Column == column {
			return at
		}
		if rest := fieldAt(v, line, column, key); rest != "" && rest[0] != '[' {
			return at + "." + rest
		} else if rest != "" {
			return at + rest
		}
	}
	return ""
}

// goField matches the library's message for an unknown key, which names the program's type and not the file's section.
var goField = regexp.MustCompile(`field (\S+) not found in type (\S+)`)

// configKeys are the keys that the sections of the configuration have, by their types' names.
var configKeys = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(t.Elem())
		case reflect.Struct:
			if _, seen := all[t.String()]; seen {
				return
			}
			all[t.String()] = nil
			for i := range t.NumField() {
				f := t.Field(i)
				if key, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); key != "" && key != "-" {
					all[t.String()] = append(all[t.String()], key)
					visit(f.Type)
				}
			}
		}
	}
	visit(reflect.TypeFor[Config]())
	return all
})

var envPattern = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expandEnv replaces ${NAME} in scalar values, after parsing, so that a variable's content can never become YAML. vars come before the environment.
func expandEnv(file string, n *yaml.Node, vars map[string]string, problems *[]Problem) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue // keys are not expanded
		}
		expandEnv(file, child, vars, problems)
	}
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "${") {
		return
	}
	n.Value = envPattern.ReplaceAllStringFunc(n.Value, func(ref string) string {
		name := ref[2 : len(ref)-1]
		v, ok := vars[name]
		if !ok {
			v, ok = os.LookupEnv(name)
		}
		if !ok {
			*problems = append(*problems, Problem{File: file, Line: n.Line, Column: n.Column, Severity: "error",
				Problem: fmt.Sprintf("the environment variable %s is not set", name), Remedy: "set it before starting, or in " + envFile + " beside the file, or write the value"})
		}
		return v
	})
	n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle // what comes from the environment is text, never another type
}

// observes tells whether the gateway only observes, which observing says in words.
func (c *Config) observes() bool { return c.Mode == "observe" }

const observing = "questions up to HIGH, and refusals of flow, phase, declaration and unlisted operations, are recorded and not enforced"

// oldObserve is how the mode observe was called.
const oldObserve = "shadow"

func (c *Config) defaults() {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&c.Listen, "127.0.0.1:7575")
	set(&c.AdminListen, "127.0.0.1:7576")
	set(&c.Store, "sqlite")
	if c.Mode == oldObserve {
		c.Mode = "observe"
	}
	set(&c.Mode, "enforce")
	set(&c.Unlisted, "deny")
	if c.Flow.Labels == nil {
		c.Flow.Labels = []string{"internal", "pii", "secret"}
	}
	if c.Limits.CallsPerMinute == 0 {
		c.Limits.CallsPerMinute = 600
	}
	if c.Limits.ExecutionBudget == 0 {
		c.Limits.ExecutionBudget = Duration(300 * time.Second)
	}
	if c.Limits.NetworkTimeout == 0 {
		c.Limits.NetworkTimeout = Duration(30 * time.Second)
	}
	if c.Limits.FileTimeout == 0 {
		c.Limits.FileTimeout = Duration(10 * time.Second)
	}
	if c.Limits.CommRequestsPerMinute == 0 {
		c.Limits.CommRequestsPerMinute = 10
	}
	if c.Approvals.Expires == 0 {
		c.Approvals.Expires = Duration(30 * time.Minute)
	}
	if c.Approvals.Hold == 0 {
		c.Approvals.Hold = Duration(50 * time.Second)
	}
	if c.Approvals.MediumDelay == 0 {
		c.Approvals.MediumDelay = Duration(10 * time.Second)
	}
	if c.Comm.Exec.Timeout == 0 {
		c.Comm.Exec.Timeout = Duration(30 * time.Second)
	}
	if c.Agents == "" {
		if st, err := os.Stat(filepath.Join(c.Dir, "agents")); err == nil && st.IsDir() {
			c.Agents = "agents"
		}
	}
}

// path resolves a path of the file's.
func (c *Config) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.Dir, p)
}

// complaints are the problems of a file, each with its place.
type complaints struct {
	file string
	root *yaml.Node
	all  []Problem
}

// bad adds a problem of a field, with its line if that is known.
func (p *complaints) bad(field, remedy, format string, args ...any) {
	line, column := whereIs(p.root, field)
	p.all = append(p.all, Problem{File: p.file, Line: line, Column: column, Field: field, Severity: "error", Problem: fmt.Sprintf(format, args...), Remedy: remedy})
}

// violation adds a problem that is one of the twelve of the deployment check.
func (p *complaints) violation(code, field, remedy, format string, args ...any) {
	p.bad(field, remedy, format, args...)
	p.all[len(p.all)-1].Code = code
}

// fault adds a problem of a field in the sentence of the package that checked it.
func (p *complaints) fault(field string, err error) {
	f := fault.Of(err)
	p.bad(field, f.Remedy, "%s", f.Message)
}

// oneOf adds a problem if a field that is set has none of the values.
func (p *complaints) oneOf(field, value string, words ...string) {
	if value != "" && !slices.Contains(words, value) {
		p.bad(field, "use one of "+strings.Join(words, ", "), "unknown word %q", value)
	}
}

// check finds contradictions.
func (c *Config) check(file string, root *yaml.Node) []Problem {
	p := &complaints{file: file, root: root}
	if c.Store != "sqlite" { // the value is not shown: it may be an address with a password
		p.bad("store", "write sqlite, or leave it out", "the gateway's own store is SQLite; a store in another database, such as PostgreSQL, is not built in")
	}
	p.oneOf("mode", c.Mode, "enforce", "observe")
	p.oneOf("unlisted_operations", c.Unlisted, "deny", "ask", "ask_once")
	c.checkListeners(p)
	c.checkProject(p)
	c.checkPeople(p)
	c.checkHosts(p)
	c.checkUpstreams(p)
	c.checkOperations(p)
	c.checkLimits(p)
	c.checkComm(p)
	c.checkKnowledge(p)
	c.checkThreat(p)
	c.checkApprovals(p)
	c.checkDeclarations(p)
	c.checkBreakers(p)
	c.checkQuarantine(p)
	c.checkAudit(p)
	c.checkModels(p)
	slices.SortStableFunc(p.all, func(a, b Problem) int { return a.Line - b.Line })
	return p.all
}

// checkHosts looks at the hosts that may start runs or add documents.
func (c *Config) checkHosts(p *complaints) {
	seen := map[string]bool{}
	for i, h := range c.Hosts {
		field := fmt.Sprintf("hosts[%d]", i)
		if err := identity.CheckID(h.ID); err != nil {
			p.bad(field+".id", "name it as in sallyport token create --host", "%v", err)
		}
		if seen[h.ID] {
			p.bad(field+".id", "keep one", "the host %q appears twice", h.ID)
		}
		seen[h.ID] = true
		if len(h.RunsFor)+len(h.AddsTo) == 0 {
			p.bad(field, "name people under runs_for, or collections under adds_to", "it gives the host no right")
		}
		for _, collection := range h.AddsTo {
			if err := identity.CheckID(collection); err != nil {
				p.bad(field+".adds_to", "write the names of collections", "%v", err)
			} else if collection == knowledge.ExportCollection {
				p.bad(field+".adds_to", "have a person add exports", "the collection %q takes what people answered, from people", collection)
			}
		}
		for _, person := range h.RunsFor {
			if err := identity.CheckID(person); err != nil {
				p.bad(field+".runs_for", "write the ids of people", "%v", err)
			}
		}
	}
}

// runsFor are the people for whom a host may start runs.
func (c *Config) runsFor(host string) []string {
	for _, h := range c.Hosts {
		if h.ID == host {
			return h.RunsFor
		}
	}
	return nil
}

// addsTo are the collections that a host may add documents to.
func (c *Config) addsTo(host string) []string {
	for _, h := range c.Hosts {
		if h.ID == host {
			return h.AddsTo
		}
	}
	return nil
}

func (c *Config) checkListeners(p *complaints) {
	for field, addr := range map[string]string{"listen": c.Listen, "admin_listen": c.AdminListen} {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			p.bad(field, "write it as 127.0.0.1:7575", "%q is not an address", addr)
		} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			p.bad(field, "listen on 127.0.0.1 and put a TLS proxy in front", "%q is not a loopback address; tokens would cross the network in the clear", addr)
		}
	}
	if c.Listen == c.AdminListen && !strings.HasSuffix(c.Listen, ":0") {
		p.bad("admin_listen", "use another port", "it is the same as listen")
	}
}

// checkProject finds the folder that agents work in.
func (c *Config) checkProject(p *complaints) {
	if c.Flow.Project == "" {
		return
	}
	folder, err := filepath.Abs(c.path(c.Flow.Project))
	if err != nil {
		p.bad("flow.project", "name a folder", "%v", err)
		return
	}
	if folder == "/" || holdsHome(folder) {
		p.bad("flow.project", "name the folder of one project", "%s holds more than a project: everything in it could be written unasked", folder)
		return
	}
	own, err := c.gatewayPaths(c.path("sallyport-data"))
	file, failed := filepath.Abs(p.file)
	if err = errors.Join(err, failed); err == nil {
		c.project, err = project.New(folder, append(own.Secrets, file), c.programs())
	}
	if err != nil {
		p.bad("flow.project", "name a folder that is there", "%v", err)
	}
}

// programs are the files that the commands of servers run, as far as they are named by a path: a server runs what is in them the next time it starts.
func (c *Config) programs() (all []string) {
	for _, id := range slices.Sorted(maps.Keys(c.Upstreams)) {
		begins := c.startsIn(id)
		for i, arg := range c.Upstreams[id].Command {
			if name, value, ok := strings.Cut(arg, "="); ok && i > 0 && strings.HasPrefix(name, "-") { // --require=./hook.js
				arg = value
			}
			path := arg
			if !filepath.IsAbs(path) {
				path = filepath.Join(begins[0], path)
			}
			if i > 0 && upstream.IsCode(path) || i == 0 && strings.ContainsRune(arg, filepath.Separator) {
				all = append(all, path)
			}
		}
	}
	return all
}

// holdsHome tells whether a folder is the user's home or holds it, after links.
func holdsHome(folder string) bool {
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	real := func(path string) string {
		if found, err := filepath.EvalSymlinks(path); err == nil {
			return found
		}
		return filepath.Clean(path)
	}
	rel, err := filepath.Rel(real(folder), real(home))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// startsIn are the folders at which a relative path of a server's may begin: where it starts, and those that its command names, since a server may take paths
// from the folders that it was given. None for one that runs elsewhere.
func (c *Config) startsIn(server string) []string {
	u, ok := c.Upstreams[server]
	if !ok || len(u.Command) == 0 {
		return nil
	}
	at := c.path(u.Cwd)
	if at == "" {
		at = c.Dir
	}
	folder, err := filepath.Abs(at)
	if err != nil {
		return nil // nothing is said of its files then
	}
	all := []string{folder}
	for _, arg := range u.Command[1:] {
		if name, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(name, "-") {
			arg = value
		}
		if rest, ok := strings.CutPrefix(arg, "~/"); ok {
			if home, err := os.UserHomeDir(); err == nil {
				arg = filepath.Join(home, rest)
			}
		}
		if !filepath.IsAbs(arg) {
			arg = filepath.Join(folder, arg)
		}
		if st, err := os.Stat(arg); err == nil && st.IsDir() && !slices.Contains(all, arg) {
			all = append(all, arg)
		}
	}
	return all
}

func (c *Config) checkUpstreams(p *complaints) {
	for _, id := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u, field := c.Upstreams[id], "upstreams."+id
		switch {
		case identity.CheckID(id) != nil || strings.Contains(id, "."):
			p.bad(field, "use letters, digits, - and _", "%q can't be a server's id", id)
		case id == "comm" || id == "knowledge" || id == catalogue.ModelServer || id == "sallyport" || id == agent.TrialServer:
			p.bad(field, "choose another id", "%q is reserved for the gateway's own operations", id)
		}
		if (len(u.Command) == 0) == (u.URL == "") {
			p.bad(field, "give one of command and url", "a server has either a command or a url")
		}
		if u.URL != "" && u.Cwd != "" {
			p.bad(field+".cwd", "remove it", "a server that is reached by a url is not started by the gateway")
		}
		if u.URL != "" && !strings.HasPrefix(u.URL, "http://") && !strings.HasPrefix(u.URL, "https://") {
			p.bad(field+".url", "use http:// or https://", "it is not a web address") // it may hold a password
		}
		for _, f := range u.ClientFeatures {
			p.oneOf(field+".client_features", f, "elicitation", "sampling", "roots")
		}
		u.checkConfinement(p, field)
		p.oneOf(field+".labels", u.Labels, labelsOfCatalogue)
		c.lookUp(p, id)
		p.oneOf(field+".first_sight", u.FirstSight, "ask", "trust")
		c.checkFallback(p, id)
	}
}

// checkFallback follows a server's fallbacks to their end.
func (c *Config) checkFallback(p *complaints, id string) {
	field, met := "upstreams."+id+".fallback", []string{id}
	for next := c.Upstreams[id].Fallback; next != ""; next = c.Upstreams[next].Fallback {
		switch _, known := c.Upstreams[next]; {
		case !known && len(met) == 1:
			p.bad(field, "name one of upstreams, or leave it out", "no server is called %q", next)
			return
		case next == id:
			p.bad(field, "leave one of them out", "the fallbacks go round in a circle: %s", strings.Join(append(met, id), ", "))
			return
		case slices.Contains(met, next): // the circle is another server's
			return
		}
		met = append(met, next)
	}
}

// fallbacks are the servers that take the calls of one that failed.
func (c *Config) fallbacks() map[string]string {
	all := map[string]string{}
	for id, u := range c.Upstreams {
		if u.Fallback != "" {
			all[id] = u.Fallback
		}
	}
	return all
}

func (c *Config) checkOperations(p *complaints) {
	labels, err := c.labels()
	if err != nil {
		p.bad("flow.labels", "use lower-case words", "%v", err)
	}
	exposed := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(c.Operations)) {
		field := "operations." + id
		server, tool, ok := strings.Cut(id, ".")
		if !ok || server == "" || tool == "" || strings.Contains(tool, "*") && tool != "*" {
			p.bad(field, "write <server>.<tool> or <server>.*", "%q is not an operation", id)
			continue
		}
		c.checkOperation(p, server, tool, labels)
		checkExposed(p, id, tool, c.Operations[id].ExposeAs, exposed)
	}
}

// checkKept checks what is said of data that stays with the server.
func (o *OperationConfig) checkKept(p *complaints, server, field string, roles map[string]string) {
	for _, arg := range o.MayOmit {
		if role := roles[arg]; role != string(provenance.Destination) && role != string(provenance.URL) {
			p.bad(field+".may_omit", "name arguments that have the role destination or url under args", "%.80q has neither role", arg)
		}
	}
	if o.Stores != nil && server == "comm" {
		p.bad(field+".stores", "remove it", "comm.* operations keep files in the workspace of their session alone")
	}
}

func (c *Config) checkOperation(p *complaints, server, tool string, labels []flow.Label) {
	id := server + "." + tool
	o, field := c.Operations[id], "operations."+id
	if _, known := c.Upstreams[server]; !known && server != "comm" && server != "knowledge" {
		p.bad(field, "add it to upstreams or remove the entry", "there is no upstream %q", server)
	}
	if server == "comm" && tool != "*" && !slices.Contains(comm.Names, tool) { // a misspelt word would be no word
		p.bad(field, "use one of comm."+strings.Join(comm.Names, ", comm."), "there is no built-in operation %q", id)
	}
	if server == "knowledge" && tool != "*" && !slices.Contains(knowledge.Operations, id) {
		p.bad(field, "use one of "+strings.Join(knowledge.Operations, ", "), "there is no built-in operation %q", id)
	}
	if server == "knowledge" && o.Output != "" && o.Output != "untrusted" {
		p.bad(field+".output", "mark collections under knowledge.collections", "the text of documents is always fenced")
	}
	if server == "comm" { // what would take a guard away from the built-in operations is no choice
		if o.ExternalIO != nil && !*o.ExternalIO {
			p.bad(field+".external_io", "remove it", "comm.* reaches outside, so it never runs in the planning phase")
		}
		if o.Output != "" && o.Output != "untrusted" {
			p.bad(field+".output", "remove it", "what comm.* brings is from outside and always untrusted")
		}
	}
	p.oneOf(field+".sensitivity", o.Sensitivity, "internal_source", "external", "both", "none")
	p.oneOf(field+".effect", o.Effect, "read", "write")
	p.oneOf(field+".output", o.Output, "trusted", "untrusted", "typed", "echo")
	p.oneOf(field+".declare", o.Declare, "required")
	p.oneOf(field+".screen", o.Screen, string(judge.ScreenObserve))
	p.oneOf(field+".risk", o.Risk, "LOW", "MEDIUM", "HIGH", "CRITICAL")
	p.oneOf(field+".approvals.role", o.Approvals.Role, string(identity.Admin))
	for _, arg := range slices.Sorted(maps.Keys(o.Args)) {
		if word := o.Args[arg]; arg == "" {
			p.bad(field+".args", "name the argument, or the path into it", "an argument has no name")
		} else if word == "text" {
			p.bad(field+".args."+arg, "use content", "text is no role")
		} else if _, err := provenance.ParseRole(word); err != nil {
			p.bad(field+".args."+arg, "use one of "+strings.Join(roles, ", "), "unknown word %q", word)
		}
	}
	_, roles, _ := c.judged(server, tool)
	for _, arg := range slices.Sorted(maps.Keys(o.Code)) {
		at, rule := field+".code."+arg, o.Code[arg]
		if roles[arg] != string(provenance.Code) {
			p.bad(at, "write args: {"+arg+": code}, too", "the argument does not have the role code")
		}
		if server == "comm" {
			p.bad(at, "remove it", "comm.* operations have rules of their own")
		}
		if (rule.Shape == "") == (rule.Class == "") {
			p.bad(at, "write class: select, or shape: and a regular expression", "give a shape or a class, and not both")
		}
		p.oneOf(at+".class", rule.Class, reading.ClassSelect)
		if _, err := reading.Shape(rule.Shape); err != nil {
			p.bad(at+".shape", "use RE2 syntax", "%v", err)
		}
	}
	if slices.Contains(o.Invisible, "") {
		p.bad(field+".allow_invisible", "name the argument, or the path into it", "an argument has no name")
	}
	for name, list := range map[string][]string{"trusted_fields": o.TrustedFields, "names": o.Names, "delegable": o.Delegable} {
		if slices.Contains(list, "") {
			p.bad(field+"."+name, "name the field, as it stands in the results", "a field has no name")
		}
	}
	o.checkKept(p, server, field, roles)
	p.oneOf(field+".boundary", o.Boundary, "none", "internal", "external", "by_arg")
	if o.Level != nil && (*o.Level < 0 || *o.Level > 2) {
		p.bad(field+".level", "use 0, 1 or 2", "%d is not a level", *o.Level)
	}
	if o.Level != nil && o.Effect != "" && (*o.Level == 0) != (o.Effect == "read") {
		p.bad(field+".level", "leave one of them out", "level %d contradicts effect %s", *o.Level, o.Effect)
	}
	if o.Shape != "" {
		if _, err := regexp.Compile(o.Shape); err != nil {
			p.bad(field+".shape", "use RE2 syntax", "%v", err)
		}
	}
	if o.Output == "typed" && o.Shape == "" && c.Operations[server+".*"].Shape == "" {
		p.bad(field+".shape", "add a regular expression that every string of the result matches", "output: typed needs a shape")
	}
	for name, list := range map[string]*[]string{"emits": o.Emits, "blocked_by": o.BlockedBy} {
		for _, l := range deref(list) {
			if !slices.Contains(labels, flow.Label(l)) && flow.Label(l) != flow.Untrusted {
				p.bad(field+"."+name, "add it to flow.labels", "unknown label %q", l)
			}
		}
	}
}

// checkExposed checks that exposed names are unique and that clients can show them. exposed maps the names so far to their operations.
func checkExposed(p *complaints, id, tool, name string, exposed map[string]string) {
	field := "operations." + id + ".expose_as"
	if name == "" {
		return
	}
	if plain := strings.ReplaceAll(name, "{tool}", "x"); !exposable.MatchString(plain) {
		p.bad(field, "use letters, digits, _ and -, at most 64", "%q can't be a tool's name", name)
	}
	if strings.HasPrefix(strings.ToLower(name), "sallyport_") {
		p.bad(field, "choose another name", "names that begin with sallyport_ are the gateway's own")
	}
	if other, taken := exposed[name]; taken && !strings.Contains(name, "{tool}") {
		p.bad(field, "choose another name", "%s has the name %q already", other, name)
	}
	if tool == "*" && !strings.Contains(name, "{tool}") {
		p.bad(field, "use {tool} in it, or name the tool", "all tools of the server would have the name %q", name)
	}
	exposed[name] = id
}

func (c *Config) checkLimits(p *complaints) {
	if m := c.Limits.Memory; m != 0 && m < memory.Least {
		p.bad("limits.memory", fmt.Sprintf("Write %dMiB or more, or leave it out for a share of the machine's.", memory.Least>>20), "%dMiB is less than the gateway and one large request need", m>>20)
	}
	for field, n := range map[string]int{
		"limits.calls_per_minute": c.Limits.CallsPerMinute, "limits.comm_requests_per_minute": c.Limits.CommRequestsPerMinute,
		"comm.exec.memory_mib": c.Comm.Exec.MemoryMiB, "comm.exec.processes": c.Comm.Exec.Processes, "comm.exec.output_kib": c.Comm.Exec.OutputKiB,
	} {
		if n < 0 {
			p.bad(field, "leave it out for the default", "can't be negative")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.TrustTiers)) {
		t, field := c.TrustTiers[id], "trust_tiers."+id
		if policy.Risk(t.AskFrom) == policy.Critical {
			p.bad(field+".ask_from", "leave it out, or ask about more: LOW or MEDIUM", "people always decide on what is HIGH, whatever the agent's tier")
		} else {
			p.oneOf(field+".ask_from", t.AskFrom, "LOW", "MEDIUM", "HIGH")
		}
		p.oneOf(field+".plan_approval", t.PlanApproval, "rule", "person")
		if t.CommRequestsPerMinute < 0 || t.CallsPerMinute < 0 {
			p.bad(field, "leave it out for the limit of everybody", "a limit can't be negative")
		}
	}
}

// roles of arguments, in the words of provenance.ParseRole.
var roles = []string{
	"destination", "url", "amount", "credential", "identity", "selector", "target", "path", "repository", "table", "code", "time", "name", "content", "query", "flag", "currency",
}

// checkApprovals finds the problems of the sections on approvals, notices and the console.
func (c *Config) checkApprovals(p *complaints) {
	if _, err := c.Approvals.rules(); err != nil {
		p.fault(fault.Of(err).Field, err)
	}
	if r := c.Approvals.Requester; r != "" && r != requesterHigh {
		p.bad("approvals.requester", "write high, or leave it out", "there is no value %q", r)
	}
	if c.Approvals.DrillEvery < 0 {
		p.bad("approvals.drill_every", "leave it out for no drills", "can't be negative")
	}
	if c.Approvals.MediumDelay >= c.Approvals.Expires {
		p.bad("approvals.medium_delay", "make it shorter than approvals.expires", "a call of risk MEDIUM would expire before it may run")
	}
	for i, n := range c.Notify {
		for _, f := range n.Check() {
			p.fault(fmt.Sprintf("notify[%d].%s", i, f.Field), f)
		}
		if secret := fmt.Sprintf("notify[%d].secret", i); n.Secret == "" && isThere(p.root, secret) { // most likely an environment variable without a value
			p.bad(secret, "give it a value, or leave it out for messages that are not signed", "it is empty")
		}
	}
	if u, err := url.Parse(c.Console.PublicURL); c.Console.PublicURL != "" &&
		(err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.Trim(u.Path, "/") != "") {
		p.bad("console.public_url", "write it as https://sallyport.example", "it is not the address of a server") // it may hold a password
	}
	if o := c.Console.OIDC; o != nil {
		for field, v := range map[string]string{"issuer": o.Issuer, "client_id": o.ClientID} {
			if v == "" {
				p.bad("console.oidc."+field, "write what the provider says", "it is missing")
			}
		}
	}
}

var exposable = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func deref[T any](p *[]T) []T {
	if p == nil {
		return nil
	}
	return *p
}

func (c *Config) labels() ([]flow.Label, error) {
	var all []flow.Label
	for _, word := range c.Flow.Labels {
		l, err := flow.ParseLabel(word)
		if err != nil {
			return nil, err
		}
		if l == flow.Untrusted {
			return nil, errors.New("untrusted is the integrity label: it is always there and not listed")
		}
		if l == flow.Unasked {
			return nil, errors.New("unasked is the gateway's own mark of data that nobody asked for: it is always there and not listed")
		}
		if l == flow.Flagged {
			return nil, errors.New("flagged is the gateway's own mark of sessions that read words which order an agent about: it is always there and not listed")
		}
		all = append(all, l)
	}
	return all, nil
}

// whereIs finds the line of a dotted field, or of the longest part of it that is there.
func whereIs(n *yaml.Node, field string) (line, column int) {
	line, column, _ = lookForField(n, field)
	return line, column
}

// isThere tells whether a dotted field is written in the file.
func isThere(n *yaml.Node, field string) bool {
	_, _, whole := lookForField(n, field)
	return whole
}

// lookForField finds the place of the longest part of a dotted field, and whether that is the whole of it.
func lookForField(n *yaml.Node, field string) (line, column int, whole bool) {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for field != "" && (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) {
		if n.Kind == yaml.SequenceNode {
			index, rest, ok := strings.Cut(strings.TrimPrefix(field, "["), "]")
			i, err := strconv.Atoi(index)
			if !ok || err != nil || i < 0 || i >= len(n.Content) {
				break
			}
			n, field = n.Content[i], strings.TrimPrefix(rest, ".")
			line, column = n.Line, n.Column
			continue
		}
		found := false
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			rest, ok := strings.CutPrefix(field, key)
			if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				line, column = n.Content[i].Line, n.Content[i].Column
				n, field, found = n.Content[i+1], strings.TrimPrefix(rest, "."), true
				break
			}
		}
		if !found {
			break
		}
	}
	return line, column, field == ""
}

// identityProblems finds identities that do not belong to one person, because data may go to a person's own identity without a question.
func (c *Config) identityProblems(file string) []Problem {
	var all []Problem
	of := map[string]string{} // identity in lower case -> id of its person
	for i, p := range c.People.List {
		field := c.People.field(i) + ".identities"
		for _, identity := range p.Identities {
			if strings.ContainsAny(identity, "*?") || strings.HasPrefix(identity, "@") || strings.TrimSpace(identity) == "" {
				all = append(all, c.problem(file, field, agent.P1, "write each address and account of the person in full", "%.80q looks like a pattern: an identity is one address or account, and nothing else is the person's", identity))
			}
			word := strings.ToLower(identity)
			if kind, _, ok := strings.Cut(word, ":"); ok && (kind == "agent" || kind == "host") {
				continue // may act for several people
			}
			if other, taken := of[word]; taken && other != p.ID {
				all = append(all, c.problem(file, field, agent.P1, "leave it with the one whose it is", "%.80q is an identity of %s as well: it identifies neither of them, and agents of both may send there without a question", identity, other))
			}
			of[word] = p.ID
		}
	}
	return all
}

// Warnings names the settings that this version ignores.
func (c *Config) Warnings(file string) []Problem {
	var all []Problem
	all = append(all, c.modelWarnings(file)...)
	if c.observes() {
		all = append(all, c.problem(file, "mode", "P1", "write mode: enforce once the labels fit; docs/operations.md, \"Observe, then enforce\"", "the gateway only observes: "+observing))
	}
	if c.People.confirms() && c.Console.PublicURL != "" && c.Console.OIDC == nil {
		all = append(all, c.problem(file, peopleConfirm, "P1", "add console.oidc, or make the links on the gateway's machine with sallyport token link",
			"a token alone signs nobody in to the console, so who reaches it at console.public_url has no way in of their own"))
	}
	for i, n := range c.Notify {
		if n.Kind == "webhook" && n.Secret == "" {
			all = append(all, c.problem(file, fmt.Sprintf("notify[%d]", i), agent.P2, "write a random secret of at least 16 bytes as ${NAME}, and give it to the receiver", "its messages are not signed: the receiver can't tell them from anybody else's"))
		}
	}
	for id, u := range c.Upstreams {
		if u.Sandbox == "none" {
			all = append(all, c.problem(file, "upstreams."+id+".sandbox", "P1", "remove it and run sallyport doctor, which starts the server in the sandbox partial and says what it misses; paths lets more in",
				"the server can read the gateway's keys and tokens, and act as any person"))
		}
	}
	for id, o := range c.Operations {
		field := "operations." + id
		if o.Action != "" && !policy.KnownAction(o.Action) {
			all = append(all, Problem{File: file, Field: field + ".action", Severity: "P2", Problem: fmt.Sprintf("the risk rules know no action %q, so its calls are LOW unless something else raises them", o.Action),
				Remedy: "check the word, or say risk: as well"})
		}
		server, tool, _ := strings.Cut(id, ".")
		if o.Approvals.Role != "" && c.said(server, tool).Risk == string(policy.Critical) && len(c.admins()) < 2 {
			all = append(all, c.problem(file, field+".approvals.role", agent.P1, "give a second person the role admin, under people", "two people with the role admin have to approve each call, and %s alone has it", sentence.Names(c.admins())))
		}
		action, args, _ := c.judged(server, tool) // calls that delete rarely say how much; a person decides about each
		if policy.NeedsAmount(action) && action != "delete_data" && !slices.Contains(slices.Collect(maps.Values(args)), "amount") {
			all = append(all, Problem{File: file, Field: field + ".args", Severity: "P1", Problem: "no argument has the role amount, so a call is CRITICAL only where a name tells that an argument is one",
				Remedy: "name the argument that holds the amount: args: {amount: amount}"})
		}
	}
	slices.SortFunc(all, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return all
}

// judged returns what the risk of an operation's calls depends on: its action, the roles of its arguments and its least risk.
func (c *Config) judged(server, tool string) (action string, roles map[string]string, floor policy.Risk) {
	o := c.said(server, tool)
	return o.Action, o.Args, policy.Risk(o.Risk)
}

// Classifier returns the class of any operation: its own entry, then its server's, then, where the server has labels from the catalogue, those for
// the definition that is recorded there, then, of a built-in one, what it is by itself, then the defaults, field by field.
func (c *Config) Classifier(builtin []catalogue.Command) func(server, tool string) catalogue.Classification {
	return func(server, tool string) catalogue.Classification {
		_, named := c.Operations[server+"."+tool]
		_, covered := c.Operations[server+".*"]
		own := c.Operations[server+"."+tool].over(c.Operations[server+".*"])
		if i := slices.IndexFunc(builtin, func(b catalogue.Command) bool { return b.ID() == server+"."+tool }); i >= 0 {
			b := &builtin[i]
			own = own.over(OperationConfig{Sensitivity: string(b.Sensitivity), Level: &b.Level, Invisible: b.AllowInvisible})
		}
		class := c.class(server, own)
		if server == catalogue.KnowledgeServer {
			class.Facts.TrustedFields = c.trustedFields()
			class.Facts.Names = class.Facts.TrustedFields // by any of them, the person can mean a record
		}
		class.Listed, class.Named = named || covered, named
		if definitions := c.known[server].labelled(tool); len(definitions) > 0 {
			otherwise := class
			class = c.class(server, own.over(c.known[server].operations[tool]))
			class.Listed, class.Named, class.TrustFirstSight = true, true, true // who wrote the label has read the definition
			class.Definitions, class.Otherwise = definitions, &otherwise
		}
		return class
	}
}

// class is the class of an operation of a server, of which this is said.
func (c *Config) class(server string, o OperationConfig) catalogue.Classification {
	class := catalogue.Classification{
		ExternalIO: o.ExternalIO == nil || *o.ExternalIO, Level: 2,
		ExposeAs: o.ExposeAs, Description: o.Description,
		Output:  provenance.Output(cmp.Or(o.Output, string(provenance.UntrustedOutput))),
		Timeout: time.Duration(cmp.Or(c.Upstreams[server].Timeout, c.Limits.NetworkTimeout)),
		Action:  o.Action, Roles: o.Args, RiskFloor: policy.Risk(o.Risk), AdminAnswers: o.Approvals.Role != "", Code: o.rules(),
		Forgets:         o.Stores != nil && !*o.Stores,
		TrustFirstSight: c.Upstreams[server].FirstSight == "trust",
		NeedsReasons:    server != "comm" && server != "knowledge" && o.Declare == "required",
		AllowInvisible:  o.Invisible,
		ScreenNotes:     o.Screen == string(judge.ScreenObserve),
		Project:         c.project, StartsIn: c.startsIn(server),
		Facts: catalogue.Facts{
			TrustedFields: o.TrustedFields, Names: o.Names, Delegable: o.Delegable, MayOmit: o.MayOmit,
			IDKind: o.IDKind, Boundary: provenance.Boundary(cmp.Or(o.Boundary, string(provenance.BoundaryExternal))), EgressURL: o.EgressURL,
		},
	}
	if o.Shape != "" {
		class.Shape = regexp.MustCompile(o.Shape) // check compiled it
	}
	class.Unclassified = server != "comm" && server != "knowledge" && class.Action == "" && class.RiskFloor == "" && (o.Level == nil || *o.Level == 0)
	effect := o.Effect
	switch {
	case o.Level != nil:
		class.Level = *o.Level
		if effect = "write"; class.Level == 0 {
			effect = "read"
		}
	case effect == "read":
		class.Level = 0
	}
	class.Flow = flow.Spec{
		Sensitivity: flow.Sensitivity(cmp.Or(o.Sensitivity, string(flow.External))),
		Effect:      flow.Effect(cmp.Or(effect, string(flow.Write))),
		Untrusted:   class.Output == provenance.UntrustedOutput || class.Output == provenance.EchoOutput,
		Emits:       labelList(o.Emits), BlockedBy: labelList(o.BlockedBy),
	}
	return class
}

// rules returns the rules for arguments that hold code.
func (o OperationConfig) rules() map[string]reading.Rule {
	rules := map[string]reading.Rule{}
	for arg, code := range o.Code {
		rule := reading.Rule{Class: code.Class}
		if code.Shape != "" {
			rule.Shape, _ = reading.Shape(code.Shape) // check compiled it; without a rule the argument's code is no read
		}
		rules[arg] = rule
	}
	return rules
}

// parses reports whether statements have to be parsed, because the parser takes a while to start.
func (c *Config) parses() bool {
	all := slices.Collect(maps.Values(c.Operations))
	for _, k := range c.known {
		all = slices.AppendSeq(all, maps.Values(k.operations))
	}
	for _, o := range all {
		for _, code := range o.Code {
			if code.Class != "" {
				return true
			}
		}
	}
	return false
}

// given returns the operation's own list if it has one, even an empty one, else its server's.
func given(own, base []string) []string {
	if own == nil {
		own = base
	}
	return own
}

// IdentitiesOf returns a person's own addresses and accounts, by the person's id or by an identity that no other person has.
func (c *Config) IdentitiesOf(person string) []string {
	if person == "" {
		return nil
	}
	var of []PersonConfig
	for _, p := range c.People.List {
		if p.ID == person {
			return p.Identities
		}
		if slices.ContainsFunc(p.Identities, func(i string) bool { return strings.EqualFold(i, person) }) {
			of = append(of, p)
		}
	}
	if len(of) != 1 {
		return nil
	}
	return of[0].Identities
}

func labelList(words *[]string) *[]flow.Label {
	if words == nil {
		return nil
	}
	labels := []flow.Label{}
	for _, l := range *words {
		labels = append(labels, flow.Label(l))
	}
	return &labels
}
