package main

import (
	"slices"
	"strings"
	"testing"
)

// A flag that may go without a value takes the next word, if that is no flag, as any flag does.
func TestWithValue(t *testing.T) {
	for given, want := range map[string]string{
		"init": "init", "init --from": "init --from= ", "init --from x": "init --from=x", "init --from=x y": "init --from=x y", "init d --from x --yes": "init d --from=x --yes",
		"init --from --yes": "init --from=  --yes", "init --from x d": "init --from=x d", "status --from x": "status --from x", "init --from -": "init --from=  -", "": "",
	} {
		args := strings.Fields(given)
		if got := strings.Join(withValue(args, "init", "--from"), " "); got != want {
			t.Errorf("%q became %q, not %q", given, got, want)
		}
		if !slices.Equal(args, strings.Fields(given)) {
			t.Errorf("%q was changed", given)
		}
	}
}

// Ids that nobody chose look alike: only what was cut off or mistyped is near.
func TestNearIDs(t *testing.T) {
	const one, other = "sess_01a20a380e4977e3b5eefcfda171f503", "sess_01a20a380e4977e3b5eefcfda1722222"
	ids := []string{one, other, "research-assistant", "writer"}
	for written, want := range map[string]string{
		one: "", one[:25]: one + " " + other, one[:len(one)-1] + "4": one, one[:len(one)-3]: one, "sess_01a20a380e4977e3b5eefcfda1aaaaaa": "",
		"reserch-assistant": "research-assistant", "Writer": "writer", "zebra": "", "": "", strings.Repeat("x", 500): "", "wri\x1bter": "writer",
	} {
		if got := strings.Join(nearIDs(written, ids), " "); got != want {
			t.Errorf("near %q: %q, not %q", written, got, want)
		}
	}
}

func TestJSONWanted(t *testing.T) {
	for line, want := range map[string]bool{
		"status -o json": true, "status -ojson": true, "status --output=json": true, "status --output json": true, "--output json status": true, "status -o=json": true,
		"status": false, "status -o yaml": false, "status -o": false, "sessions show json": false, "flow eval -- -o json": false,
	} {
		if got := jsonWanted(strings.Fields(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// Names that servers chose are completed only where a shell takes them for one word.
func TestIDsOf(t *testing.T) {
	all := []string{"s.read", "s.$(id)", "s.a b", "", "-x", "s.x\ny", "sess_1", "comm.fetch", "s.é"}
	if got := idsOf(all, func(s string) string { return s }); strings.Join(got, " ") != "s.read sess_1 comm.fetch" {
		t.Errorf("%q", got)
	}
}
