package wire

import (
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"

	"sallyport.example/internal/call"
)

// Price is what a million tokens cost, in millionths of the currency.
type Price struct{ Input, Output int64 }

// Cost is what a request cost, in millionths of the currency, rounded up.
func (p Price) Cost(u Usage) int64 {
	const most = 1 << 62
	of := func(tokens, price int64) uint64 {
		high, low := bits.Mul64(uint64(max(0, tokens)), uint64(max(0, price)))
		if high >= 1_000_000 {
			return most
		}
		whole, rest := bits.Div64(high, low, 1_000_000)
		if rest > 0 {
			whole++
		}
		return min(whole, most)
	}
	return int64(min(of(u.Input, p.Input)+of(u.Output, p.Output), most))
}

const (
	// imageTokens is what is taken for an image: no provider counts more for one of the sizes that pass.
	imageTokens = 5000
	// overhead is what providers add to a request: their own words about tools, and the marks of messages.
	overhead = 16
	// maxUnlimited is the output limit of a request that says none, where what it uses is counted.
	maxUnlimited = 16384
)

// Estimate is how many tokens of input a request is taken for until its provider has counted them: four bytes are a token, two where they are no ASCII, and an
// image is as many as the largest.
func Estimate(form Form, body []byte) int64 {
	if form == Count { // providers count for nothing
		return 0
	}
	total := overhead + EstimateText(string(body))
	for e := range contentOf(form, body) {
		if isImage(e) {
			total += imageTokens - EstimateText(string(e))
		}
	}
	return total
}

// isImage tells a part of a conversation that is an image, and has no text.
func isImage(part json.RawMessage) bool {
	if _, has := call.Get(part, "text"); has {
		return false
	}
	kind, _ := call.GetText(part, "type")
	return slices.Contains([]string{"image", "image_url", "input_image"}, kind)
}

// EstimateText is how many tokens a text is taken for.
func EstimateText(text string) int64 {
	plain, other := 0, 0
	for i := range len(text) {
		if text[i] < 0x80 {
			plain++
		} else {
			other++
		}
	}
	return int64((plain+3)/4 + (other+1)/2)
}

// contentOf are the parts of a conversation's messages, and of the results of tools in them.
func contentOf(form Form, body []byte) func(yield func(json.RawMessage) bool) {
	return func(yield func(json.RawMessage) bool) {
		parts := func(list json.RawMessage) bool {
			if len(list) == 0 || list[0] != '[' {
				return true
			}
			for e := range call.Elements(list) {
				if !yield(e) {
					return false
				}
			}
			return true
		}
		if form == Embeddings {
			return
		}
		if form == Responses {
			input, _ := call.Get(body, "input")
			for item := range call.Elements(input) {
				content, _ := call.Get(item, "content")
				output, _ := call.Get(item, "output")
				if !parts(content) || !parts(output) {
					return
				}
			}
			return
		}
		messages, _ := call.Get(body, "messages")
		for m := range call.Elements(messages) {
			content, _ := call.Get(m, "content")
			if !parts(content) {
				return
			}
			if len(content) == 0 || content[0] != '[' || !form.toAnthropic() {
				continue
			}
			for e := range call.Elements(content) {
				if kind, _ := call.GetText(e, "type"); kind == "tool_result" {
					if inner, _ := call.Get(e, "content"); !parts(inner) {
						return
					}
				}
			}
		}
	}
}

// limits are the members that bound an answer, by form; the first is the one that is set where none is there.
var limits = map[Form][]string{Messages: {"max_tokens"}, Chat: {"max_completion_tokens", "max_tokens"}, Responses: {"max_output_tokens"}}

// OutputLimit is how many tokens a request lets its answer have: of two limits the larger, since the provider may go by either. 0: it says nothing, or it has no
// answer of tokens.
func OutputLimit(form Form, body []byte) (most int64) {
	for _, name := range limits[form] {
		raw, _ := call.Get(body, name)
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// LimitOutput lowers how many tokens the answer to a request may have. Where the request says nothing, it is bounded if counted says that what it uses is
// counted, or if most is fewer than its provider may be taken to answer with. lowered is the new limit; 0: the request is as it was.
func LimitOutput(form Form, body []byte, most int64, counted bool) (_ json.RawMessage, lowered int64) {
	names := limits[form]
	if len(names) == 0 {
		return body, 0
	}
	now := OutputLimit(form, body)
	if now == 0 {
		if !counted && most >= maxUnlimited {
			return body, 0
		}
		most = min(most, maxUnlimited)
	} else if now <= most {
		return body, 0
	}
	out := body
	for i, name := range names {
		raw, _ := call.Get(body, name)
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if over := err == nil && n > most; over || now == 0 && i == 0 {
			out = call.SetSorted(out, name, json.RawMessage(strconv.FormatInt(most, 10)))
		}
	}
	return out, most
}
