package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// What leaves is bounded as what comes in is: a text that grows beyond the bound in its fence, where invisible characters are escaped, is discarded, on
// record. A shorter one passes.
func TestWhatLeavesIsBounded(t *testing.T) {
	w := newWorld(t)
	characters := 0
	w.up.answers["web.web_search"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		return text(strings.Repeat("\u202e", characters)), nil
	}
	for _, test := range []struct {
		characters int
		code       fault.Code
	}{{100_000, ""}, {5 << 20, fault.ResultTooLarge}} {
		characters = test.characters
		a := w.call("worker", "web_search")
		if a.Verdict.Code != test.code || (test.code == "") != (a.Result != nil) {
			t.Errorf("%d characters: %+v, %d bytes", test.characters, a.Verdict, len(a.Result))
		}
		es := w.entriesOf(a.CallID)
		if last := es[len(es)-1]; last.Code != string(test.code) {
			t.Errorf("the outcome's entry: %+v", last)
		}
	}
}
