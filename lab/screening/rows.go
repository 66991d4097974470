// Package screening trains the model of package screen, and measures what a detector finds in rows of text. Nothing here decides anything.
package screening

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// Row is a text of which people know what it is.
type Row struct {
	Text   string
	Label  Label
	Source string
	Kind   string
}

// Label says what a text is.
type Label int

// The labels. A grey text is neither: it counts in no figure and sets no threshold.
const (
	Benign Label = iota
	Attack
	Grey
)

const maxRow = 16 << 20

// Read reads rows of JSON, one a line, from a file, which may be compressed (.gz).
func Read(path string, each func(line []byte, r Row) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRow)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var row struct {
			Text   *string         `json:"text"`
			Label  json.RawMessage `json:"label"`
			Source string          `json:"source"`
			Kind   string          `json:"kind"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil || row.Text == nil {
			return fmt.Errorf("%s: line %d is not an object with text, label, source and kind", path, n)
		}
		r := Row{Text: *row.Text, Label: Grey, Source: row.Source, Kind: row.Kind}
		switch strings.Trim(string(row.Label), `"`) {
		case "0", "benign", "false":
			r.Label = Benign
		case "1", "attack", "true":
			r.Label = Attack
		}
		if strings.HasPrefix(r.Kind, "grey") || strings.HasPrefix(r.Kind, "gray") {
			r.Label = Grey
		}
		if err := each(lines.Bytes(), r); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Contextual tells whether an attack of a kind is one only because of where it stands: its words are those of any request.
func Contextual(kind string) bool {
	switch {
	case kind == "contextual", kind == "asb_naive", kind == "gcg_suffix", kind == "jailbreak_narrative":
		return true
	}
	return strings.HasPrefix(kind, "bare_") || strings.HasPrefix(kind, "indirect_bare_")
}

// harmful are kinds that ask for something harmful and order nobody about: what a model should answer is not what this model is for.
var harmful = map[string]bool{
	"academic_masking": true, "fiction_framing": true, "gradual_escalation": true, "mixed_script": true, "obfuscated": true, "pure_english": true,
	"pure_hindi": true, "research_framing": true, "stealth_academic": true, "stealth_fiction": true, "stealth_research": true,
}

// taskBegins are the words with which rows of tasktracker go over from their own words to a task that is another's.
var taskBegins = []string{"Answer the following question", "Please also answer", "You are "}

// ForTraining returns what of a row may be trained on, and false where nothing may.
func ForTraining(r Row) (Row, bool) {
	switch {
	case r.Label == Grey, r.Label == Attack && (Contextual(r.Kind) || harmful[r.Kind]):
		return r, false
	case r.Source == "bipia_train" && (r.Kind == "benign_table" || r.Kind == "benign_code"):
		return r, false
	case r.Source == "tasktracker":
		for _, w := range taskBegins {
			if i := strings.Index(r.Text, w); i > 20 {
				r.Text = r.Text[:i]
				return r, true
			}
		}
		return r, false
	}
	return r, true
}
