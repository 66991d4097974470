package audit

import "unicode/utf8"

// isCompact tells of bytes that they are one JSON value in UTF-8 with no white space between its tokens. It says so of no others, but not of all of these:
// not of a value that is deeper than maxCompactDepth.
func isCompact(b []byte) bool { return passValue(b, 0, 0) == len(b) }

const maxCompactDepth = 100

// passValue is where the value ends that begins at i; -1: none does that isCompact knows.
func passValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; c {
	case '"':
		return passText(b, i)
	case 't':
		return passWord(b, i, "true")
	case 'f':
		return passWord(b, i, "false")
	case 'n':
		return passWord(b, i, "null")
	case '{', '[':
		return passMembers(b, i, depth, c+2) // the closing bracket is two behind the opening one
	default:
		return passNumber(b, i)
	}
}

func passWord(b []byte, i int, word string) int {
	if end := i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end
	}
	return -1
}

func passMembers(b []byte, i, depth int, closing byte) int {
	if depth == maxCompactDepth {
		return -1
	}
	if i++; i < len(b) && b[i] == closing {
		return i + 1
	}
	for {
		if closing == '}' {
			if i = passText(b, i); i < 0 || i >= len(b) || b[i] != ':' {
				return -1
			}
			i++
		}
		if i = passValue(b, i, depth+1); i < 0 || i >= len(b) {
			return -1
		}
		switch b[i] {
		case ',':
			i++
		case closing:
			return i + 1
		default:
			return -1
		}
	}
}

func passText(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c >= utf8.RuneSelf:
			_, n := utf8.DecodeRune(b[i:])
			if n == 1 {
				return -1
			}
			i += n - 1
		case c < ' ':
			return -1
		case c == '\\':
			if i++; i >= len(b) {
				return -1
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(b)-i < 5 || !isHex(b[i+1]) || !isHex(b[i+2]) || !isHex(b[i+3]) || !isHex(b[i+4]) {
					return -1
				}
				i += 4
			default:
				return -1
			}
		}
	}
	return -1
}

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func passNumber(b []byte, i int) int {
	digits := func() bool {
		from := i
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}
