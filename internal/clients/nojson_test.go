package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that can't be read says where, and in words for people what is wrong with it.
func TestFilesThatAreNoJSON(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  // mine\n  \"mcpServers\": {}\n}": "line 2, column 3: it has comments or a comma behind the last member, which Claude Code can't read either",
		"{\"mcpServers\": {\"a\": {}, }}":       "it has comments or a comma behind the last member",
		"":                                      "it is empty",
		" \n":                                   "it is empty",
		"{\"mcpServers\": {":                    "it ends before every { and [ is closed",
		"{\"mcpServers\": {\"é\" {}}}":          "line 1, column 21: it is no JSON",
		"{\n\"mcpServers\": {\"a\": {}}\n}\nmore}": "line 4, column 1: it is no JSON",
	} {
		path := filepath.Join(t.TempDir(), ".mcp.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}
