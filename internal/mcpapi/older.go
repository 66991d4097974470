package mcpapi

import (
	"encoding/json"

	"sallyport.example/internal/call"
	"sallyport.example/internal/mcpwire"
)

// This file has the forms of revisions before 2025-06-18. Their schemas let members pass that they don't know (titles, structured content, output schemas),
// but not content of other types than their own.

func older(revision string) bool { return revision < mcpwire.Revision0618 }

// hasContent tells whether a revision has a type of content.
func hasContent(revision, kind string) bool {
	switch kind {
	case "text", "image", "resource":
		return true
	case "audio":
		return revision >= mcpwire.Revision0326
	}
	return !older(revision)
}

// asOlder is a result in the form of the client's revision. A block of a type that the revision does not have becomes text: the block as JSON, but without the
// data of a recording, which no model can read as text. Structured content that stands alone becomes text, too. Only results of trusted servers change:
// in others nothing but texts, images, recordings and resources is left by then.
func asOlder(revision, method string, result json.RawMessage) json.RawMessage {
	if !older(revision) {
		return result
	}
	switch call.Method(method) {
	case call.CallTool:
		blocks, has := call.Get(result, "content")
		next, changed, empty := []byte{'['}, false, true
		for block := range call.Elements(blocks) {
			if !empty {
				next = append(next, ',')
			}
			empty = false
			b, other := olderBlock(revision, block)
			next, changed = append(next, b...), changed || other
		}
		if structured, ok := call.Get(result, "structuredContent"); ok && has && empty && call.IsObject(structured) {
			next, changed = append(next, textBlock(string(structured))...), true
		}
		if changed {
			return call.SetMember(result, "content", append(next, ']'))
		}
	case call.GetPrompt:
		messages, _ := call.Get(result, "messages")
		next, changed := []byte{'['}, false
		for message := range call.Elements(messages) {
			if len(next) > 1 {
				next = append(next, ',')
			}
			block, _ := call.Get(message, "content")
			if b, other := olderBlock(revision, block); other {
				message, changed = call.SetMember(message, "content", b), true
			}
			next = append(next, message...)
		}
		if changed {
			return call.SetMember(result, "messages", append(next, ']'))
		}
	}
	return result
}

// olderBlock is a block of content in the form of the revision, and whether that is another one.
func olderBlock(revision string, block json.RawMessage) (_ json.RawMessage, changed bool) {
	kind, ok := call.GetText(block, "type")
	switch {
	case !ok || hasContent(revision, kind):
		return block, false
	case kind == "audio":
		block = call.SetMember(block, "data", json.RawMessage(`"left out: the client's revision of MCP has no audio"`))
	}
	return textBlock(string(block)), true
}

func textBlock(text string) json.RawMessage {
	return mcpwire.AppendJSON(nil, map[string]string{"type": "text", "text": text})
}

// capabilitiesOf are a client's capabilities without what its revision does not have: a revision before 2025-06-18 has no elicitation, and no tools in sampling.
func capabilitiesOf(revision string, capabilities json.RawMessage) json.RawMessage {
	if !older(revision) || !call.IsObject(capabilities) {
		return capabilities
	}
	had := json.RawMessage("{}")
	for _, name := range []string{"experimental", "roots", "sampling"} {
		if value, ok := call.Get(capabilities, name); ok {
			if name == "sampling" && call.IsObject(value) {
				value = json.RawMessage("{}")
			}
			had = call.SetMember(had, name, value)
		}
	}
	return had
}

// askedSince refuses a server's request for a sample that holds what the client's revision does not have; nil if it has all of it.
func askedSince(revision, method string, params json.RawMessage) *rpcError {
	if !older(revision) || method != "sampling/createMessage" {
		return nil
	}
	messages, _ := call.Get(params, "messages")
	for message := range call.Elements(messages) {
		block, _ := call.Get(message, "content")
		if kind, _ := call.GetText(block, "type"); kind == "resource" || !hasContent(revision, kind) {
			return badRequest(mcpwire.CodeInvalidParams, "The agent's client speaks revision "+revision+", in which a sample is asked for with other content.")
		}
	}
	return nil
}
