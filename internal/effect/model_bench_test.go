package effect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/models/wire"
	"sallyport.example/internal/threat"
)

// BenchmarkModelRequest256KiB is what a request with a long conversation costs before it is judged: it is made what is sent, and taken apart into what was read before and what is new.
func BenchmarkModelRequest256KiB(b *testing.B) {
	e, err := Find(models(b), call.AskModel, "m-20250929")
	if err != nil {
		b.Fatal(err)
	}
	e = OnTerms(e, Terms{Message: strings.Repeat("You are an agent. ", 200), Output: 20_000})
	var history strings.Builder
	for i := range 256 {
		fmt.Fprintf(&history, `{"role":%q,"content":%q},`, []string{"user", "assistant"}[i%2], fmt.Sprint(i, strings.Repeat(" some words", 93)))
	}
	packed, err := wire.Packed(wire.Request{Form: wire.Chat, Body: json.RawMessage(`{"model":"m-20250929","max_tokens":100,"messages":[` + history.String() + `{"role":"user","content":"And now?"}]}`)})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(packed)))
	b.ReportAllocs()
	for b.Loop() {
		arguments, err := call.Canonical(packed, call.DefaultLimits())
		if err != nil {
			b.Fatal(err)
		}
		p, err := e.Parameters(arguments)
		if err != nil {
			b.Fatal(err)
		}
		if parts := Conversation(e, p.Canonical); len(parts) != 258 {
			b.Fatal(len(parts))
		}
	}
}

// BenchmarkStreamedEvent is what an event of a streamed answer costs: it is read, and its text looked at with what left before.
func BenchmarkStreamedEvent(b *testing.B) {
	const event = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"several words "},"finish_reason":null}]}` + "\n\n"
	detector, err := threat.New()
	if err != nil {
		b.Fatal(err)
	}
	const events = 2000
	answer := strings.Repeat(event, events) + "data: [DONE]\n\n"
	b.ReportAllocs()
	for b.Loop() {
		s, w := wire.NewStream(wire.Request{Form: wire.Chat, Model: "m", Stream: true}, nil, strings.NewReader(answer)), wire.NewWindow(false)
		for {
			e, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			if _, text, known := w.Add(e); len(text) > 0 {
				detector.LabelsSince(text, known)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/events, "µs/event")
}
