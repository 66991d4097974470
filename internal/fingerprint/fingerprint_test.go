package fingerprint

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

const advice = "The checkout service answers slowly because its database has no free connections. Raise the pool to forty connections and watch the waiting time " +
	"for ten minutes. If it does not fall, page the team that owns the database and tell them which queries wait."

// prose is a text of n words.
func prose(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "w%d ", r.IntN(5000))
	}
	return b.String()
}

func TestSimilar(t *testing.T) {
	long := prose(1, 20_000)
	k := New(10)
	k.Add("advice", Of(advice))
	k.Add("long", Of(long))
	for _, c := range []struct {
		name, text, want string
	}{
		{"the same", advice, "advice"},
		{"other case, spaces and marks", strings.ToUpper(strings.ReplaceAll(advice, " ", "\n  *")), "advice"},
		{"inside a longer text", prose(2, 3000) + advice + prose(3, 3000), "advice"},
		{"its larger half", advice[:len(advice)*6/10], "advice"},
		{"its sentences in another order", "If it does not fall, page the team that owns the database and tell them which queries wait. The checkout service answers slowly because its database has no free connections.", "advice"},
		{"a few of its words", "The checkout service answers slowly because of the weather, and nobody has to be told about that today or tomorrow.", ""},
		{"too short to tell", "The checkout service answers slowly because its database", ""},
		{"something else", prose(4, 500), ""},
		{"nothing", "", ""},
		{"the whole of a long one", long, "long"},
		{"most of a long one", long[:len(long)*7/10], "long"},
		{"a passage of a long one", long[len(long)/2 : len(long)/2+len(long)/5], "long"},
		{"a long one in a longer one", prose(5, 30_000) + long, "long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := k.Similar(c.text)
			if !ok {
				got.ID = ""
			}
			if got.ID != c.want {
				t.Errorf("like %q with a share of %.2f, want %q", got.ID, got.Share, c.want)
			}
		})
	}
}

// A part of a text is held if half of its shingles stand in what is known, taken together; what a known text has besides does not count.
func TestHolds(t *testing.T) {
	words := func(text string, from, n int) string {
		return strings.Join(strings.Fields(text)[from:from+n], " ") + " "
	}
	a, b, long := prose(1, 250), prose(2, 250), prose(3, 20_000)
	k := New(10)
	k.Add("a", Of(a))
	k.Add("b", Of(b))
	k.Add("long", Of(long))
	for name, c := range map[string]struct {
		part string
		want bool
	}{
		"a passage":                      {words(a, 50, 100), true},
		"more than half":                 {words(a, 0, 64) + prose(9, 50), true},
		"less than half":                 {words(a, 0, 50) + prose(9, 64), false},
		"two passages, each below half":  {words(a, 0, 40) + words(b, 0, 40) + prose(9, 40), true},
		"a passage of a long one":        {words(long, 9000, 1200), true},
		"twelve words, whole":            {words(a, 0, 12), true},
		"twelve words among many others": {words(a, 0, 12) + prose(9, 200), false},
		"eleven words: too few to tell":  {words(a, 0, 11), false},
		"other words":                    {prose(9, 200), false},
		"most of a text among many more": {a + prose(9, 1500), false},
	} {
		if m, got := k.Holds(Of(c.part)); got != c.want {
			t.Errorf("%s: held %v, %q with a share of %.2f", name, got, m.ID, m.Share)
		}
	}
}

func TestTextsAreNotJoined(t *testing.T) {
	words := strings.Fields(advice)
	if p := Of(words...); len(p) != 0 {
		t.Errorf("single words have %d shingles", len(p))
	}
}

// What a text has from another is not its own.
func TestWithout(t *testing.T) {
	k := New(2)
	p := Of(advice + " Nobody else has to be told about it before the end of the week, and the report can wait.").Without(Of(advice))
	k.Add("own", p.Sample())
	if _, ok := k.Similar(advice); ok || !p.Tells() {
		t.Errorf("what was quoted is recognised as the text's own: %d shingles", len(p))
	}
	if _, ok := k.Similar("He said: nobody else has to be told about it before the end of the week, and the report can wait."); !ok {
		t.Error("what it added is not recognised")
	}
}

// A part of some hundred words is recognised of a text of any length that is looked at, and one of another text is not. What is kept is bounded.
func TestPartsOfLongTexts(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	text := func(n int) []string {
		words := make([]string, n)
		for i := range words {
			words[i] = fmt.Sprintf("w%d", r.IntN(3000))
		}
		return words
	}
	for _, n := range []int{300, 2000, 5000, 20_000, 60_000} {
		k := New(4)
		long := text(n)
		k.Add("long", Of(strings.Join(long, " ")).Sample())
		missed := 0
		for range 50 {
			at := r.IntN(n - 220)
			if _, ok := k.Holds(Of(strings.Join(long[at:at+220], " "))); !ok {
				missed++
			}
		}
		if missed > 1 {
			t.Errorf("of a text of %d words %d of 50 parts were not recognised", n, missed)
		}
		for range 50 {
			if m, ok := k.Holds(Of(strings.Join(text(220), " "))); ok {
				t.Errorf("another text is like a part of one of %d words: %+v", n, m)
			}
		}
	}
	k := New(4)
	for i := range 10 {
		k.Add(fmt.Sprint(i), Of(strings.Join(text(maxWords/4), " ")))
	}
	if k.hashes > 4*sampled+64*maxSampled || len(k.order) > 4 {
		t.Errorf("%d hashes of %d texts are kept", k.hashes, len(k.order))
	}
}

func TestTheOldestIsForgotten(t *testing.T) {
	k := New(3)
	text := func(i int) string { return strings.ReplaceAll(advice, " ", fmt.Sprintf(" n%d ", i)) }
	for i := range 5 {
		k.Add(fmt.Sprint(i), Of(text(i)))
	}
	for i := range 5 {
		if _, ok := k.Similar(text(i)); ok != (i >= 2) {
			t.Errorf("text %d is known: %v", i, ok)
		}
	}
	if len(k.prints) != 3 || len(k.order) != 3 {
		t.Errorf("%d prints and %d ids are kept", len(k.prints), len(k.order))
	}
}

// Prints may be written down, so they must not change.
func TestPrintIsStable(t *testing.T) {
	if p := Of("one two three four five"); len(p) != 1 || p[0] != 0xcb75493210c24f50 {
		t.Errorf("the print is %#x", p)
	}
}

func FuzzSimilar(f *testing.F) {
	f.Add(advice)
	f.Add("a b c d e f g h i j k l m n")
	f.Add("\xff\xfe ")
	f.Fuzz(func(t *testing.T, text string) {
		p := Of(text)
		k := New(2)
		k.Add("it", p)
		_, ok := k.Similar(text)
		if ok != p.Tells() {
			t.Errorf("a text of %d shingles is like itself: %v", len(p), ok)
		}
		if utf8.ValidString(text) && len(p) > len(text) {
			t.Errorf("%d shingles of %d bytes", len(p), len(text))
		}
	})
}
