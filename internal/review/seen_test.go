package review

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/provenance"
)

// A destination that can be taken for one that the person or a trusted record names is marked, whatever kind of name it is.
func TestResembling(t *testing.T) {
	trusted := []provenance.Read{{Operation: "crm.find", Number: 1, Named: "1", Values: []provenance.ReadValue{{Field: "name", Text: "Modern GmbH", Trusted: true}, {Field: "email", Text: "pay@modern.example", Trusted: true}}}}
	for _, c := range []struct {
		to, request string
		reads       []provenance.Read
		of          string // what it can be taken for; "": nothing
	}{
		{"billing@rnicrosoft.example", "Write to billing@microsoft.example.", nil, "billing@microsoft.example"},
		{"pay@modem.example", "Pay them.", trusted, "pay@modern.example"},
		{"Modem GmbH", "Pay them.", trusted, "Modern GmbH"},
		{"Initech lnc", "Pay “Initech Inc”, please.", nil, "Initech Inc"},
		{"#genera1", "Post it to #general!", nil, "#general"},
		{"#general", "Post it to #general!", nil, ""},
		{"Corner GmbH", "Pay them.", trusted, ""},
		{"pay@other.example", "Pay them.", trusted, ""},
	} {
		args, _ := json.Marshal(map[string]string{"to": c.to})
		a := approval.Approval{Operation: "pay.send", Arguments: args, Evidence: []approval.Finding{{Argument: "to", Role: "destination", Value: c.to}}}
		r := Of(Facts{Approval: a, Roles: map[string]string{"to": "destination"}, Findings: a.Evidence, Request: c.request, Reads: c.reads})
		found := ""
		for _, o := range r.Objections {
			if o.Code == "lookalike" {
				found = o.Text
			}
		}
		if (found != "") != (c.of != "") || !strings.Contains(found, c.of) {
			t.Errorf("%q: %q, want that it can be taken for %q", c.to, found, c.of)
		}
	}
}
