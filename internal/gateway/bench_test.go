package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/lab/sample"
)

// The judging stages together: everything between the credential and the intent, with eight arguments.
func BenchmarkJudge(b *testing.B) {
	w := newWorld(b, func(o *gateway.Options) { o.Limits.CallsPerMinute = 0 })
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

// Judging a send whose destination has to be looked for among ten thousand values that the session has seen; and the same call where the
// person's words settle it, and in a session that has read nothing, for which nothing is looked up.
func BenchmarkTrace(b *testing.B) {
	w := newTracedWorld(b)
	p := w.open("worker", "erin", errand)
	send := func(p identity.Principal, address string) gateway.Request {
		return gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_send", Arguments: json.RawMessage(to(address)), Door: "mcp", DryRun: true}
	}
	run := func(name string, r gateway.Request) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if a := w.g.Call(b.Context(), r); a.Verdict.Decision != fault.Permit {
					b.Fatal(a.Verdict)
				}
			}
		})
	}
	run("clean", send(p, "sales@acme.example"))
	for i := range 20 {
		var list []string
		for j := range 250 {
			list = append(list, fmt.Sprintf(`{"id":"n-%d","subject":"Offer %[1]d","sender":"s%[1]d@acme.example"}`, 1000*i+j))
		}
		w.says("mail.find", structured("["+strings.Join(list, ",")+"]"))
		w.mustPermit(w.do(p, "mail_find", `{"q":"Offer"}`, ""))
	}
	w.says("mail.find", structured(inbox))
	w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
	run("words", send(p, "anna@corp.example"))
	run("evidence", send(p, "sales@acme.example"))
}

// Reads in a session that outsiders have written in: what each call is given is kept before it runs. New sessions are opened on the way, since one keeps
// no more than its bounds.
func BenchmarkUntrustedRead(b *testing.B) {
	w := newTracedWorld(b)
	w.says("mail.find", structured(inbox))
	var p identity.Principal
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if n%700 == 0 {
			p = w.open("worker", "erin", errand)
		}
		n++
		w.mustPermit(w.do(p, "mail_find", fmt.Sprintf(`{"q":"Offer of the %d. week","folder":"inbox"}`, n%200), ""))
	}
}

// A read whose result has 64 KiB, fenced where it is untrusted, with scanning, screening, evidence and both records.
func BenchmarkResult64KiB(b *testing.B) {
	for _, kind := range append(sample.Kinds, "trusted") {
		b.Run(kind, func(b *testing.B) {
			w := newTracedWorld(b, screened(b))
			tool, args, of := "mail_find", `{"q":"Offer of the week","folder":"inbox"}`, kind
			if kind == "trusted" {
				tool, args, of = "mail_crm", `{}`, sample.Structured
			}
			text := sample.Text(of, 64<<10)
			quoted, err := json.Marshal(text)
			if err != nil {
				b.Fatal(err)
			}
			said := `{"content":[{"type":"text","text":` + string(quoted) + `}]}`
			if of == sample.Structured {
				said = structured(text)
			}
			w.says(strings.Replace(tool, "_", ".", 1), said)
			p := w.open("worker", "erin", errand)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if n++; n%8 == 0 { // a session keeps no more than its bounds
					p = w.open("worker", "erin", errand)
				}
				w.mustPermit(w.do(p, tool, args, ""))
			}
		})
	}
}
