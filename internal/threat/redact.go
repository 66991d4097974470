package threat

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// redactRounds bounds how often Redact looks at its own output: taking one
// secret out can let the neighbouring text be read as another.
const redactRounds = 4

// withheld replaces a text that would still look like a secret after that.
const withheld = `"[redacted: the whole text]"`

// Redact returns b with each secret replaced by
//
//	[redacted:<kind> sha256:<first 12 hex digits>]
//
// where the hash is of the secret itself (JSON escapes undone), so that a
// reader can see that two places held the same secret. The hash of a guessable
// password lets a reader test guesses; show redacted text only to people who may
// know the password. Personal data stays: people need it to judge a call.
//
// Valid JSON stays valid JSON. Without a secret the result is b itself; b is never written to.
func (d *Detector) Redact(b []byte) []byte {
	out, _ := d.Look(b)
	return out
}

// Look is Redact and Labels in one.
func (d *Detector) Look(b []byte) (redacted []byte, labels []string) {
	return d.replace(b, func(out []byte, kind string, secret []byte) []byte {
		sum := sha256.Sum256(secret)
		out = append(append(append(out, "[redacted:"...), kind...), " sha256:"...)
		return append(hex.AppendEncode(out, sum[:6]), ']')
	})
}

// Mask returns b with each secret replaced by
//
//	[masked:<kind> hmac:<first 12 hex digits of its HMAC-SHA-256 under the key>]
//
// and these placeholders, each once. The same secret has the same placeholder for as long as the key is the same, and who has no key can test no guess.
// Valid JSON stays valid JSON; where that can't be, all of it is one text. Without a secret the result is b itself.
func (d *Detector) Mask(key, b []byte) (masked []byte, placeholders []string) {
	mac := hmac.New(sha256.New, key)
	masked, _ = d.replace(b, func(out []byte, kind string, secret []byte) []byte {
		mac.Reset()
		mac.Write(secret)
		placeholder := "[masked:" + kind + " hmac:" + hex.EncodeToString(mac.Sum(nil)[:6]) + "]"
		if !slices.Contains(placeholders, placeholder) {
			placeholders = append(placeholders, placeholder)
		}
		return append(out, placeholder...)
	})
	return masked, placeholders
}

// replacement appends what stands in place of a secret, which has no JSON escapes.
type replacement func(out []byte, kind string, secret []byte) []byte

func (d *Detector) replace(b []byte, with replacement) (out []byte, labels []string) {
	out, labels, found := d.replaceOnce(b, with)
	for range redactRounds {
		if !found {
			return out, labels
		}
		out, _, found = d.replaceOnce(out, with)
	}
	if !found {
		return out, labels
	}
	return []byte(withheld), labels
}

func (d *Detector) replaceOnce(b []byte, with replacement) (out []byte, labels []string, found bool) {
	s := d.scan(b, false)
	defer d.release(s)
	labels = s.labels()
	if !s.secret {
		return b, labels, false
	}
	s.settle(b)
	valid := json.Valid(b)
	var lit literals
	var view []byte
	out = make([]byte, 0, len(b)+64)
	pos := 0
	for _, h := range s.hits {
		if !h.kind.secret() || h.start < pos {
			continue
		}
		start, end := h.start, h.end
		for end < len(b) && !utf8.RuneStart(b[end]) {
			end++
		}
		quote := ""
		if valid {
			var inString bool
			if start, end, inString = lit.clip(b, start, end); !inString {
				quote = `"`
			}
			if start < pos {
				continue
			}
		}
		view = appendView(view[:0], b[h.start:h.end])
		out = append(out, b[pos:start]...)
		out = append(out, quote...)
		out = with(out, h.kind.name(), view)
		out = append(out, quote...)
		pos = end
	}
	out = append(out, b[pos:]...)
	if valid && !json.Valid(out) {
		return []byte(withheld), labels, true
	}
	return out, labels, true
}

// literals walks valid JSON once, from string to string.
type literals struct {
	at       int // everything before is walked
	inString bool
}

// clip fits [start,end) to the JSON literal it begins in: within a string it ends where the string ends; a
// number or word is taken whole. Calls come in the order of start.
func (l *literals) clip(b []byte, start, end int) (int, int, bool) {
	l.walk(b, start)
	if l.inString {
		w := *l
		for w.at < end && w.inString {
			w.walk(b, w.at+1)
		}
		if !w.inString {
			end = w.at - 1
		}
		return start, end, true
	}
	for start > 0 && !structural(b[start-1]) {
		start--
	}
	for end = start; end < len(b) && !structural(b[end]); end++ {
	}
	return start, end, false
}

// walk moves to offset to, or one byte further where to is inside an escape.
func (l *literals) walk(b []byte, to int) {
	for l.at < to {
		switch c := b[l.at]; {
		case c == '\\' && l.inString:
			l.at++
		case c == '"':
			l.inString = !l.inString
		}
		l.at++
	}
}

func structural(c byte) bool {
	switch c {
	case ' ', '\t', '\n', '\r', '{', '}', '[', ']', ':', ',', '"':
		return true
	}
	return false
}
