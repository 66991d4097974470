package search

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

const (
	// maxText bounds what is read of one payload. The rest of a longer one can't be found.
	maxText = 256 << 10
	// apart is a word that no text and no search has. It keeps phrases from running from one value into the next.
	apart = "\uE000"
	// formatOf is how words are made. An index of another one is built again.
	formatOf = "words 1"
)

// wordsOf are the words of an entry that it can be found by, as one text.
func wordsOf(ctx context.Context, e audit.Entry, payload func(ctx context.Context, key string) ([]byte, error)) (string, error) {
	// Texts of the knowledge store can be erased, and what agents ask it tells what stands there.
	if strings.HasPrefix(e.Operation, "knowledge.") || strings.HasPrefix(e.Action, "knowledge.") || e.Action == "claim" {
		return "", nil
	}
	var b strings.Builder
	add(&b, e.Reason)
	addJSON(&b, e.Detail)
	for _, p := range []*audit.Payload{e.Arguments, e.Result} {
		if p == nil {
			continue
		}
		shown := []byte(p.Shown)
		if p.Stored {
			var err error
			if shown, err = payload(ctx, p.Key); err != nil && !fault.Is(err, fault.NotFound) && ctx.Err() == nil {
				shown = nil // a payload that is damaged can't be found by
			} else if ctx.Err() != nil {
				return "", ctx.Err()
			}
		}
		addJSON(&b, shown)
	}
	return b.String(), nil
}

// add adds the words of one value.
func add(b *strings.Builder, text string) {
	begun := false
	for word := range knowledge.Words(text) {
		if begun {
			b.WriteByte(' ')
		}
		begun = true
		b.WriteString(word)
	}
	if begun {
		b.WriteString(" " + apart + " ")
	}
}

// addJSON adds the words of each string and number, also of those in JSON that was cut. What is no JSON is one value.
func addJSON(b *strings.Builder, raw []byte) {
	raw = raw[:min(len(raw), maxText)]
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for first := true; ; first = false {
		token, err := dec.Token()
		if err != nil {
			if first && len(raw) > 0 {
				add(b, strings.ToValidUTF8(string(raw), " "))
			}
			return
		}
		switch v := token.(type) {
		case string:
			add(b, v)
		case json.Number:
			add(b, v.String())
		}
	}
}

// parsed is a search as FTS5 reads it: all of the words have to be there. What stands in quotation marks, or has no space in it, stands there in one piece; a
// word that ends with * is the beginning of one. "" where there is no word.
func parsed(text string) string {
	var parts []string
	for quoted := false; text != ""; quoted = !quoted {
		part, rest, _ := strings.Cut(text, `"`)
		text = rest
		pieces := []string{part}
		if !quoted {
			pieces = strings.Fields(part)
		}
		for _, piece := range pieces {
			var words []string
			for word := range knowledge.Words(piece) {
				words = append(words, word)
			}
			if len(words) == 0 {
				continue
			}
			phrase := `"` + strings.Join(words, " ") + `"` // words are letters and digits alone
			if strings.HasSuffix(piece, "*") {
				phrase += " *"
			}
			parts = append(parts, phrase)
		}
	}
	return strings.Join(parts, " AND ")
}
