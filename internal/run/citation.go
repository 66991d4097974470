package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Citation is where an output says that it has a fact from (AG-9). Field is the path of the fact that it is for; "": it is for all of them.
type Citation struct {
	Source     string  `json:"source"`
	RecordID   string  `json:"recordId,omitempty"`
	Timestamp  string  `json:"timestamp"`
	Confidence float64 `json:"confidence"`
	Quote      string  `json:"quote,omitempty"`
	Field      string  `json:"field,omitempty"`
}

// Origin says where what a citation names came from.
type Origin string

const (
	Internal Origin = "internal"
	External Origin = "external" // from outside the organisation: it can't be shown as the agent's own knowledge (AT-4)
)

// Grade is how much of a citation was verified.
type Grade string

const (
	SourceOnly Grade = "source" // the run read the source: nothing shows that it says so
	ByRecord   Grade = "record" // the record that it names is in what was read
	ByQuote    Grade = "quote"  // its quote is in what was read
)

// grade is that of a citation that was verified.
func (c Citation) grade() Grade {
	switch {
	case c.Quote != "":
		return ByQuote
	case c.RecordID != "":
		return ByRecord
	}
	return SourceOnly
}

// Checked is a citation with what the gateway found.
type Checked struct {
	Citation
	Verified  bool      `json:"verified"`
	Origin    Origin    `json:"origin,omitempty"`    // of the call that it was matched with
	CallID    string    `json:"call_id,omitempty"`   // that call
	Operation string    `json:"operation,omitempty"` // and its operation
	ReadAt    time.Time `json:"read_at,omitzero"`    // when the gateway made the call
	Grade     Grade     `json:"grade,omitempty"`     // what was verified
	Why       string    `json:"why,omitempty"`       // it is not verified
}

// Read is a call of the run that brought something.
type Read struct {
	CallID    string
	Operation string
	Arguments json.RawMessage // as the record shows them
	Result    []byte          // as the record keeps it; nil: it is not kept
	At        time.Time       // of its intent
	External  bool
	Synthetic bool // it brought back what an agent had said: nothing can be cited from it (AG-11)
	Documents []Document
}

// Document is what a call read of a document of the knowledge store.
type Document struct {
	Source   string // knowledge. and its collection
	ID       string
	Version  int
	Text     string // of the part that was read
	External bool   // it is from an address
	Gone     bool   // it was withdrawn or erased since
	// Synthetic says that an agent's words are in it, which a person let in: whoever repeats them repeats the agent.
	Synthetic bool

	plain string // the words of Text
}

// maxCitations bounds the citations that are looked at.
const maxCitations = 200

// CheckCitations checks the citations of an output against what its run read. A source that the declaration does not name is fault.CitationUndeclared.
// Where the output has citations, at least one must be verified, and each member that the schema marks with x-fact needs one: otherwise it is
// fault.OutputInvalid. ended is the end of the run.
func CheckCitations(output json.RawMessage, d *agent.Declaration, reads []Read, ended time.Time) (all []Checked, q Quality, err error) {
	given, err := readCitations(output)
	if err != nil {
		return nil, q, err
	}
	for _, r := range reads {
		for i := range r.Documents {
			r.Documents[i].plain = plainWords(r.Documents[i].Text)
		}
	}
	declared := slices.Concat(d.DataSources.Tables, d.DataSources.APIs, d.DataSources.Models)
	for i, c := range given {
		if !slices.Contains(declared, c.Source) && !(strings.HasPrefix(c.Source, agent.KnowledgePrefix) && slices.Contains(declared, agent.KnowledgePrefix+"*")) {
			return nil, q, fault.New(fault.CitationUndeclared, "The declaration does not name %s as a data source.", display.Quote(c.Source, 80)).At(fmt.Sprintf("citations[%d].source", i)).
				Try("Declare it under dataSources and have the declaration approved, or take the fact from a source that is declared.")
		}
		one := c.check(reads, ended)
		all = append(all, one)
	}
	return all, QualityOf(all), backed(output, d, all)
}

// backed requires that the facts of an output have verified citations.
func backed(output json.RawMessage, d *agent.Declaration, all []Checked) error {
	_, has := call.Get(output, "citations")
	facts := marks(output, d.OutputSchema).facts
	if has && !slices.ContainsFunc(all, func(c Checked) bool { return c.Verified }) {
		return fault.New(fault.OutputInvalid, "None of the %d citations could be verified%s.", len(all), firstWhy(all)).At("citations").
			Try("Cite what the run has read: a declared source, and when.")
	}
	for _, fact := range facts {
		if !slices.ContainsFunc(all, func(c Checked) bool { return c.Verified && (c.Field == "" || c.Field == fact) }) {
			return fault.New(fault.OutputInvalid, "It is marked as a fact, and no verified citation is for it%s.", firstWhy(all)).At(fact).
				Try("Add a citation whose field names it, or one without a field, which is for every fact.")
		}
	}
	return nil
}

func firstWhy(all []Checked) string {
	for _, c := range all {
		if c.Why != "" {
			return ": " + c.Why
		}
	}
	return ""
}

func readCitations(output json.RawMessage) ([]Citation, error) {
	list, has := call.Get(output, "citations")
	if !has || string(list) == "null" {
		return nil, nil
	}
	if len(list) > 0 && list[0] != '[' {
		return nil, fault.New(fault.OutputInvalid, "It must be a list.").At("citations")
	}
	var all []Citation
	for element := range call.Elements(list) {
		at := fmt.Sprintf("citations[%d]", len(all))
		if len(all) == maxCitations {
			return nil, fault.New(fault.OutputInvalid, "It has more than %d elements.", maxCitations).At("citations")
		}
		var c Citation
		if !call.IsObject(element) || call.Decode(element, &c) != nil {
			return nil, fault.New(fault.OutputInvalid, "It must be an object with source, timestamp and confidence.").At(at)
		}
		if c.Confidence < 0 || c.Confidence > 1 {
			return nil, fault.New(fault.OutputInvalid, "It must be a number from 0 to 1.").At(at + ".confidence")
		}
		if c.Source == "" {
			return nil, fault.New(fault.OutputInvalid, "It is missing.").At(at + ".source")
		}
		if _, err := time.Parse(time.RFC3339, c.Timestamp); err != nil {
			return nil, fault.New(fault.OutputInvalid, "It must be a time like 2026-01-31T08:00:00Z.").At(at + ".timestamp")
		}
		all = append(all, c)
	}
	return all, nil
}

// What keeps a citation from being verified.
const (
	noCall     = "no call of this run read that source"
	noTime     = "its timestamp is not between the call and the end of the run"
	noRecord   = "its record is not in what was read"
	shortQuote = "its quote is too short to say anything: it needs 12 characters"
	noQuote    = "its quote is not in what was read"
	notKept    = "what was read is too long to be kept, so the quote can't be looked up"
	synthetic  = "what was read there is an agent's own output"
	gone       = "the document that was read there was withdrawn or erased"
)

// minQuote is how many characters a quote has at least: a shorter one is in too many texts to say anything.
const minQuote = 12

// check matches the citation with a call of the run. Of several calls the one that fits best counts.
func (c Citation) check(reads []Read, ended time.Time) Checked {
	one := Checked{Citation: c, Why: noCall}
	at, _ := time.Parse(time.RFC3339, c.Timestamp) // readCitations has
	best := -1
	for _, r := range partsOf(reads, c.Source) {
		why, rank := "", 4
		switch {
		case at.Before(r.At.Truncate(time.Second)) || at.After(ended.Add(time.Second)): // a timestamp may have whole seconds
			why, rank = noTime, 0
		case r.Synthetic:
			why, rank = synthetic, 1
		case r.gone():
			why, rank = gone, 1
		case c.RecordID != "" && !r.hasRecord(c.RecordID):
			why, rank = noRecord, 2
		case c.Quote != "" && utf8.RuneCountInString(plainWords(c.Quote)) < minQuote:
			why, rank = shortQuote, 3
		case c.Quote != "" && r.Result == nil && len(r.Documents) == 0:
			why, rank = notKept, 3
		case c.Quote != "" && !r.has(c.Quote):
			why, rank = noQuote, 3
		}
		if rank > best {
			best = rank
			one.Why, one.Verified, one.CallID, one.Operation, one.ReadAt, one.Origin = why, why == "", r.CallID, r.Operation, r.At, Internal
			if r.External {
				one.Origin = External
			}
			if one.Grade = ""; one.Verified {
				one.Grade = c.grade()
			}
		}
	}
	return one
}

// partsOf are the calls that read a source; of those that read documents, each document of the source by itself.
func partsOf(reads []Read, source string) (parts []Read) {
	for _, r := range reads {
		if strings.HasPrefix(source, agent.KnowledgePrefix) && len(r.Documents) > 0 {
			for _, d := range r.Documents {
				if d.Source == source {
					one := r
					one.Documents, one.External = []Document{d}, d.External
					parts = append(parts, one)
				}
			}
		} else if agent.Reads(r.Operation, r.Arguments, source) {
			parts = append(parts, r)
		}
	}
	return parts
}

// gone tells whether the one document that is meant is not there any more.
func (r *Read) gone() bool { return len(r.Documents) == 1 && r.Documents[0].Gone }

// hasRecord tells whether the record with the id is in what was read. A document is named by its id, or as ID@VERSION.
func (r *Read) hasRecord(id string) bool {
	if len(r.Documents) > 0 {
		return slices.ContainsFunc(r.Documents, func(d Document) bool { return !d.Gone && (id == d.ID || id == fmt.Sprintf("%s@%d", d.ID, d.Version)) })
	}
	return r.has(id)
}

func (r *Read) has(text string) bool {
	want := plainWords(text)
	return r.Result != nil && within(r.Result, text) ||
		want != "" && slices.ContainsFunc(r.Documents, func(d Document) bool { return hasWords(d.plain, want) })
}

// within looks a text up in the texts of checked JSON, as whole words, whatever white space and case they are written with.
func within(data []byte, text string) bool {
	want := plainWords(text)
	if want == "" || len(data) == 0 {
		return false
	}
	found := false
	call.Strings(data, func(_, s string) bool {
		found = hasWords(plainWords(s), want)
		return !found
	})
	return found
}

// hasWords tells whether text has want in it, with no letter or digit right before or after it.
func hasWords(text, want string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], want)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(want)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !wordRune(before) && !wordRune(after) {
			return true
		}
		_, size := utf8.DecodeRuneInString(text[start:])
		from = start + size
	}
}

func wordRune(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// plainWords are the words of a text, in lower case, with one space between them.
func plainWords(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), unicode.IsSpace), " ")
}
