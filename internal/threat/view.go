package threat

import (
	"bytes"
	"sort"
	"unicode/utf8"
)

// Rules see a view of the text in which JSON escapes are undone, so that
// neither "\u0041KIA…" nor the n of "\nAKIA…" hides anything. Tool results
// often hold JSON inside a JSON string; the view therefore undoes an escape
// at any depth: a run of backslashes of any length and the character after it
// are one unit. A text without a backslash is its own view.
//
// Offsets are mapped back by decoding again, unit by unit, and only when
// something was found; a unit is never split.

// unit decodes the run of backslashes at the start of b (b[0] is a backslash)
// and the escape after it: how many bytes it takes and what it stands for. A
// run that introduces no JSON escape stands for one backslash.
func unit(b []byte) (size int, r rune) {
	k := 1
	for k < len(b) && b[k] == '\\' {
		k++
	}
	if k == len(b) {
		return k, '\\'
	}
	switch b[k] {
	case 'n':
		return k + 1, '\n'
	case 'r':
		return k + 1, '\r'
	case 't':
		return k + 1, '\t'
	case 'b':
		return k + 1, '\b'
	case 'f':
		return k + 1, '\f'
	case '"', '/', '\'':
		return k + 1, rune(b[k])
	case 'u':
		if k+5 <= len(b) {
			v := rune(0)
			for _, c := range b[k+1 : k+5] {
				d := unhex(c)
				if d < 0 {
					return k, '\\'
				}
				v = v<<4 | d
			}
			return k + 5, v
		}
	}
	return k, '\\'
}

func unhex(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

// appendView appends the view of b to dst. It never grows the text.
func appendView(dst, b []byte) []byte {
	for len(b) > 0 {
		j := bytes.IndexByte(b, '\\')
		if j < 0 {
			return append(dst, b...)
		}
		dst = append(dst, b[:j]...)
		n, r := unit(b[j:])
		if r < utf8.RuneSelf {
			dst = append(dst, byte(r))
		} else {
			dst = utf8.AppendRune(dst, r)
		}
		b = b[j+n:]
	}
	return dst
}

// toRaw rewrites the offsets of hits from the view of b to b itself. A span
// that would begin or end inside a unit takes the whole unit.
func toRaw(b []byte, hits []hit) {
	type edge struct {
		at  int
		dst *int
		end bool
	}
	edges := make([]edge, 0, 2*len(hits))
	for i := range hits {
		edges = append(edges, edge{hits[i].start, &hits[i].start, false}, edge{hits[i].end, &hits[i].end, true})
	}
	sort.Slice(edges, func(i, j int) bool { return edges[i].at < edges[j].at })

	raw, view, e := 0, 0, 0
	for e < len(edges) {
		j := bytes.IndexByte(b[raw:], '\\')
		if j < 0 {
			j = len(b) - raw
		}
		for ; e < len(edges) && edges[e].at <= view+j; e++ {
			*edges[e].dst = raw + edges[e].at - view
		}
		raw += j
		view += j
		if raw == len(b) {
			break
		}
		n, r := unit(b[raw:])
		w := 1
		if r >= utf8.RuneSelf {
			w = utf8.RuneLen(r)
			if w < 0 { // a lone surrogate is shown as U+FFFD
				w = utf8.RuneLen(utf8.RuneError)
			}
		}
		for ; e < len(edges) && edges[e].at < view+w; e++ {
			*edges[e].dst = raw
			if edges[e].end {
				*edges[e].dst = raw + n
			}
		}
		raw += n
		view += w
	}
}
