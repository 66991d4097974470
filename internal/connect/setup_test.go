package connect

import (
	"os/exec"
	"testing"
)

func TestQuoteShell(t *testing.T) {
	for _, s := range []string{"", "plain", "with space", "it's", "$(rm)", "`x`", "a\\b", "\"", "http://127.0.0.1:1/mcp", "*", "é"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quoteShell(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q became %q (%v)", s, out, err)
		}
	}
}
