package models

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

const ownKey = "sk-provider-0123456789abcdef"

// providing is a set with one model, whose provider answers like this.
func providing(t *testing.T, answer http.HandlerFunc) *Set {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	s := New([]Model{{ID: "m", Provider: wire.OpenAI, Base: server.URL, Key: ownKey}})
	t.Cleanup(s.Close)
	return s
}

// Of a provider's headers those that SDKs read are handed on, with values of a plain form.
func TestHeadersOfAnswers(t *testing.T) {
	for value, want := range map[string]string{"req_1": "map[Request-Id:req_1]", "words of the provider": "map[]", "a\tb": "map[]", ownKey: "map[]", strings.Repeat("x", 129): "map[]"} {
		s := providing(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Request-Id", value)
			for name, v := range map[string]string{"Retry-After": "when you like", "Retry-After-Ms": "1e9", "X-Should-Retry": "perhaps", "Set-Cookie": "a=b", "X-Sallyport-Fallback": "m"} {
				w.Header().Set(name, v)
			}
			_, _ = io.WriteString(w, `{"model":"m","choices":[]}`)
		})
		r, err := s.Ask(t.Context(), wire.Request{Form: wire.Chat, Model: "m"}, nil)
		if got := fmt.Sprint(r.Headers); err != nil || got != want {
			t.Errorf("%.40q: %s, want %s: %v", value, got, want, err)
		}
	}
}

// An event that has the provider's key in it ends the answer, wherever it stands there: nothing of the event is handed on.
func TestEventsThatQuoteTheKey(t *testing.T) {
	const begin = `data: {"model":"m","choices":[{"index":0,"delta":{"content":"a "}}]}` + "\n\n"
	for name, event := range map[string]string{
		"a member that nobody knows": `{"model":"m","choices":[],"novel":"` + ownKey + `"}`,
		"the name of a member":       `{"model":"m","choices":[],"` + ownKey + `":1}`,
		"the name of the model":      `{"model":"` + ownKey + `","choices":[]}`,
		"letters that are escaped":   `{"model":"m","choices":[],"id":"` + strings.ReplaceAll(ownKey, "-", `\u002d`) + `"}`,
		"no JSON":                    ownKey,
	} {
		s := providing(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, begin+"data: "+event+"\n\ndata: [DONE]\n\n")
		})
		n := 0
		_, _, err := s.Stream(t.Context(), wire.Request{Form: wire.Chat, Model: "m", Stream: true}, nil, func(wire.Event) error { n++; return nil })
		if !fault.Is(err, fault.ResultInvalid) || !strings.Contains(fault.Of(err).Public(), "credential") || n != 1 {
			t.Errorf("%s: %v after %d events", name, err, n)
		}
	}
}
