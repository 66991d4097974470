package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/display"
	"sallyport.example/internal/store"
	"sallyport.example/lab/suggest"
)

// pinned makes a data directory in which a gateway has accepted these definitions.
func pinned(t *testing.T, definitions map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	signer, err := audit.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(dir, store.Options{Signer: signer})
	if err != nil {
		t.Fatal(err)
	}
	pins := []catalogue.Pin{{Operation: "mail.*", AcceptedAt: time.Unix(1, 0)}} // that the server was seen
	for operation, definition := range definitions {
		pins = append(pins, catalogue.Pin{Operation: operation, Hash: "h", Definition: []byte(definition), AcceptedAt: time.Unix(1, 0)})
	}
	if err := db.SavePins(t.Context(), pins, audit.Entry{Kind: audit.Change, Action: "server.seen", Decision: "ok"}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFlowSuggest(t *testing.T) {
	hostile := "x\n  evil.*: {effect: read}\u202e\u05d0\x1b[2J"
	definitions := map[string]string{
		"mail.send_email":   `{"name":"send_email","description":` + quoted(t, hostile) + `,"inputSchema":{"properties":{"to":{"type":"string"},"body":{"type":"string"},"attachment_path":{"type":"string"}}}}`,
		"mail.search":       `{"name":"search","annotations":{"readOnlyHint":true},"inputSchema":{"properties":{"query":{"type":"string"},"folder":{"type":"string"}}}}`,
		"mail.delete_event": `{"name":"delete_event","inputSchema":{"properties":{"event_id":{"type":"string"}}}}`,
		"mail.create_odd": `{"name":"create_odd","inputSchema":{"properties":{"to":{"type":"string"},` + quoted(t, hostile+"_url") + `:{"type":"string"},"<<_url":{"type":"string"},"on":{"type":"string","format":"email"},
			"yes":{"type":"string","format":"email"},"${HOME}_url":{"type":"string"},"a: b #c_url":{"type":"string"},"'\"_url":{"type":"string"},"- x_url":{"type":"string"},"*a_url":{"type":"string"},"1.5":{"type":"string","format":"email"}}}}`,
		"bank.*":          `{"name":"*","inputSchema":{"properties":{"query":{"type":"string"}}}}`,
		"bank.get_*":      `{"name":"get_*","inputSchema":{}}`,
		"bank.a\nb":       `{"name":"a\nb","inputSchema":{}}`,
		"bank.${HOME}":    `{"name":"${HOME}","inputSchema":{"properties":{"to":{"type":"string"}}}}`,
		"bank.pay: {x":    `{"name":"pay: {x","inputSchema":{"properties":{"amount":{"type":"number"},"payee":{"type":"string"}}}}`,
		"bank.no_schema":  `{"name":"no_schema"}`,
		"bank.bad_schema": `{"name":"bad_schema","inputSchema":{"properties":{"x":{"$ref":"http://x"}}}}`,
	}
	dir := pinned(t, definitions)
	suggested := func(args ...string) (string, string, int) {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"flow", "suggest", "--data", dir}, args...), strings.NewReader(""), &out, &errOut)
		return out.String(), errOut.String(), code
	}
	out, errOut, code := suggested()
	if code != 0 || errOut != "" {
		t.Fatalf("%d %s", code, errOut)
	}
	for _, r := range out {
		if r != '\n' && (r < ' ' || display.Hidden(r)) {
			t.Fatalf("%q reaches the terminal", r)
		}
	}
	for _, want := range []string{"You accept: what stands in body may be an outsider's.", "to: destination  # who gets it", "# attachment_path: it may be more than text, so it has to be confirmed",
		"# effect: read  # instead of level: the server says", "Nothing is proposed: its name can't stand in a configuration", "id_kind: event",
		`"on": destination`, `"yes": destination`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}

	// It is a configuration, of these operations and no others, that says what was proposed.
	cfg, err := daemon.ParseConfig("f", []byte("upstreams: {mail: {url: http://x}, bank: {url: http://y}}\n"+out), t.TempDir())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	left := map[string]bool{"bank.*": true, "bank.get_*": true, "bank.a\nb": true}
	for operation, definition := range definitions {
		o, ok := cfg.Operations[operation]
		if ok == left[operation] {
			t.Errorf("%q is in the configuration: %v", operation, ok)
		}
		if !ok {
			continue
		}
		server, name, _ := strings.Cut(operation, ".")
		p := suggest.For(server, suggest.Tool{Name: name, Definition: json.RawMessage(definition)})
		got, want := cfg.Classifier(nil)(server, name), p.Profile()
		want.Boundary = got.Profile().Boundary // external by default
		if !reflect.DeepEqual(got.Profile(), want) || got.Flow.Effect != "write" || string(got.Flow.Sensitivity) != string(p.Sensitivity) || !got.Flow.Untrusted {
			t.Errorf("%q was read as %+v, want %+v", operation, got.Profile(), want)
		}
		if o.Action != p.Action {
			t.Errorf("%q: action %q", operation, o.Action)
		}
	}
	if len(cfg.Operations) != len(definitions)-len(left) {
		t.Errorf("%d operations", len(cfg.Operations))
	}
	for _, w := range cfg.Warnings("f") {
		t.Errorf("lint: %s", w)
	}

	if one, _, _ := suggested("bank"); strings.Contains(one, "mail.") || !strings.Contains(one, "bank.no_schema") {
		t.Errorf("only bank was asked for:\n%s", one)
	}
	var printed struct{ Items []suggest.Proposal }
	out, _, _ = suggested("mail", "--output", "json")
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if data := printed.Items; len(data) != 4 || data[3].Args["to"] != "destination" || !strings.Contains(strings.Join(data[3].Allows, " "), "body is not checked except for links") {
		t.Errorf("as data: %s", out)
	}
	if _, why, code := suggested("nobody"); code != exitUsage || !strings.Contains(why, "bank, mail") {
		t.Errorf("%d %s", code, why)
	}
	if code := run(t.Context(), []string{"flow", "suggest", "--data", t.TempDir()}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}); code != exitUsage {
		t.Errorf("without a gateway: %d", code)
	}
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
