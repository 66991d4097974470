package gateway_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"sallyport/internal/fault"
	"sallyport/internal/gateway"
)

// The judging stages together: everything between the credential and the intent, with eight arguments.
func BenchmarkJudge(b *testing.B) {
	w := newWorld(b)
	args := json.RawMessage(`{"query":"quarterly results","limit":10,"from":"2026-01-01","to":"2026-03-31","folder":"inbox","unread":false,"labels":["a","b"],"sort":"date"}`)
	r := gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "search_email", Arguments: args, Door: "mcp", DryRun: true}
	if _, err := w.g.SessionFor(b.Context(), as("worker")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if a := w.g.Call(b.Context(), r); a.Verdict.Decision != fault.Permit {
			b.Fatal(a.Verdict)
		}
	}
}

// A whole crossing with both records durable, but with a server that costs nothing; at several callers they share commits.
func BenchmarkCall(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			w := newWorld(b, func(o *gateway.Options) { o.Limits.CallsPerMinute = 0; o.Limits.Budget = 0 })
			r := gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "search_email", Arguments: json.RawMessage(`{"q":"x"}`), Door: "mcp"}
			b.ReportAllocs()
			b.SetParallelism(callers) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a := w.g.Call(b.Context(), r); a.Verdict.Decision != fault.Permit {
						b.Error(a.Verdict)
						return
					}
				}
			})
		})
	}
}
