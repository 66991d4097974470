// Package sample makes results as tools give them, for benchmarks.
package sample

import (
	"fmt"
	"strings"
)

// Structured is the kind whose text is JSON records that belong into structured content.
const Structured = "structured"

// Kinds are the kinds of text.
var Kinds = []string{"words", "log", "source", "html", "records", Structured}

// Text is a text of a kind, of about size bytes. The text of an unknown kind is empty.
func Text(kind string, size int) string {
	fill := func(line func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(line(i))
		}
		return b.String()
	}
	switch kind {
	case "words":
		return fill(func(int) string { return "the quick brown fox jumps over the lazy dog and goes on to the river\n" })
	case "log":
		return fill(func(i int) string {
			return fmt.Sprintf("2026-05-%02dT10:%02d:%02d.123Z INFO request id=%08x from 10.0.%d.%d GET /v1/items/%d status=200 in 12.%dms\n", i%28+1, i%60, i%60, i*7919, i%256, i%250, i, i%10)
		})
	case "source":
		return fill(func(i int) string {
			return fmt.Sprintf("func f%d(a, b int) (int, error) {\n\tif a > b { // %[1]d\n\t\treturn pkg.Call(a.Field, b[%[1]d]), nil\n\t}\n}\n", i)
		})
	case "html":
		return fill(func(i int) string {
			return fmt.Sprintf("<li class=\"item\"><a href=\"https://news.example/story/%d\">Story %[1]d</a> by user%[1]d, %d points</li>\n", i, i%300)
		})
	case "records", Structured:
		return "[" + strings.TrimSuffix(fill(func(i int) string {
			return fmt.Sprintf(`{"id":"m-%d","subject":"Offer %[1]d for the week","sender":"s%[1]d@acme.example","date":"2026-05-%02d","size":%[3]d,"unread":%t,"body":"Dear Ann, the offer of the week is here: see https://acme.example/offers/%[1]d and write back."},`,
				1000+i, i%28+1, 100*i, i%2 == 0)
		}), ",") + "]"
	}
	return ""
}
