package agent

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"sallyport.example/internal/display"
)

// RunKind is how an agent's runs are carried out.
type RunKind string

const (
	RunHTTP    RunKind = "http"    // the gateway posts the input to an address and reads the answer
	RunCommand RunKind = "command" // the gateway starts a program in the sandbox
	RunModel   RunKind = "model"   // the gateway asks a model itself, and makes the calls that it asks for
)

// Run says how the agent's runs are carried out: by an address, by a program or by a model.
type Run struct {
	Kind    RunKind  `json:"kind"`
	URL     string   `json:"url,omitempty"`     // http
	Secret  string   `json:"secret,omitempty"`  // http: "${NAME}", the environment variable with the key of the signatures
	Command []string `json:"command,omitempty"` // command: the program and its arguments
	Model   string   `json:"model,omitempty"`   // model: one of dataSources.models
	// Files are the hashes of the files that the words of Command name, as Load found them: hex SHA-256, or why there is none. It is no field of the file: a
	// program that changed makes another declaration.
	Files map[string]string `json:"files,omitempty"`
}

// Loopback tells whether the address of a run of kind http is on this machine.
func (r *Run) Loopback() bool {
	u, err := url.Parse(r.URL)
	return err == nil && loopback(u.Hostname())
}

// SecretName is the environment variable that holds the secret; "" if there is none.
func (r *Run) SecretName() string {
	return strings.TrimSuffix(strings.TrimPrefix(r.Secret, "${"), "}")
}

// Action is what a recommended action does: one call. An operation of "" is "none": it is advice, and nothing is called.
type Action struct {
	Operation string                     `json:"operation"`
	Args      map[string]json.RawMessage `json:"args,omitempty"` // by argument: a JSON path into the output as a string that begins with "$.", or a plain value
}

const (
	// maxActions bounds the action map, and the arguments of one action.
	maxActions = 50
	// maxPath bounds a path into the output, in bytes.
	maxPath = 512
)

var (
	variable = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]{0,127}\}$`)
	jsonPath = regexp.MustCompile(`^\$(\.[A-Za-z_][A-Za-z0-9_-]{0,63}|\[(0|[1-9][0-9]{0,2})\])+$`)
)

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// checkRunURL says what is wrong with the address of a run, or "".
func checkRunURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return display.Quote(s, shownMost) + " is not an address like https://advisor.example/run"
	case u.User != nil:
		return "an address may not hold a user or a password: use secret"
	case u.Fragment != "":
		return "an address may not have a fragment"
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return ""
	}
	return display.Quote(s, shownMost) + " must be https, or http on this machine (127.0.0.1, [::1] or localhost)"
}

func checkSecret(s string) string {
	if !variable.MatchString(s) {
		return "must name an environment variable, as in ${ADVISOR_SECRET}: a declaration is read by many, and a secret may not stand in it"
	}
	return ""
}

// runOf reads the field run.
func (r *reader) runOf(at string, n *yaml.Node, d *Declaration) {
	run := &Run{}
	before := len(r.problems)
	r.fields(at, n, []field{
		{"kind", "http, command or model", word(r, &run.Kind, RunHTTP, RunCommand, RunModel)},
		{"url", "", r.checked(&run.URL, checkRunURL)},
		{"secret", "", r.checked(&run.Secret, checkSecret)},
		{"command", "", r.list(&run.Command, anything)},
		{"model", "", r.str(&run.Model)},
	})
	if len(r.problems) > before {
		return
	}
	switch {
	case run.Kind == RunHTTP && run.URL == "":
		r.problem(n, at+".url", "is missing", "a run of kind http needs the address that answers it")
	case run.Kind != RunCommand && run.Command != nil:
		r.problem(n, at+".command", "is for runs of kind command", "remove it, or write kind: command")
	case run.Kind == RunCommand && len(run.Command) == 0:
		r.problem(n, at+".command", "is missing", "a run of kind command needs a program, as in [python3, ./advisor.py]")
	case run.Kind != RunHTTP && (run.URL != "" || run.Secret != ""):
		r.problem(n, at, "url and secret are for runs of kind http", "remove them, or write kind: http")
	case run.Kind == RunModel && run.Model == "":
		r.problem(n, at+".model", "is missing", "a run of kind model needs the model that works, one of dataSources.models")
	case run.Kind != RunModel && run.Model != "":
		r.problem(n, at+".model", "is for runs of kind model", "remove it, or write kind: model")
	case len(run.Command) > 64:
		r.problem(n, at+".command", "has more than 64 words", "")
	default:
		d.Run = run
	}
}

// actions reads the field recommendationActions.
func (r *reader) actions(at string, n *yaml.Node, d *Declaration) {
	if n.Kind != yaml.MappingNode {
		r.problem(n, at, "must be a mapping from actions to operations, not "+kind(n), "as in {ESCALATE: {operation: pager.page, args: {incident: $.incidentId}}, WAIT: none}")
		return
	}
	if len(n.Content)/2 > maxActions {
		r.problem(n, at, fmt.Sprintf("has more than %d actions", maxActions), "")
		return
	}
	all := map[string]Action{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		field := join(at, quoteName(name))
		r.places[field] = value
		if wrong := checkWord(name); wrong != "" {
			r.problem(n.Content[i], field, wrong, "name it as the output does")
			continue
		}
		if _, twice := all[name]; twice {
			r.problem(n.Content[i], field, "appears twice", "keep one")
			continue
		}
		all[name] = r.action(field, value)
	}
	d.RecommendationActions = all
}

func (r *reader) action(at string, n *yaml.Node) (a Action) {
	if n.Kind == yaml.ScalarNode {
		if n.ShortTag() != "!!str" || n.Value != "none" {
			r.problem(n, at, "must be none, or an operation with its arguments", "as in {operation: pager.page, args: {incident: $.incidentId}}")
		}
		return a
	}
	r.fields(at, n, []field{
		{"operation", "the one operation that the action calls, or write none", r.checked(&a.Operation, func(s string) string {
			if strings.HasSuffix(s, "*") {
				return display.Quote(s, shownMost) + " must be one operation"
			}
			return checkPattern(s)
		})},
		{"args", "", func(at string, n *yaml.Node) { a.Args = r.actionArgs(at, n) }},
	})
	return a
}

// actionArgs are the arguments of an action. What begins with $ is a path into the output, and must be a good one.
func (r *reader) actionArgs(at string, n *yaml.Node) map[string]json.RawMessage {
	value, ok := r.json(at, n)
	if !ok {
		return nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		r.problem(n, at, "must be a mapping of arguments, not "+kind(n), "")
		return nil
	}
	if len(object) > maxActions {
		r.problem(n, at, fmt.Sprintf("has more than %d arguments", maxActions), "")
		return nil
	}
	args := map[string]json.RawMessage{}
	for name, v := range object {
		field := join(at, quoteName(name))
		if s, text := v.(string); text && strings.HasPrefix(s, "$") && (len(s) > maxPath || !jsonPath.MatchString(s)) {
			r.problem(n, field, display.Quote(s, shownMost)+" is not a path into the output like $.recommendation.incidentId or $.steps[0].id", "")
			continue
		}
		encoded, err := json.Marshal(v)
		if err != nil {
			r.problem(n, field, "can't be written as JSON", "")
			continue
		}
		args[name] = encoded
	}
	return args
}

// Path is the path into the output that an argument of an action stands for, as its steps: names, and numbers of elements. ok is false for a plain value.
func Path(arg json.RawMessage) (steps []any, ok bool) {
	var s string
	if json.Unmarshal(arg, &s) != nil || !jsonPath.MatchString(s) {
		return nil, false
	}
	rest := s[1:]
	for rest != "" {
		end := strings.IndexAny(rest[1:], ".[") + 1
		if end == 0 {
			end = len(rest)
		}
		part := rest[:end]
		rest = rest[end:]
		if n, err := strconv.Atoi(strings.Trim(part, "[]")); part[0] == '[' && err == nil {
			steps = append(steps, n)
			continue
		}
		steps = append(steps, part[1:])
	}
	return steps, true
}

// lintRun reports what is doubtful about how runs are carried out.
func lintRun(d *Declaration) (all []Problem) {
	if d.Run != nil && d.Run.Kind == RunHTTP && d.Run.Secret == "" && !d.Run.Loopback() {
		all = append(all, Problem{File: d.File, Field: "run.url", Severity: P1, Problem: "nothing signs what goes to the run's address and what comes back: whoever can answer there can answer for the agent",
			Remedy: "set run.secret to an environment variable, as in ${ADVISOR_SECRET}"})
	}
	if d.Run != nil && d.Run.Kind == RunModel && !slices.Contains(d.DataSources.Models, d.Run.Model) {
		all = append(all, Problem{File: d.File, Field: "run.model", Severity: P0, Problem: display.Quote(d.Run.Model, shownMost) + " is not one of the agent's models", Remedy: "add it to dataSources.models, or name one of those"})
	}
	return all
}
