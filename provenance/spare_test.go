package provenance

import (
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// FuzzSpared holds what is spared for most texts to what it spares: the work that would find nothing.
func FuzzSpared(f *testing.F) {
	for _, s := range []string{
		"", "plain words (in brackets) stay", "ev<b>il</b>@x.example", "a(b)c [d] e{f}g <h>", "x<!-- a > b -->y", "x<!--a>b", "a[b](https://c.example)", "((a)b)", "é(x)é", "(a)b", "a(b)",
		"a<a<a>b>b", "a(\xff)b", "\xff(a)\xff", "Ann <ann@corp.example>", "7", "-7", "-0", "0", "007", "1.50", "1e3", "4 000 EUR", "4,000 EUR", "EUR 1 250 , 00", "$1 2", "₹ 1 000", "12 34-5",
		"eve.example", "1.2.3.4", "[::1]", "10000000", "٣٤٥٦٧٨٩٠", "DE89 3704 0044 0532 0130 00", "aGVsbG8gd29ybGQ=", "aGVs\nbG8gd29y bGQ=", "a=b=", "\x1eaGVsbG8gd29ybGQ\x1e",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if from, to := markupIn(s); s[:from]+markup.ReplaceAllString(s[from:to], "$1"+joint+"$2")+s[to:] != markup.ReplaceAllString(s, "$1"+joint+"$2") {
			t.Errorf("%q: markup stands outside %q", s, s[from:to])
		}
		want, ok := formOf(s)
		if ok = ok && want.kind != text; !ok {
			want = form{}
		}
		if got, found := tokenForm(s); found != ok || ok && got != want {
			t.Errorf("%q is %v %v as a token, %v %v as a value", s, got, found, want, ok)
		}
		for token, got := range tokens(s) {
			if want, _ := formOf(token); got != want {
				t.Errorf("%q in %q is %v as a token, %v as a value", token, s, got, want)
			}
		}
		if n, ok := numberOf(s); ok {
			if r, is := new(big.Rat).SetString(s); !is || r.RatString() != n {
				t.Errorf("%q is the number %s", s, n)
			}
		}
		around := ".:;!?()[]\"'" + lower + upper
		var all []form
		for _, word := range append(strings.Fields(s), strings.Join(strings.Fields(s), "")) {
			if n, ok := amountOf(strings.Trim(word, around)); ok {
				all = append(all, form{number, n})
			}
		}
		got := appendNumbers(nil, s)
		for _, amount := range all {
			if !slices.Contains(got, amount) {
				t.Errorf("%q has the amount %s, which is not read", s, amount.value)
			}
		}
		whole, ok := base64Text(strings.Join(strings.Fields(strings.ReplaceAll(s, decodedMark, "")), ""))
		if ok && base64Decoded(s) != whole {
			t.Errorf("%q is base64 of %q, and read as %q", s, whole, base64Decoded(s))
		}
	})
}

// A text that is read once counts as given in each set as one that is read for the set alone.
func TestGivenIsReadOnce(t *testing.T) {
	var e Evidence
	e.Add(Observation{Operation: "a.b"})
	own := &known{forms: map[form]bool{{mail, "ann@corp.example"}: true}, hosts: map[string]bool{"corp.example": true}, read: &e}
	for _, s := range []string{"", "Ann <ann@corp.example>", "Dear Ann, write to ann@corp.example or eve@x.example by 4 000 EUR", "ZXZlQHguZXhhbXBsZQ==", "a(b)c corp.example", "chat-884422"} {
		read := readText(s)
		for _, k := range []*known{nil, own, nil} {
			var shared, alone given
			shared.addRead(read, 3, k)
			alone.add(s, 3, k)
			if !reflect.DeepEqual(shared, alone) {
				t.Errorf("%q: %+v, alone %+v", s, shared, alone)
			}
		}
	}
}
