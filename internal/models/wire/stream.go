package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// Event is one event of an answer that comes in pieces.
type Event struct {
	Raw  []byte // as it is handed on: the event's name and its data, which is strict JSON
	Text string // what it adds to the text of the answer
	Args []Arg  // pieces of texts that a client puts together: those of one block, and the arguments of one call
	// Holds: it can act, or nobody knows what it does, so it leaves with all that follows it once the outcome is on record.
	Holds bool
	Calls []Called // the functions that it asks its client to call
	// Unknown: this package does not know its type, or what it adds.
	Unknown bool
	// Settles: what came before it is complete, so nothing that follows makes anything else of it.
	Settles bool
	// Structured are the texts of a whole answer that a request's schema is about, as StructuredIn has them; nil of all other events and requests.
	Structured [][]byte
}

// Arg is a piece of a text that comes in several events. Call: of the arguments of a call.
type Arg struct {
	Of, Text string
	Call     bool
	at       string // of a call: its place in the answer
}

// The bounds of a stream, in bytes.
const (
	maxEvent  = 1 << 20
	maxStream = 8 << 20
)

// Stream reads the events of an answer. It is not for concurrent use.
type Stream struct {
	// Look looks at the data of each event before anything else does; its error ends the stream. nil: nothing does.
	Look func(data []byte) error

	r    Request
	as   []string
	in   *bufio.Reader
	size int

	named  bool                // the answer has said which model it is of
	ended  bool                // the last event came
	finish bool                // of a chat: it said why it ended
	calls  []Called            // that events named
	begun  map[string][]Called // of a response: those whose item began and was not said to be done, by its place
	placed map[string]bool     // the places of calls that have a name, or that the provider runs
	usage  Usage

	structured bool     // the request says what form the answer has to have
	texts      [][]byte // of the answer so far, where it does
	place      string   // of the last of them, in a response
	reason     string   // why the answer ended
	refused    bool
}

// NewStream reads an answer to a request. answersAs are names that the answer may give the model, besides the one that was asked.
func NewStream(r Request, answersAs []string, in io.Reader) *Stream {
	return &Stream{r: r, as: answersAs, in: bufio.NewReaderSize(in, 4<<10), structured: SchemaOf(r.Form, r.Body) != nil}
}

// Usage is what the answer said so far that it used.
func (s *Stream) Usage() Usage { return s.usage }

var errCut = errors.New("the answer ended before its last event")

// Next is the next event that is handed on; io.EOF after the last one. Its other errors are fault errors, or those of the reader.
func (s *Stream) Next() (Event, error) {
	for {
		data, err := s.data()
		switch {
		case errors.Is(err, io.EOF) && (s.ended || s.finish):
			return Event{}, io.EOF
		case errors.Is(err, io.EOF):
			return Event{}, fault.Wrap(errCut, fault.UpstreamFailed, "The provider's answer broke off.")
		case err != nil:
			return Event{}, err
		case s.ended:
			return Event{}, fault.New(fault.ResultInvalid, "The provider's answer goes on after its end; it was cut.")
		}
		if s.Look != nil {
			if err := s.Look(data); err != nil {
				return Event{}, err
			}
		}
		if s.r.Form == Chat && string(data) == "[DONE]" {
			s.ended = true
			if !s.named {
				return Event{}, CheckName(s.r.Model, s.as, "")
			}
			return Event{Raw: []byte("data: [DONE]\n\n"), Holds: true, Structured: s.final()}, nil
		}
		if err := call.Check(data, call.DefaultLimits()); err != nil || !call.IsObject(bytes.TrimSpace(data)) {
			return Event{}, fault.Wrap(err, fault.ResultInvalid, "An event of the provider's answer is not strict JSON; it was cut.")
		}
		e, passes, err := s.read(bytes.TrimSpace(data))
		s.nameless(&e)
		if s.calls = append(s.calls, e.Calls...); s.finish {
			e.Structured = s.final()
		}
		if err != nil || passes {
			return e, err
		}
	}
}

// data is the data of the next event. Comments, ids and names of events are left out: what an event is says its data.
func (s *Stream) data() ([]byte, error) {
	var data []byte
	some := false
	for {
		line, err := s.line()
		if err != nil {
			if errors.Is(err, io.EOF) && (len(line) > 0 || some) {
				return nil, fault.Wrap(errCut, fault.UpstreamFailed, "The provider's answer broke off in the middle of an event.")
			}
			return nil, err
		}
		if len(line) == 0 {
			if some {
				return data, nil
			}
			continue
		}
		value, is := bytes.CutPrefix(line, []byte("data:"))
		if !is {
			continue
		}
		if some {
			data = append(data, ' ') // a line break would end the line that is sent on; in JSON both are white space
		}
		some = true
		if data = append(data, bytes.ReplaceAll(bytes.TrimPrefix(value, []byte(" ")), []byte("\r"), []byte(" "))...); len(data) > maxEvent {
			return nil, fault.New(fault.ResultTooLarge, "An event of the provider's answer is over %d bytes; it was cut.", maxEvent)
		}
	}
}

func (s *Stream) line() ([]byte, error) {
	var line []byte
	for {
		piece, err := s.in.ReadSlice('\n')
		line = append(line, piece...)
		if s.size += len(piece); s.size > maxStream {
			return nil, fault.New(fault.ResultTooLarge, "The provider's answer is over %d bytes; it was cut.", maxStream)
		}
		if len(line) > maxEvent+64 {
			return nil, fault.New(fault.ResultTooLarge, "An event of the provider's answer is over %d bytes; it was cut.", maxEvent)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return line, err
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

func (s *Stream) read(data []byte) (e Event, passes bool, err error) {
	switch s.r.Form {
	case Chat:
		return s.chunk(data)
	case Responses:
		return s.responseEvent(data)
	}
	return s.event(data)
}

// puts notes where a call is whose arguments follow.
func (s *Stream) puts(at string) {
	if s.placed == nil {
		s.placed = map[string]bool{}
	}
	s.placed[at] = true
}

// nameless names the calls whose arguments come where no call is, each once: a client may make something of them.
func (s *Stream) nameless(e *Event) {
	for _, part := range e.Args {
		if part.Call && part.Text != "" && !s.placed[part.at] {
			s.puts(part.at)
			e.Calls = append(e.Calls, Called{})
		}
	}
}

// isEventName tells whether a text is the name of an event: 1 to 64 small letters and underscores, and points where there may be some.
func isEventName(kind string, points bool) bool {
	return consistsOf(kind, 1, 64, func(c byte) bool { return c >= 'a' && c <= 'z' || c == '_' || points && c == '.' })
}

// consistsOf tells whether a text has from least to most bytes, all of them such.
func consistsOf[T ~string | ~[]byte](text T, least, most int, such func(byte) bool) bool {
	if len(text) < least || len(text) > most {
		return false
	}
	for i := range len(text) {
		if !such(text[i]) {
			return false
		}
	}
	return true
}

// event reads an event of Anthropic's messages.
func (s *Stream) event(data []byte) (e Event, passes bool, err error) {
	kind, _ := call.GetText(data, "type")
	if !isEventName(kind, false) {
		return e, false, fault.New(fault.ResultInvalid, "An event of the provider's answer has no type; it was cut.")
	}
	e.Raw = slices.Concat([]byte("event: "+kind+"\ndata: "), data, []byte("\n\n"))
	if !s.named && kind != "message_start" && kind != "ping" && kind != "error" {
		return e, false, CheckName(s.r.Model, s.as, "")
	}
	switch kind {
	case "message_start":
		message, _ := call.Get(data, "message")
		name, _ := call.GetText(message, "model")
		if err := CheckName(s.r.Model, s.as, name); err != nil {
			return e, false, err
		}
		s.named = true
		s.usage, _ = UsageOf(message)
		content, _ := call.Get(message, "content")
		e.Calls = CallsIn(Messages, message)
		e.Holds = string(content) != "[]" || !only(data, "type", "message") || !only(message, "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage") || !plainMembers(message, "id", "type", "role", "stop_reason", "stop_sequence") || !plainTexts(message, "usage")
	case "content_block_start":
		block, _ := call.Get(data, "content_block")
		kind, _ := call.GetText(block, "type")
		text, _ := call.GetText(block, "text")
		thinking, _ := call.GetText(block, "thinking")
		signature, _ := call.GetText(block, "signature")
		e.Text, e.Calls = text+thinking+signature, messageCalls(block)
		if len(e.Calls) > 0 || isHostedContent(kind) {
			s.puts(placeOf(data, "index"))
		}
		if kind == "text" {
			s.begin()
			s.add(text)
		}
		e.Holds = !isNumber(data, "index") || !texts(block, "text", "thinking", "signature") || !only(data, "type", "index", "content_block") || !(kind == "text" && only(block, "type", "text") || kind == "thinking" && only(block, "type", "thinking", "signature"))
	case "content_block_delta":
		delta, _ := call.Get(data, "delta")
		kind, _ := call.GetText(delta, "type")
		field, known := map[string]string{"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[kind]
		e.Text, _ = call.GetText(delta, field)
		e.Args = said(data, delta, field)
		if field == "text" {
			s.add(e.Text)
		}
		if part, is := call.GetText(delta, "partial_json"); is {
			e.Args = append(e.Args, Arg{Of: "json " + placeOf(data, "index"), Text: part, Call: true, at: placeOf(data, "index")})
		}
		e.Holds = !isNumber(data, "index") || !texts(delta, field) || !known || !only(data, "type", "index", "delta") || !only(delta, "type", field)
	case "content_block_stop":
		e.Settles, e.Holds = true, !only(data, "type", "index") || !isNumber(data, "index")
	case "ping":
		e.Holds = !only(data, "type")
	case "error":
		return e, false, failedWithin(data)
	case "message_stop":
		s.ended, e.Holds, e.Structured = true, true, s.final()
	default:
		if used, said := UsageOf(data); said {
			s.usage.Input = max(s.usage.Input, used.Input) // with what the provider's tools brought since
			s.usage.Output = used.Output
		}
		delta, _ := call.Get(data, "delta")
		if reason, is := call.GetText(delta, "stop_reason"); is {
			s.reason = reason
		}
		e.Holds, e.Unknown = true, !slices.Contains(knownEvents[Messages], kind)
	}
	return e, true, nil
}

// chunk reads a chunk of OpenAI's chat completions.
func (s *Stream) chunk(data []byte) (e Event, passes bool, err error) {
	if raw, is := call.Get(data, "error"); is && string(raw) != "null" {
		return e, false, failedWithin(data)
	}
	name, _ := call.GetText(data, "model")
	if err := CheckName(s.r.Model, s.as, name); err != nil {
		return e, false, err
	}
	s.named = true
	e.Raw = slices.Concat([]byte("data: "), data, []byte("\n\n"))
	used, said := UsageOf(data)
	if said {
		s.usage = used
	}
	choices, _ := call.Get(data, "choices")
	if string(choices) == "[]" && said {
		e.Holds = true
		return e, !s.r.HideUsage, nil
	}
	usage, _ := call.Get(data, "usage")
	e.Holds = len(usage) > 0 && string(usage) != "null" || !plainTexts(data, "usage", "created") || !only(data, "id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier", "obfuscation") || !plainMembers(data, "id", "object", "system_fingerprint", "service_tier", "obfuscation")
	n, over := 0, s.finish
	for choice := range call.Elements(choices) {
		n++
		finish, _ := call.Get(choice, "finish_reason")
		if len(finish) > 0 && string(finish) != "null" {
			s.finish, e.Holds = true, true
			s.reason, _ = call.Text(finish)
		}
		logprobs, _ := call.Get(choice, "logprobs")
		index, _ := call.Get(choice, "index")
		delta, _ := call.Get(choice, "delta")
		e.Holds = e.Holds || len(logprobs) > 0 && string(logprobs) != "null" || string(index) != "0" || !only(choice, "index", "delta", "finish_reason", "logprobs") || !call.IsObject(delta)
		message, _ := call.Get(choice, "message")
		e.Calls = append(append(e.Calls, s.piecesOf(delta)...), chatCalls(message)...)
		for name, v := range call.Members(delta) {
			text, isText := call.Text(v)
			switch {
			case name == "role" && string(v) == `"assistant"`:
			case string(v) == "null":
			case isText && (name == "content" || name == "refusal" || name == "reasoning_content" || name == "reasoning"):
				e.Text += text
				e.Args = append(e.Args, Arg{Of: name, Text: text})
				if name == "content" {
					s.add(text)
				}
				if over && text != "" {
					return e, false, fault.New(fault.ResultInvalid, "The provider's answer goes on after its end; it was cut.")
				}
				s.refused = s.refused || name == "refusal" && text != ""
			default:
				e.Holds, e.Unknown = true, e.Unknown || name != "tool_calls" && name != "function_call"
				e.Args = append(e.Args, argumentsIn(name, v)...)
			}
		}
	}
	e.Holds = e.Holds || n != 1
	return e, true, nil
}

// begin begins a text of a structured answer.
func (s *Stream) begin() {
	if s.structured {
		s.texts = append(s.texts, nil)
	}
}

// add goes on with the last text of a structured answer.
func (s *Stream) add(text string) {
	if !s.structured || text == "" {
		return
	}
	if len(s.texts) == 0 {
		s.begin()
	}
	last := len(s.texts) - 1
	s.texts[last] = append(s.texts[last], text...)
}

// final are the texts of a structured answer that has ended; nil of any other.
func (s *Stream) final() [][]byte {
	if !s.structured || s.refused || len(s.calls) > 0 || slices.Contains(exempt, s.reason) {
		return nil
	}
	return append([][]byte{}, s.texts...)
}

// said is the text of a delta, as what belongs to its block.
func said(data, delta []byte, field string) []Arg {
	text, is := call.GetText(delta, field)
	if !is {
		return nil
	}
	return []Arg{{Of: field + " " + placeOf(data, "index"), Text: text}}
}

// piecesOf are the calls that a piece of a chat names. One that goes on with a call's arguments names none.
func (s *Stream) piecesOf(delta json.RawMessage) (all []Called) {
	for _, part := range calledParts(delta) {
		if part.called.Name != "" {
			s.puts(part.at)
			all = append(all, part.called)
		}
	}
	return all
}

// argumentsIn are the pieces of the arguments of calls that a chunk has in a member.
func argumentsIn(name string, v []byte) (all []Arg) {
	for _, part := range callParts(name, v) {
		all = append(all, Arg{Of: part.at, Text: part.called.Arguments, Call: true, at: part.at})
	}
	return all
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isPlain tells whether a text is a short word, as ids and names of versions are.
func isPlain(text string) bool {
	return consistsOf(text, 0, 128, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '_' || c >= '-' && c <= '/' || c == ':'
	})
}

// indexOf is a member that is a small number, as it is written; "" if it is none.
func indexOf(object []byte, name string) string {
	v, _ := call.Get(object, name)
	if !consistsOf(v, 1, 9, isDigit) {
		return ""
	}
	return string(v)
}

// placeOf is the place that a member says: the number that clients take it for, however it is written (0, 0.0, "0"), and 0 where it is not there; "" where it is
// no place. Pieces of one place are one text.
func placeOf(object []byte, name string) string {
	v, there := call.Get(object, name)
	if !there || string(v) == "null" {
		return "0"
	}
	if text, is := call.Text(v); is {
		v = []byte(text)
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil || n != math.Trunc(n) || n < 0 || n > 1e9 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func isNumber(object []byte, name string) bool { return indexOf(object, name) != "" }

// texts tells whether the members are texts, as far as they are there.
func texts(object []byte, names ...string) bool {
	for _, name := range names {
		if v, is := call.Get(object, name); is {
			if _, text := call.Text(v); !text && string(v) != "null" {
				return false
			}
		}
	}
	return true
}

// plainMembers tells whether the members are short words, as far as they are there.
func plainMembers(object []byte, names ...string) bool {
	for name, v := range call.Members(object) {
		if slices.Contains(names, name) && string(v) != "null" {
			if text, isText := call.Text(v); !isText || !isPlain(text) {
				return false
			}
		}
	}
	return true
}

// plainTexts tells whether all texts in the members are short words, as far as they are there.
func plainTexts(object []byte, names ...string) bool {
	for name, v := range call.Members(object) {
		plain := true
		if slices.Contains(names, name) {
			call.Strings(v, func(_, text string) bool {
				plain = isPlain(text)
				return plain
			})
		}
		if !plain {
			return false
		}
	}
	return true
}

// numbers tells whether the members are small numbers, as far as they are there.
func numbers(object []byte, names ...string) bool {
	for _, name := range names {
		if v, is := call.Get(object, name); is && string(v) != "null" && !isNumber(object, name) {
			return false
		}
	}
	return true
}

// only tells whether an object has no other members than these that have a value.
func only(object []byte, names ...string) bool {
	for name, v := range call.Members(object) {
		if !slices.Contains(names, name) && string(v) != "null" {
			return false
		}
	}
	return call.IsObject(object)
}

// failedWithin is the error of an answer that the provider ended with an error of its own. Of its words only the type passes.
func failedWithin(data []byte) error {
	raw, _ := call.Get(data, "error")
	kind, _ := call.GetText(raw, "type")
	if !isEventName(kind, false) {
		kind = "api_error"
	}
	return fault.New(fault.UpstreamFailed, "The provider ended its answer with an error (%s).", kind)
}

// afterAll numbers an event that comes after all others, however many these are. Clients refuse one without a number.
const afterAll = 999_999_999

// RefusalEvents are an error in the form that clients read in the middle of a stream, which it ends. final: asking again would bring the same. Of responses
// there are two events: SDKs read the first as an error, and Codex reads only the second.
func RefusalEvents(form Form, refusal []byte, final bool) []byte {
	if form.toAnthropic() {
		return slices.Concat([]byte("event: error\ndata: "), refusal, []byte("\n\n"))
	}
	if form != Responses {
		return slices.Concat([]byte("data: "), refusal, []byte("\n\n"))
	}
	number, _ := call.Encode(afterAll) // of a number: can't fail
	first := call.SetSorted(call.SetSorted(refusal, "sequence_number", number), "type", json.RawMessage(`"error"`))
	code := "server_error"
	if final {
		code = "invalid_prompt" // after which nothing is tried again
	}
	theirs, _ := call.Get(refusal, "error")
	message, _ := call.GetText(theirs, "message")
	failed, _ := call.Encode(map[string]any{ // of texts: can't fail
		"type": "response.failed", "sequence_number": afterAll, "response": map[string]any{"object": "response", "status": "failed", "output": []any{}, "error": map[string]any{"code": code, "message": message}},
	})
	return slices.Concat([]byte("event: error\ndata: "), first, []byte("\n\nevent: response.failed\ndata: "), failed, []byte("\n\n"))
}

// maxTail bounds how much text is held back because it can still become something that is looked for.
const maxTail = 4 << 10

// Window decides which events may leave while an answer comes in: those whose text is complete enough to be looked at.
type Window struct {
	held    bool    // an event came that can act: nothing leaves any more
	waiting []Event // in order
	text    []byte  // the end of the text that has left, up to maxTail, and what was added last

	block string          // to which the last text belongs
	over  map[string]bool // blocks after which another one came, or that ended
}

// NewWindow returns a Window. With hold nothing leaves.
func NewWindow(hold bool) *Window { return &Window{held: hold} }

// Add takes the next event. It returns the events that may leave once text was looked at: known bytes of it left before them. text is good until the next Add.
func (w *Window) Add(e Event) (out, text []byte, known int) {
	e.Holds = w.goesBack(e) || e.Holds
	before := len(w.waiting)
	w.waiting = append(w.waiting, e)
	if w.held || before > 0 && !e.Holds && !e.Settles && e.Text == "" { // without new text nothing more is settled
		return nil, nil, 0
	}
	ready := 0
	switch {
	case e.Holds:
		w.held, ready = true, before // what came before is complete
	case e.Settles:
		ready = len(w.waiting)
	default:
		ready = w.settled()
	}
	if ready == 0 {
		return nil, nil, 0
	}
	if len(w.text) > 2*maxTail {
		w.text = append(w.text[:0], w.text[len(w.text)-maxTail:]...)
	}
	start := max(0, len(w.text)-maxTail)
	known = len(w.text) - start
	for _, e := range w.waiting[:ready] {
		out = append(out, e.Raw...)
		w.text = append(w.text, e.Text...)
	}
	w.waiting = slices.Delete(w.waiting, 0, ready)
	return out, w.text[start:], known
}

// goesBack tells whether an event has text of an earlier block, after another block came or that one ended. A client puts the text of each block together, and
// here text is looked at in the order in which it comes, so a secret in such a block would be seen in pieces only.
func (w *Window) goesBack(e Event) (back bool) {
	leave := func(to string) {
		if w.block != "" && w.block != to {
			if w.over == nil {
				w.over = map[string]bool{}
			}
			w.over[w.block] = true
		}
		w.block = to
	}
	for _, part := range e.Args {
		if part.Call || part.Text == "" {
			continue
		}
		leave(part.Of)
		back = back || w.over[part.Of]
	}
	if e.Settles {
		leave("")
	}
	return back
}

// Rest is what has not left, in order.
func (w *Window) Rest() (out []byte) {
	for _, e := range w.waiting {
		out = append(out, e.Raw...)
	}
	return out
}

// settled is how many of the events that wait have text that nothing following makes a hit of: up to the last space outside of what looks like a number in
// groups or a key of several lines.
func (w *Window) settled() int {
	var all []byte
	for _, e := range w.waiting {
		all = append(all, e.Text...)
	}
	safe := safeLength(all)
	n, length := 0, 0
	for _, e := range w.waiting {
		if length += len(e.Text); length > safe {
			break
		}
		n++
	}
	return n
}

var (
	unclosed = []byte("-----BEGIN")
	closing  = []byte("-----END")
)

// safeLength is how long the beginning of a text is that is complete.
func safeLength(text []byte) int {
	if len(text) > maxTail {
		return len(text)
	}
	if i := bytes.LastIndex(text, unclosed); i >= 0 && !bytes.Contains(text[i:], closing) {
		return i
	}
	// Back over the last word, and over words with digits before it, which may be groups of one number.
	cut := bytes.LastIndexFunc(text, parts) + 1
	for cut > 0 {
		before := bytes.TrimRightFunc(text[:cut], parts)
		word := bytes.LastIndexFunc(before, parts) + 1
		if !bytes.ContainsAny(before[word:], "0123456789") {
			break
		}
		cut = word
	}
	return cut
}

// parts tells what can stand in the middle of nothing that is looked for, but of groups of a number.
func parts(c rune) bool { return c <= ' ' }

// wantsUsage makes a streamed request of a chat ask for what it uses, and tells whether its client did.
func wantsUsage(body []byte) (asking json.RawMessage, wanted bool) {
	options, _ := call.Get(body, "stream_options")
	if !call.IsObject(options) {
		options = json.RawMessage("{}")
	}
	include, _ := call.Get(options, "include_usage")
	if string(include) == "true" {
		return body, true
	}
	return call.SetSorted(body, "stream_options", call.SetSorted(options, "include_usage", json.RawMessage("true"))), false
}
