package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// envFile, beside the configuration, holds values for ${NAME} in it: credentials, so that the configuration can be kept where others read it.
//
// Each line is NAME=value, or NAME="value" with the value as JSON writes a string; blank lines and lines that begin with # say nothing. A name stands
// there once. The file belongs to nobody else: others may not read it.
const envFile = "sallyport.env"

const maxEnvFile = 1 << 20

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readEnvFile reads the file; without one there are no values.
func readEnvFile(path string) (vars map[string]string, problems []Problem) {
	bad := func(line int, remedy, format string, args ...any) {
		problems = append(problems, Problem{File: path, Line: line, Severity: "error", Problem: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	switch {
	case err != nil:
		bad(0, "", "can't be read: %v", err)
		return nil, problems
	case !st.Mode().IsRegular():
		bad(0, "make it a file", "is no regular file")
		return nil, problems
	case st.Mode().Perm()&0o077 != 0:
		bad(0, "run chmod 600 on it", "others can read or write it (mode %04o), and it holds credentials", st.Mode().Perm())
		return nil, problems
	}
	f, err := os.Open(path)
	if err != nil {
		bad(0, "", "can't be read: %v", err)
		return nil, problems
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	switch {
	case err != nil:
		bad(0, "", "can't be read: %v", err)
	case len(data) > maxEnvFile:
		bad(0, "", "has more than %d bytes", maxEnvFile)
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		bad(0, "write it as UTF-8", "is no text")
	}
	if problems != nil {
		return nil, problems
	}
	vars, number := map[string]string{}, 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if s := strings.TrimSpace(line); s == "" || s[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		_, twice := vars[name]
		switch {
		case !ok || !envName.MatchString(name):
			bad(number, "write NAME=value", "it does not begin with a name of letters, digits and _, and =")
		case twice:
			bad(number, "remove one", "%s is there twice", name)
		case strings.HasPrefix(value, `"`) && json.Unmarshal([]byte(value), &value) != nil:
			bad(number, `write it as JSON does: "a \"quoted\" text"`, "the value of %s begins with a quote and is no quoted text", name)
		default:
			vars[name] = value
		}
	}
	return vars, problems
}

// envText is the file for some values.
func envText(vars map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Values for ${NAME} in sallyport.yaml. Credentials: keep this file out of repositories and backups that others read.\n")
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		value := vars[name]
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("the value of %s is no text", name)
		}
		if value == "" || strings.ContainsAny(value, "\r\n") || value[0] == '"' || strings.TrimSpace(value) != value {
			quoted := &bytes.Buffer{}
			enc := json.NewEncoder(quoted)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(value); err != nil {
				return nil, err
			}
			value = strings.TrimSpace(quoted.String())
		}
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	return b.Bytes(), nil
}
