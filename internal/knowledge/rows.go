package knowledge

import (
	"encoding/csv"
	"io"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Bounds of the rows of one text.
const (
	maxRows    = 20_000
	maxColumns = 100
)

// Rows are the rows of a CSV text that stand whole in a part of it, each with the values of those columns that are wanted, by the exact names in the first row. Where the text is no
// table, its first row has a name twice, or twice but for spelling, or a row has more or fewer cells than it, there is none: it is not known then what stands in which column.
func Rows(text string, part Span, wanted []string) (rows []map[string]string) {
	r := csv.NewReader(strings.NewReader(text))
	header, err := r.Read()
	if err != nil || len(header) > maxColumns {
		return nil
	}
	seen, columns := map[string]bool{}, map[int]string{}
	for i, name := range header {
		folded := strings.ToLower(norm.NFKC.String(strings.TrimSpace(name)))
		if seen[folded] {
			return nil
		}
		seen[folded] = true
		for _, w := range wanted {
			if name == w {
				columns[i] = w
			}
		}
	}
	for n := 0; len(columns) > 0; n++ {
		start := int(r.InputOffset())
		cells, err := r.Read()
		if err == io.EOF {
			return rows
		}
		if err != nil || n == maxRows {
			return nil
		}
		if start < part.Start || int(r.InputOffset()) > part.End+1 { // the end of its line need not be in the part
			continue
		}
		row := map[string]string{}
		for i, name := range columns {
			if cells[i] != "" {
				row[name] = cells[i]
			}
		}
		rows = append(rows, row)
	}
	return nil
}
