package call

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Encode is v as JSON with markup as it is, which encoding/json would escape. Objects and lists of texts, which results are made of, it writes itself:
// on a long text it is several times as fast.
func Encode(v any) (json.RawMessage, error) { return appendJSON(make([]byte, 0, sizeOf(v)), v) }

// LongText is a text that is put together as it is encoded: of pieces that it hands to append, one after the other, of which none ends within a character.
type LongText interface {
	AppendForModel(dst []byte, append func(dst []byte, piece string) []byte) []byte
	Size() int // of the pieces
}

// sizeOf is about how long v is as JSON.
func sizeOf(v any) int {
	n := 64
	switch v := v.(type) {
	case LongText:
		n += v.Size() + v.Size()/8 + 32
	case string:
		n += len(v) + len(v)/8 + 32
	case json.RawMessage:
		n += len(v)
	case map[string]any:
		for name, m := range v {
			n += len(name) + sizeOf(m)
		}
	case []any:
		for _, e := range v {
			n += sizeOf(e)
		}
	}
	return n
}

func appendJSON(dst []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case LongText:
		return append(v.AppendForModel(append(dst, '"'), appendPiece), '"'), nil
	case string:
		return appendText(dst, v), nil
	case map[string]any:
		if v == nil {
			break
		}
		dst = append(dst, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendJSON(append(appendText(dst, name), ':'), v[name]); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case []any:
		if v == nil {
			break
		}
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendJSON(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
	b := bytes.NewBuffer(dst)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// appendText writes a text as encoding/json does, but for the markup.
func appendText(dst []byte, s string) []byte {
	return append(appendPiece(append(slices.Grow(dst, len(s)+len(s)/8+24), '"'), s), '"')
}

// appendPiece writes a piece of a text, without quotes around it.
func appendPiece(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = slices.Grow(dst, len(s)+8)
	for i := 0; i < len(s); {
		if i+8 <= len(s) { // eight bytes at a time, of which those count that stand for themselves; see quoted
			w := binary.LittleEndian.Uint64([]byte(s[i : i+8]))
			stop := (w | (w - 0x20*ones) | ((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones)) & highs
			n := bits.TrailingZeros64(stop) / 8 // 8 where all do
			dst = binary.LittleEndian.AppendUint64(dst, w)
			dst = dst[:len(dst)-8+n]
			if i += n; n == 8 {
				continue
			}
		}
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20 && c < utf8.RuneSelf:
			dst = append(dst, c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				dst = append(dst, `\ufffd`...)
			case r == '\u2028' || r == '\u2029': // which end a line in JavaScript
				dst = append(dst, '\\', 'u', '2', '0', '2', hexDigits[r&15])
			default:
				dst = append(dst, s[i:i+size]...)
			}
			i += size - 1
		}
		i++
	}
	return dst
}
