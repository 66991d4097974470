package daemon

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The doctor looks for programs, and at what is reached on the network, all at once and within bounds. What it finds has a remedy.
func TestDoctorLooksAround(t *testing.T) {
	slow := make(chan struct{})
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(slow)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential was sent to look whether a server is there")
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-slow:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/id/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q}`, server.URL+"/id")
	})
	mux.HandleFunc("/other/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"issuer":"https://else.example"}`) })
	mux.HandleFunc("/hook", func(http.ResponseWriter, *http.Request) {
		t.Error("a message was sent to look whether its address is there")
	})
	bin := t.TempDir()
	for name, script := range map[string]string{"node": "echo v16.1.0", "uvx": "echo uvx 0.5.9", "docker": "echo no daemon >&2; exit 1", "own": "echo ran > " + filepath.Join(bin, "ran")} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	look := func(issuer, silent string) map[string]Check {
		cfg, err := ParseConfig("c.yaml", []byte(strings.NewReplacer("HERE", server.URL, "ISSUER", issuer, "SILENT", silent).Replace(`
upstreams:
  a: {command: [node, a.js]}
  b: {command: [uvx, b]}
  c: {command: [docker, run, c]}
  d: {command: [own]}
  e: {command: [nowhere]}
  f: {command: [npx, -y, f@1.0.0]}
  good: {url: "HERE/mcp", headers: {Authorization: "Bearer secret-word"}}
  broken: {url: "HERE/broken"}
  silent: {url: "HERE/SILENT?key=secret-word"}
  gone: {url: "http://127.0.0.1:1/mcp?key=secret-word"}
notify:
  - {kind: webhook, url: "HERE/hook", secret: 0123456789abcdef}
  - {kind: webhook, url: "http://127.0.0.1:1/secret-word", secret: 0123456789abcdef}
console: {oidc: {issuer: "HERE/ISSUER", client_id: x}}
`)), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Check{}
		doctorAround(t.Context(), cfg, func(name, state, remedy, format string, args ...any) {
			found[name] = Check{name, state, fmt.Sprintf(format, args...), remedy}
		})
		return found
	}
	began := time.Now()
	found := look("id", "silent")
	if took := time.Since(began); took > 4*lookTime { // one address never answers; one after the other would take longer still where many do
		t.Errorf("it took %s", took)
	}
	for name, want := range map[string][2]string{
		"program node":      {"warning", "16.1.0 at "},
		"program uvx":       {"ok", "0.5.9 at "},
		"program docker":    {"failed", "no daemon"},
		"program own":       {"ok", filepath.Join(bin, "own")},
		"program nowhere":   {"failed", "not found, for e"},
		"program npm":       {"failed", "not found, for f"},
		"server good":       {"ok", "answers"},
		"server broken":     {"warning", "502"},
		"server silent":     {"failed", "not within 5s"},
		"server gone":       {"failed", "refused"},
		"notify[0] webhook": {"ok", "nothing was sent"},
		"notify[1] webhook": {"failed", "refused"},
		"console.oidc":      {"ok", "answers as"},
	} {
		c, ok := found[name]
		if !ok || c.State != want[0] || !strings.Contains(c.Detail, want[1]) || (c.State != "ok" && c.Remedy == "") {
			t.Errorf("%s: %+v, want %v", name, c, want)
		}
		if strings.Contains(c.Detail+c.Remedy, "secret-word") {
			t.Errorf("%s shows a secret: %+v", name, c)
		}
	}
	if len(found) != 13 {
		t.Errorf("%d rows: %v", len(found), found)
	}
	if _, err := os.Stat(filepath.Join(bin, "ran")); err == nil {
		t.Error("a server's own program was run to ask for its version")
	}
	for issuer, want := range map[string]string{"other": "it calls itself", "none": "404"} {
		if c := look(issuer, "mcp")["console.oidc"]; c.State != "failed" || !strings.Contains(c.Detail, want) {
			t.Errorf("the issuer %s: %+v", issuer, c)
		}
	}
}
