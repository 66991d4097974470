package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"sallyport.example/internal/call"
)

// Point returns the file's text with the gateway's entry in place of its servers. The result is parsed again: it has that entry alone, and everything
// else as it was, or there is an error.
func (f *File) Point(s Setup) (text []byte, err error) {
	if f.Kind == "codex" {
		text = pointTOML(f.text, s.table())
	} else if text, err = f.pointJSON(s); err != nil {
		return nil, err
	}
	if err := f.sameBut(text); err != nil {
		return nil, fmt.Errorf("%s is of a form that can't be rewritten safely (%w): put the gateway into it by hand, as sallyport client config --kind %s prints it", f.Path, err, f.Kind)
	}
	return text, nil
}

// Pointed tells whether the gateway's entry is all that the file has: the very one that Point would put there, but for its token. The name decides
// nothing, since somebody else may have given it to a server of theirs.
func (f *File) Pointed(s Setup) bool {
	text, err := f.Point(s)
	if err != nil {
		return false
	}
	has := false
	for _, place := range f.places {
		now, err := f.entries(f.text, place)
		ours, failed := f.entries(text, place)
		if err != nil || failed != nil || len(now) != len(ours) {
			return false
		}
		for _, e := range now { // one, if there is a place
			if e.name != ownName || !sameEntry(e.value, ours[0].value) {
				return false
			}
			has = true
		}
	}
	return has
}

// sameEntry compares an entry with the gateway's, but for the token, which may stand in it as it is.
func sameEntry(entry, ours json.RawMessage) bool {
	plain := func(raw json.RawMessage) map[string]any {
		var m map[string]any
		if call.Decode(raw, &m) != nil {
			return nil
		}
		bearer := func(key string) {
			h, _ := m[key].(map[string]any)
			if v, _ := h["Authorization"].(string); len(h) == 1 && strings.HasPrefix(v, "Bearer ") {
				delete(m, key)
			}
		}
		bearer("headers")
		bearer("http_headers")
		if m["bearer_token_env_var"] == EnvToken {
			delete(m, "bearer_token_env_var")
		}
		if env, ok := m["env"].(map[string]any); ok {
			if delete(env, EnvToken); len(env) == 0 {
				delete(m, "env")
			}
		}
		return m
	}
	a, b := plain(entry), plain(ours)
	return a != nil && reflect.DeepEqual(a, b)
}

// ownName is the gateway's own name in clients' files.
const ownName = "sallyport"

func (f *File) pointJSON(s Setup) ([]byte, error) {
	text := f.text
	set := func(place []string, value any, insert bool) error {
		plain, err := f.json(text)
		if err != nil {
			return err
		}
		at, ok, err := find(plain, place)
		if err != nil || !ok && !insert {
			return err
		}
		if !ok { // right behind the bracket of the document, which has the servers as a member
			at.start = bytes.IndexByte(plain, '{') + 1
			at.end = at.start
		}
		line := text[bytes.LastIndexByte(text[:at.start], '\n')+1 : at.start]
		indent := string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
		if !ok {
			indent += "  "
		}
		raw, err := json.MarshalIndent(value, indent, "  ")
		if err != nil {
			return err
		}
		if !ok {
			raw = fmt.Appendf(nil, "\n%s%q: %s,", indent, place[0], raw)
		}
		text = bytes.Join([][]byte{text[:at.start], raw, text[at.end:]}, nil)
		return nil
	}
	for _, place := range f.places {
		if err := set(place, object{{ownName, s.entry(f.Kind)}}, false); err != nil {
			return nil, err
		}
	}
	if f.Kind == "vscode" {
		if err := set([]string{"inputs"}, s.inputs(), true); err != nil {
			return nil, err
		}
	}
	return text, nil
}

var (
	ownTable = regexp.MustCompile(`^\s*\[{1,2}\s*["']?mcp_servers["']?\s*[.\]]`)
	anyTable = regexp.MustCompile(`^\s*\[{1,2}[^\[\]]+\]{1,2}\s*(#.*)?$`)
)

// pointTOML leaves out the tables of servers, with what stands in them, and puts the gateway's at the end. A server that stands otherwise remains,
// which sameBut finds.
func pointTOML(text []byte, table string) []byte {
	var kept []string
	inside, pending := false, []string(nil) // pending: comments and blanks that may belong to what follows
	for line := range strings.Lines(string(text)) {
		switch {
		case ownTable.MatchString(line):
			inside, pending = true, nil
		case inside && anyTable.MatchString(line):
			kept = append(append(kept, pending...), line)
			inside, pending = false, nil
		case !inside:
			kept = append(kept, line)
		case strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#"):
			pending = append(pending, line)
		default:
			pending = nil
		}
	}
	out := strings.TrimRight(strings.Join(kept, ""), "\n")
	if out != "" {
		out += "\n\n"
	}
	return []byte(out + table)
}

// sameBut tells whether a text is the file's but for its servers, which are the gateway alone.
func (f *File) sameBut(text []byte) error {
	before, err := f.document(f.text)
	if err != nil {
		return err
	}
	after, err := f.document(text)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, after) {
		return errors.New("more than its servers would change")
	}
	for _, place := range f.places {
		entries, err := f.entries(text, place)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.name != ownName {
				return errors.New("it would keep a server")
			}
		}
	}
	return nil
}

// document is what the file says beside its servers.
func (f *File) document(text []byte) (doc map[string]any, err error) {
	if f.Kind == "codex" {
		if doc, err = readTOML(text); err != nil {
			return nil, err
		}
	} else if text, err = f.json(text); err != nil {
		return nil, err
	} else if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	for _, place := range f.places {
		at := doc
		for _, step := range place[:len(place)-1] {
			at, _ = at[step].(map[string]any)
		}
		delete(at, place[len(place)-1])
	}
	if f.Kind == "vscode" {
		delete(doc, "inputs")
	}
	return doc, nil
}

// Text is what the file has.
func (f *File) Text() []byte { return f.text }

// Masked is a text of the file's with points in place of the values that can be credentials.
func (f *File) Masked(text []byte) string {
	s := string(text)
	for _, secret := range f.secrets {
		for _, form := range []string{secret, inJSON(secret, true), inJSON(secret, false)} {
			s = strings.ReplaceAll(s, form, "•••")
		}
	}
	return s
}

// inJSON is a text as it stands between the quotes of JSON.
func inJSON(s string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if enc.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// Replace puts a text in the place of a file that still has the text of before, with the file's mode. It follows no link: the file would be another one
// than the person was shown.
func Replace(path string, before, text []byte) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is a link or no regular file: name the file itself", path)
	}
	now, err := readRegular(path, maxFile)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, before) {
		return fmt.Errorf("%s has changed meanwhile: run the command again", path)
	}
	out, err := os.CreateTemp(filepath.Dir(path), ".sallyport-*")
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	err = errors.Join(err, out.Chmod(st.Mode().Perm()), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		os.Remove(out.Name())
	}
	return err
}
