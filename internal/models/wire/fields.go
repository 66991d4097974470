package wire

import (
	"encoding/json"
	"regexp"
	"strings"

	"sallyport.example/internal/call"
)

// betas are the features of the header anthropic-beta that add no way round the rules: they change how much a model may write, how it thinks, or how pieces
// of an answer are cut.
var betas = []string{
	"claude-code-20250219", "computer-use-2024-10-22", "computer-use-2025-01-24", "computer-use-2025-11-24", "context-1m-2025-08-07", "context-management-2025-06-27", "effort-2025-11-24",
	"extended-cache-ttl-2025-04-11", "fine-grained-tool-streaming-2025-05-14", "interleaved-thinking-2025-05-14", "output-128k-2025-02-19",
	"prompt-caching-2024-07-31", "prompt-caching-scope-2026-01-05", "structured-outputs-2025-11-13", "structured-outputs-2025-12-15", "thinking-token-count-2026-05-13", "token-efficient-tools-2025-02-19",
}

var clientTool = regexp.MustCompile(`^(bash|text_editor|computer|memory)_20\d{6}$`)

// runByClient tells the types of tools that the agent's own program runs: to the gateway they are functions.
func runByClient(kind string) bool { return clientTool.MatchString(kind) }

// clientToolFields are the members of the description of such a tool.
var clientToolFields = fields{
	"type": name, "name": name, "cache_control": cacheControl, "display_width_px": number, "display_height_px": number, "display_number": orNull(number),
	"max_characters": number, "enable_zoom": boolean,
}

var cacheControl = orNull(of(fields{"type": word("ephemeral"), "ttl": word("5m", "1h")}, "type"))

// messagesFields are those of Anthropic's messages.
var messagesFields = fields{
	"model": name, "max_tokens": count, "stream": boolean, "temperature": number, "top_p": number, "top_k": number,
	"system":         textOr(list(of(fields{"type": word("text"), "text": text, "cache_control": cacheControl, "citations": onlyNull("Citations are of documents, which do not pass.")}, "type", "text"))),
	"stop_sequences": list(text),
	"messages":       list(of(fields{"role": word("user", "assistant"), "content": textOr(list(typed("content", messageContent, "")))}, "role", "content")),
	"tools":          list(typed("tool", map[string]check{"custom": of(messageTool, "name", "input_schema")}, "custom")),
	"tool_choice":    of(fields{"type": word("auto", "any", "tool", "none"), "name": name, "disable_parallel_tool_use": boolean}, "type"),
	"metadata":       of(fields{"user_id": orNull(text)}),
	"thinking":       of(fields{"type": word("enabled", "disabled", "adaptive"), "budget_tokens": count, "display": word("summarized", "omitted")}, "type"),
	"service_tier":   word("auto", "standard_only"),
	"cache_control":  cacheControl, "inference_geo": orNull(text), "speed": orNull(word("standard", "fast")),
	"output_config": of(fields{"effort": word("low", "medium", "high", "max", "xhigh"), "format": orNull(object)}),
	"container":     kept("A container"),
	// It takes away from what the model reads of the request, and adds nothing.
	"context_management": orNull(of(fields{"edits": list(of(fields{
		"type": word("clear_thinking_20251015", "clear_tool_uses_20250919"), "keep": textOr(object), "trigger": object, "clear_at_least": orNull(object), "exclude_tools": orNull(list(name)),
	}, "type"))})),
	"mcp_servers": func(p *parser, at string, _ json.RawMessage) { refuseHosted(p, at, "mcp_servers") },
}

var messageTool = fields{
	"type": word("custom"), "name": name, "description": text, "input_schema": object, "cache_control": cacheControl, "strict": boolean, "eager_input_streaming": boolean,
}

// messageContent are the kinds of content of Anthropic's messages.
var messageContent = map[string]check{
	"text":              of(fields{"type": name, "text": text, "cache_control": cacheControl, "citations": citations}, "text"),
	"image":             of(fields{"type": name, "source": imageSource, "cache_control": cacheControl}, "source"),
	"tool_use":          of(fields{"type": name, "id": name, "name": name, "input": object, "cache_control": cacheControl, "caller": orNull(of(fields{"type": word("direct")}))}, "id", "name", "input"),
	"tool_result":       of(fields{"type": name, "tool_use_id": name, "is_error": boolean, "cache_control": cacheControl, "content": textOr(list(typed("content", resultContent, "")))}, "tool_use_id"),
	"thinking":          of(fields{"type": name, "thinking": text, "signature": text}, "thinking", "signature"),
	"redacted_thinking": of(fields{"type": name, "data": text}, "data"),
	"document":          never("Documents do not pass: nothing here reads what is in them.", "Send their text."),
	"container_upload":  kept("A container's file"),
}

// resultContent are the kinds of content that a tool's result may have.
var resultContent = map[string]check{
	"text":     of(fields{"type": name, "text": text, "cache_control": cacheControl, "citations": noCitations}, "text"),
	"image":    of(fields{"type": name, "source": imageSource, "cache_control": cacheControl}, "source"),
	"document": never("Documents do not pass: nothing here reads what is in them.", "Send their text."),
}

// citations accepts none, but where the declaration lets the provider run tools: their sources.
func citations(p *parser, at string, v json.RawMessage) {
	if len(p.hosted) == 0 {
		noCitations(p, at, v)
		return
	}
	plain(p, at, v)
}

func noCitations(p *parser, at string, v json.RawMessage) {
	if s := string(v); s != "null" && s != "[]" {
		p.fail(at, "Citations are of documents, which do not pass.", "Leave it out.")
	}
}

// maxImage bounds one image, in the letters of its base64.
const maxImage = 3 << 20

var imageSource = typed("source", map[string]check{
	"base64": of(fields{"type": name, "media_type": word("image/jpeg", "image/png", "image/gif", "image/webp"), "data": imageData}, "media_type", "data"),
	"url":    never("Content by address would be fetched by the provider, unjudged.", "Fetch it with comm_fetch of the gateway, and send the content itself."),
	"file":   kept("A file's id"),
}, "")

func imageData(p *parser, at string, v json.RawMessage) {
	if s, ok := call.Text(v); !ok || s == "" || len(s) > maxImage || strings.Trim(s, base64Letters) != "" {
		p.fail(at, "It must be base64 of at most 3 MiB.", "Send a smaller image.")
	}
}

const base64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

// embeddingsFields are those of OpenAI's embeddings.
var embeddingsFields = fields{
	"model": name, "input": inputs, "encoding_format": word("float", "base64"), "dimensions": count, "user": text,
}

// maxInputs bounds the texts of one request for embeddings.
const maxInputs = 2048

// inputs accepts a text or a list of texts. Numbers of tokens are refused: nothing here reads what they stand for.
func inputs(p *parser, at string, v json.RawMessage) {
	n := 0
	textOr(list(func(p *parser, at string, v json.RawMessage) {
		if _, ok := call.Text(v); !ok {
			p.fail(at, "It must be a text or a list of texts; nothing here reads tokens.", "Send the text itself.")
		} else if n++; n > maxInputs {
			p.fail(at, "At most 2048 texts at a time.", "Send several requests.")
		}
	}))(p, at, v)
}

// chatFields are those of OpenAI's chat completions.
var chatFields = fields{
	"model": name, "messages": list(chatMessage), "stream": orNull(boolean), "stream_options": orNull(of(fields{"include_usage": boolean, "include_obfuscation": boolean})),
	"max_tokens": orNull(count), "max_completion_tokens": orNull(count), "temperature": orNull(number), "top_p": orNull(number), "presence_penalty": orNull(number), "frequency_penalty": orNull(number),
	"n":    orNull(func(p *parser, at string, v json.RawMessage) { exactly(p, at, v, "1", "One answer at a time: n is 1.") }),
	"stop": orNull(textOr(list(text))), "seed": orNull(number), "logit_bias": orNull(object), "user": orNull(text), "safety_identifier": orNull(text), "prompt_cache_key": orNull(text),
	"tools": list(typed("tool", map[string]check{
		"function": of(fields{"type": name, "function": of(fields{"name": name, "description": orNull(text), "parameters": orNull(object), "strict": orNull(boolean)}, "name")}, "function"),
		"custom":   of(fields{"type": name, "custom": of(fields{"name": name, "description": orNull(text), "format": orNull(object)}, "name")}, "custom"),
	}, "")),
	"tool_choice": textOr(choice), "parallel_tool_calls": boolean, "response_format": orNull(object), "reasoning_effort": orNull(name), "verbosity": orNull(name),
	"service_tier": orNull(name), "metadata": orNull(object), "prediction": orNull(of(fields{"type": word("content"), "content": textOr(list(typed("content", map[string]check{"text": chatText}, "")))}, "type", "content")),
	"store":      orNull(notKept),
	"modalities": orNull(list(word("text"))),
	"logprobs": orNull(func(p *parser, at string, v json.RawMessage) {
		exactly(p, at, v, "false", "Log probabilities do not pass: they are a second form of the text.")
	}),
	"top_logprobs":       onlyNull("Log probabilities do not pass: they are a second form of the text."),
	"audio":              onlyNull("Audio does not pass: nothing here hears what is in it."),
	"functions":          never("This is an old name of tools.", "Use tools."),
	"function_call":      never("This is an old name of tool_choice.", "Use tool_choice."),
	"web_search_options": func(p *parser, at string, _ json.RawMessage) { refuseHosted(p, at, "web_search_options") },
}

func notKept(p *parser, at string, v json.RawMessage) {
	exactly(p, at, v, "false", "The provider must not keep the request: store is false. No setting allows this.")
}

func exactly(p *parser, at string, v json.RawMessage, want, why string) {
	if string(v) != want {
		p.fail(at, why, "")
	}
}

var chatText = of(fields{"type": name, "text": text, "annotations": citations}, "text")

// chatContent are the kinds of content of a chat's messages.
var chatContent = map[string]check{
	"text":        chatText,
	"refusal":     of(fields{"type": name, "refusal": text}, "refusal"),
	"image_url":   of(fields{"type": name, "image_url": of(fields{"url": dataURL, "detail": word("auto", "low", "high")}, "url")}, "image_url"),
	"input_audio": never("Audio does not pass: nothing here hears what is in it.", "Send its text."),
	"file":        never("Files do not pass: nothing here reads what is in them.", "Send their text."),
}

var dataOf = regexp.MustCompile(`^data:image/(jpeg|png|gif|webp);base64,`)

func dataURL(p *parser, at string, v json.RawMessage) {
	s, _ := call.Text(v)
	begin := dataOf.FindString(s)
	if begin == "" {
		p.fail(at, "Content by address would be fetched by the provider, unjudged.", "Send the image itself, as data:image/png;base64,… Fetch it with comm_fetch of the gateway.")
		return
	}
	if data := s[len(begin):]; data == "" || len(data) > maxImage || strings.Trim(data, base64Letters) != "" {
		p.fail(at, "It must be base64 of at most 3 MiB.", "Send a smaller image.")
	}
}

var chatParts = orNull(textOr(list(typed("content", chatContent, ""))))

// chatRoles are the members of a message by its role.
var chatRoles = map[string]fields{
	"system": {"role": name, "content": chatParts, "name": name}, "developer": {"role": name, "content": chatParts, "name": name}, "user": {"role": name, "content": chatParts, "name": name},
	"tool": {"role": name, "content": chatParts, "tool_call_id": name},
	"assistant": {
		"role": name, "content": chatParts, "name": name, "refusal": orNull(text), "audio": onlyNull("Audio does not pass: nothing here hears what is in it."),
		"function_call": onlyNull("This is an old name of tool_calls."), "annotations": citations,
		"tool_calls": orNull(list(typed("tool_call", map[string]check{
			"function": of(fields{"type": name, "id": name, "index": number, "function": of(fields{"name": name, "arguments": text}, "name", "arguments")}, "id", "function"),
			"custom":   of(fields{"type": name, "id": name, "index": number, "custom": of(fields{"name": name, "input": text}, "name", "input")}, "id", "custom"),
		}, ""))),
	},
}

func chatMessage(p *parser, at string, v json.RawMessage) {
	role, _ := call.GetText(v, "role")
	f, known := chatRoles[role]
	switch {
	case !call.IsObject(v):
		p.fail(at, "It must be an object.", "")
	case !known:
		p.fail(join(at, "role"), "It must be one of system, developer, user, assistant, tool.", "")
	case role == "tool":
		p.object(at, v, f, "role", "content", "tool_call_id")
	default:
		p.object(at, v, f, "role")
	}
}
