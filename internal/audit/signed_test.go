package audit

import (
	"errors"
	"strings"
	"testing"
)

// TestSignedTexts: what is signed is read as what it is, with a trusted key alone, and no checkpoint passes for a text, nor a text for a checkpoint.
func TestSignedTexts(t *testing.T) {
	signer, err := LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	other, err := LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.SignText("approvals v1", `{"a":1}`)
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{other.PublicKey(), signer.PublicKey()}
	if line, key, err := OpenText(signed, "approvals v1", keys); err != nil || line != `{"a":1}` || key != signer.PublicKey() {
		t.Errorf("%q %q %v", line, key, err)
	}
	if _, _, err := OpenText(signed, "approvals v1", keys[:1]); !errors.Is(err, ErrUntrusted) {
		t.Errorf("another key: %v", err)
	}
	if _, _, err := OpenText([]byte(strings.Replace(string(signed), "1}", "2}", 1)), "approvals v1", keys); !errors.Is(err, ErrUntrusted) {
		t.Errorf("changed: %v", err)
	}
	if _, _, err := OpenText(signed, "approvals v2", keys); err == nil {
		t.Error("another kind")
	}
	v, err := ParsePublicKey(signer.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCheckpoint(signed, v); err == nil {
		t.Error("a text passes for a checkpoint")
	}
	checkpoint, err := signer.Checkpoint(0, [32]byte{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenText(checkpoint, "approvals v1", keys); err == nil {
		t.Error("a checkpoint passes for a text")
	}
	for _, bad := range [][2]string{{signer.Origin(), "x"}, {"a\nb", "x"}, {"a", "x\ny"}} {
		if _, err := signer.SignText(bad[0], bad[1]); err == nil {
			t.Errorf("%q is signed", bad)
		}
	}
}
