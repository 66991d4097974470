package claims

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/models/wire"
)

// judge answers as a model by the first of these words that stands in what it is asked; "": it fails.
func judge(sent *[]string, by map[string]string) ask.Ask {
	return func(_ context.Context, _ wire.Form, body json.RawMessage) (json.RawMessage, error) {
		*sent = append(*sent, string(body))
		for word, answer := range by {
			if strings.Contains(string(body), word) && answer != "" {
				text, err := json.Marshal(answer)
				return json.RawMessage(`{"choices":[{"message":{"content":` + string(text) + `},"finish_reason":"stop"}]}`), err
			}
		}
		return nil, fault.New(fault.TimeExceeded, "The model was too slow.")
	}
}

const sentence = "Acme Ltd was founded in 1999."

// The judge is asked about one source at a time. A verdict counts with a quote out of what it was shown; whatever else it does leaves the source silent.
func TestJudge(t *testing.T) {
	d := newDesk(t)
	d.model = "judge-1"
	for source, text := range map[string]string{
		"yes": "The founders of Acme Ltd met in May 1999 and founded it.", "no": "Acme Ltd was founded much later, in 2004.", "invented": "Acme Ltd is in Vienna.", "short": "Acme Ltd it is.",
		"slow": "Acme Ltd sleeps.", "unclear": "Acme Ltd was founded.", "other": "Acme Ltd says perhaps.",
	} {
		d.add(source, "a", text)
	}
	var sent []string
	d.own = judge(&sent, map[string]string{
		"met in May": `{"verdict":"yes","quote":"met in May 1999 and founded it"}`, "much later": `{"verdict":"no","quote":"founded much later, in 2004"}`,
		"in Vienna": `{"verdict":"yes","quote":"Acme was founded in 1999, says the registry"}`, "it is.": `{"verdict":"yes","quote":"it"}`,
		"was founded.": `{"verdict":"unclear","quote":""}`, "perhaps": `{"verdict":"perhaps","quote":"Acme Ltd says perhaps."}`,
	})
	names := []string{"yes", "no", "invented", "short", "slow", "unclear", "other"}
	for _, n := range names {
		d.sources = append(d.sources, prefix+n)
	}
	a := d.ask(people, Claim{Sentence: sentence})
	if said(a) != "yn-----" || a.Valid || a.Sources[0].Quote != "met in May 1999 and founded it" || a.Sources[2].Quote != "" {
		t.Errorf("%+v", a)
	}
	if len(sent) != len(names) {
		t.Fatalf("%d requests", len(sent))
	}
	for i, body := range sent {
		for j, other := range names {
			if i != j && strings.Contains(body, prefix+other+`\"`) {
				t.Errorf("%s is asked about %s, too", names[i], other)
			}
		}
	}
	if read, _, _ := a.Read(); len(read) != len(names) { // what the judge read counts as read, whatever it said
		t.Errorf("%d were read", len(read))
	}
	// Records go before the judge, also where they deny or contradict each other; fields go to it where there is none.
	d.add("no", "b", "company,founded\nAcme Ltd,2004-05-01\n")
	d.add("yes", "b", "# Acme Ltd\n\nfounded: 1999-05-01\n")
	d.add("yes", "c", "# Acme Ltd\n\nfounded: 1998-05-01\n")
	sent = nil
	d.sources = d.sources[:2]
	if a := d.ask(people, acme); said(a) != "-n" || len(sent) != 0 {
		t.Errorf("%+v, %d requests", a, len(sent))
	}
	d.sources = []string{"knowledge.slow"}
	if a := d.ask(people, acme); said(a) != "-" || len(sent) != 1 {
		t.Errorf("%+v, %d requests", a, len(sent))
	}
	d.model = ""
	if a := d.ask(people, Claim{Sentence: sentence}); said(a) != "-" || len(sent) != 1 {
		t.Errorf("no judge: %+v, %d requests", a, len(sent))
	}
}

// Ten copies of one text are one source, whichever of their words the judge quotes.
func TestJudgedCopiesAreOne(t *testing.T) {
	d := newDesk(t)
	d.model = "judge-1"
	quotes := []string{"The company Acme Ltd", "was founded in the year 1999", "by three sisters in Graz"}
	for _, s := range []string{"a", "b", "c"} {
		d.add(s, s, strings.Join(quotes, " ")+".")
		d.sources = append(d.sources, prefix+s)
	}
	var sent []string
	d.own = func(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error) {
		return judge(&sent, map[string]string{"": `{"verdict":"yes","quote":"` + quotes[len(sent)%3] + `"}`})(ctx, form, body)
	}
	if a := d.ask(people, Claim{Sentence: sentence}); said(a) != "yyy" || a.Valid {
		t.Errorf("%+v", a)
	}
	d.add("d", "d", "In 1999 three sisters from Graz, it is told, founded what is now Acme Ltd.")
	d.sources = []string{"knowledge.a", "knowledge.d"}
	d.own = judge(&sent, map[string]string{"it is told": `{"verdict":"yes","quote":"In 1999 three sisters from Graz"}`, "in the year 1999": `{"verdict":"yes","quote":"was founded in the year 1999"}`})
	if a := d.ask(people, Claim{Sentence: sentence}); said(a) != "yy" || !a.Valid || a.Confidence != 1 {
		t.Errorf("two of their own: %+v", a)
	}
}

// The judge is a sink: what has a label that may not go there does not, for people and for agents; and an agent is asked for in its own name alone.
func TestJudgeIsASink(t *testing.T) {
	d := newDesk(t)
	d.model, d.secret = "judge-1", "secret"
	d.add("open", "a", "The founders of Acme Ltd met in 1999 and founded it.")
	d.add("closed", "a", "The secret founders of Acme Ltd met in 1999 and founded it.", "secret")
	d.sources = []string{"knowledge.open", "knowledge.closed"}
	var own, agents []string
	yes := map[string]string{"": `{"verdict":"yes","quote":"founders of Acme Ltd met in 1999"}`}
	d.own = judge(&own, yes)
	if a := d.ask(people, Claim{Sentence: sentence}); said(a) != "y-" || len(own) != 1 || strings.Contains(own[0], "secret founders") {
		t.Errorf("people: %+v, %s", a, own)
	}
	d.asking = judge(&agents, yes)
	all := knowledge.Reader{AllSources: true, Labels: []string{"secret"}}
	if a := d.ask(all, Claim{Sentence: sentence}); said(a) != "y-" || len(own) != 1 || len(agents) != 1 || strings.Contains(agents[0], "secret founders") {
		t.Errorf("an agent: %+v, %d, %s", a, len(own), agents)
	}
	judged := 0
	for _, e := range d.entries {
		if e.Action == "claim.judge" && e.Agent == "x" {
			judged++
			if e.Model != "judge-1" || !strings.Contains(string(e.Detail), "doc_") || strings.Contains(string(e.Detail), "founders") {
				t.Errorf("%+v", e)
			}
		}
	}
	if judged != 1 {
		t.Errorf("%d are on record for the agent", judged)
	}
	d.asking = nil
	a, err := d.Validate(t.Context(), all, audit.Entry{Actor: "agent:x", Agent: "x"}, nil, "", Claim{Sentence: sentence}, nil)
	if err != nil || said(a) != "--" || len(own) != 1 {
		t.Errorf("an agent that may ask nobody: %+v, %v, %d", a, err, len(own))
	}
}

// What is labelled or withdrawn while it is written down that an agent asks the judge does not leave any more.
func TestLabelsAreReadAgainOnceTheJudgeIsOnRecord(t *testing.T) {
	for name, then := range map[string]func(d *desk, id string) error{
		"labelled": func(d *desk, id string) error {
			_, err := d.SetLabels(t.Context(), "person:a", id, "a test", []string{"secret"})
			return err
		},
		"withdrawn": func(d *desk, id string) error {
			_, err := d.Withdraw(t.Context(), "person:a", "a test", library.Withdrawal{Source: "open"})
			return err
		},
	} {
		d := newDesk(t)
		d.model, d.secret, d.sources = "judge-1", "secret", []string{"knowledge.open"}
		d.add("open", "a", "The founders of Acme Ltd met in 1999 and founded it.")
		var sent []string
		d.asking = judge(&sent, map[string]string{"": `{"verdict":"yes","quote":"founders of Acme Ltd met in 1999"}`})
		recorded := 0
		d.then = func() {
			recorded++
			if err := then(d, knowledge.DocumentID("open", "a")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if a := d.ask(knowledge.Reader{AllSources: true, Labels: []string{"secret"}}, Claim{Sentence: sentence}); said(a) != "-" || a.Valid || len(sent) != 0 || recorded != 1 {
			t.Errorf("%s: %+v, %d requests, recorded %d times", name, a, len(sent), recorded)
		}
	}
}

// A check that ends before all sources have answered, as the gateway stops or nobody waits any more, is an error, and no verdict on the claim.
func TestEndedChecksAreNoVerdicts(t *testing.T) {
	d := newDesk(t)
	d.model, d.sources = "judge-1", []string{"knowledge.open"}
	d.add("open", "a", "The founders of Acme Ltd met in 1999 and founded it.")
	if _, err := d.Snapshot(t.Context(), "person:a", ""); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	d.own = func(ctx context.Context, _ wire.Form, _ json.RawMessage) (json.RawMessage, error) {
		end()
		return nil, ctx.Err()
	}
	_, err := d.Validate(ctx, people, audit.Entry{Actor: "person:a"}, nil, "", Claim{Sentence: sentence}, nil)
	if !fault.Is(err, fault.TimeExceeded) {
		t.Error(err)
	}
	for _, e := range d.entries {
		if e.Action == "claim" {
			t.Errorf("on record: %+v", e)
		}
	}
}
