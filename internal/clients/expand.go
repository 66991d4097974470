package clients

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"sallyport.example/internal/display"
)

// Value is a text of a client's file, with references replaced.
type Value struct {
	Text   string
	Secret bool // it is, or may hold, a credential
}

// expander replaces the references that clients know: ${VAR}, ${VAR:-default}, ${env:VAR}, ${input:id}, ${workspaceFolder} and the like.
type expander struct {
	o      Options
	on     bool              // the client replaces references; otherwise a text is what it is
	inputs map[string]string // id -> default
	reads  []string          // variables of the environment that were read
}

var (
	reference = regexp.MustCompile(`\$\{([^{}]*)\}`)
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	noLetters = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// value replaces the references in a text.
func (x *expander) value(text string) (v Value, err error) {
	if len(text) > maxValue || misleading(text) {
		return v, fmt.Errorf("it has a value with invisible or control characters, or of more than %d bytes", maxValue)
	}
	if !x.on {
		return Value{Text: text, Secret: strings.Contains(text, "${")}, nil
	}
	v.Text = reference.ReplaceAllStringFunc(text, func(ref string) string {
		s, secret, failed := x.reference(ref[2 : len(ref)-1])
		if failed != nil && err == nil {
			err = failed
		}
		v.Secret = v.Secret || secret
		return s
	})
	v.Secret = v.Secret || strings.Contains(v.Text, "${") // what was replaced is text, and no reference again
	return v, err
}

// maxValue bounds a value, in bytes.
const maxValue = 32 << 10

// misleading tells whether a text has characters that people don't see, or that a terminal obeys.
func misleading(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !display.Visible(r) })
}

// reference is what one reference stands for, and whether that may be a credential.
func (x *expander) reference(ref string) (text string, secret bool, err error) {
	name, fallback, given := strings.Cut(ref, ":-")
	switch name {
	case "workspaceFolder", "CLAUDE_PROJECT_DIR":
		return x.o.Folder, false, nil
	case "workspaceFolderBasename":
		return filepath.Base(x.o.Folder), false, nil
	case "userHome":
		if x.o.Home != "" {
			return x.o.Home, false, nil
		}
	case "pathSeparator", "/":
		return string(filepath.Separator), false, nil
	}
	if id, ok := strings.CutPrefix(ref, "input:"); ok {
		fallback = x.inputs[id]
		name, given = strings.ToUpper(strings.Trim(noLetters.ReplaceAllString(id, "_"), "_")), fallback != ""
	} else if env, ok := strings.CutPrefix(ref, "env:"); ok {
		name, fallback, given = env, "", false
	}
	if !variable.MatchString(name) {
		return "", false, fmt.Errorf("it refers to %s, which only the client knows: write the value", display.Quote("${"+ref+"}", 80))
	}
	if strings.HasPrefix(strings.ToUpper(name), "SALLYPORT_") {
		return "", false, fmt.Errorf("it refers to %s, which is the gateway's own", display.Quote(name, 80))
	}
	if s, ok := x.o.Lookup(name); ok && (s != "" || !given) {
		x.reads = append(x.reads, name)
		return s, true, nil
	}
	if given {
		return fallback, false, nil
	}
	return "", false, fmt.Errorf("it refers to %s, and there is no such variable: set %s and take the file over again", display.Quote("${"+ref+"}", 80), name)
}
