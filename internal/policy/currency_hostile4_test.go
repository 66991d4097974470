package policy

import "testing"

// A currency that only we read makes the amount small for us alone: the server takes its own, which is the base currency here. 99,999 of it is
// CRITICAL; in JPY it would be 999.99.
func TestHostile4CurrencyThatTheServerDoesNotSee(t *testing.T) {
	r := newRules(t, 0, 0, "USD", map[string]float64{"JPY": 0.01})
	lines := map[string]string{"lines.amount": "amount", "lines.currency": "currency"}
	for _, c := range []struct {
		name      string
		roles     map[string]string
		arguments string
	}{
		{"name in another case", amountRole, `{"Currency":"JPY","amount":99999}`},
		{"name in another case, inside", lines, `{"lines":[{"CURRENCY":"JPY","amount":99999}]}`},
		{"name with a point", lines, `{"lines":[{"amount":99999}],"lines.currency":"JPY"}`},
		{"in a list", amountRole, `{"amount":99999,"currency":["JPY"]}`},
		{"code in lower case", amountRole, `{"amount":99999,"currency":"jpy"}`},
		{"beside the number only", amountRole, `{"amount":"99999 JPY"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := r.Rate(Subject{Action: "transfer_money", Roles: c.roles, Arguments: []byte(c.arguments), Write: true}); got.Risk != Critical {
				t.Errorf("%s, rated as %s: one person", got.Risk, got.Amount)
			}
			if got := r.Rate(Subject{Roles: c.roles, Arguments: []byte(c.arguments), Write: true}); got.Risk == Low {
				t.Errorf("without an action %s, rated as %s: nobody", got.Risk, got.Amount)
			}
		})
	}
}
