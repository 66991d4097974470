package threat

import "testing"

func TestResembles(t *testing.T) {
	for _, c := range []struct {
		name, known string
		alike       bool
	}{
		{"billing@rnicrosoft.example", "billing@microsoft.example", true},
		{"Modem GmbH", "Modern GmbH", true},
		{"vvidgets", "widgets", true},
		{"clave", "dave", true},
		{"g00gle", "google", true},
		{"аррӏе", "apple", true},
		{"paypa1", "PayPal", true},
		{"DE02 1203 OOOO", "DE02 1203 0000", true},
		{"Janssen & Partner", "Jansen & Partner", true},
		{"acme@exmaple.example", "acme@example.example", true},
		{"modern", "modern", false},
		{"Modern", "modern", false}, // the same name
		{"corner", "modern", false},
		{"anna", "anne", false}, // too short for one letter to be missed
		{"DE89370400440532013000", "DE89370400440532013001", false},
		{"", "a", false},
	} {
		if got := Resembles(c.name, c.known); (got != "") != c.alike {
			t.Errorf("%q and %q: %q", c.name, c.known, got)
		}
	}
}
