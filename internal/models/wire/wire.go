// Package wire holds the forms in which agents ask models: requests and answers of Anthropic's messages and of OpenAI's chat completions, responses and embeddings, and the errors
// that their SDKs read.
//
// Promises: it is pure. What a request may contain is a list of what is allowed: fields, kinds of content, types of tools, beta features. Whatever is not
// on the list is refused by its name, so a field that a provider adds tomorrow goes round no inspection. What refers to something that the provider keeps,
// and tools that the provider runs, are refused whatever the operator allows. Sizes are bounded by whoever parsed the JSON.
package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Form is the form of a request and of its answer.
type Form string

const (
	Messages   Form = "anthropic.messages" // POST /v1/messages
	Chat       Form = "openai.chat"        // POST /chat/completions
	Responses  Form = "openai.responses"   // POST /responses
	Embeddings Form = "openai.embeddings"  // POST /embeddings; nobody is talked to
	Count      Form = "anthropic.count"    // POST /v1/messages/count_tokens; nobody answers
)

// Forms are those in which a model is talked to.
var Forms = []Form{Messages, Chat, Responses}

// toAnthropic tells the forms of a conversation in Anthropic's form.
func (f Form) toAnthropic() bool { return f == Messages || f == Count }

// Provider is who speaks a form.
type Provider string

const (
	Anthropic Provider = "anthropic"
	OpenAI    Provider = "openai"
)

// Providers are all of them.
var Providers = []Provider{Anthropic, OpenAI}

// Provider is who speaks the form; "" for a word that is no form.
func (f Form) Provider() Provider {
	switch f {
	case Messages, Count:
		return Anthropic
	case Chat, Responses, Embeddings:
		return OpenAI
	}
	return ""
}

// Path is where a provider takes the form, after its base address.
func (f Form) Path() string {
	switch f {
	case Messages:
		return "/v1/messages"
	case Embeddings:
		return "/embeddings"
	case Responses:
		return "/responses"
	case Count:
		return "/v1/messages/count_tokens"
	}
	return "/chat/completions"
}

// Request is one request, read.
type Request struct {
	Form  Form
	Model string
	Beta  []string // the features of the header anthropic-beta, sorted
	// Version is that of Anthropic's API; "" in another form.
	Version string
	// Stream: the answer is to come in pieces. HideUsage: the client did not ask what a streamed answer used, so it is taken out.
	Stream, HideUsage bool
	// Body is what is sent: the canonical request, with store set to false where the form has it.
	Body json.RawMessage
}

// Packed is a request with its form, as one JSON object: what is judged, hashed and kept. Of a canonical body it is canonical.
func Packed(r Request) (json.RawMessage, error) {
	beta := []any{}
	for _, b := range r.Beta {
		beta = append(beta, b)
	}
	all := map[string]any{"form": string(r.Form), "beta": beta, "request": json.RawMessage("0")}
	if r.HideUsage {
		all["hide_usage"] = true
	}
	if r.Version != "" {
		all["version"] = r.Version
	}
	head, err := call.Encode(all)
	if err == nil {
		head, err = call.Canonical(head, call.DefaultLimits())
	}
	if err != nil {
		return nil, err
	}
	return call.SetSorted(head, "request", r.Body), nil // whole, since reading it again takes longer than all the rest
}

// Unpack takes what Packed made apart. Of the request itself it reads nothing but what model is asked, and whether it asks for a stream.
func Unpack(packed []byte) (r Request) {
	for name, v := range call.Members(packed) {
		switch name {
		case "form":
			word, _ := call.Text(v)
			r.Form = Form(word)
		case "version":
			r.Version, _ = call.Text(v)
		case "hide_usage":
			r.HideUsage = string(v) == "true"
		case "request":
			r.Body = v
		case "beta":
			for b := range call.Elements(v) {
				if s, ok := call.Text(b); ok {
					r.Beta = append(r.Beta, s)
				}
			}
		}
	}
	for name, v := range call.Members(r.Body) {
		switch name {
		case "model":
			r.Model, _ = call.Text(v)
		case "stream":
			r.Stream = string(v) == "true"
		}
	}
	return r
}

// ModelOf is the model that a canonical request names; "" where it names none.
func ModelOf(body []byte) string {
	name, _ := call.GetText(body, "model")
	return name
}

// maxBeta bounds the beta features of a request, and maxName a name in it.
const (
	maxBeta = 32
	maxName = 256
)

// Versions are those of Anthropic's API whose requests the lists are for. A request that names none is of the first.
var Versions = []string{"2023-06-01", "2026-10-21"}

// Allowed is what passes besides the lists of this package.
type Allowed struct {
	Operator []string // the operator's additions (models[].allow)
	Hosted   []string // tools of the agent's declaration that its models' providers may run: some of Hostable
}

// Parse reads a canonical request. The body that it makes of it is canonical.
func Parse(form Form, beta []string, body []byte, allowed Allowed) (Request, error) {
	r := Request{Form: form, Body: body}
	p := parser{allow: allowed.Operator, hosted: allowed.Hosted}
	switch form {
	case Messages:
		p.object("", body, messagesFields, "model", "messages", "max_tokens")
	case Chat:
		p.object("", body, chatFields, "model", "messages")
	case Embeddings:
		p.object("", body, embeddingsFields, "model", "input")
	case Responses:
		p.object("", body, responsesFields, "model", "input")
	case Count:
		p.object("", body, countFields, "model", "messages")
	default:
		return r, fault.New(fault.RequestMalformed, "There is no such form of request.").At("form")
	}
	if p.err == nil {
		r.Beta = p.beta(form, beta)
	}
	if p.err != nil {
		return r, p.err
	}
	r.Model = ModelOf(body)
	stream, _ := call.Get(body, "stream")
	r.Stream = string(stream) == "true"
	if form == Chat || form == Responses { // a provider that keeps the request would have a copy that nobody judges the use of
		r.Body = call.SetSorted(body, "store", json.RawMessage("false"))
	}
	if form == Chat && r.Stream {
		asking, wanted := wantsUsage(r.Body)
		r.Body, r.HideUsage = asking, !wanted
	}
	return r, nil
}

// beta checks the features of the header anthropic-beta.
func (p *parser) beta(form Form, names []string) []string {
	if len(names) > 0 && !form.toAnthropic() {
		p.fail("anthropic-beta", "The header belongs to another form of request.", "")
		return nil
	}
	if len(names) > maxBeta {
		p.fail("anthropic-beta", "Too many features.", "")
		return nil
	}
	for _, name := range names {
		if !slices.Contains(betas, name) && !slices.Contains(p.allow, "beta:"+name) {
			p.fail("anthropic-beta", "The feature "+display.Quote(name, 80)+" is not on the list of those that pass.", allowing("beta:"+name))
			return nil
		}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// allowing is the way out for what an operator can allow.
func allowing(entry string) string {
	return "Leave it out, or ask an operator to add " + display.Quote(entry, 120) + " to allow of the model, under models in sallyport.yaml."
}

// parser checks one request. The first problem ends it.
type parser struct {
	allow, hosted []string
	err           error
}

func (p *parser) fail(at, message, remedy string) {
	p.refuse(fault.RequestMalformed, at, message, remedy)
}

func (p *parser) refuse(code fault.Code, at, message, remedy string) {
	if p.err == nil {
		e := fault.New(code, "%s", message).At(at)
		if remedy != "" {
			e = e.Try("%s", remedy)
		}
		p.err = e
	}
}

// check checks a value at a path. Paths have no indexes: "messages.content.text".
type check func(p *parser, at string, v json.RawMessage)

// fields are the members that an object may have.
type fields map[string]check

// object checks the members of an object.
func (p *parser) object(at string, v json.RawMessage, f fields, required ...string) {
	if p.err != nil {
		return
	}
	if !call.IsObject(v) {
		p.fail(at, "It must be an object.", "")
		return
	}
	for name, member := range call.Members(v) {
		path := join(at, name)
		c, known := f[name]
		switch {
		case known:
			c(p, path, member)
		case slices.Contains(byReference, name):
			kept(display.Quote(path, 120))(p, clip(path), member)
		case slices.Contains(p.allow, path):
			unkept(p, path, member)
		default:
			p.fail(clip(path), "The field "+display.Quote(path, 120)+" is not on the list of those that pass.", allowing(path))
		}
		if p.err != nil {
			return
		}
	}
	for _, name := range required {
		if member, ok := call.Get(v, name); !ok || string(member) == "null" {
			p.fail(join(at, name), "It is missing.", "")
		}
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func clip(path string) string { return display.Clip(path, 120) }

func text(p *parser, at string, v json.RawMessage) {
	if _, ok := call.Text(v); !ok {
		p.fail(at, "It must be a text.", "")
	}
}

// name accepts a short text.
func name(p *parser, at string, v json.RawMessage) {
	if s, ok := call.Text(v); !ok || s == "" || len(s) > maxName {
		p.fail(at, "It must be a text of 1 to 256 bytes.", "")
	}
}

func boolean(p *parser, at string, v json.RawMessage) {
	if s := string(v); s != "true" && s != "false" {
		p.fail(at, "It must be true or false.", "")
	}
}

func number(p *parser, at string, v json.RawMessage) {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		p.fail(at, "It must be a number.", "")
	}
}

// count accepts a whole number from 1 on.
func count(p *parser, at string, v json.RawMessage) {
	if len(v) == 0 || len(v) > 9 || v[0] < '1' || v[0] > '9' || bytes.ContainsFunc(v, func(c rune) bool { return c < '0' || c > '9' }) {
		p.fail(at, "It must be a whole number from 1 to 999999999.", "")
	}
}

func object(p *parser, at string, v json.RawMessage) {
	if !call.IsObject(v) {
		p.fail(at, "It must be an object.", "")
	}
}

// orNull accepts null, too.
func orNull(c check) check {
	return func(p *parser, at string, v json.RawMessage) {
		if string(v) != "null" {
			c(p, at, v)
		}
	}
}

// onlyNull accepts null alone: SDKs send members of answers back that have no value.
func onlyNull(why string) check {
	return func(p *parser, at string, v json.RawMessage) {
		if string(v) != "null" {
			p.fail(at, why, "Leave it out.")
		}
	}
}

// list checks each element of a list.
func list(c check) check {
	return func(p *parser, at string, v json.RawMessage) {
		if len(v) == 0 || v[0] != '[' {
			p.fail(at, "It must be a list.", "")
			return
		}
		for e := range call.Elements(v) {
			if c(p, at, e); p.err != nil {
				return
			}
		}
	}
}

// of checks an object with these members.
func of(f fields, required ...string) check {
	return func(p *parser, at string, v json.RawMessage) { p.object(at, v, f, required...) }
}

// word accepts one of a closed list of words.
func word(words ...string) check {
	return func(p *parser, at string, v json.RawMessage) {
		if s, ok := call.Text(v); !ok || !slices.Contains(words, s) {
			p.fail(at, "It must be one of "+strings.Join(words, ", ")+".", "")
		}
	}
}

// textOr accepts a text, or what c accepts.
func textOr(c check) check {
	return func(p *parser, at string, v json.RawMessage) {
		if _, ok := call.Text(v); !ok {
			c(p, at, v)
		}
	}
}

// kept refuses what refers to something at the provider: what was judged would not be what the model reads.
func kept(what string) check {
	return func(p *parser, at string, _ json.RawMessage) {
		p.fail(at, what+" refers to something that the provider keeps, which nobody here can inspect.", "Send the content itself. No setting allows this.")
	}
}

// byReference are the names of fields that refer to what a provider keeps, at whatever place. No setting allows them.
var byReference = []string{
	"assistant_id", "background", "container", "container_id", "conversation", "file_id", "file_ids", "item_reference", "mcp_servers", "previous_response_id", "prompt", "thread_id",
	"vector_store_ids", "web_search_options",
}

// CheckAllow says what is wrong with an operator's addition to what is allowed: "beta:NAME", "content:TYPE", "tool:TYPE", or the path of a field.
func CheckAllow(entry string) error {
	what, kind, typed := strings.Cut(entry, ":")
	switch {
	case entry == "" || len(entry) > maxName || strings.ContainsAny(entry, " \t\n[]"):
		return fault.New(fault.ConfigurationInvalid, "An entry is a field's path without indexes, or beta:NAME, content:TYPE or tool:TYPE.")
	case !typed:
		if i := strings.LastIndexByte(entry, '.'); slices.Contains(byReference, entry[i+1:]) {
			return fault.New(fault.ConfigurationInvalid, "%s refers to something that the provider keeps or runs, and nothing allows that.", entry)
		}
		return nil
	case what != "beta" && what != "content" && what != "tool" || kind == "":
		return fault.New(fault.ConfigurationInvalid, "%s is none of beta:NAME, content:TYPE and tool:TYPE.", entry)
	case what == "tool" && isHosted(kind), what == "content" && isHostedContent(kind):
		return fault.New(fault.ConfigurationInvalid, "%s is run by the provider, and nothing allows that.", kind)
	}
	return nil
}

// never refuses a field, and says why.
func never(why, remedy string) check {
	return func(p *parser, at string, _ json.RawMessage) { p.fail(at, why, remedy) }
}

// typed checks an object by its member type. The operator can allow an unknown type by "<word>:<type>".
func typed(what string, kinds map[string]check, missing string) check {
	return func(p *parser, at string, v json.RawMessage) {
		if !call.IsObject(v) {
			p.fail(at, "It must be an object.", "")
			return
		}
		raw, there := call.Get(v, "type")
		kind, ok := call.Text(raw)
		if !there && missing != "" {
			kind, ok = missing, true
		}
		if !ok {
			p.fail(join(at, "type"), "It is missing, or no text.", "")
			return
		}
		c, known := kinds[kind]
		switch {
		case known:
			c(p, at, v)
		case what == "tool" && isHosted(kind):
			hostedTool(p, at, kind, v)
		case what == "tool" && runByClient(kind):
			p.object(at, v, clientToolFields, "type", "name")
		case what == "content" && isHostedContent(kind):
			hostedContent(p, at, kind, v)
		case slices.Contains(p.allow, what+":"+kind):
			unkept(p, at, v)
		default:
			p.fail(join(at, "type"), "The type "+display.Quote(kind, 80)+" is not on the list of those that pass.", allowing(what+":"+kind))
		}
	}
}
