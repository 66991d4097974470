package runner

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/fingerprint"
	"sallyport.example/internal/run"
)

// What a tool gives back of the agent's own words stays the agent's; what a source said first is the source's.
func TestEchoedWordsStayTheAgents(t *testing.T) {
	const own = "the turbine has to be stopped at once because its third bearing runs hot and nobody in the hall has seen the warning lamp so far today"
	const quoted = "pressure in the second boiler was measured at nine in the morning by the shift leader and noted in the book of the hall as always"
	output, err := json.Marshal(map[string]string{"advice": own, "because": quoted})
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(own)
	text := func(s ...string) json.RawMessage {
		b, err := json.Marshal(map[string]any{"content": s})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 0, minute, 0, 0, time.UTC) }
	source := run.Read{Arguments: text("boiler"), Result: text(quoted), At: at(1)}
	for _, c := range []struct {
		name  string
		reads []run.Read
		mine  bool // the words are recognised as the agent's
	}{
		{"nothing said it", []run.Read{source}, true},
		{"a source said it", []run.Read{source, {Arguments: text("turbine"), Result: text(own), At: at(2)}}, false},
		{"a source said it before the agent did", []run.Read{source, {Arguments: text("turbine"), Result: text(own), At: at(2)}, {Arguments: text(own), Result: text(own), At: at(3)}}, false},
		{"a document says it", []run.Read{source, {Arguments: text("turbine"), Documents: []run.Document{{Text: own}}, At: at(2)}}, false},
		{"a document that has an agent's words", []run.Read{source, {Arguments: text("turbine"), Documents: []run.Document{{Text: own, Synthetic: true}}, At: at(2)}}, true},
		{"a tool echoes its arguments", []run.Read{source, {Arguments: text(own), Result: text("You said: " + own), At: at(2)}}, true},
		{"a tool puts two arguments together", []run.Read{source, {Arguments: text(strings.Join(words[:12], " "), strings.Join(words[12:], " ")), Result: text(own), At: at(2)}}, true},
		{"a later call reads what an earlier one wrote", []run.Read{source, {Arguments: text("n"), Result: text(own), At: at(3)}, {Arguments: text(own), At: at(2)}}, true},
		{"it was written in parts", []run.Read{source, {Arguments: text(strings.Join(words[:9], " ")), At: at(2)}, {Arguments: text(strings.Join(words[9:], " ")), At: at(3)}, {Arguments: text("n"), Result: text(own), At: at(4)}}, true},
		{"it was a member's name", []run.Read{source, {Arguments: json.RawMessage(`{"` + own + `":1}`), Result: text(own), At: at(2)}}, true},
		{"a name and its value", []run.Read{source, {Arguments: json.RawMessage(`{"` + strings.Join(words[:9], " ") + `":"` + strings.Join(words[9:], " ") + `"}`), Result: text(own), At: at(2)}}, true},
		{"after very much else", []run.Read{source, {Arguments: text(strings.Repeat("a ", 200_001)), At: at(2)}, {Arguments: text(own), Result: text(own), At: at(3)}}, true},
		{"arguments that are not kept", []run.Read{source, {At: at(2)}, {Arguments: text("n"), Result: text(own), At: at(3)}}, true},
	} {
		k := fingerprint.New(2)
		k.Add("run", printOf(output, c.reads, nil).Sample())
		if _, mine := k.Holds(fingerprint.Of(own)); mine != c.mine {
			t.Errorf("%s: the agent's own: %t", c.name, mine)
		}
		if _, mine := k.Holds(fingerprint.Of(quoted)); mine {
			t.Errorf("%s: what was quoted is taken for the agent's", c.name)
		}
	}
}
