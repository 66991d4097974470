package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/models/wire"
	"sallyport.example/provenance"
)

// CommServer is the server id of the built-in external operations; no upstream can have it (PH-4).
const CommServer = "comm"

// KnowledgeServer is the server id of the operations on the knowledge store, which are built in, too, and reach nothing outside.
const KnowledgeServer = "knowledge"

// Command is a built-in operation: an external one (comm.*) or one on the knowledge store; all have this one form (EX-1). It describes its parameters and does the work. It guards
// nothing: only the corridor runs it, and phase, declaration, permission, limits, flow, audit, attribution and fence are the corridor's, as for
// every other operation. Its results are raw.
type Command struct {
	Server      string          // "": CommServer
	Name        string          // "fetch": the operation comm.fetch
	ExposeAs    string          // the tool's name; "": server and name
	Description string          // for the model: what it does and when to use it
	Parameters  json.RawMessage // JSON Schema: the properties of the parameters' object, each with a description

	Sensitivity flow.Sensitivity
	Effect      flow.Effect
	Level       int           // 0 reads, 1 a write that only the person sees and can undo, 2 the rest
	Timeout     time.Duration // of one run, at which partial results are discarded (EX-6)
	From        string        // what the sources of its results begin with; "": a source does not tell that it brought the text
	Missing     string        // what it lacks, so that no call of it can work here; it is not listed, and a call of it says so. "": nothing
	Own         bool          // its answer is the gateway's own text, with nothing from outside
	Inside      bool          // it reaches nothing outside the gateway, so it runs in planning and needs no reasons
	Requests    bool          // it makes requests to the outside, which count against the limit of a minute (EX-5)

	// AllowInvisible are the parameters in which characters that show nothing are marked and not refused, as no rule reads them.
	AllowInvisible []string
	// Places maps each parameter that says where it reads to path, repository or table. A permission may have a root for it.
	Places map[string]string
	// Check refuses wrong parameters, which are canonical, before anything is done with them. Its errors name the field.
	Check func(parameters json.RawMessage) error
	// Writes tells whether these parameters make it a write although it reads otherwise; nil: never.
	Writes func(parameters json.RawMessage) bool
	// Of is the operation whose stored results these parameters ask for, or "". It must be permitted too, and its labels come along: stored
	// data carries them to whoever reads it (docs/design.md, rule 3).
	Of func(parameters json.RawMessage) string
	// Inputs describes what a run with these parameters would read of the session's workspace, as it is now; nil: nothing. It has no effect.
	Inputs func(ctx context.Context, session string, parameters json.RawMessage) (*call.Inputs, error)
	// Run does the work. ctx bounds it, and its errors are fault errors. After a *fault.NotDispatched it had no effect.
	Run func(ctx context.Context, r CommandRun) (Brought, error)
}

// CommandRun is one permitted run.
type CommandRun struct {
	Session    string
	Parameters json.RawMessage // canonical, checked
	// Inputs are those that a person was shown: where they are others by now, nothing is run. nil: nobody was asked.
	Inputs *call.Inputs
	// Agent is who calls, and Collections and Labels what its declaration lets it read of the knowledge store.
	Agent               string
	Collections, Labels []string
	// Ask asks a model as the session that calls does: through the corridor, under the agent's declaration. What people would have to be asked about is refused.
	Ask func(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error)
}

// Brought is the raw result of a run.
type Brought struct {
	Source string    // for the attribution: the final URL, the database, the path
	At     time.Time // when a cached page was fetched; zero: now
	Blocks []Block   // in order
	Failed bool      // it did not work, and the blocks say why: a database's error is a result like others

	Labels []string        // labels of what was read, which the session gets
	Clean  bool            // all of it is from where the operator trusts it: it makes no session untrusted
	Record json.RawMessage // members for the detail of the outcome's entry: an object; nil: none
	Sealed bool            // the log has neither the result nor a hash of it: what was read stands in Record
	// Confirms are, of a sealed result, the records in the result that the operator trusts: a list of objects with trusted fields alone; nil: none.
	Confirms json.RawMessage
}

// ID is the id of the operation.
func (c *Command) ID() string { return c.server() + "." + c.Name }

func (c *Command) server() string {
	if c.Server == "" {
		return CommServer
	}
	return c.Server
}

// Block is a text, or data of a media type.
type Block struct {
	Text      string
	Data      []byte // an image or a PDF, with MediaType; Text is empty then
	MediaType string
}

// justificationSchema and declarationSchema describe what a call that says why it is needed takes besides its parameters. They stand in the
// definition of each such tool, so they are short; the system prompt, sallyport_declare and a refusal say what the three fields are.
const (
	justificationSchema = `{"type":"object"}`
	declarationSchema   = `{"type":"string","description":"In place of justification: from sallyport_declare."}`
)

// definition is the command as a tool. Its schema requires nothing, because a declaration's id can stand for everything; and it is open, so that what
// is rarely needed, as that id, need not stand in it.
func (c *Command) definition() (call.Definition, error) {
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(c.Parameters, &properties); err != nil {
		return call.Definition{}, fmt.Errorf("the parameters of %s: %w", c.ID(), err)
	}
	if !c.Inside {
		properties["justification"] = json.RawMessage(justificationSchema)
	}
	raw, err := json.Marshal(map[string]any{
		"name": c.Name, "description": c.Description,
		"inputSchema": map[string]any{"type": "object", "properties": properties},
	})
	if err != nil {
		return call.Definition{}, err
	}
	canonical, err := call.Canonical(raw, call.DefaultLimits())
	if err != nil {
		return call.Definition{}, fmt.Errorf("the definition of %s: %w", c.ID(), err)
	}
	return call.Definition{Server: c.server(), Name: c.Name, Kind: call.Tool, JSON: canonical, Hash: call.HashBytes(canonical)}, nil
}

// builtins makes operations of the commands. They are part of the program, so they need no pins.
func (c *Catalogue) builtins(s *Snapshot) {
	for i := range c.o.Commands {
		command, d := &c.o.Commands[i], c.commands[i]
		class := c.o.Classify(command.server(), command.Name)
		// The configuration can't take a guard away, and a command needs no entry to be listed.
		class.Listed, class.Named, class.ExternalIO, class.Output, class.Timeout = true, true, !command.Inside, provenance.UntrustedOutput, command.Timeout
		if class.ExposeAs == "" {
			class.ExposeAs = command.ExposeAs
		}
		class.Flow.Untrusted = !command.Own && !command.Inside // of the knowledge store, each result says it of itself
		if class.Level = max(class.Level, command.Level); command.Effect == flow.Write {
			class.Flow.Effect = flow.Write
		}
		op := c.classified(class, command.server(), command.Name, call.Tool)
		op.Command, op.Hash = command, d.Hash
		if op.Standing == Active {
			def, err := exposedTool(op, d.JSON)
			if err != nil {
				op.Standing, op.Fault = Unfit, err.Error()
			}
			op.Definition = def
		}
		s.byID[op.ID] = op
	}
}
