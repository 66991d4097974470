package audit

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// SignText signs one line of text that is not a checkpoint: kind is its first line, and says what it is, so that nothing that was signed for one purpose
// passes for another.
func (s *Signer) SignText(kind, line string) ([]byte, error) {
	if kind == s.Origin() || strings.Contains(kind+line, "\n") {
		return nil, errors.New("audit: a signed text has a kind and one line")
	}
	return note.Sign(&note.Note{Text: kind + "\n" + line + "\n"}, s.signer)
}

// ErrUntrusted says that a text has no signature of a key that is trusted.
var ErrUntrusted = errors.New("no signature of a trusted key")

// OpenText checks that a text of that kind was signed with one of the keys, and returns its line with the key that signed it, as ParsePublicKey reads it.
func OpenText(data []byte, kind string, keys []string) (line, key string, err error) {
	for _, key := range keys {
		v, err := ParsePublicKey(key)
		if err != nil {
			return "", "", err
		}
		n, err := note.Open(data, note.VerifierList(v))
		if unknown, forged := (*note.UnverifiedNoteError)(nil), (*note.InvalidSignatureError)(nil); errors.As(err, &unknown) || errors.As(err, &forged) {
			continue
		}
		if err != nil {
			return "", "", fmt.Errorf("not a signed text: %w", err)
		}
		lines := strings.Split(n.Text, "\n")
		if len(lines) != 3 || lines[0] != kind {
			return "", "", fmt.Errorf("not a text of the kind %q", kind)
		}
		return lines[1], key, nil
	}
	return "", "", ErrUntrusted
}
