package claims

import (
	"encoding/csv"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/knowledge"
)

// Record is what a text says of a subject: a row of a table (CSV or Markdown), whose first column names the subject, or a line "attribute: value" below a heading
// that names it.
type Record struct {
	Subject string
	Fields  map[string]string // by attribute
	Quote   string
	Span    knowledge.Span
}

// Bounds of the records of one text.
const (
	maxRecords = 20_000
	maxColumns = 100
)

// Records are the records in a text.
func Records(text string) (all []Record) {
	var subject string
	var header []string
	at := 0
	for line := range strings.Lines(text) {
		start := at
		at += len(line)
		if len(all) == maxRecords {
			break
		}
		bare := strings.TrimSpace(line)
		quote := Record{Subject: subject, Quote: bare, Span: knowledge.Span{Start: start, End: start + len(strings.TrimRight(line, "\r\n"))}}
		if cells := cellsOf(bare); len(cells) > 1 {
			switch {
			case header == nil || len(header) != len(cells):
				header = cells
			case !isRule(cells):
				quote.Subject, quote.Fields = cells[0], map[string]string{}
				for i := 1; i < len(cells); i++ {
					quote.Fields[words(header[i])] = cells[i]
				}
				all = append(all, quote)
			}
			if !strings.Contains(bare, ": ") || strings.HasPrefix(bare, "|") {
				continue
			}
		} else {
			header = nil
		}
		if strings.HasPrefix(bare, "#") {
			subject = strings.TrimSpace(strings.TrimLeft(bare, "#"))
			continue
		}
		if attribute, value, ok := strings.Cut(strings.TrimLeft(bare, "-* "), ": "); ok && subject != "" && len(attribute) < 200 {
			quote.Fields = map[string]string{words(attribute): strings.TrimSpace(value)}
			all = append(all, quote)
		}
	}
	return all
}

// cellsOf are the cells of a line that is a row of a table.
func cellsOf(line string) []string {
	if inner, ok := strings.CutPrefix(line, "|"); ok {
		cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		return cells[:min(len(cells), maxColumns)]
	}
	if !strings.Contains(line, ",") {
		return nil
	}
	r := csv.NewReader(strings.NewReader(line))
	r.TrimLeadingSpace = true
	cells, err := r.Read()
	if err != nil || len(cells) > maxColumns {
		return nil
	}
	return cells
}

// isRule tells whether a row only separates the header from the others.
func isRule(cells []string) bool {
	return !slices.ContainsFunc(cells, func(c string) bool { return strings.Trim(c, "-: ") != "" })
}

// says is the value that the record has for the claim's attribute, if it is about its subject.
func (r *Record) says(c *Claim) (value string, ok bool) {
	if words(r.Subject) != words(c.Subject) {
		return "", false
	}
	value, ok = r.Fields[words(c.Attribute)]
	return value, ok && strings.TrimSpace(value) != ""
}

// words is a text by its words alone.
func words(s string) string {
	return strings.Join(slices.Collect(knowledge.Words(s)), " ")
}

var (
	thousands = regexp.MustCompile(`^-?\d{1,3}(,\d{3})+(\.\d+)?$`)
	number    = regexp.MustCompile(`^-?\d{1,40}(\.\d{1,40})?$`)
)

// dates are the forms in which a date is read. One that could be two dates, as 1/2/2026, is none of them.
var dates = []string{"2006-01-02", "2 January 2006", "January 2, 2006", "2 Jan 2006", "Jan 2, 2006", time.RFC3339}

// canonical is a value in the form in which values are compared: a date, a number, or words.
func canonical(value string) string {
	value = strings.TrimSpace(value)
	for _, form := range dates {
		if at, err := time.Parse(form, value); err == nil {
			return "date " + at.UTC().Format("2006-01-02")
		}
	}
	plain := value
	if thousands.MatchString(plain) {
		plain = strings.ReplaceAll(plain, ",", "")
	}
	if number.MatchString(plain) {
		if n, ok := new(big.Rat).SetString(plain); ok {
			return "number " + n.RatString()
		}
	}
	if w := words(value); w != "" {
		return "words " + w
	}
	return "text " + value
}
