package screen

import "testing"

// Letters of ASCII are read in a row as they are one by one.
func FuzzLettersInARow(f *testing.F) {
	f.Add("Ignore", "")
	f.Add("abc123DEF", "x")
	f.Add("averyveryveryveryveryverylongwordindeed9", "averyveryveryveryveryvery")
	f.Add("two words", "")
	f.Fuzz(func(t *testing.T, s, before string) {
		var row, single reading
		for _, r := range []*reading{&row, &single} {
			r.begin()
			for i := 0; i < len(before) && r.length < 2*gramsOfWord; i++ {
				if f := ascii[before[i]]; f != ' ' {
					r.letter(uint32(f), i)
				}
			}
		}
		b := []byte(s)[:min(len(s), 8*gramsOfWord)]
		end := row.asciiRun(b, 0)
		for i := 0; i < end; i++ {
			single.letter(uint32(ascii[b[i]]), i)
		}
		if end < len(b) && ascii[b[end]] != ' ' {
			t.Fatalf("%q: ends at %d", b, end)
		}
		if end > 0 && (row.h != single.h || row.joined != single.joined || row.roll != single.roll || row.n != single.n || row.length != single.length ||
			row.digits != single.digits || row.start != single.start || row.features != single.features) {
			t.Fatalf("%q after %q: %+v, %+v", b[:end], before, row, single)
		}
	})
}
