package daemon

import (
	"strings"
	"testing"
)

// TestFirstSightIsAWord: ask is the default, trust is of one server, and nothing else is a word.
func TestFirstSightIsAWord(t *testing.T) {
	cfg, err := ParseConfig("c", []byte("upstreams: {a: {url: http://x}, b: {url: http://y, first_sight: trust}, c: {url: http://z, first_sight: ask}}\n"), ".")
	if err != nil {
		t.Fatal(err)
	}
	classify := cfg.Classifier(nil)
	for server, trusts := range map[string]bool{"a": false, "b": true, "c": false, "none": false} {
		if got := classify(server, "x").TrustFirstSight; got != trusts {
			t.Errorf("%s: %v", server, got)
		}
	}
	if _, err := ParseConfig("c", []byte("upstreams: {a: {url: http://x, first_sight: yes}}\n"), "."); err == nil || !strings.Contains(err.Error(), "upstreams.a.first_sight") {
		t.Errorf("%v", err)
	}
}
