package httpapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"sallyport.example/internal/httpapi"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

// docs/openapi.json is what the gateway serves at /openapi.json, indented, with "dev" as its version. "make openapi" writes it anew.
func TestCommittedDocument(t *testing.T) {
	const file = "../../docs/openapi.json"
	w := newWorld(t)
	server := httptest.NewServer(httpapi.New(w.g, w.store, httpapi.Options{Version: "dev"}).Admin())
	defer server.Close()
	answer, err := http.Get(server.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%d: %v", answer.StatusCode, err)
	}
	var served bytes.Buffer
	if err := json.Indent(&served, bytes.TrimSpace(body), "", "  "); err != nil {
		t.Fatal(err)
	}
	served.WriteByte('\n')
	if *update {
		if err := os.WriteFile(file, served.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, served.Bytes()) {
		t.Errorf(`%s is not what the gateway serves: write it anew with "make openapi", and look at what changed`, file)
	}
}
