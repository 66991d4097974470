package main

import (
	"encoding/json"
	"reflect"
	"testing"

	"sallyport.example/client"
)

// Entries of one call are one step, also where people are asked first and the call runs under another id.
func TestTimelineJoinsWhatBelongsTogether(t *testing.T) {
	ask := json.RawMessage(`{"approval_id":"appr_1"}`)
	entries := []client.Entry{
		{Index: 3, Kind: "change", Action: "session.open", Actor: "person:admin"},
		{Index: 4, Kind: "intent", Action: "call", Operation: "mail.search", CallID: "call_1"},
		{Index: 5, Kind: "decision", Action: "approval.ask", Operation: "bank.transfer", CallID: "call_2", Decision: "ask", Detail: ask, Amount: "4,800 EUR", Risk: "HIGH"},
		{Index: 6, Kind: "outcome", Action: "call", Operation: "mail.search", CallID: "call_1", Decision: "ok", Labels: []string{"internal"}},
		{Index: 7, Kind: "decision", Action: "approval.approve", Operation: "bank.transfer", Actor: "person:bob", Decision: "ok", Detail: ask},
		{Index: 9, Kind: "intent", Action: "call", Operation: "bank.transfer", CallID: "call_3", Detail: ask},
		{Index: 10, Kind: "outcome", Action: "call", Operation: "bank.transfer", CallID: "call_3", Decision: "ok"},
		{Index: 11, Kind: "decision", Action: "call", Operation: "web.fetch", CallID: "call_4", Decision: "deny", Reason: "It could carry data out."},
	}
	read := func(most int) timeline {
		var all timeline
		at := map[string]int{}
		for _, e := range entries {
			if all.take(at, e, most); all.Next != nil {
				break
			}
		}
		return all
	}
	all := read(10)
	var what []string
	var of [][]int64
	for _, s := range all.Steps {
		what, of = append(what, s.What), append(of, s.Entries)
	}
	if want := []string{"session opened", "mail.search", "bank.transfer", "web.fetch"}; !reflect.DeepEqual(what, want) {
		t.Errorf("steps %q", what)
	}
	if want := [][]int64{{3}, {4, 6}, {5, 7, 9, 10}, {11}}; !reflect.DeepEqual(of, want) {
		t.Errorf("entries %v", of)
	}
	if got := all.Steps[2]; got.Amount != "4,800 EUR" || got.By != "person:bob" || !reflect.DeepEqual(got.Became, []string{"people asked", "request approved by bob", "call began", "call ran"}) {
		t.Errorf("the transfer is %+v", got)
	}
	if all.Next != nil {
		t.Errorf("there is more after entry %d", *all.Next)
	}
	if short := read(3); short.Next == nil || *short.Next != 10 || len(short.Steps) != 3 {
		t.Errorf("of three steps: %+v", short)
	}
}
