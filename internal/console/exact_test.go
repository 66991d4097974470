package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestDifferentValuesAreShownDifferently: no two different values are shown alike, also behind the last mark that a page has.
func TestDifferentValuesAreShownDifferently(t *testing.T) {
	for _, marks := range []int{0, marksOfValue - 1, marksOfValue, marksOfValue + 1} {
		shown := func(end string) []piece {
			raw, _ := json.Marshal(map[string]string{"k": strings.Repeat("a\u200b", marks) + "a" + end})
			return slices.DeleteFunc(exactly(raw), func(p piece) bool { return p.Kind == "note" }) // the length, which differs anyway
		}
		alike := []string{"   ", "[3 spaces]", `\[3 spaces]`, `\   `, "\u200b", `\u200b`, "\n", `\n`, "\n\u2502 ", "\u2502 "}
		var all [][]piece
		for i, end := range alike {
			now := shown(end)
			if at := slices.IndexFunc(all, func(p []piece) bool { return slices.Equal(p, now) }); at >= 0 {
				t.Errorf("behind %d marks %q and %q are shown alike", marks, alike[at], alike[i])
			}
			all = append(all, now)
		}
	}
}
