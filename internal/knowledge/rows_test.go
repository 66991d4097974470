package knowledge

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Values are those of the columns with exactly the names that are wanted, of rows that are whole; a table that can be read in two ways has none.
func TestRows(t *testing.T) {
	const table = "name,iban,note\nAcme,DE1,\"says iban, DE9\nMallory,DE9,x\"\nBeta,DE2,fine\n"
	whole := Span{0, len(table)}
	for _, c := range []struct {
		name, text string
		part       Span
		want       string
	}{
		{"all rows; a cell with lines is one cell", table, whole, "Acme DE1|Beta DE2"},
		{"rows that are cut are left out", table, Span{strings.Index(table, "Beta") - 3, len(table)}, "Beta DE2"},
		{"a row whose end is cut", table, Span{0, len(table) - 4}, "Acme DE1"},
		{"no line end at the end", strings.TrimSuffix(table, "\n"), Span{0, len(table) - 1}, "Acme DE1|Beta DE2"},
		{"a name twice", "name,iban,iban\nAcme,DE1,DE9\n", Span{0, 100}, ""},
		{"a name twice but for case", "name,iban,IBAN\nAcme,DE1,DE9\n", Span{0, 100}, ""},
		{"a name twice but for width", "name,iban,ｉｂａｎ\nAcme,DE1,DE9\n", Span{0, 100}, ""},
		{"a name twice but for spaces", "name,iban, iban\nAcme,DE1,DE9\n", Span{0, 100}, ""},
		{"a look-alike alone", "name,ıban\nAcme,DE9\n", Span{0, 100}, "Acme "},
		{"another case alone", "name,IBAN\nAcme,DE9\n", Span{0, 100}, "Acme "},
		{"a path", "name,x.iban\nAcme,DE9\n", Span{0, 100}, "Acme "},
		{"too many cells", "name,iban\nAcme,DE1,DE9\n", Span{0, 100}, ""},
		{"too few cells", "name,iban\nAcme\n", Span{0, 100}, ""},
		{"a quote that is not closed", "name,iban\nAcme,\"DE1\n", Span{0, 100}, ""},
		{"a quote in a cell", "name,iban\nAcme,DE\"1\n", Span{0, 100}, ""},
		{"prose", "The iban: DE9 is the right one.\niban: DE9\n", Span{0, 100}, ""},
		{"a table in Markdown", "| name | iban |\n|---|---|\n| Acme | DE9 |\n", Span{0, 100}, ""},
		{"JSON", `{"name": "Acme", "iban": "DE9"}`, Span{0, 100}, ""},
		{"nothing", "", Span{}, ""},
	} {
		var got []string
		for _, row := range Rows(c.text, c.part, []string{"name", "iban"}) {
			got = append(got, row["name"]+" "+row["iban"])
			if slices.ContainsFunc(slices.Collect(maps.Keys(row)), func(k string) bool { return k != "name" && k != "iban" }) {
				t.Errorf("%s: %v", c.name, row)
			}
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if rows := Rows("a,b\n"+strings.Repeat("1,2\n", maxRows+1), Span{0, 1 << 20}, []string{"a"}); rows != nil {
		t.Errorf("%d rows of a table that is too long", len(rows))
	}
}
