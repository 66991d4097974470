package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/review"
	"sallyport.example/internal/threat"
)

// shownLength is how many bytes of a hostile string are shown in a list.
const shownLength = 300

// firstLength is how many bytes of the arguments are shown in a list.
const firstLength = 160

// words are the functions that templates use.
func (c *Console) words() template.FuncMap {
	return template.FuncMap{
		"p":       func(s any) any { return keepingOrder(display.Line(fmt.Sprint(s), shownLength)) },
		"by":      by,
		"whole":   func(s any) any { return keepingOrder(display.Line(fmt.Sprint(s), 64<<10)) },
		"at":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04") },
		"called":  call.TimeOf,
		"plain":   func(e audit.Entry) any { return keepingOrder(display.Line(audit.Plain(e), shownLength)) },
		"payload": payload,
		"data":    func(label any) string { return review.Data(fmt.Sprint(label)) },
		"ago":     func(t time.Time) string { return length(c.o.Clock().Sub(t)) + " ago" },
		"loaded":  HowLoaded,
		"left":    func(t time.Time) string { return length(t.Sub(c.o.Clock())) },
		"short":   func(hash string) string { return hash[:min(12, len(hash))] },
		"lower":   strings.ToLower,
		"odd":     threat.NameLookalike,
		"asset":   func(name string) string { return assetPaths[name] },
		"count":   count,
		"less":    func(n int) int { return n - 1 },
		"more":    func(n int) int { return n + 1 },
		"first":   func(raw json.RawMessage) string { return display.Line(string(raw), firstLength) },
		"own": func(votes []approval.Vote) bool {
			return slices.ContainsFunc(votes, func(v approval.Vote) bool { return v.Own })
		},
		"yes": func(votes []approval.Vote) (n int) {
			for _, v := range votes {
				if v.Decision == approval.Approve {
					n++
				}
			}
			return n
		},
	}
}

// by names who did something, for people: a person by the name alone, an agent's session as a link to it, and anybody else with the kind in front. The page of an
// audit entry has the exact words.
func by(actor any) any {
	text := display.Line(fmt.Sprint(actor), shownLength)
	if id, is := strings.CutPrefix(text, string(identity.Session)+":"); is {
		return template.HTML(`<a href="/sessions/` + template.HTMLEscapeString(id) + `">agent’s session</a>`)
	}
	return keepingOrder(identity.Shown(text))
}

// keepingOrder sets letters from right to left apart, each run of them by itself: a browser would move the numbers and the words that stand beside them. A run
// goes on over the spaces, digits and stops that its sentence has, and ends with its last such letter. The text is one that display made safe.
func keepingOrder(text string) any {
	if !strings.ContainsFunc(text, display.RightToLeft) {
		return text
	}
	var out strings.Builder
	for text != "" {
		begin := strings.IndexFunc(text, display.RightToLeft)
		if begin < 0 {
			break
		}
		out.WriteString(template.HTMLEscapeString(text[:begin]))
		text = text[begin:]
		end := 0
		for i, r := range text {
			if display.RightToLeft(r) || unicode.Is(unicode.M, r) {
				end = i + utf8.RuneLen(r)
			} else if !unicode.IsDigit(r) && !strings.ContainsRune(" .,:;'\"!?-/", r) {
				break
			}
		}
		out.WriteString("<bdi>" + template.HTMLEscapeString(text[:end]) + "</bdi>")
		text = text[end:]
	}
	out.WriteString(template.HTMLEscapeString(text))
	return template.HTML(out.String())
}

// payloadLength is how many bytes of a payload are shown in a list; the page of its entry has it whole.
const payloadLength = 600

// payload is what the log shows of arguments or a result.
func payload(p *audit.Payload) string {
	switch {
	case p == nil:
		return ""
	case len(p.Shown) > 0:
		return display.Line(string(p.Shown), payloadLength)
	}
	return plural(int(p.Size), "byte") + ", on the page of the entry"
}

// length writes a time in its largest unit, rounded down: 45 s, 12 min, 3 h, 5 d.
func length(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}
