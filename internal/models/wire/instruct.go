package wire

import (
	"encoding/json"

	"sallyport.example/internal/call"
)

// Instruct puts a system message in front of a request, in the provider's own form: Anthropic's as the first block of the member system, OpenAI's as the
// first of the messages of a chat, and as the beginning of the instructions of a response. It looks at nothing that the client says: a copy of the message in the client's own text stays the client's text. Without a message,
// and where nobody is talked to, the request is as it was. A canonical body stays canonical.
func Instruct(form Form, body []byte, message string) (json.RawMessage, error) {
	if message == "" || form == Embeddings {
		return body, nil
	}
	text, err := canonicalText(message)
	if err != nil {
		return nil, err
	}
	if form == Responses {
		if theirs, _ := call.GetText(body, "instructions"); theirs != "" {
			if text, err = canonicalText(message + "\n" + theirs); err != nil {
				return nil, err
			}
		}
		return call.SetSorted(body, "instructions", text), nil
	}
	name, first := "messages", `{"content":`+string(text)+`,"role":"`+instructor(body)+`"}`
	if form.toAnthropic() {
		name, first = "system", `{"text":`+string(text)+`,"type":"text"}`
	}
	theirs, _ := call.Get(body, name)
	whole := append(make([]byte, 0, len(theirs)+len(first)+64), '[')
	whole = append(whole, first...)
	switch said, isText := call.Text(theirs); {
	case isText && said != "":
		whole = append(append(append(whole, `,{"text":`...), theirs...), `,"type":"text"}`...)
	case len(theirs) > 0 && theirs[0] == '[':
		for e := range call.Elements(theirs) {
			whole = append(append(whole, ','), e...)
		}
	}
	return call.SetSorted(body, name, append(whole, ']')), nil
}

func canonicalText(s string) (json.RawMessage, error) {
	text, err := call.Encode(s)
	if err != nil {
		return nil, err
	}
	return call.Canonical(text, call.DefaultLimits())
}

// instructor is the role of a chat's system message: the one that the client's own has. Providers refuse a chat that has both.
func instructor(chat []byte) string {
	messages, _ := call.Get(chat, "messages")
	for m := range call.Elements(messages) {
		if role, _ := call.GetText(m, "role"); role == "developer" {
			return role
		}
	}
	return "system"
}
