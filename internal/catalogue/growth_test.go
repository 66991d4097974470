package catalogue_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/internal/call"
)

// many are the definitions of n tools, as a server with as many offers them.
func many(n int) []call.Definition {
	defs := make([]call.Definition, n)
	for i := range defs {
		name := fmt.Sprintf("record_%d_update", i)
		text := fmt.Sprintf(`{"name":%q,"description":"Updates the record of kind %d. Use it after get_record_%d. %s","inputSchema":{"type":"object","properties":{"id":{"type":"string"},"value":{"type":"string"}}}}`,
			name, i, i, strings.Repeat("It returns the record as it is afterwards. ", 5))
		defs[i] = call.Definition{Kind: call.Tool, Name: name, JSON: json.RawMessage(text), Hash: call.HashBytes([]byte(text))}
	}
	return defs
}

// BenchmarkOffer is a server's tools offered for the first time, offered again as they were, and with one that changed.
func BenchmarkOffer(b *testing.B) {
	for _, n := range []int{500, 2000} {
		defs := many(n)
		b.Run(fmt.Sprintf("tools=%d/first", n), func(b *testing.B) {
			for b.Loop() {
				w := newWorld(b)
				if err := w.c.UpdateDefinitions(b.Context(), "mail", defs); err != nil {
					b.Fatal(err)
				}
			}
		})
		w := newWorld(b)
		if err := w.c.UpdateDefinitions(b.Context(), "mail", defs); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("tools=%d/again", n), func(b *testing.B) {
			for b.Loop() {
				if err := w.c.UpdateDefinitions(b.Context(), "mail", defs); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("tools=%d/list", n), func(b *testing.B) {
			for b.Loop() {
				w.c.Operations(w.worker)
			}
		})
	}
}
