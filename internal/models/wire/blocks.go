package wire

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"sallyport.example/internal/call"
)

// Block is a part of a conversation that stays as it is from turn to turn: a message or a part of one, the description of a tool, a part of the system
// message; a text to embed; and as one block, all the rest of the request.
type Block struct {
	// Place is who says it, or what it is: a role, or a member of the request.
	Place string
	// JSON is the block without what only says what the provider caches, which moves from turn to turn.
	JSON json.RawMessage
	// Hash names the block with its place: who says it.
	Hash [sha256.Size]byte
	// Result: it is what a tool answered. Texts are then all texts in it.
	Result bool
	Texts  []string
	Use    string // of a result: the id of the call that it answers
	member string // of a result: where the answer stands
	// Opaque: there is something in it that nobody here can read, as an image.
	Opaque bool
}

// Blocks are all parts of a request that Parse accepted: together they have everything in it but the message that Instruct put in front ("": none did).
func Blocks(form Form, body []byte, message string) (all []Block) {
	rest := map[string]any{}
	for name, v := range call.Members(body) {
		switch name {
		case "messages":
			ours := form == Chat && message != ""
			for m := range call.Elements(v) {
				if !ours {
					all = append(all, ofMessage(form, m)...)
				}
				ours = false
			}
		case "input": // of embeddings and responses
			if v[0] != '[' {
				all = append(all, block(name, v))
				continue
			}
			for e := range call.Elements(v) {
				if form == Responses {
					all = append(all, ofItem(e))
				} else {
					all = append(all, block(name, e))
				}
			}
		case "instructions":
			if own := withoutOurs(v, message); own != nil {
				all = append(all, block(name, own))
			}
		case "system", "tools":
			if v[0] == '[' {
				ours := name == "system" && message != ""
				for e := range call.Elements(v) {
					if !ours {
						all = append(all, block(name, e))
					}
					ours = false
				}
				continue
			}
			all = append(all, block(name, v))
		default:
			rest[name] = v
		}
	}
	encoded, _ := call.Encode(rest) // of JSON: can't fail
	return append(all, block("rest", encoded))
}

func ofMessage(form Form, m json.RawMessage) (all []Block) {
	role, _ := call.GetText(m, "role")
	content, _ := call.Get(m, "content")
	if form.toAnthropic() { // what an operator allows beside them
		if more := without(without(m, "content"), "role"); string(more) != "{}" {
			all = append(all, block(role, more))
		}
		if _, is := call.Text(content); is { // clients write a text as a block in one turn, with a mark for the cache, and alone in the next
			return append(all, block(role, slices.Concat([]byte(`{"text":`), content, []byte(`,"type":"text"}`))))
		}
	}
	if form == Chat || len(content) == 0 || content[0] != '[' {
		b := block(role, m)
		b.Opaque = hasOpaque(content)
		if form == Chat && role == "tool" {
			b.result(content, "content")
			b.Use, _ = call.GetText(m, "tool_call_id")
		}
		return []Block{b}
	}
	for e := range call.Elements(content) {
		b := block(role, e)
		switch kind, _ := call.GetText(e, "type"); kind {
		case "tool_result":
			inner, _ := call.Get(e, "content")
			b.Opaque = hasOpaque(inner)
			b.result(inner, "content")
			b.Use, _ = call.GetText(e, "tool_use_id")
		case "text": // with citations it quotes what the provider has read
			b.Opaque = !noneOf(e, "citations")
		case "tool_use", "thinking", "redacted_thinking":
		default:
			b.Opaque = true
		}
		all = append(all, b)
	}
	return all
}

// plainContent are the kinds of content that are text.
var plainContent = []string{"text", "refusal", "input_text", "output_text"}

// hasOpaque tells whether there is something in a message that nobody here can read, or that quotes what the provider has read.
func hasOpaque(content json.RawMessage) bool {
	if len(content) == 0 || content[0] != '[' {
		return false
	}
	for e := range call.Elements(content) {
		if kind, _ := call.GetText(e, "type"); !slices.Contains(plainContent, kind) || !noneOf(e, "annotations") { // which quote what the provider has read
			return true
		}
	}
	return false
}

// textsIn are the texts of a tool's result. A part that is no text stands there whole, so nobody takes the result for one that was delivered word for word.
func textsIn(content json.RawMessage) (all []string) {
	if s, ok := call.Text(content); ok {
		return []string{s}
	}
	for e := range call.Elements(content) {
		s, ok := call.GetText(e, "text")
		if kind, _ := call.GetText(e, "type"); !ok || kind == "refusal" {
			s = string(e)
		}
		all = append(all, s)
	}
	return all
}

func block(place string, raw json.RawMessage) Block {
	b := Block{Place: place, JSON: withoutCaching(raw)}
	h := sha256.New()
	h.Write([]byte(place))
	h.Write([]byte{0})
	h.Write(b.JSON)
	h.Sum(b.Hash[:0])
	return b
}

// result notes that the block is what a tool answered, with its content in this member.
func (b *Block) result(content json.RawMessage, member string) {
	b.Result, b.Texts, b.member = true, textsIn(content), member
}

// Frame is a result without what the tool answered.
func (b *Block) Frame() json.RawMessage { return without(b.JSON, b.member) }

// withoutCaching is an object without its member cache_control.
func withoutCaching(raw json.RawMessage) json.RawMessage { return without(raw, "cache_control") }

func without(raw json.RawMessage, member string) json.RawMessage {
	if _, there := call.Get(raw, member); !there {
		return raw
	}
	rest := map[string]any{}
	for name, v := range call.Members(raw) {
		if name != member {
			rest[name] = v
		}
	}
	encoded, _ := call.Encode(rest) // of JSON: can't fail
	return encoded
}
