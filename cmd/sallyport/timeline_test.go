package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"

	"sallyport.example/client"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/timeline"
)

// Entries of one call are one step, with the answers of people, and what was refused says because of which label, as on the page of the session.
func TestTimelineJoinsWhatBelongsTogether(t *testing.T) {
	ask := json.RawMessage(`{"approval_id":"appr_1"}`)
	entries := []client.Entry{
		{Index: 3, Kind: "change", Action: "session.open", Actor: "person:admin"},
		{Index: 4, Kind: "intent", Action: "call", Operation: "mail.search", CallID: "call_1"},
		{Index: 5, Kind: "decision", Action: "approval.ask", Operation: "bank.transfer", CallID: "call_2", Decision: "ask", Detail: ask, Amount: "4,800 EUR", Risk: "HIGH"},
		{Index: 6, Kind: "outcome", Action: "call", Operation: "mail.search", CallID: "call_1", Decision: "ok", Labels: []string{"internal"}},
		{Index: 7, Kind: "decision", Action: "approval.approve", Operation: "bank.transfer", Actor: "person:bob", Decision: "ok", Detail: ask},
		{Index: 9, Kind: "intent", Action: "call", Operation: "bank.transfer", CallID: "call_2", Detail: ask},
		{Index: 10, Kind: "outcome", Action: "call", Operation: "bank.transfer", CallID: "call_2", Decision: "ok"},
		{Index: 11, Kind: "decision", Action: "call", Operation: "web.fetch", CallID: "call_4", Decision: "deny", Reason: "It could carry data out of internal."},
	}
	read := func(most int) *timelineOf {
		in := timeline.History{Whole: true, Newest: true, Questions: map[string]approval.Approval{"appr_1": {State: approval.Superseded}}}
		for _, e := range entries {
			entry, err := entryOf(e)
			if err != nil {
				t.Fatal(err)
			}
			in.Entries = append(in.Entries, entry)
		}
		return stepsOf(&client.Session{}, timeline.Of(in), most)
	}
	all := read(10)
	var what []string
	var of [][]int64
	for _, s := range all.Steps {
		what, of = append(what, s.What+" "+s.Became), append(of, s.Entries)
	}
	if want := []string{"Session opened ", "mail.search permitted", "bank.transfer permitted", "Request approved ", "web.fetch refused"}; !reflect.DeepEqual(what, want) {
		t.Errorf("steps %q", what)
	}
	if want := [][]int64{{3}, {4, 6}, {5, 7, 9, 10}, {7}, {11}}; !reflect.DeepEqual(of, want) {
		t.Errorf("entries %v", of)
	}
	if got := all.Steps[2]; got.Amount != "4,800 EUR" || got.Approval != "appr_1" || !reflect.DeepEqual(got.Answers, []string{"approved by bob"}) {
		t.Errorf("the transfer is %+v", got)
	}
	if got := all.Steps[4]; got.Reason != "It could carry data out of internal." || !reflect.DeepEqual(got.Because, []string{"internal from step 2, mail.search"}) {
		t.Errorf("the refused call is %+v", got)
	}
	all.Steps[0].By = "person:ann"
	var out bytes.Buffer
	tab := &table{w: tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)}
	all.rows(tab)
	tab.w.Flush()
	if !strings.Contains(out.String(), " by ann\n") || strings.Contains(out.String(), "person:") {
		t.Errorf("printed: %s", &out)
	}
	if all.Next != nil {
		t.Errorf("there is more after entry %d", *all.Next)
	}
	if short := read(4); short.Next == nil || *short.Next != 10 || len(short.Steps) != 4 {
		t.Errorf("of four steps: %+v", short)
	}
}
