package flow

import (
	"encoding/json"
	"fmt"
	"testing"
)

// A manifest names a bounded number of the tools that another blocks, and says how many more there are, so that it grows with the tools and not with their
// square.
func TestManifestOfManyTools(t *testing.T) {
	const n = 3 * MaxBlocks
	read, err := Resolve(Spec{ID: "mail.read", Name: "read", Sensitivity: InternalSource}, []Label{"internal"})
	if err != nil {
		t.Fatal(err)
	}
	ops := []Operation{read}
	for i := range n {
		post, err := Resolve(Spec{ID: fmt.Sprint("web.post_", i), Name: fmt.Sprint("post_", i), Sensitivity: External}, []Label{"internal"})
		if err != nil {
			t.Fatal(err)
		}
		if ops = append(ops, post); i+1 == MaxBlocks {
			if got := Manifest(ops, nil)[0]; len(got.Blocks) != MaxBlocks || got.BlocksMore != 0 {
				t.Errorf("of %d: %d and %d more", MaxBlocks, len(got.Blocks), got.BlocksMore)
			}
		}
	}
	if got := Manifest(ops, nil)[0]; len(got.Blocks) != MaxBlocks || got.Blocks[MaxBlocks-1] != fmt.Sprint("post_", MaxBlocks-1) || got.BlocksMore != n-MaxBlocks {
		t.Errorf("of %d: %d and %d more", n, len(got.Blocks), got.BlocksMore)
	}
}

// BenchmarkManifest is what an agent is told of many tools, as JSON.
func BenchmarkManifest(b *testing.B) {
	for _, n := range []int{500, 2000} {
		ops := catalogue(b, n)
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			size := 0
			b.ReportAllocs()
			for b.Loop() {
				text, err := json.Marshal(Manifest(ops, nil))
				if err != nil {
					b.Fatal(err)
				}
				size = len(text)
			}
			b.ReportMetric(float64(size), "json-bytes")
		})
	}
}
