package display

import (
	"strings"
	"testing"
)

// Characters that take two columns count as that.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		words bool
		want  string
	}{
		{"", false, ""}, {"abcdef", false, "abcdef"}, {"abcdefg", false, "abcdef|g"}, {"漢字漢字", false, "漢字漢|字"}, {"a漢字漢", false, "a漢字|漢"},
		{"ab cd ef", true, "ab cd|ef"}, {"ab cd ef", false, "ab cd |ef"}, {"a bcdefghi", true, "a bcde|fghi"}, {"abcdef ghi", true, "abcdef|ghi"},
	} {
		if got := strings.Join(Wrap(c.text, 6, c.words), "|"); got != c.want {
			t.Errorf("%q: %q, not %q", c.text, got, c.want)
		}
	}
}
