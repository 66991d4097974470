package models

import (
	"bytes"
	"encoding/hex"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

// quoted finds the gateway's key in what a provider answers: as it is, with letters that JSON escapes, however often, and in pieces of one text. A provider that
// means to tell it has other ways, and tells what it has anyway.
type quoted struct {
	key  []byte // nil: there is none
	ends map[string][]byte
}

func quotes(key string) *quoted { return &quoted{key: []byte(key)} }

func (q *quoted) in(b []byte) bool {
	return len(q.key) > 0 && (bytes.Contains(b, q.key) || bytes.IndexByte(b, '\\') >= 0 && bytes.Contains(unescaped(b), q.key))
}

// look is the error of an event that has the key in it.
func (q *quoted) look(event []byte) error {
	if q.in(event) {
		return errQuoted()
	}
	return nil
}

// goesOn is the error of pieces with which a text has it.
func (q *quoted) goesOn(pieces []wire.Arg) error {
	if len(q.key) == 0 {
		return nil
	}
	for _, piece := range pieces {
		text := append(q.ends[piece.Of], piece.Text...)
		if q.in(text) {
			return errQuoted()
		}
		if most := longestEscape * len(q.key); len(text) > most {
			text = append([]byte{}, text[len(text)-most:]...)
		}
		if q.ends == nil {
			q.ends = map[string][]byte{}
		}
		q.ends[piece.Of] = text
	}
	return nil
}

func errQuoted() error {
	return fault.New(fault.ResultInvalid, "The provider's answer quotes the gateway's credential; it was cut.")
}

// longestEscape is how many bytes a letter takes that is escaped in JSON within JSON.
const longestEscape = 7

// unescaped is a text without the escapes of JSON, of JSON in JSON and so on. It is for finding what is in it, and no text any more.
func unescaped(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			out = append(out, b[i])
			continue
		}
		for i < len(b) && b[i] == '\\' {
			i++
		}
		var letter [2]byte
		if len(b)-i >= 5 && b[i] == 'u' {
			if n, err := hex.Decode(letter[:], b[i+1:i+5]); err == nil && n == 2 && letter[0] == 0 {
				out, i = append(out, letter[1]), i+4
				continue
			}
		}
		if i < len(b) {
			out = append(out, b[i])
		}
	}
	return out
}
