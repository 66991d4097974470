package upstream

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// envelope is the outside of one JSON-RPC message. Its fields point into the frame; nil means absent.
type envelope struct {
	id, method, params, result, err []byte // raw JSON values
}

// open splits a frame into its top-level members without judging it: it only routes. Whoever uses what is inside checks the whole
// frame strictly first. ok is false when the frame is not one JSON object.
func open(frame []byte) (e envelope, ok bool) {
	ok = members(frame, func(key, value []byte) {
		switch string(key) {
		case "id":
			e.id = value
		case "method":
			e.method = value
		case "params":
			e.params = value
		case "result":
			e.result = value
		case "error":
			e.err = value
		}
	})
	if bytes.Equal(e.id, []byte("null")) {
		e.id = nil
	}
	return e, ok
}

// members calls each for every member of the JSON object in data, in order, with the key as it is written (escapes untouched) and
// the raw value. It is lenient about what is inside values. False means that data is not one object.
func members(data []byte, each func(key, value []byte)) bool {
	i := space(data, 0)
	if i >= len(data) || data[i] != '{' {
		return false
	}
	i = space(data, i+1)
	if i < len(data) && data[i] == '}' {
		return space(data, i+1) == len(data)
	}
	for {
		if i >= len(data) || data[i] != '"' {
			return false
		}
		end := skipString(data, i)
		if end < 0 {
			return false
		}
		key := data[i+1 : end-1]
		i = space(data, end)
		if i >= len(data) || data[i] != ':' {
			return false
		}
		i = space(data, i+1)
		end = skipValue(data, i)
		if end < 0 {
			return false
		}
		each(key, data[i:end])
		i = space(data, end)
		if i >= len(data) {
			return false
		}
		switch data[i] {
		case ',':
			i = space(data, i+1)
		case '}':
			return space(data, i+1) == len(data)
		default:
			return false
		}
	}
}

// elements calls each for every element of the JSON array in data. False means that data is not one array.
func elements(data []byte, each func(value []byte)) bool {
	i := space(data, 0)
	if i >= len(data) || data[i] != '[' {
		return false
	}
	i = space(data, i+1)
	if i < len(data) && data[i] == ']' {
		return space(data, i+1) == len(data)
	}
	for {
		end := skipValue(data, i)
		if end < 0 {
			return false
		}
		each(data[i:end])
		i = space(data, end)
		if i >= len(data) {
			return false
		}
		switch data[i] {
		case ',':
			i = space(data, i+1)
		case ']':
			return space(data, i+1) == len(data)
		default:
			return false
		}
	}
}

func space(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at data[i], or -1.
func skipString(data []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return -1
		}
		quote := i + n
		slashes := 0
		for quote-1-slashes >= i && data[quote-1-slashes] == '\\' {
			slashes++
		}
		i = quote + 1
		if slashes%2 == 0 {
			return i
		}
	}
}

// skipValue returns the index after the value that starts at data[i], or -1.
func skipValue(data []byte, i int) int {
	if i >= len(data) {
		return -1
	}
	switch data[i] {
	case '"':
		return skipString(data, i)
	case '{', '[':
		depth := 0
		for i < len(data) {
			switch data[i] {
			case '"':
				if i = skipString(data, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	}
	start := i
	for i < len(data) && data[i] != ',' && data[i] != '}' && data[i] != ']' && data[i] != ' ' && data[i] != '\t' && data[i] != '\n' && data[i] != '\r' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// word returns the contents of a raw JSON string that needs no unescaping, as method names and our own ids never do; "" otherwise.
func word(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' || bytes.IndexByte(raw, '\\') >= 0 {
		return ""
	}
	return string(raw[1 : len(raw)-1])
}

// printable makes hostile text safe for a log line, a terminal and a status page: what is not plainly printable (controls, bidirectional
// and other invisible characters, broken UTF-8) is escaped, and what is beyond max bytes is cut off.
func printable(s string, max int) string {
	out := make([]byte, 0, min(len(s), max)+3)
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if len(out)+n > max {
			return string(append(out, "…"...))
		}
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, `\x`...)
			out = strconv.AppendUint(out, uint64(s[0]), 16)
		case strconv.IsPrint(r):
			out = append(out, s[:n]...)
		default:
			q := strconv.AppendQuoteRuneToASCII(nil, r)
			out = append(out, q[1:len(q)-1]...)
		}
		s = s[n:]
	}
	return string(out)
}
