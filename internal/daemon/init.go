package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"sallyport.example/internal/agent"
)

// Init writes what an installation starts from into dir: a commented sallyport.yaml, its JSON Schema for editors, and an example
// declaration. It returns the files that it made. It overwrites nothing: if one of them is there, it says which and writes none.
func Init(dir string) (written []string, err error) {
	schema, err := ConfigSchema()
	if err != nil {
		return nil, err
	}
	return writeNew(dir, []newFile{
		{"sallyport.yaml", []byte(exampleConfig), 0o644},
		{"sallyport.schema.json", schema, 0o644},
		{filepath.Join("agents", "research-assistant.yaml"), []byte(agent.Example()), 0o644},
	})
}

// newFile is a file of a new installation.
type newFile struct {
	name    string
	content []byte
	mode    fs.FileMode
}

// writeNew writes files that are not there yet: if one of them is, it says which and writes none.
func writeNew(dir string, files []newFile) (written []string, err error) {
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if _, err := os.Lstat(path); err == nil {
			return nil, &ConfigError{[]Problem{{File: path, Severity: "error", Problem: "it is there already, and nothing is overwritten",
				Remedy: "move it away, or choose another folder: sallyport init DIR"}}}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return written, err
		}
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode) // never through a file that appeared meanwhile
		if err != nil {
			return written, err
		}
		_, err = out.Write(f.content)
		if err = errors.Join(err, out.Close()); err != nil {
			return written, fmt.Errorf("%s: %w", path, err)
		}
		written = append(written, path)
	}
	return written, nil
}

// ConfigSchema is the JSON Schema of Config, made of its field comments. It is for editors; ParseConfig, which sees the file as a
// whole, decides.
func ConfigSchema() ([]byte, error) {
	duration := &jsonschema.Schema{Type: "string", Pattern: `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$|\$\{`, Examples: []any{"20s", "5m"}}
	people, err := peopleSchema()
	if err != nil {
		return nil, fmt.Errorf("people have no schema: %w", err)
	}
	size := &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+[MG]iB$|\$\{`, Examples: []any{"512MiB", "2GiB"}}
	s, err := jsonschema.For[Config](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Duration](): duration, reflect.TypeFor[Bytes](): size, reflect.TypeFor[Egress](): egressSchema, reflect.TypeFor[PeopleConfig](): people,
	}})
	if err != nil {
		return nil, fmt.Errorf("the configuration has no schema: %w", err)
	}
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "Sallyport configuration"
	for _, field := range closedValues {
		p := s
		for step := range strings.SplitSeq(field.path, ".") {
			switch step {
			case "*":
				p = p.AdditionalProperties
			case "[]":
				p = p.Items
			default:
				p = p.Properties[step]
			}
			if p == nil {
				return nil, fmt.Errorf("the configuration has no field %s", field.path)
			}
		}
		p.AnyOf = wordsOrReference(field.words...)
	}
	b, err := json.MarshalIndent(s, "", "  ")
	return append(b, '\n'), err
}

// wordsOrReference is one of the words, or what the environment says.
func wordsOrReference(words ...any) []*jsonschema.Schema {
	return []*jsonschema.Schema{{Enum: words}, {Pattern: `\$\{`}}
}

// closedValues are the fields that take one of a few values. In a path "*" stands for any key and "[]" for any element.
var closedValues = []struct {
	path  string
	words []any
}{
	{"store", []any{"sqlite"}},
	{"mode", []any{"enforce", "observe", oldObserve}},
	{"unlisted_operations", []any{"deny", "ask", "ask_once"}},
	{"threat.input", []any{"ask", "deny", "observe"}},
	{"threat.results", []any{"label", "observe"}},
	{"upstreams.*.sandbox", []any{"full", "partial", "none"}},
	{"upstreams.*.first_sight", []any{"ask", "trust"}},
	{"upstreams.*.labels", []any{labelsOfCatalogue}},
	{"upstreams.*.client_features.[]", []any{"elicitation", "sampling", "roots"}},
	{"operations.*.sensitivity", []any{"internal_source", "external", "both", "none"}},
	{"operations.*.effect", []any{"read", "write"}},
	{"operations.*.output", []any{"trusted", "untrusted", "typed", "echo"}},
	{"operations.*.boundary", []any{"none", "internal", "external", "by_arg"}},
	{"comm.protocols.[]", []any{"https", "http"}},
	{"comm.search.provider", []any{"local", "searxng", "brave", "tavily", "opensearch"}},
	{"trust_tiers.*.ask_from", []any{"LOW", "MEDIUM", "HIGH"}},
	{"trust_tiers.*.plan_approval", []any{"rule", "person"}},
	{"operations.*.declare", []any{"required"}},
	{"operations.*.approvals.role", []any{"admin"}},
	{"operations.*.risk", []any{"LOW", "MEDIUM", "HIGH", "CRITICAL"}},
	{"operations.*.args.*", words(roles)},
	{"notify.[].kind", []any{"webhook", "slack", "teams", "ntfy", "email"}},
	{"notify.[].on.[]", []any{"approval", "alert"}},
}

func words(list []string) (all []any) {
	for _, w := range list {
		all = append(all, w)
	}
	return all
}

const exampleConfig = `# yaml-language-server: $schema=./sallyport.schema.json
#
# Sallyport: one program between an agent and everything that it can touch.
#
#   sallyport lint                                      check this file and the declarations
#   sallyport serve                                     start
#   sallyport tools accept --all                        read what the servers say of their tools, and accept it
#   sallyport token create --agent research-assistant   a credential for the agent of agents/research-assistant.yaml
#
# Every key may be left out: what stands here is the default, and what is commented out is an example. Unknown keys are errors.
# Paths are relative to this file. "${NAME}" in a value is replaced by what sallyport.env beside this file says of NAME (lines NAME=value,
# readable by nobody else), or by the environment variable NAME; one of them must say it then.

# Where agents and hosts connect (/mcp and /v1/session). Loopback only; port 0 picks a free one.
listen: 127.0.0.1:7575

# Where people and the command line connect (console, /v1, kill switch).
admin_listen: 127.0.0.1:7576

# Where state is kept: sqlite, in the data directory (sallyport serve --data DIR).
store: sqlite

# enforce, or observe: questions up to HIGH, and refusals of flow, phase, declaration and unlisted operations, are recorded and not
# enforced. A secret still goes to no sink, and all else holds: docs/operations.md, "Observe, then enforce".
mode: enforce

# Folder of agent declarations, one file for each agent. What none of them declares is refused.
agents: agents

# Folder of *.cedar policies. They can only narrow what declarations grant.
# policies: policies

# Who may act on the people's side: id, the name as shown, roles (viewer, approver, operator, auditor, admin), and identities, the
# person's own addresses and accounts: an agent that works for them may send there. The first start makes a token for admin.
# The longer form, people: {confirm: terminal, list: [...]}, has people confirm at their terminal what they do with a token, other than to stop something.
people:
  - {id: admin, name: Administrator, roles: [admin]}
  # - {id: alice, name: Alice Ng, roles: [approver, operator], identities: [alice@example.com]}

# Hosts that may start runs of agents, with the people whose authority they have for that, and those that may add documents, with the collections.
# hosts:
#   - {id: helpdesk, runs_for: [alice], adds_to: [handbook]}

# The MCP servers behind the gateway, by the id that their operations are known under: a command to start (no shell is involved)
# or a url to reach.
#
# To try it: uncomment this, "upstreams" too, make the folder docs, permit files.* in agents/research-assistant.yaml (permissions: read), and
# uncomment the files entries under operations. Name tools one by one: what you say of files.* you say of those that write, too.
# upstreams:
#   files:
#     command: [npx, -y, "@modelcontextprotocol/server-filesystem@2026.8.31", ./docs]
#     # Folder that the command starts in. Without it: this file's.
#     cwd: .
#     # Environment of the command, besides PATH, HOME, USER, LANG, LC_ALL and TMPDIR.
#     env: {NODE_ENV: production}
#     # The gateway's own labels for the tools of a well-known server. Without it: only what stands under operations.
#     labels: catalogue
#     # How it is confined: full (its folder, and the hosts that egress lists), partial (also what its command and environment name, as
#     # ./docs above) or none (it can do what the gateway can).
#     sandbox: partial
#     # Its own folder, which is its home, too. Without it: one in the data directory.
#     folder: ./servers/files
#     # More files and folders that it may read and write.
#     paths: [./shared]
#     # What it may reach of the network: any (default in partial), none (default in full), or a list of hosts.
#     egress: none
#   crm:
#     url: https://crm.example/mcp
#     # Headers of every request to the server: its own credential belongs here. The agent's token is never forwarded.
#     headers: {Authorization: "Bearer ${CRM_TOKEN}"}
#     # Longest time for one call. Without it: limits.network_timeout.
#     timeout: 20s
#     # What the server may ask of the agent's client while a call runs: elicitation, sampling, roots. Default: nothing.
#     client_features: [elicitation]
#     # Whether an agent may read this server's definitions before a person has: ask (the default) marks the session that lists them
#     # untrusted until "sallyport tools accept --all" has shown them to a person; trust does not.
#     first_sight: ask
#     # Another server, whose tool of the same name gets a call that this one failed before it had it, or that only reads.
#     fallback: crm_replica
#   crm_replica:
#     url: https://crm-replica.example/mcp

# The operator's word on each operation, by <server>.<tool>. <server>.* is a default for a server. What nobody said anything
# about is external, a write and untrusted.
#
# sallyport flow suggest writes entries for what a server offers, for you to read; sallyport lint --data DIR compares them with what
# its tools take and with what happened.
# operations:
#   files.read_text_file: {sensitivity: internal_source, effect: read}
#   files.list_directory: {sensitivity: internal_source, effect: read}
#   crm.search_mail:
#     # Tool name that the agent sees. Default <server>_<tool>, or <tool> where that begins with the server's id; in a <server>.* entry {tool} stands for the server's own name.
#     expose_as: search_mail
#     # Replaces the server's description.
#     description: Searches the mailbox.
#     # internal_source brings confidential data in, external could carry it out; both or none of them.
#     sensitivity: internal_source
#     # read or write, or finer: level 0 reads, 1 writes what only the person sees and can undo, 2 the rest.
#     effect: read
#     level: 0
#     # Labels that a result brings in; labels that refuse the call. Default by sensitivity.
#     emits: [internal]
#     blocked_by: []
#     # false lets it run in the planning phase, because it touches nothing outside.
#     external_io: true
#     # How far results are trusted: trusted, untrusted (the default: text comes fenced), typed (trusted while every string and
#     # number matches shape, as in crm.exchange_rate), echo (repeats what it was given).
#     output: untrusted
#     # Where a result is not trusted: fields that the system sets, whose values count as confirmed; fields by which a person refers to a
#     # record; structured fields that may say who gets something once the person's request names the record; kind of its ids.
#     trusted_fields: [id, date]
#     names: [subject]
#     delegable: [from]
#     id_kind: email
#     # Where what it is given ends up: none (stays with the person), internal, external, or by_arg (leaves where a destination is
#     # given that is not the person's own).
#     boundary: none
#     # Whether calling it makes a request whose address could carry data out.
#     egress_url: false
#     # Role of each argument. After untrusted content, destination, url, amount, credential, identity, selector, target, path,
#     # repository, table and code have to come from the person's request, from the person's own identities or from what can be
#     # trusted, or a person is asked; time and name where there is none of these. content (links in it are looked at), query, flag
#     # and currency are free. An argument without a role has to be confirmed.
#     args: {query: query}
#     # Destinations and urls of an update that a call may leave out, because what is stored stays then.
#     may_omit: []
#     # false for a write that keeps nothing of what it is given: nothing that is read later carries the session's labels because of it.
#     stores: true
#     risk: LOW
#   crm.read_mail: {sensitivity: internal_source, effect: read, id_kind: email, args: {email_id: selector}}
#   # A read whose argument holds code (role code) counts as a write, unless "code" says what the argument may hold: class: select,
#   # or a shape.
#   crm.report:
#     sensitivity: internal_source
#     effect: read
#     args: {sql: code, view: code}
#     code: {sql: {class: select}, view: {shape: "(open|closed) deals"}}
#   crm.exchange_rate:
#     sensitivity: none
#     effect: read
#     # Begin a shape with ^ and end it with $, and leave no room for a sentence or an address: a value of this shape counts as confirmed.
#     output: typed
#     shape: "^([A-Z]{3}|[0-9.]{1,12})$"
#     # What screening finds in its arguments and results is only noted (threat, below).
#     screen: observe
#     # Arguments that may have characters in them that show nothing: they are counted in the record, and not refused.
#     allow_invisible: [note]
#   crm.refund:
#     # What it does, by its name in the risk rules: transfer_money, delete_data, grant_access and publish_content are HIGH,
#     # send_email, schedule_meeting and book_appointment MEDIUM. risk says what it is at least.
#     action: transfer_money
#     # Each call has to say why, and the person who is asked sees it.
#     declare: required
#     # A person decides about each call, and only one with the role admin.
#     approvals: {role: admin}
#     args: {account: destination, amount: amount, currency: currency, reason: content}

# What happens to operations that no entry above names: deny, ask, or ask_once (a yes covers further calls of the tool in the session).
unlisted_operations: deny

# Words that order an agent about: what a hit does in the arguments of a call (ask, deny, observe) and in a result (label makes it untrusted, observe).
threat:
  input: ask
  results: label
#   # A model of models that is asked about results in which something was found, or nearly: it can make a hit of one, and lowers none.
#   judge: our-model
#   # A file of rules of your own (docs/screening.md).
#   patterns: patterns.txt

# Labels of confidential data. The integrity label untrusted is always there. free_level_1: writes that only the person sees and can
# undo (level 1) run without a question after untrusted content.
flow:
  labels: [internal, pii, secret]
  # free_level_1: true
  # The folder that agents work in: a write of level 1 to a file outside of it, or to one that is run or read as orders later (a git hook, an agent's
  # instructions, a client's configuration), is one of level 2.
  # project: .

# Limits of one session: calls and external requests (comm.fetch, comm.search, comm.query) in any minute, the longest network and
# file operation, and the time in operations over its life.
limits:
  calls_per_minute: 600
  comm_requests_per_minute: 10
  network_timeout: 30s
  file_timeout: 10s
  execution_budget: 300s
  # Memory of the gateway's process, 192MiB at least. Half of it is for requests; those that find no room wait. Default: an eighth of the machine's.
  # memory: 512MiB

# What the built-in external operations may reach. Agents need permission for them like for any other: comm.fetch, comm.search,
# comm.query, comm.read_file and comm.list_files are reads, comm.write_file and comm.exec are writes.
comm:
  # Where comm.fetch may go: nothing here is every public address. An address or prefix opens a server of your own.
  allowed_domains: []
  protocols: [https]
  # Methods of comm.fetch besides GET and HEAD, which make the call a write.
  methods: []
  # Who answers comm.search: local (what the session has fetched and its files; the default), searxng with a url, brave or tavily with
  # a key, or opensearch with a template and where results, title, link and snippet are in the answer.
  # search: {provider: opensearch, url: "https://search.example/api?q={query}&n={count}", key: "${SEARCH_KEY}", results: items, title: name, link: href, snippet: text}
  # Databases of comm.query. Use a role that can only read.
  # databases: {crm: "postgres://readonly@127.0.0.1/crm", notes: "sqlite:notes.db"}
  # Programs of comm.exec, which run in a sandbox that sees the session's workspace and nothing else (sallyport doctor shows it).
  # A yes to one of them is for the whole workspace as it is then, and of a plain one, which runs nothing, for the files that its arguments name.
  exec: {allow: [], plain: [cat, grep, head, tail, wc, sort], network: false, timeout: 30s, cpu_time: 10s, memory_mib: 512, processes: 64, output_kib: 256}

# How far documents of the knowledge store are trusted: reading those of a trusted collection makes no session untrusted. trusted_fields are columns of its CSV documents whose values confirm arguments.
# embeddings is a model of models that embeds documents and questions, so that search finds what is worded in another way. dimensions is how many numbers each of its embeddings has: others are discarded.
# knowledge:
#   embeddings: our-model
#   dimensions: 1536
#   collections: {handbook: {trusted: false, trusted_fields: []}}

# What claims are checked against: collections with records. A claim is valid from 70 percent of them on, and from min independent ones.
# judge is a model of models that says whether a source confirms a sentence.
# claims: {sources: [knowledge.handbook, knowledge.registry], min: 2, judge: our-model}

# Limits of agents by their declaration's trustTier. Built in: restricted, standard (of agents that name none) and trusted. ask_from
# is the risk from which a person decides on a declared operation; plan_approval: person lets every plan wait for a person.
# trust_tiers:
#   interns: {comm_requests_per_minute: 3, calls_per_minute: 60, execution_budget: 60s, ask_from: LOW}

# How many people have to approve the declaration of an operator agent that may use everything, or operations of risk HIGH or CRITICAL: 1 or 2. All
# other declarations take one. The default is 2 where at least two of the people can answer.
# declarations:
#   approvers: 1
#   trusted: []   # public keys (audit.pub) of other gateways whose signed approvals this one takes over

# Circuit breakers: after so many failures in a row a server, or an agent, is left alone until one call may try. count_reads: errors that a server
# answers reads with count for the agent, too.
# breakers:
#   failures: 5
#   wait: 30s
#   count_reads: false

# Rules that put an agent in quarantine until a person restores it: how many within an hour. Without an entry only breaker_openings counts, at 3.
# quarantine:
#   breaker_openings: 3   # its own circuit breaker opens
#   failed_runs: 10       # runs that fail or time out
#   invalid_outputs: 5    # runs with an invalid output
#   hits_written: 5       # what it writes looks like orders to an agent

# How people are asked. expires: how long a declaration, and a question, is good for. hold: how long a call over MCP is held while a
# person decides. medium_delay: how long a call of risk MEDIUM waits to be stopped. From high_amount on a call is HIGH, from
# critical_amount on one that moves money or deletes data takes two people; both are in currency. rates say what other currencies are
# in it: an amount that can't be read is CRITICAL.
approvals:
  expires: 30m
  hold: 50s
  medium_delay: 10s
  high_amount: 1000
  critical_amount: 10000
  currency: USD
  # requester: high   # people may answer what they asked for themselves, up to HIGH; without it, only where nobody else could
  # One request in so many that no agent made and that should be rejected, to see whether people read what they approve.
  # drill_every: 50
  # rates: {EUR: 1.08, GBP: 1.27}

# Who is told, of requests (approval) and of HIGH and CRITICAL calls, the kill switch and hasty approving (alert).
# notify:
#   - {kind: webhook, url: "https://hooks.example/sallyport", secret: "${HOOK_SECRET}", on: [approval, alert]}
#   - {kind: slack, url: "${SLACK_WEBHOOK}"}
#   - {kind: email, smtp: "mail.example:587", from: sallyport@example.com, to: [security@example.com], username: sallyport, password: "${MAIL_PASSWORD}"}

# The web page. public_url is where people reach it through a proxy; with oidc they sign in at an identity provider, and are known by
# the identities under people.
# console:
#   public_url: https://sallyport.example
#   oidc: {issuer: "https://login.example", client_id: sallyport, client_secret: "${OIDC_SECRET}", scopes: [openid, email]}

# The newest signed checkpoint of the log, kept outside the data directory: a directory that was put back is older than it. With require_anchor the
# gateway does not start then. After segment_entries entries the log goes on in a new file, and the one before can be archived.
# audit:
#   search: true # an index of the words in the log, for auditors
#   segment_entries: 1000000
#   anchor: {file: /mnt/elsewhere/sallyport-anchor.json}
#   # anchor: {webhook: "https://anchors.example/sallyport", headers: {Authorization: "Bearer ${ANCHOR_TOKEN}"}}
#   require_anchor: true

# Models that agents reach through the gateway, at /anthropic and /openai of the listener; a declaration names those that its agent may ask. labels says what
# may go to the provider: without it a session that holds such data is refused. Add the provider's key: key: "${ANTHROPIC_API_KEY}".
# models:
#   - {id: claude-sonnet-4-5-20250929, provider: anthropic, labels: [internal, pii]}
#   - id: our-model
#     provider: openai                     # the form of its requests
#     base_url: http://127.0.0.1:8000/v1
#     pinned: true                         # your word that the name stays with one version
#     answers_as: [our-model-2026-10-01]
#     allow: [messages.reasoning_content]  # what requests may contain besides the gateway's lists
#     secrets: refuse
#     timeout: 2m
#     price: {input: 3, output: 15}
`
