package threat

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sallyport.example/internal/display"
)

// cleanJSON is a result of about n bytes as MCP servers send them: JSON in a text block.
func cleanJSON(n int) []byte {
	var b strings.Builder
	b.WriteString("[")
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"id":%d,"uuid":"018f3f5e-7c1a-7cc3-8f6e-%012d","title":"Weekly team sync %d","description":"Discuss project updates,\nroadblocks and next steps.",`+
			`"start_time":"2024-05-26T17:%02d:00Z","location":"City Convention Center","url":"https://example.com/events/%d?ref=list","all_day":false,"amount":%d.25,"hash":"%016x"}`, i, i, i, i%60, i, i*37, i*7919)
	}
	b.WriteString("]")
	return []byte(`{"content":[{"type":"text","text":` + quoteJSON(b.String()) + `}]}`)
}

func BenchmarkScan(b *testing.B) {
	d := newDetector(b)
	r := rand.New(rand.NewPCG(3, 4))
	random := make([]byte, 768<<10)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	var dirty strings.Builder
	for _, s := range samples() {
		dirty.WriteString(s.text + "\n")
	}
	base := cleanJSON(64 << 10)
	rep := func(s string) []byte { return []byte(strings.Repeat(s, 1<<20/len(s))) }
	for _, c := range []struct {
		name string
		in   []byte
	}{
		{"clean 1KiB", cleanJSON(700)},
		{"clean 64KiB", base},
		{"dirty 64KiB", append([]byte(dirty.String()), base...)[:64<<10]},
		{"base64 1MiB", []byte(base64.StdEncoding.EncodeToString(random))},
		{"digits 1MiB", rep("4111111111111111")},
		{"digit groups 1MiB", rep("4111 ")},
		{"keywords 1MiB", rep("password")},
		{"assignments 1MiB", rep("token=")},
		{"urls 1MiB", rep("://a:b")},
		{"pem heads 1MiB", rep("-----BEGIN PRIVATE KEY-----")},
		{"jwt heads 1MiB", rep("eyJhbGciOiJIUzI1NiJ9.")},
		{"mails 1MiB", rep("a@b")},
		{"iban groups 1MiB", rep("DE89 3704 ")},
		{"backslashes 1MiB", rep(`\`)},
		{"prefixes 1MiB", rep("sk-ant-")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.in)))
			b.ReportAllocs()
			for b.Loop() {
				d.Scan(c.in)
			}
		})
	}
}

func BenchmarkRedact(b *testing.B) {
	d := newDetector(b)
	in := []byte(quoteJSON(strings.Repeat("password=hunter2x\n"+strings.Repeat("text ", 50), 240)))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		d.Redact(in)
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newDetector(b)
	}
}

func BenchmarkPrintable(b *testing.B) {
	s := strings.Repeat("plain \x1b[31m日本\u202e", 100)
	b.SetBytes(int64(len(s)))
	b.ReportAllocs()
	for b.Loop() {
		display.Line(s, 4096)
	}
}
