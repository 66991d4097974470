package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
)

func TestClaimsOf(t *testing.T) {
	const object = `{"subject":"Acme","attribute":"founded","value":"1999"}`
	d := declared(t, `{type: object, properties: {due: {type: object, x-claim: true}, says: {x-claim: true}, all: {type: array, items: {anyOf: [{x-claim: true}, {x-claim: true}]}}, other: {type: string}}}`)
	for name, c := range map[string]struct {
		output string
		want   string // the claims, or where it is refused
	}{
		"none":              {`{"other":"Acme dates from 1999"}`, "[]"},
		"one":               {`{"due":` + object + `}`, `[due {"attribute":"founded","subject":"Acme","value":"1999"}]`},
		"a number":          {`{"due":` + strings.Replace(object, `"1999"`, `1999`, 1) + `}`, `[due {"attribute":"founded","subject":"Acme","value":"1999"}]`},
		"with more members": {`{"due":` + strings.Replace(object, `{`, `{"note":"x",`, 1) + `}`, `[due {"attribute":"founded","subject":"Acme","value":"1999"}]`},
		"without a value":   {`{"due":{"subject":"Acme"}}`, `[due {"attribute":null,"subject":"Acme","value":null}]`},
		"a sentence":        {`{"says":"Acme is old."}`, `[says "Acme is old."]`},
		"left out":          {`{"says":null,"due":null}`, "[]"},
		"a list, once each": {`{"all":[` + object + `,` + object + `,"Acme is old."]}`, `[all[] "Acme is old." all[] {"attribute":"founded","subject":"Acme","value":"1999"}]`},
		"no claim":          {`{"says":7}`, "refused at says"},
		"a list":            {`{"says":[` + object + `]}`, "refused at says"},
		"too many":          {`{"all":[` + numbered(21) + `]}`, "refused at all[]"},
		"as many as may be": {`{"all":[` + numbered(20) + `]}`, ""},
	} {
		all, err := ClaimsOf(json.RawMessage(c.output), d)
		var got []string
		for _, claim := range all {
			got = append(got, claim.Field+" "+string(claim.Says))
		}
		said := fmt.Sprint(got)
		if fault.Is(err, fault.OutputInvalid) {
			said = "refused at " + fault.Of(err).Field
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && said != c.want {
			t.Errorf("%s: %s, want %s", name, said, c.want)
		}
		if c.want == "" && (err != nil || len(all) != 20) {
			t.Errorf("%s: %d, %v", name, len(all), err)
		}
	}
}

func numbered(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"Sentence %d."`, i))
	}
	return strings.Join(all, ",")
}

func TestRefusedClaims(t *testing.T) {
	if err := (Confirmed{Field: "due", Confidence: 1, Valid: true}).Refusal(); err != nil {
		t.Error(err)
	}
	err := Confirmed{Field: "due", Confidence: 0.5}.Refusal()
	if !fault.Is(err, fault.OutputInvalid) || fault.Of(err).Field != "due" || !strings.Contains(err.Error(), "0.50") {
		t.Error(err)
	}
}
