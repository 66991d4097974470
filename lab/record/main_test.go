package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/labels"
	"sallyport.example/internal/store"
)

// seen makes a data directory of a gateway that has seen these definitions of a server's tools.
func seen(t *testing.T, definitions map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	signer, err := audit.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(dir, store.Options{Signer: signer})
	if err != nil {
		t.Fatal(err)
	}
	var pins []catalogue.Pin
	for operation, definition := range definitions {
		pins = append(pins, catalogue.Pin{Operation: operation, Pending: call.HashBytes([]byte(definition)), PendingDef: []byte(definition), AcceptedAt: time.Unix(1, 0)})
	}
	if err := db.SavePins(t.Context(), pins, audit.Entry{Kind: audit.Change, Action: "server.seen", Decision: "ok"}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRecord: a new entry is one that the catalogue can read, and calls nothing a read; a later recording adds the definitions that are new, and leaves what a person wrote.
func TestRecord(t *testing.T) {
	entry := filepath.Join(t.TempDir(), "crm")
	read := func() *labels.Entry {
		t.Helper()
		b, err := os.ReadFile(entry + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		e, err := labels.Parse("crm", b)
		if err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		return e
	}
	const list, send = `{"inputSchema":{"type":"object"},"name":"list_deals"}`, `{"inputSchema":{"properties":{"to":{"type":"string"}},"type":"object"},"name":"send"}`
	first := seen(t, map[string]string{"crm.list_deals": list, "crm.send": send, "other.x": list})
	if err := record(t.Context(), first, "crm", "@vendor/crm-mcp@1.2.3", entry); err != nil {
		t.Fatal(err)
	}
	e := read()
	if len(e.Definitions) != 2 || e.Packages[0] != "@vendor/crm-mcp" || e.Version != "1.2.3" || e.Labelled("send")[0] != call.HashBytes([]byte(send)) {
		t.Errorf("%+v", e)
	}
	text, err := os.ReadFile(entry + ".yaml")
	if err != nil || strings.Contains(string(text), "effect") || strings.Contains(string(text), `"level":0`) {
		t.Errorf("it calls something a read: %v\n%s", err, text)
	}
	if err := os.WriteFile(entry+".yaml", []byte(strings.Replace(string(text), "unasked: nothing", "unasked: listing deals", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	const changed = `{"description":"Lists.","inputSchema":{"type":"object"},"name":"list_deals"}`
	second := seen(t, map[string]string{"crm.list_deals": changed, "crm.send": send})
	for range 2 {
		if err := record(t.Context(), second, "crm", "@vendor/crm-mcp@1.2.4", entry); err != nil {
			t.Fatal(err)
		}
	}
	e = read()
	if len(e.Definitions["list_deals"]) != 2 || len(e.Definitions["send"]) != 1 || e.Labelled("list_deals")[1] != call.HashBytes([]byte(changed)) || e.Unasked != "listing deals" {
		t.Errorf("recorded again: %+v", e)
	}
	for name, args := range map[string][3]string{"a server that was not seen": {"nobody", "x@1", entry}, "no version": {"crm", "@vendor/crm", entry}, "no entry": {"crm", "x@1", ""}} {
		if err := record(t.Context(), second, args[0], args[1], args[2]); err == nil {
			t.Errorf("%s: recorded", name)
		}
	}
}
