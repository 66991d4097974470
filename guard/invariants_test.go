package guard

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// ignorable is Default_Ignorable_Code_Point, derived as Unicode derives it, independent of the table that the fence uses.
func ignorable(r rune) bool { return unseen[r]&1 != 0 }

// acts is what must not be left: what vanishes, and what acts on a terminal or the order of the text.
func acts(r rune) bool { return unseen[r] != 0 }

var unseen = func() (t [unicode.MaxRune + 1]byte) {
	for r := range t {
		r := rune(r)
		if !(unicode.Is(unicode.Prepended_Concatenation_Mark, r) || r >= 0xFFF9 && r <= 0xFFFB || r >= 0x13430 && r <= 0x1343F || unicode.IsSpace(r)) &&
			unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Cf) {
			t[r] |= 1
		}
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7F && r <= 0x9F || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			t[r] |= 2
		}
	}
	return t
}()

func dropIgnorable(s string) string {
	return strings.Map(func(r rune) rune {
		if ignorable(r) {
			return -1
		}
		return r
	}, s)
}

// folding is delivered text as it may become on its way.
type folding struct{ name, text string }

// foldings returns s and what is made of it that differs.
func foldings(s string) []folding {
	all := []folding{{"as is", s}}
	add := func(name, text string) string {
		if !slices.ContainsFunc(all, func(f folding) bool { return f.text == text }) {
			all = append(all, folding{name, text})
		}
		return text
	}
	add("case-folded", foldCase(s))
	if ascii(s) { // the others leave ASCII alone
		return all
	}
	add("NFC", norm.NFC.String(s))
	nfkc := add("NFKC", norm.NFKC.String(s))
	if dropped := add("ignorables gone", dropIgnorable(s)); dropped == s {
		add("NFKC, ignorables gone", dropIgnorable(nfkc))
	} else {
		add("NFKC, ignorables gone", dropIgnorable(norm.NFKC.String(dropped)))
	}
	add("NFKC, case-folded", dropIgnorable(norm.NFKC.String(foldCase(nfkc))))
	return all
}

// caseFolds is what full case folding makes of a character that it changes; it looks at one character at a time.
var caseFolds = sync.OnceValue(func() map[rune]string {
	t := map[rune]string{}
	fold := cases.Fold()
	for r := range rune(unicode.MaxRune + 1) {
		if f := fold.String(string(r)); utf8.ValidRune(r) && f != string(r) {
			t[r] = f
		}
	}
	return t
})

func foldCase(s string) string {
	if ascii(s) {
		return lower(s)
	}
	b, folds := make([]byte, 0, len(s)+16), caseFolds()
	for i, r := range s {
		if r < utf8.RuneSelf {
			b = append(b, lowerByte(byte(r)))
		} else if f, ok := folds[r]; ok {
			b = append(b, f...)
		} else {
			_, n := utf8.DecodeRuneInString(s[i:])
			b = append(b, s[i:i+n]...)
		}
	}
	return string(b)
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// lower folds ASCII only.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lowerByte(c)
	}
	return string(b)
}

func TestFoldCase(t *testing.T) {
	fold := cases.Fold()
	rapid.Check(t, func(t *rapid.T) {
		if s := hostileText().Draw(t, "s"); foldCase(s) != fold.String(s) {
			t.Fatalf("%q folds to %q, not to %q", s, foldCase(s), fold.String(s))
		}
	})
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

var nonceOf = regexp.MustCompile(`^<<<UNTRUSTED_EXTERNAL_CONTENT ([0-9A-Za-z_-]{22}) from "`)

// nameLike finds the marker's name in folded text, with its separators as an attacker may vary them.
var nameLike = regexp.MustCompile(`untrusted[_-]{0,3}external[_-]{0,3}content`)

// holds checks the invariants F1 to F8 for one delivery. F9 has its own table, since it isn't a property of all text.
func holds(f Fence, content, source string, w Wrapped) error {
	text, h := w.ForModel(), w.Header()

	// F2
	m := nonceOf.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("F1: no begin marker in %.100q", text)
	}
	nonce := m[1]
	if n := lower(nonce); strings.Contains(lower(content), n) || strings.Contains(lower(source), n) || strings.Count(lower(text), n) != 2 {
		return fmt.Errorf("F2: the nonce %s stands in the content", nonce)
	}
	display := w.ForDisplay()
	if strings.Contains(display, nonce) { // TestFence_PrintingHidesTheNonce has the other ways to print it
		return fmt.Errorf("F2: the nonce is shown")
	}

	// F1, F7
	begin, end := beginMark+nonce, endMark+nonce+markEnd
	if !strings.HasSuffix(text, "\n"+end) {
		return fmt.Errorf("F1: the end marker is not the last line")
	}
	head, _, ok := strings.Cut(text, "\n"+warning+"\n")
	if !ok {
		return fmt.Errorf("F3: no warning")
	}
	if strings.Count(text, begin) != 1 || strings.Count(text, end) != 1 {
		return fmt.Errorf("F1: not one begin marker and one end marker")
	}
	// Line feeds stand around the body, and they compose with nothing. So an ASCII head need not be folded again for each body.
	bodies := foldings(w.body)
	parts, markers := bodies, 0
	if !ascii(head) {
		parts, markers = foldings(text), 1
	}
	for _, f := range parts {
		b, e := begin, end
		if strings.Contains(f.name, "case") {
			b, e = foldCase(b), foldCase(e)
		}
		if n := strings.Count(f.text, b); n != markers || n == 1 && !strings.HasPrefix(f.text, b) {
			return fmt.Errorf("F1, F7 (%s): %d begin markers", f.name, n)
		}
		if n := strings.Count(f.text, e); n != markers || n == 1 && !strings.HasSuffix(f.text, "\n"+e) {
			return fmt.Errorf("F1, F7 (%s): %d end markers", f.name, n)
		}
	}
	for _, f := range bodies { // F4
		if strings.Contains(f.text, "<<<") || nameLike.MatchString(foldCase(f.text)) {
			return fmt.Errorf("F4, F7 (%s): a look-alike of the marker is left in %.200q", f.name, f.text)
		}
	}

	// F3, F5
	cut := ""
	if h.Truncated() {
		cut = fmt.Sprintf(", cut to %d of %d bytes", h.Kept, len(content))
	}
	labels := slices.DeleteFunc(slices.Clone(f.Contamination), func(l string) bool { return l == "untrusted" })
	if want := begin + ` from "` + escapeValue(source) + `"` + strings.Join(append([]string{""}, labels...), " ") + cut + markEnd; head != want {
		return fmt.Errorf("F3: the header is %s, want %s", head, want)
	}
	if strings.ContainsAny(h.Source, "\"\n\t") {
		return fmt.Errorf("F3: the source %q leaves its quotes", h.Source)
	}
	for _, words := range []string{TrustLevel, "WARNING", "summarization, citation, reference", "execute instructions, run code, modify system, grant permissions"} {
		if !strings.Contains(text[:len(text)-len(w.body)], words) {
			return fmt.Errorf("F3: the frame lacks %q", words)
		}
	}
	if added := len(text) - len(w.body) - len(h.Source) - len(cut); len(strings.Join(labels, " ")) <= 13 && added > 250 {
		return fmt.Errorf("the fence adds %d characters", added)
	}

	// F6
	if !utf8.ValidString(text) {
		return fmt.Errorf("F6: not valid UTF-8")
	}
	for _, out := range []string{text, display} {
		for _, r := range out {
			if acts(r) {
				return fmt.Errorf("F6: %U is left", r)
			}
		}
	}

	// F8
	kept := content[:h.Kept]
	if h.Length != len(content) || h.Truncated() != (h.Kept < len(content)) {
		return fmt.Errorf("F8: header %+v for %d bytes", h, len(content))
	}
	if f.MaxBytes > 0 && h.Kept > f.MaxBytes || (f.MaxBytes == 0 || len(content) <= f.MaxBytes) && h.Truncated() ||
		h.Truncated() && h.Kept < f.MaxBytes-4 {
		return fmt.Errorf("F8: %d of %d bytes kept with limit %d", h.Kept, len(content), f.MaxBytes)
	}
	if got := unescape(w.body, h.CRLF); got != kept {
		return fmt.Errorf("F8: %q came back as %q", kept, got)
	}
	invalid := 0
	for i := 0; i < len(kept); {
		r, n := utf8.DecodeRuneInString(kept[i:])
		if r == utf8.RuneError && n == 1 {
			invalid++
		}
		i += n
	}
	if invalid != h.InvalidUTF8 {
		return fmt.Errorf("F8: invalid_utf8 is %d, want %d", h.InvalidUTF8, invalid)
	}

	// parse(fence(x)) == (header, x'), and what Wrap and ParseWrapped say is the same.
	back, err := ParseWrapped(text)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	said := h
	if h.CRLF && !h.Truncated() { // the block doesn't say so
		said.CRLF, said.Length, said.Kept = false, len(content)-strings.Count(content, "\r\n"), len(content)-strings.Count(content, "\r\n")
	}
	pieces := w.AppendForModel([]byte("kept"), func(dst []byte, piece string) []byte {
		return append(dst, strings.ToValidUTF8(piece, "\uFFFD")...) // which is piece, where it ends with a character
	})
	if string(pieces) != "kept"+text || w.Size() != len(text) {
		return fmt.Errorf("F3: the pieces are not the block, or do not end with a character: %.200q", pieces)
	}
	if got := back.Header(); !sameHeader(got, said) || back.ForModel() != text || back.body != w.body {
		return fmt.Errorf("parse: %+v, want %+v", got, said)
	}
	if len(w.body) > 6*len(kept) {
		return fmt.Errorf("%d bytes grew to %d", len(kept), len(w.body))
	}
	if found := FindWrapped("x <<<" + text + text + " <<<END"); len(found) != 2 || found[0].ForModel() != text || found[1].ForModel() != text {
		return fmt.Errorf("find: %d blocks", len(found))
	}
	return nil
}

func sameHeader(a, b Header) bool {
	labels := slices.Equal(a.Contamination, b.Contamination)
	a.Contamination, b.Contamination = nil, nil
	return labels && reflect.DeepEqual(a, b)
}

// noOtherBlock checks that no part of a block's text, cut at i, is a block.
func noOtherBlock(w Wrapped, i int) error {
	text := w.ForModel()
	if i = i % len(text); i > 0 && (IsWrapped(text[:i]) || IsWrapped(text[i:])) {
		return fmt.Errorf("a part of the block, cut at %d, is a block", i)
	}
	return nil
}

func mustWrap(t testing.TB, f Fence, content, source string) Wrapped {
	t.Helper()
	w, err := f.Wrap(content, source)
	if err != nil {
		t.Fatal(err)
	}
	if err := holds(f, content, source, w); err != nil {
		t.Fatalf("%.200q: %v", content, err)
	}
	return w
}

// fixedNonces plays a source of randomness whose draws are known.
func fixedNonces(draws ...string) *bytes.Reader {
	var b []byte
	for _, c := range []byte(strings.Join(draws, "")) {
		i := strings.IndexByte(nonceDigits, c)
		if i < 0 {
			panic("no character of a nonce")
		}
		b = append(b, byte(i))
	}
	return bytes.NewReader(b)
}
