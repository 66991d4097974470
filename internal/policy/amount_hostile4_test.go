package policy

import (
	"slices"
	"testing"
)

// A server that reads an amount into a double moves what that double is: a text just under a threshold is at it.
func TestHostile4TextIsReadAsADoubleToo(t *testing.T) {
	r := newRules(t, 0, 0, "", nil)
	for amount, want := range map[string]Risk{`"9999.99999999999999999"`: Critical, `"999.999999999999999999"`: High} {
		s := Subject{Action: "transfer_money", Roles: amountRole, Arguments: []byte(`{"amount":` + amount + `}`), Write: true}
		if want == High {
			s.Action = ""
		}
		if got := r.Rate(s); got.Risk != want {
			t.Errorf("%s is %s (%s), and float64 has it at the threshold: %s", amount, got.Risk, got.Amount, want)
		}
	}
}

// Recipients may be the names of an object's members: to: {"mallory@evil.example": "cc"}.
func TestHostile4DestinationsInNames(t *testing.T) {
	got := Destinations(map[string]string{"to": "destination"}, []byte(`{"to":{"mallory@evil.example":"cc"}}`))
	if !slices.Contains(got, `"mallory@evil.example"`) {
		t.Errorf("it goes to %v: once anything was sent to a cc, everybody is known", got)
	}
}
