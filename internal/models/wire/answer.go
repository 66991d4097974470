package wire

import (
	"encoding/json"
	"math"
	"slices"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Usage is what a request used: as its provider says, or estimated as far as the provider said nothing.
type Usage struct {
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	Estimated bool  `json:"estimated,omitempty"`
}

// Response is what a provider answered: an answer, or its own error.
type Response struct {
	Status  int
	Body    json.RawMessage   // strict JSON
	Headers map[string]string // those that SDKs read, with values of a plain form
}

// CheckAnswer checks a whole answer: its model is the one that was asked for, or one of those that the operator says answer for it.
func CheckAnswer(form Form, model string, answersAs []string, answer []byte) error {
	if !call.IsObject(answer) {
		return fault.New(fault.ResultInvalid, "The provider's answer is no object; it was discarded.")
	}
	parts := "content"
	switch form {
	case Chat:
		parts = "choices"
	case Embeddings:
		parts = "data"
	case Responses:
		parts = "output"
	case Count: // it names no model, and says a number
		if !isNumber(answer, "input_tokens") {
			return fault.New(fault.ResultInvalid, "The provider's answer has no input_tokens; it was discarded.")
		}
		return nil
	}
	if list, ok := call.Get(answer, parts); !ok || list[0] != '[' {
		return fault.New(fault.ResultInvalid, "The provider's answer has no %s; it was discarded.", parts)
	}
	name, _ := call.GetText(answer, "model")
	return CheckName(model, answersAs, name)
}

// CheckName checks the name that an answer gives its model.
func CheckName(model string, answersAs []string, name string) error {
	if name != "" && (name == model || slices.Contains(answersAs, name)) {
		return nil
	}
	return fault.New(fault.OutputInvalid, "The answer says that it is from the model %s, and %s was asked; it was discarded.", display.Quote(name, 80), display.Quote(model, 80)).
		Try("An operator can list the name under answers_as of the model, if it is the same version.")
}

// UsageOf reads what an answer says that it used. said is false where a count is no number, or an impossible one.
func UsageOf(answer []byte) (u Usage, said bool) {
	raw, ok := call.Get(answer, "usage")
	if !ok || !call.IsObject(raw) {
		return u, false
	}
	counts, odd := 0, false
	read := func(names ...string) (n int64) {
		for _, name := range names {
			v, is := call.Get(raw, name)
			if !is || string(v) == "null" {
				continue
			}
			var one float64 // some providers write 12.0 or 1.2e1
			if err := json.Unmarshal(v, &one); err != nil || one < 0 || one >= 1<<40 {
				odd = true
				continue
			}
			counts++
			n += int64(math.Ceil(one))
		}
		return n
	}
	// Anthropic counts what came from its cache apart; OpenAI within.
	u.Input = read("input_tokens", "prompt_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
	u.Output = read("output_tokens", "completion_tokens")
	if odd || counts == 0 {
		return Usage{}, false
	}
	return u, true
}

// Refusal is an error in the form that the provider's SDKs read, with what the gateway says of it beside it.
func Refusal(p Provider, status int, code fault.Code, message string, verdict any, requestID string) []byte {
	kind := errorType(status)
	var body any
	if p == Anthropic {
		body = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message, "sallyport": verdict}, "request_id": requestID}
	} else {
		body = map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": string(code), "sallyport": verdict}}
	}
	b, err := json.Marshal(body)
	if err != nil { // of a verdict: can't be
		return []byte(`{"type":"error","error":{"type":"api_error","message":"Something went wrong inside the gateway."}}`)
	}
	return b
}

// errorType is the word of both providers for a status.
func errorType(status int) string {
	switch status {
	case 400, 409, 413, 422:
		return "invalid_request_error"
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 429:
		return "rate_limit_error"
	}
	return "api_error"
}
