package diff

import (
	"strings"
	"testing"
)

func lines(before, after []string) (out []string) {
	Lines(before, after, func(a, b string) bool { return a == b }, func(kind Kind, line string) {
		out = append(out, map[Kind]string{Both: "", Before: "-", After: "+"}[kind]+line)
	})
	return out
}

func TestLines(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""}, {"a b c", "a b c", "a b c"}, {"a b c", "a x c", "a -b +x c"}, {"", "a", "+a"}, {"a", "", "-a"}, {"a b c d", "b c d e", "-a b c d +e"},
		{"a a a", "a a", "a a -a"}, {"a b", "b a", "-a b +a"},
	} {
		if got := strings.Join(lines(strings.Fields(c.before), strings.Fields(c.after)), " "); got != c.want {
			t.Errorf("%q to %q: %q", c.before, c.after, got)
		}
	}
	long := strings.Split(strings.Repeat("x,", 3*compared), ",")
	if got := lines(append([]string{"first"}, long...), append(long, "last")); len(got) < len(long) {
		t.Errorf("%d lines", len(got))
	}
}
