package call

import (
	"encoding/json"
	"strings"
	"testing"
)

// However many and long the files are, the record of them is bounded, tells how many it leaves out, and has one digest of all.
func TestRecordedInputsAreBounded(t *testing.T) {
	for name, path := range map[string]string{"plain": "d/f", "long": strings.Repeat("d/", 511), "escaped": strings.Repeat("<\x01", 511)} {
		for _, n := range []int{0, 1, 63, 5000} {
			in := &Inputs{Files: []InputFile{}, Workspace: &InputFolder{Entries: 1, SHA256: strings.Repeat("b", 64)}}
			for range n {
				in.Files = append(in.Files, InputFile{Path: path, Size: 1 << 40, SHA256: strings.Repeat("a", 64)})
			}
			r, err := in.Record()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(r)
			if err != nil || len(text) > maxRecorded+1024 {
				t.Errorf("%s, %d: %d bytes, %v", name, n, len(text), err)
			}
			if len(r.Files)+r.More != n || *r.Workspace != *in.Workspace || n == 1 && r.More != 0 {
				t.Errorf("%s, %d: %d files and %d more", name, n, len(r.Files), r.More)
			}
			if n == 0 {
				continue
			}
			last := in.Files[n-1].SHA256
			in.Files[n-1].SHA256 = strings.Repeat("c", 64)
			other, err := in.Record()
			if err != nil || other.SHA256 == r.SHA256 || len(r.SHA256) != 64 {
				t.Errorf("%s, %d: a change of the last file keeps the digest: %v", name, n, err)
			}
			in.Files[n-1].SHA256 = last
		}
	}
}
