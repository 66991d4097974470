package propose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/session"
	"sallyport.example/internal/store"
)

// worked is a data directory in which the tools were called in one session, each with an answer that brings untrusted content.
func worked(t *testing.T, operations ...string) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := gatewaytest.DataDir(t, t.TempDir())
	db, err := store.Open(dir, store.Options{})
	must(err)
	var pins []catalogue.Pin
	for operation, definition := range definitions {
		p := pin(operation, definition)
		p.AcceptedAt = time.Unix(1, 0)
		pins = append(pins, p)
	}
	must(db.SavePins(t.Context(), pins, audit.Entry{Kind: audit.Change, Action: "server.seen", Decision: "ok"}))
	s := session.New("worker", session.Execution, "host:desk", time.Now())
	must(db.OpenSession(t.Context(), s, audit.Entry{Kind: audit.Change, Action: "session.open", Agent: "worker", Session: s.ID, Decision: "ok"}))
	body := func(text string) *audit.Payload {
		return &audit.Payload{SHA256: call.HashBytes([]byte(text)), Size: int64(len(text)), Shown: json.RawMessage(text)}
	}
	for i, operation := range operations {
		e := audit.Entry{Kind: audit.Intent, Action: "call", Agent: "worker", Session: s.ID, CallID: fmt.Sprint("call_", i), Operation: operation, DefHash: "h:" + operation, Decision: "permit", Arguments: body(`{}`)}
		s, err = db.Intent(t.Context(), s.ID, s.Version, e, nil)
		must(err)
		e.Kind, e.Decision, e.Arguments, e.Labels, e.Result = audit.Outcome, "ok", nil, []string{"untrusted"}, body(`{"content":[{"type":"text","text":"a stranger's words"}]}`)
		s, err = db.Outcome(t.Context(), s.ID, e, nil, time.Millisecond)
		must(err)
	}
	must(db.Close())
	return dir
}

// What a person takes on the console is on record before it stands in the file, and counts for what was shown: not once the file, or the tool, is another.
func TestDesk(t *testing.T) {
	data, config := worked(t, "crm.get_customer", "crm.get_customer", "crm.touch"), filepath.Join(t.TempDir(), "sallyport.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(office)
	var recorded []audit.Entry
	var failing error
	d := NewDesk(config, data, func(_ context.Context, e audit.Entry) error {
		if now, _ := os.ReadFile(config); e.Decision == "ok" && strings.Contains(string(now), "crm.get_customer") {
			t.Error("the file changed before the record")
		}
		if recorded = append(recorded, e); failing != nil {
			return failing
		}
		return nil
	})
	list, err := d.Proposed(t.Context())
	if err != nil || len(list.Choices) != 2 || list.Without != "3 questions, 0 calls refused" || list.Work != "3 calls in 1 session" || len(list.Choices[0].Answers) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	reads := list.Choices[0].Answers[0]
	if reads.With != "0 questions, 1 call refused" || len(reads.Entries) != 1 || !strings.HasPrefix(reads.Entries[0], "crm.get_customer: {sensitivity: internal_source, effect: read") {
		t.Errorf("%+v", reads)
	}
	if err := d.Take(t.Context(), "nothing", "person:ann"); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	failing = errors.New("the log is full")
	if err := d.Take(t.Context(), reads.Digest, "person:ann"); !errors.Is(err, failing) {
		t.Errorf("%v", err)
	}
	if now, _ := os.ReadFile(config); string(now) != office {
		t.Errorf("without a record: %s", now)
	}
	failing, recorded = nil, nil
	if err := d.Take(t.Context(), reads.Digest, "person:ann"); err != nil {
		t.Fatal(err)
	}
	now, _ := os.ReadFile(config)
	if !strings.HasPrefix(string(now), office) || !strings.Contains(string(now), "by person:ann\n  crm.get_customer: {sensitivity: internal_source, effect: read") {
		t.Errorf("%s", now)
	}
	if len(recorded) != 1 || recorded[0].Action != "labels.add" || recorded[0].Actor != "person:ann" || !strings.Contains(string(recorded[0].Detail), `"crm.get_customer"`) {
		t.Errorf("%+v", recorded)
	}
	if list, err = d.Proposed(t.Context()); err != nil || len(list.Choices) != 1 {
		t.Errorf("after it: %+v %v", list, err)
	}
	if err := d.Take(t.Context(), reads.Digest, "person:ann"); !fault.Is(err, fault.Conflict) {
		t.Errorf("twice: %v", err)
	}
	other := list.Choices[0].Answers[0].Digest
	write(office + "operations: {crm.touch: {level: 2}}\n") // somebody edits it meanwhile
	if err := d.Take(t.Context(), other, "person:ann"); !fault.Is(err, fault.Conflict) {
		t.Errorf("for another file: %v", err)
	}
	write("nonsense: [")
	if _, err := d.Proposed(t.Context()); !fault.Is(err, fault.ConfigurationInvalid) {
		t.Errorf("%v", err)
	}
}

// The same entry for another definition is another answer.
func TestDigestIsForTheDefinition(t *testing.T) {
	c := Choice{Operations: []string{"crm.touch"}}
	o := &Option{Key: "y"}
	first, err := (&List{hashes: map[string]string{"crm.touch": "a"}}).digest(&c, o)
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := (&List{hashes: map[string]string{"crm.touch": "b"}}).digest(&c, o); second == first {
		t.Error("the digest does not tell definitions apart")
	}
}

// Other rules are tried on what was called: nothing is written, and what can't be tried says why.
func TestDeskTries(t *testing.T) {
	data, config := worked(t, "crm.get_customer", "crm.touch", "crm.touch"), filepath.Join(t.TempDir(), "sallyport.yaml")
	if err := os.WriteFile(config, []byte(office), 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewDesk(config, data, nil)
	sections, err := d.Sections(t.Context())
	if err != nil || sections != "unlisted_operations: ask\n" {
		t.Fatalf("%q, %v", sections, err)
	}
	same, err := d.Try(t.Context(), sections, 10*365*24*time.Hour)
	if err != nil || same.Was.Calls != 3 || same.Was != same.Now || len(same.Otherwise) != 0 {
		t.Errorf("the rules as they are: %+v, %v", same, err)
	}
	freer, err := d.Try(t.Context(), "operations: {crm.get_customer: {sensitivity: none, effect: read, output: trusted, external_io: false}}", 10*365*24*time.Hour)
	if err != nil || freer.Now.Questions >= freer.Was.Questions || len(freer.Otherwise) != 1 || freer.Otherwise[0].Operation != "crm.get_customer" || freer.Otherwise[0].Now != "permit" {
		t.Errorf("with a label: %+v, %v", freer, err)
	}
	for _, bad := range []string{"listen: 127.0.0.1:1", "flow: {", "operations: {crm.touch: {effect: maybe}}"} {
		if _, err := d.Try(t.Context(), bad, time.Hour); !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	d.trying.Lock()
	if _, err := d.Try(t.Context(), "", time.Hour); !fault.Is(err, fault.LimitRate) {
		t.Errorf("two at a time: %v", err)
	}
	if now, _ := os.ReadFile(config); string(now) != office {
		t.Errorf("the file was changed: %s", now)
	}
}
