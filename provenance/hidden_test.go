package provenance

import (
	"encoding/json"
	"strings"
	"testing"
)

// A value with a secret is found again by its hash, and not where the session gave it away before, whole, in an address or in pieces.
func TestHidden(t *testing.T) {
	const secret = "Zk8-wuNdErbar-4711"
	hash := func(value string) string {
		return strings.Repeat("h", 3) + string(rune('a'+len(value)%20)) + value[:1] + reversed(value)
	}
	find := &Profile{Output: TrustedOutput}
	for name, c := range map[string]struct {
		gave, result, value string
		confirmed           bool
	}{
		"nothing given":       {``, `{"key":"` + secret + `"}`, secret, true},
		"in a longer text":    {``, `{"note":"use ` + secret + ` today"}`, "use " + secret + " today", true},
		"another one":         {``, `{"key":"` + secret + `"}`, secret + "x", false},
		"given before":        {`{"q":"` + secret + `"}`, `{"key":"` + secret + `"}`, secret, false},
		"given in a text":     {`{"q":"find ` + secret + ` now"}`, `{"key":"` + secret + `"}`, secret, false},
		"beside an address":   {`{"q":"` + secret + ` eve@evil.example"}`, `{"to":"eve@evil.example"}`, "eve@evil.example", false},
		"at a host":           {`{"q":"https://evil.example/` + secret + `"}`, `{"to":"eve@evil.example"}`, "eve@evil.example", false},
		"as a member's name":  {`{"` + secret + `":1}`, `{"key":"` + secret + `"}`, secret, false},
		"joined with a part":  {`{"q":"` + secret + ` outsider@ev","p":"il.example"}`, `{"to":"outsider@evil.example"}`, "outsider@evil.example", false},
		"joined, in capitals": {`{"q":"OUTSIDER@EV ` + strings.ToUpper(secret) + `","p":"il.example"}`, `{"to":"outsider@evil.example"}`, "outsider@evil.example", false},
		"joined in a word":    {`{"q":"` + secret + ` Kontakt","p":"liste Nord"}`, `{"to":"Kontaktliste Nord"}`, "Kontaktliste Nord", false},
		"around it":           {`{"q":"outsi` + secret + `der@evil.example"}`, `{"to":"outsider@evil.example"}`, "outsider@evil.example", false},
		"apart around it":     {`{"q":"` + secret + ` out sider@evil. example"}`, `{"to":"outsider@evil.example"}`, "outsider@evil.example", false},
		"a part of it":        {`{"q":"WuNdErbar","p":"liste Nord"}`, `{"to":"Wunderbarliste Nord"}`, "Wunderbarliste Nord", false},
		"the end of it":       {`{"q":"` + secret + `","p":"22 00"}`, `{"to":"471122 00 list of Zk8"}`, "471122 00 list of Zk8", true},
		"its words as one":    {`{"q":"` + secret + `"}`, `{"to":"zk8wunderbar@evil.example"}`, "zk8wunderbar@evil.example", true},
		"something else":      {`{"q":"` + secret + `"}`, `{"to":"sales@acme.example"}`, "sales@acme.example", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Evidence{}
			e.HashWith(hash)
			add := func(s Observation) {
				t.Helper()
				s.Hide([]string{secret}, hash)
				body, err := json.Marshal(s)
				if err != nil || strings.Contains(string(body), secret) {
					t.Fatalf("%s, %v", body, err)
				}
				var kept Observation
				if err := json.Unmarshal(body, &kept); err != nil {
					t.Fatal(err)
				}
				e.Add(kept)
			}
			if c.gave != "" {
				add(GivenAway(GivenCall{Operation: "m.find", CallID: "c1", Arguments: []byte(c.gave)}))
			}
			add(Observe(find, nil, Result{Operation: "m.find", CallID: "c2", Arguments: []byte(`{}`), Values: jsonValues([]byte(c.result))}))
			f, _ := formOf(c.value)
			confirmed := false
			for _, sp := range e.valuesOf(f, Destination) {
				confirmed = confirmed || sp.trusted() && sp.record < e.givenSince(c.value)
			}
			if confirmed != c.confirmed {
				t.Errorf("confirmed %v, want %v", confirmed, c.confirmed)
			}
		})
	}
	many := make([]string, maxSecrets+1)
	for i := range many {
		many[i] = "secret"
	}
	all := GivenAway(GivenCall{Operation: "m.find", CallID: "c1", Arguments: []byte(`{"q":"x"}`)})
	if all.Hide(many, hash); !all.GivenAway.All || all.GivenAway.Values != nil {
		t.Errorf("with too many secrets %+v", all.GivenAway)
	}
}

func reversed(s string) string {
	var b strings.Builder
	for i := len(s) - 1; i >= 0; i-- {
		b.WriteByte(s[i])
	}
	return b.String()
}
