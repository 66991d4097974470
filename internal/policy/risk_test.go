package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	canonical "sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

func newRules(t testing.TB, high, critical float64, base string, rates map[string]float64) Rules {
	t.Helper()
	r, err := NewRules(high, critical, base, rates)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var amountRole = map[string]string{"amount": "amount", "currency": "currency"}

func codes(r Rating) string {
	var out []string
	for _, reason := range r.Reasons {
		out = append(out, strings.TrimPrefix(reason.Code, "risk."))
	}
	return strings.Join(out, " ")
}

func TestRisks(t *testing.T) {
	for i, r := range Risks {
		if r.Rank() != i {
			t.Errorf("%s: rank %d", r, r.Rank())
		}
	}
	for _, word := range []string{"", "low", "HIGH ", "SEVERE"} {
		if Risk(word).Rank() <= Critical.Rank() {
			t.Errorf("%q: rank %d", word, Risk(word).Rank())
		}
	}
}

// Every action with every amount around every threshold (HI-1).
func TestRateActionsAndAmounts(t *testing.T) {
	zones := []struct {
		tier    int
		amounts []string
	}{
		{0, []string{``}},
		{1, []string{`0`, `-0.01`, `999.9999999999999`, `-999.99`, `"999.99"`, `"$ -999.9999"`, `1e-7`}},
		{2, []string{`1000`, `-1000`, `1000.0000000000001`, `1e3`, `"1000"`, `"1,000.00"`, `"1.000"`, `"1,000"`, `"1 000"`, `5000`, `9999.99`, `9999.999999999998`, `"9 999.99 USD"`}},
		{3, []string{`10000`, `-10000`, `10000.000000000002`, `"10000"`, `"-$10,000"`, `"10.000"`, `"10'000"`, `1e40`, `15000`}},
		{4, []string{`"ten"`, `""`, `"12k"`, `true`, `false`, `{}`, `{"value":1}`, `"１０"`, `1e99`, `"5 CHF"`, `[5,"x"]`, `[{}]`}},
	}
	for _, c := range []struct {
		action string
		risks  [5]Risk // without an amount that was given (the role is), below HIGH, below CRITICAL, from there, unreadable
		codes  [5]string
	}{
		{"transfer_money", [5]Risk{Critical, High, High, Critical, Critical}, [5]string{"action unreadable_amount", "action", "action amount", "action amount", "action unreadable_amount"}},
		{"delete_data", [5]Risk{Critical, High, High, Critical, Critical}, [5]string{"action unreadable_amount", "action", "action amount", "action amount", "action unreadable_amount"}},
		{"grant_access", [5]Risk{High, High, High, High, Critical}, [5]string{"action", "action", "action amount", "action amount", "action unreadable_amount"}},
		{"publish_content", [5]Risk{High, High, High, High, Critical}, [5]string{"action", "action", "action amount", "action amount", "action unreadable_amount"}},
		{"send_email", [5]Risk{Medium, Medium, High, High, Critical}, [5]string{"action", "action", "action amount", "action amount", "action unreadable_amount"}},
		{"schedule_meeting", [5]Risk{Medium, Medium, High, High, Critical}, [5]string{"action", "action", "action amount", "action amount", "action unreadable_amount"}},
		{"book_appointment", [5]Risk{Medium, Medium, High, High, Critical}, [5]string{"action", "action", "action amount", "action amount", "action unreadable_amount"}},
		{"", [5]Risk{Low, Low, High, High, Critical}, [5]string{"", "", "amount", "amount", "unreadable_amount"}},
		{"transfer_Money", [5]Risk{Low, Low, High, High, Critical}, [5]string{"", "", "amount", "amount", "unreadable_amount"}}, // no known word
	} {
		if _, known := actions[c.action]; !known && c.risks[0] != Low {
			t.Fatalf("%s is not among the actions", c.action)
		}
		for _, z := range zones {
			for _, amount := range z.amounts {
				for _, write := range []bool{false, true} {
					arguments := `{}`
					if amount != "" {
						arguments = `{"amount":` + amount + `}`
					}
					got := newRules(t, 0, 0, "", nil).Rate(Subject{Action: c.action, Roles: amountRole, Arguments: []byte(arguments), Write: write})
					if got.Risk != c.risks[z.tier] || codes(got) != c.codes[z.tier] {
						t.Errorf("%s %s: %s by %q, want %s by %q", c.action, arguments, got.Risk, codes(got), c.risks[z.tier], c.codes[z.tier])
					}
					if want := got.Amount == "unreadable"; want != strings.Contains(codes(got), "unreadable") {
						t.Errorf("%s %s: amount %q", c.action, arguments, got.Amount)
					}
				}
			}
		}
	}
	if len(actions) != 7 {
		t.Errorf("%d actions, of which the table has 7", len(actions))
	}
}

func TestRateAmounts(t *testing.T) {
	rates := map[string]float64{"EUR": 1.08, "GBP": 0.7, "JPY": 0.01}
	lines := map[string]string{"total": "amount", "lines.amount": "amount", "lines.currency": "currency", "lines.price.value": "amount", "lines.price.currency.code": "currency"}
	for _, c := range []struct {
		name, action string
		roles        map[string]string // nil: amount and currency
		arguments    string
		risk         Risk
		amount       string
	}{
		{"no roles", "transfer_money", map[string]string{"amount": "content"}, `{"amount":99999}`, High, ""},
		{"null", "", nil, `{"amount":null}`, Low, ""},
		{"null of money", "transfer_money", nil, `{"amount":null}`, Critical, "unreadable"},
		{"no elements", "", nil, `{"amount":[]}`, Low, ""},
		{"no elements of money", "transfer_money", nil, `{"amount":[]}`, Critical, "unreadable"},
		{"one element missing", "transfer_money", nil, `{"amount":[5,null]}`, Critical, "unreadable"},
		{"no arguments", "", nil, ``, Low, ""},
		{"no arguments for money", "transfer_money", nil, ``, Critical, "unreadable"},
		{"another case", "", nil, `{"AMOUNT":1000}`, High, "1000 USD"},
		{"records, as far as anyone knows", "delete_data", nil, `{"amount":10000}`, Critical, "10000"},
		{"money, as it says so", "delete_data", nil, `{"amount":"$10000"}`, Critical, "10000 USD"},

		{"currency in an argument", "", nil, `{"amount":925.93,"currency":"EUR"}`, High, "925.93 EUR"},
		{"just below", "", nil, `{"amount":925.92,"currency":"EUR"}`, Low, "925.92 EUR"},
		{"currency in lower case", "", nil, `{"amount":925.93,"currency":"eur"}`, High, "925.93 EUR"},
		{"currency by symbol", "", nil, `{"amount":925.93,"currency":"€"}`, High, "925.93 EUR"},
		{"currency in the amount", "", nil, `{"amount":"EUR 925.93"}`, High, "925.93 EUR"},
		{"both, the same", "", nil, `{"amount":"€ 925.93","currency":"EUR"}`, High, "925.93 EUR"},
		{"both, different", "", nil, `{"amount":"$ 5","currency":"EUR"}`, Critical, "unreadable"},
		{"the base currency and another", "", nil, `{"amount":"€ 5","currency":"USD"}`, Critical, "unreadable"},
		{"currency null", "", nil, `{"amount":5,"currency":null}`, Low, "5 USD"},
		{"currency empty", "", nil, `{"amount":5,"currency":""}`, Critical, "unreadable"},
		{"currency no word", "", nil, `{"amount":5,"currency":840}`, Critical, "unreadable"},
		{"currency in words", "", nil, `{"amount":5,"currency":"dollars"}`, Critical, "unreadable"},
		{"currency with a space", "", nil, `{"amount":5,"currency":"EUR "}`, Critical, "unreadable"},
		{"currency an object", "", nil, `{"amount":5,"currency":{"code":"EUR"}}`, Critical, "unreadable"},
		{"no rate", "", nil, `{"amount":5,"currency":"CHF"}`, Critical, "unreadable"},
		{"two currencies", "", nil, `{"amount":5,"currency":["EUR","USD"]}`, Critical, "unreadable"},
		{"two currencies, one of them twice", "", nil, `{"amount":5,"currency":["USD","USD","EUR"]}`, Critical, "unreadable"},
		{"one currency in a list", "", nil, `{"amount":5,"currency":["EUR"]}`, Low, "5 EUR"},
		{"a currency and no amount", "", nil, `{"currency":"x"}`, Low, ""},
		{"exact rate", "", nil, `{"amount":[1428.57,0.0014],"currency":"GBP"}`, Low, "1428.5714 GBP"}, // 999.99998
		{"cheap currency", "", nil, `{"amount":99999,"currency":"JPY"}`, Low, "99999 JPY"},
		{"cheap currency, much", "", nil, `{"amount":100000,"currency":"JPY"}`, High, "100000 JPY"},

		{"sum", "", nil, `{"amount":[333.1,333.2,333.7]}`, High, "1000 USD"},
		{"sum just below", "", nil, `{"amount":[333.1,333.2,333.69]}`, Low, "999.99 USD"},
		{"negative ones don't make it less", "", nil, `{"amount":[600,-400]}`, High, "1000 USD"},
		{"sum over currencies", "", nil, `{"amount":["€ 500","$ 460"]}`, High, "1000 USD"},
		{"sum over currencies, below", "", nil, `{"amount":["€ 500","$ 459.99"]}`, Low, "999.99 USD"},
		{"lists in lists", "", nil, `{"amount":[[500],[[499,1]]]}`, High, "1000 USD"},
		{"one of them unreadable", "", nil, `{"amount":[5,"x"]}`, Critical, "unreadable"},

		{"nested", "", lines, `{"lines":{"amount":1000}}`, High, "1000 USD"},
		{"nested in a list", "", lines, `{"lines":[{"amount":500},{"amount":500}]}`, High, "1000 USD"},
		{"nested, another case", "", lines, `{"Lines":[{"Amount":1000}]}`, High, "1000 USD"},
		{"a name with a point", "", lines, `{"lines.amount":1000}`, High, "1000 USD"},
		{"a name with a point, inside", "", lines, `{"lines":[{"price.value":1000}]}`, High, "1000 USD"},
		{"the path does not go on", "", lines, `{"lines":"1000"}`, Critical, "unreadable"},
		{"the path does not go on, without a currency", "", map[string]string{"lines.amount": "amount"}, `{"lines":"1000"}`, Critical, "unreadable"},
		{"the path of the currency does not go on", "", map[string]string{"amount": "amount", "price.currency": "currency"}, `{"amount":5,"price":"EUR"}`, Critical, "unreadable"},
		{"the path goes on", "", nil, `{"amount":{"value":1}}`, Critical, "unreadable"},
		{"two roles", "", lines, `{"total":500,"lines":[{"amount":500}]}`, High, "1000 USD"},
		{"each its own currency", "", lines, `{"lines":[{"amount":1,"currency":"JPY"},{"amount":999.99}]}`, High, "1000 USD"},
		{"each its own currency, below", "", lines, `{"lines":[{"amount":1,"currency":"JPY"},{"amount":999.98}]}`, Low, "999.99 USD"},
		{"a currency of another's", "", lines, `{"lines":[{"currency":"JPY"}],"total":1000}`, High, "1000 USD"},
		{"currencies farther down", "", lines, `{"lines":[{"price":{"currency":{"code":"JPY"},"value":1}},{"price":{"value":999.99}}]}`, High, "1000 USD"},
		{"price and amount in two", "", lines, `{"lines":[{"currency":"JPY","amount":1,"price":{"currency":{"code":"EUR"},"value":1}}]}`, Critical, "unreadable"},
	} {
		roles := c.roles
		if roles == nil {
			roles = amountRole
		}
		got := newRules(t, 0, 0, "", rates).Rate(Subject{Action: c.action, Roles: roles, Arguments: []byte(c.arguments), Write: true})
		if got.Risk != c.risk || got.Amount != c.amount {
			t.Errorf("%s: %s, %q, want %s, %q: %v", c.name, got.Risk, got.Amount, c.risk, c.amount, got.Reasons)
		}
	}
}

// A currency that only the rules read would make an amount small for them alone: the server moves as much of its own. What makes less of
// an amount counts only where and how nobody can overlook it; everywhere else the larger counts.
func TestCurrencyThatMayBeOverlooked(t *testing.T) {
	lines := map[string]string{"amount": "amount", "lines.amount": "amount", "lines.currency": "currency", "total.sum.value": "amount", "total.sum.unit.code": "currency"}
	outside := map[string]string{"amount": "amount", "lines.currency": "currency"}
	for _, c := range []struct {
		name      string
		roles     map[string]string // nil: amount and currency
		arguments string
		amount    string
	}{
		{"in its argument", nil, `{"amount":99999,"currency":"JPY"}`, "99999 JPY"},
		{"in its argument, of a list", nil, `{"amount":[99998,1],"currency":"JPY"}`, "99999 JPY"},
		{"in its argument, and with the number", nil, `{"amount":"99999 jpy","currency":"JPY"}`, "99999 JPY"},
		{"in its argument, inside", lines, `{"lines":[{"amount":99998,"currency":"JPY"},{"amount":1,"currency":"JPY"}]}`, "99999 JPY"},
		{"in its argument, farther down", lines, `{"total":{"sum":{"unit":{"code":"JPY"},"value":99999}}}`, "99999 JPY"},
		{"in its argument, and with a point", lines, `{"lines":{"amount":99999,"currency":"JPY"},"lines.currency":"JPY"}`, "99999 JPY"},

		{"name in another case", nil, `{"Currency":"JPY","amount":99999}`, "99999 USD"},
		{"name in other letters", nil, `{"amount":99999,"\u0441urrency":"JPY"}`, "99999 USD"},
		{"amount's name in another case", nil, `{"Amount":99999,"currency":"JPY"}`, "99999 USD"},
		{"name in another case, inside", lines, `{"lines":[{"CURRENCY":"JPY","amount":99999}]}`, "99999 USD"},
		{"name in another case, around", lines, `{"Lines":[{"amount":99999,"currency":"JPY"}]}`, "99999 USD"},
		{"name in another case, farther down", lines, `{"total":{"sum":{"Unit":{"code":"JPY"},"value":99999}}}`, "99999 USD"},
		{"name with a point", lines, `{"lines":{"amount":99999},"lines.currency":"JPY"}`, "99999 USD"},
		{"name with a point, farther down", lines, `{"total":{"sum":{"unit.code":"JPY","value":99999}}}`, "99999 USD"},
		{"amount's name with a point", lines, `{"lines":{"currency":"JPY"},"lines.amount":99999}`, "99999 USD"},
		{"in a list", nil, `{"amount":99999,"currency":["JPY"]}`, "99999 USD"},
		{"in lists", nil, `{"amount":99999,"currency":[["JPY","JPY"]]}`, "99999 USD"},
		{"in a list of its own", outside, `{"amount":99999,"lines":[{"currency":"JPY"}]}`, "99999 USD"},
		{"code in lower case", nil, `{"amount":99999,"currency":"jpy"}`, "99999 USD"},
		{"symbol", nil, `{"amount":99999,"currency":"£"}`, "99999 USD"},
		{"with the number", nil, `{"amount":"99999 JPY"}`, "99999 USD"},
		{"with the number, and null", nil, `{"amount":"JPY 99999","currency":null}`, "99999 USD"},
		{"with the number, as a symbol", nil, `{"amount":"£99,999"}`, "99999 USD"},
		{"with the number and in another case", nil, `{"Currency":"JPY","amount":"99999 JPY"}`, "99999 USD"},
		{"one of two", lines, `{"lines":[{"amount":1,"currency":"JPY"},{"amount":"99998.99 JPY"}]}`, "99999 USD"},

		{"no rate", nil, `{"amount":"99999 CHF"}`, "unreadable"},
		{"not the same", nil, `{"amount":"99999 JPY","currency":"GBP"}`, "unreadable"},
		{"not the same names", lines, `{"lines":{"amount":99999,"currency":"JPY"},"lines.currency":"GBP"}`, "unreadable"},

		{"one that makes more of it", nil, `{"amount":"99999 EUR"}`, "99999 EUR"},
		{"one that makes more of it, in another case", nil, `{"CURRENCY":["eur"],"amount":99999}`, "99999 EUR"},
		{"one that makes as much of it", nil, `{"amount":"99999 CAD"}`, "99999 CAD"},
	} {
		if c.roles == nil {
			c.roles = amountRole
		}
		r := newRules(t, 0, 0, "", map[string]float64{"JPY": 0.01, "GBP": 0.7, "EUR": 1.08, "CAD": 1})
		got := r.Rate(Subject{Roles: c.roles, Arguments: []byte(c.arguments), Write: true})
		if got.Amount != c.amount || (got.Risk == Low) != (c.amount == "99999 JPY") {
			t.Errorf("%s: %s, %q, want %q: %v", c.name, got.Risk, got.Amount, c.amount, got.Reasons)
		}
		if got.Amount == "99999 USD" && !strings.Contains(c.arguments, "\\u0441") && !strings.Contains(got.Reasons[0].Text, "this one counts as USD") {
			t.Errorf("%s: nobody is told why: %v", c.name, got.Reasons)
		}
		s := Subject{Action: "transfer_money", Roles: c.roles, Arguments: []byte(c.arguments), Write: true}
		if !maps.Equal(c.roles, amountRole) { // one amount may be missing for what must have one
			continue
		}
		if got := r.Rate(s); (got.Risk == Critical) != (c.amount != "99999 JPY") {
			t.Errorf("%s: moving it is %s", c.name, got.Risk)
		}
	}
}

// What is compared are the decimals of the configuration and the call, not the floats nearest to them.
func TestRateIsExact(t *testing.T) {
	r := newRules(t, 7000, 10000.1, "CHF", map[string]float64{"EUR": 0.7})
	for _, c := range []struct {
		arguments string
		risk      Risk
	}{
		{`{"amount":10000,"currency":"EUR"}`, High}, // the float 0.7 is less than 0.7
		{`{"amount":9999.99,"currency":"EUR"}`, Low},
		{`{"amount":"6999.999999999999"}`, Low},
		{`{"amount":"6999.9999999999999999999999999"}`, High}, // what most programs read
		{`{"amount":"7000.0000000000000000000000000"}`, High},
		{`{"amount":5,"currency":"USD"}`, Critical}, // the base is another
	} {
		if got := r.Rate(Subject{Roles: amountRole, Arguments: []byte(c.arguments)}); got.Risk != c.risk {
			t.Errorf("%s: %s, want %s: %v", c.arguments, got.Risk, c.risk, got.Reasons)
		}
	}
	for amount, want := range map[string]Risk{"10000.09": High, "10000.1": Critical} {
		if got := r.Rate(Subject{Action: "transfer_money", Roles: amountRole, Arguments: []byte(`{"amount":` + amount + `}`)}); got.Risk != want {
			t.Errorf("%s: %s, want %s", amount, got.Risk, want)
		}
	}
}

func TestZeroRulesFailClosed(t *testing.T) {
	for arguments, want := range map[string]Risk{`{"amount":0.01}`: Critical, `{"amount":"$1"}`: Critical} {
		if got := (Rules{}).Rate(Subject{Action: "transfer_money", Roles: amountRole, Arguments: []byte(arguments)}); got.Risk != want {
			t.Errorf("%s: %+v", arguments, got)
		}
	}
	if got := (Rules{}).Rate(Subject{Roles: amountRole, Arguments: []byte(`{"amount":0.01}`)}); got.Risk != High {
		t.Errorf("%+v", got)
	}
}

// The operator's word raises, and never lowers.
func TestRateOperator(t *testing.T) {
	for action, by := range map[string]Risk{"": Low, "send_email": Medium, "grant_access": High} {
		for _, floor := range append([]Risk{""}, Risks...) {
			want, reason := by, ""
			if floor != "" && floor.Rank() > by.Rank() {
				want, reason = floor, "operator"
			}
			got := newRules(t, 0, 0, "", nil).Rate(Subject{Action: action, Floor: floor})
			if got.Risk != want || strings.Contains(codes(got), "operator") != (reason != "") {
				t.Errorf("%q with %q: %s by %q, want %s", action, floor, got.Risk, codes(got), want)
			}
		}
	}
	for _, word := range []Risk{"high", "LOWEST", " "} {
		got := newRules(t, 0, 0, "", nil).Rate(Subject{Floor: word})
		if got.Risk != Critical || codes(got) != "operator" || strings.Contains(got.Reasons[0].Text, string(word)+" ") {
			t.Errorf("%q: %+v", word, got)
		}
	}
	got := newRules(t, 0, 0, "", nil).Rate(Subject{Action: "transfer_money", Floor: "x", Roles: amountRole, Arguments: []byte(`{"amount":10000}`)})
	if got.Risk != Critical || codes(got) != "action amount" { // it is CRITICAL as it is
		t.Errorf("%+v", got)
	}
}

func TestRateContext(t *testing.T) {
	both := Context{Untrusted: true, Contaminated: true}
	for _, c := range []struct {
		name    string
		action  string
		context Context
		risk    Risk
		codes   string
	}{
		{"none", "", Context{}, Low, ""},
		{"labels alone are none", "", Context{Labels: []string{"pii"}}, Low, ""},
		{"untrusted", "", Context{Untrusted: true}, Medium, "untrusted"},
		{"contaminated", "", Context{Contaminated: true}, Medium, "contaminated"},
		{"both are one ground", "", both, Medium, "untrusted contaminated"},
		{"left the plan, clean", "", Context{LeftPlan: true}, Low, ""},
		{"left the plan, contaminated", "", Context{LeftPlan: true, Contaminated: true}, Medium, "contaminated"},
		{"confirmed", "", Context{Confirmed: true}, Low, ""},
		{"left the plan, confirmed", "", Context{LeftPlan: true, Confirmed: true}, Medium, "left_plan"},
		{"left the plan, untrusted", "", Context{LeftPlan: true, Untrusted: true}, High, "untrusted left_plan"},
		{"new tool", "", Context{NewTool: true}, Medium, "new_tool"},
		{"first destination", "", Context{FirstDestination: true}, Medium, "first_destination"},
		{"two grounds", "", Context{NewTool: true, FirstDestination: true}, High, "new_tool first_destination"},
		{"all, to HIGH at most", "", Context{Untrusted: true, Contaminated: true, LeftPlan: true, NewTool: true, FirstDestination: true}, High, "untrusted contaminated left_plan"},
		{"from MEDIUM", "send_email", Context{FirstDestination: true}, High, "action first_destination"},
		{"from MEDIUM, all", "send_email", Context{Untrusted: true, Contaminated: true, LeftPlan: true, NewTool: true, FirstDestination: true}, High, "action untrusted contaminated"},
		{"HIGH already", "grant_access", Context{Untrusted: true, Contaminated: true, LeftPlan: true, NewTool: true, FirstDestination: true}, High, "action"},
	} {
		rules := newRules(t, 0, 0, "", nil)
		got := rules.Rate(Subject{Action: c.action, Write: true, Context: c.context})
		if got.Risk != c.risk || codes(got) != c.codes {
			t.Errorf("%s: %s by %q, want %s by %q", c.name, got.Risk, codes(got), c.risk, c.codes)
		}
		read, plain := rules.Rate(Subject{Action: c.action, Context: c.context}), rules.Rate(Subject{Action: c.action})
		if read.Risk != plain.Risk || codes(read) != codes(plain) {
			t.Errorf("%s: a read is raised to %s by %q", c.name, read.Risk, codes(read))
		}
	}
}

func TestRateTexts(t *testing.T) {
	rules := newRules(t, 0, 0, "", map[string]float64{"EUR": 1.08, "JPY": 0.01})
	for _, c := range []struct {
		s    Subject
		want []string
	}{
		{Subject{Action: "transfer_money", Arguments: []byte(`{"amount":12500}`)},
			[]string{"It moves money, so a person must approve it.", "It moves 12,500 USD; from 10,000 USD it takes two people."}},
		{Subject{Arguments: []byte(`{"amount":1250.5,"currency":"EUR"}`)},
			[]string{"Its amount is 1,250.50 EUR (1,350.54 USD); from 1,000 USD a person must approve it."}},
		{Subject{Action: "delete_data", Arguments: []byte(`{"amount":"12.000"}`)},
			[]string{"It deletes data, so a person must approve it.",
				"Its amount is 12,000; from 10,000 it takes two people. The amount is written so that it can be read in more than one way; the largest counts."}},
		{Subject{Action: "send_email", Arguments: []byte(`{"amount":"12k"}`)},
			[]string{"It sends an e-mail, so people can stop it before it runs.", "Its amount can't be read, so it takes two people."}},
		{Subject{Action: "transfer_money", Arguments: []byte(`{"amount":"99999 JPY"}`)},
			[]string{"It moves money, so a person must approve it.",
				"It moves 99,999 USD; from 10,000 USD it takes two people. A currency that would make it less counts only in the argument for it, as three capital letters: this one counts as USD."}},
		{Subject{Action: "transfer_money", Arguments: []byte(`{"amount":"9999.99999999999999999"}`)},
			[]string{"It moves money, so a person must approve it.",
				"It moves 10,000 USD; from 10,000 USD it takes two people. The amount is written so that it can be read in more than one way; the largest counts."}},
		{Subject{Arguments: []byte(`{"amount":"5 chf"}`)}, []string{"The configuration has no rate for CHF, the currency of its amount, so it takes two people."}},
		{Subject{Arguments: []byte(`{"amount":5,"currency":"chf."}`)}, []string{"The currency of its amount can't be read, so it takes two people."}},
		{Subject{Arguments: []byte(`{"amount":"5 CHF","currency":"EUR"}`)}, []string{"Its amount is in two currencies at once, so it takes two people."}},
		{Subject{Action: "transfer_money", Arguments: []byte(`{}`)}, []string{"It moves money, so a person must approve it.", "Its amount is missing, so it takes two people."}},
		{Subject{Floor: Critical}, []string{"The operator rates this operation CRITICAL."}},
		{Subject{Floor: "\x1b"}, []string{"The operator's rating of this operation is no known word, so it counts as CRITICAL."}},
		{Subject{Write: true, Context: Context{Untrusted: true, Contaminated: true, Labels: []string{"internal", "pii"}, LeftPlan: true}},
			[]string{"The session has read content from an unconfirmed source.", "The session holds confidential data (internal, pii).", "It is not in the session's approved plan."}},
		{Subject{Write: true, Context: Context{NewTool: true, FirstDestination: true}},
			[]string{"The tool is new, or its definition has changed.", "It goes to a destination that was never used before."}},
	} {
		c.s.Roles = amountRole
		var got []string
		for _, r := range rules.Rate(c.s).Reasons {
			got = append(got, r.Text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q\nwant %q", got, c.want)
		}
	}
}

// Whatever is called, people are told what could go wrong (HI-3).
func TestConsequence(t *testing.T) {
	seen := map[string]bool{}
	for _, action := range append(slices.Sorted(maps.Keys(actions)), "", "other") {
		for _, write := range []bool{true, false} {
			got := Rules{}.Rate(Subject{Action: action, Write: write}).Consequence
			if got == "" || !strings.HasSuffix(got, ".") {
				t.Errorf("%s, write %v: %q", action, write, got)
			}
			seen[got] = true
		}
	}
	if read, write := (Rules{}).Rate(Subject{}).Consequence, (Rules{}).Rate(Subject{Write: true}).Consequence; !strings.HasPrefix(read, "What it returns") || write == read {
		t.Errorf("a read: %q, a write: %q", read, write)
	}
	if len(seen) != len(actions)+2 {
		t.Errorf("%d texts for %d actions, other writes and reads", len(seen), len(actions))
	}
}

func TestNewRulesRefuses(t *testing.T) {
	for _, c := range []struct {
		high, critical float64
		base           string
		rates          map[string]float64
		field          string // "" none
	}{
		{0, 0, "", nil, ""},
		{1, 1, "EUR", map[string]float64{"USD": 0.9, "EUR": 1}, ""},
		{0, 1000, "", nil, ""},
		{-1, 0, "", nil, "approvals.high_amount"},
		{math.NaN(), 0, "", nil, "approvals.high_amount"},
		{math.Inf(1), 0, "", nil, "approvals.high_amount"},
		{0, -1, "", nil, "approvals.critical_amount"},
		{0, math.NaN(), "", nil, "approvals.critical_amount"},
		{0, math.Inf(1), "", nil, "approvals.critical_amount"},
		{2, 1, "", nil, "approvals.high_amount"},
		{0, 999, "", nil, "approvals.high_amount"},
		{10001, 0, "", nil, "approvals.high_amount"},
		{0, 0, "usd", nil, "approvals.currency"},
		{0, 0, "US", nil, "approvals.currency"},
		{0, 0, "USDT", nil, "approvals.currency"},
		{0, 0, "ÜSD", nil, "approvals.currency"},
		{0, 0, "", map[string]float64{"eur": 1}, "approvals.rates.eur"},
		{0, 0, "", map[string]float64{"": 1}, "approvals.rates."},
		{0, 0, "", map[string]float64{"EUR": 0}, "approvals.rates.EUR"},
		{0, 0, "", map[string]float64{"EUR": -1}, "approvals.rates.EUR"},
		{0, 0, "", map[string]float64{"EUR": math.NaN()}, "approvals.rates.EUR"},
		{0, 0, "", map[string]float64{"EUR": math.Inf(1)}, "approvals.rates.EUR"},
		{0, 0, "", map[string]float64{"USD": 1.1}, "approvals.rates.USD"},
	} {
		_, err := NewRules(c.high, c.critical, c.base, c.rates)
		var e *fault.Error
		switch {
		case c.field == "" && err == nil:
		case c.field == "" || !errors.As(err, &e) || e.Code != fault.ConfigurationInvalid || e.Field != c.field || e.Remedy == "":
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// subject draws a call.
func subject(t *rapid.T) Subject {
	s := Subject{
		Action: rapid.SampledFrom(append(slices.Sorted(maps.Keys(actions)), "", "other")).Draw(t, "action"),
		Floor:  rapid.SampledFrom(append([]Risk{"", "other"}, Risks...)).Draw(t, "floor"),
		Roles:  amountRole, Write: rapid.Bool().Draw(t, "write"),
	}
	amount := rapid.SampledFrom([]string{``, `null`, `0`, `999.99`, `1000`, `9999.99`, `10000`, `"x"`, `[500,500]`}).Draw(t, "amount")
	if s.Arguments = []byte(`{}`); amount != "" {
		s.Arguments = []byte(`{"amount":` + amount + `}`)
	}
	return s
}

func grounds(t *rapid.T, name string) Context {
	b := rapid.SliceOfN(rapid.Bool(), 5, 5).Draw(t, name)
	return Context{Untrusted: b[0], Contaminated: b[1], LeftPlan: b[2], NewTool: b[3], FirstDestination: b[4]}
}

func TestContextOnlyRaisesWritesToHigh(t *testing.T) {
	rules := newRules(t, 0, 0, "", nil)
	rapid.Check(t, func(t *rapid.T) {
		s := subject(t)
		none := rules.Rate(s)
		a, b := grounds(t, "some"), grounds(t, "more")
		s.Context = a
		some := rules.Rate(s)
		s.Context = Context{Untrusted: a.Untrusted || b.Untrusted, Contaminated: a.Contaminated || b.Contaminated, LeftPlan: a.LeftPlan || b.LeftPlan,
			NewTool: a.NewTool || b.NewTool, FirstDestination: a.FirstDestination || b.FirstDestination}
		more := rules.Rate(s)
		if some.Risk.Rank() < none.Risk.Rank() || more.Risk.Rank() < some.Risk.Rank() {
			t.Fatalf("context lowers %s to %s to %s", none.Risk, some.Risk, more.Risk)
		}
		if more.Risk == Critical && none.Risk != Critical {
			t.Fatal("CRITICAL comes from context")
		}
		if !s.Write && more.Risk != none.Risk {
			t.Fatalf("a read is raised from %s to %s", none.Risk, more.Risk)
		}
		if (more.Risk == Low) != (len(more.Reasons) == 0) || len(some.Reasons) < len(none.Reasons) || !slices.Equal(none.Reasons, more.Reasons[:len(none.Reasons)]) {
			t.Fatalf("%v, %v, %v", none, some, more)
		}
	})
}

func TestLargerAmountNeverLowers(t *testing.T) {
	rules := newRules(t, 0, 0, "", map[string]float64{"EUR": 1.08})
	rapid.Check(t, func(t *rapid.T) {
		s := subject(t)
		s.Context = grounds(t, "context")
		unit := rapid.SampledFrom([]string{"", " EUR"}).Draw(t, "unit")
		less := rapid.Int64Range(0, 3_000_000).Draw(t, "cents")
		more := less + rapid.Int64Range(0, 3_000_000).Draw(t, "more")
		rate := func(cents int64) Risk {
			s.Arguments = fmt.Appendf(nil, `{"amount":"%d.%02d%s"}`, cents/100, cents%100, unit)
			return rules.Rate(s).Risk
		}
		if a, b := rate(less), rate(more); b.Rank() < a.Rank() {
			t.Fatalf("%d is %s, %d is %s", less, a, more, b)
		}
	})
}

// The costliest arguments that the gateway takes are rated in time that nobody notices.
func TestRateIsBounded(t *testing.T) {
	roles := map[string]string{"a": "amount", "a.b": "amount", "c": "currency", "a.c": "currency", "a.d": "destination"}
	lim := canonical.DefaultLimits()
	deep := lim.Depth - 1
	for name, arguments := range map[string]string{
		"many numbers":     `{"a":[` + strings.Repeat(`1e-39,`, 99_000) + `1]}`,
		"many currencies":  `{"a":[1],"c":[` + strings.Repeat(`"EUR",`, 99_000) + `"USD"]}`,
		"many pairs":       `{"a":[` + strings.Repeat(`{"b":1,"c":"USD"},`, 33_000) + `{}]}`,
		"nothing in there": `{"a":[` + strings.Repeat(`{},`, 99_000) + `{}]}`,
		"nested":           `{"a":` + strings.Repeat(`[`, deep) + strings.Repeat(`null,`, 99_000) + `null` + strings.Repeat(`]`, deep) + `}`,
		"a long number":    `{"a":` + strings.Repeat("9", 308) + `}`,
		"a long string":    `{"a":"` + strings.Repeat("1,", 2_000_000) + `","c":"` + strings.Repeat("ſ", 10) + `"}`,
		"a long name":      `{"` + strings.Repeat("a.b", 1_000_000) + `":1}`,
	} {
		args, err := canonical.Canonical([]byte(arguments), lim)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		start := time.Now()
		got := newRules(t, 0, 0, "", nil).Rate(Subject{Action: "transfer_money", Roles: roles, Arguments: args, Write: true})
		Destinations(roles, args)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s: %v", name, took)
		}
		if got.Risk != Critical || got.Amount != "unreadable" {
			t.Errorf("%s: %s, %q", name, got.Risk, got.Amount)
		}
	}
	for n, want := range map[int]string{maxAmounts: "10 USD", maxAmounts + 1: "unreadable"} {
		got := newRules(t, 0, 0, "", nil).Rate(Subject{Roles: amountRole, Arguments: []byte(`{"amount":[` + strings.Repeat(`0.01,`, n-1) + `0.01]}`)})
		if got.Amount != want {
			t.Errorf("%d amounts: %q", n, got.Amount)
		}
	}
}

var shownAmount = regexp.MustCompile(`^(|unreadable|[0-9]+(\.[0-9]{2,})? [A-Z]{3})$`)

func FuzzRate(f *testing.F) {
	for _, s := range []string{`{"amount":12500}`, `{"amount":"1.000 EUR","currency":"EUR"}`, `{"lines":[{"amount":1,"currency":"USD"},{"Amount":"x"}]}`, `{"lines.amount":1e40}`,
		`{"amount":1e999999999}`, `{"amount":"\u001b[31m5"}`, `{"currency":"\u202eUSD","amount":-1}`, `[]`, `null`, `{"amount":`, `{"lines":[[[]]]}`} {
		f.Add([]byte(s))
	}
	roles := map[string]string{"amount": "amount", "currency": "currency", "lines.amount": "amount", "lines.currency": "currency", "to": "destination"}
	rules := newRules(f, 0, 0, "", map[string]float64{"EUR": 1.08})
	f.Fuzz(func(t *testing.T, arguments []byte) {
		for _, action := range []string{"transfer_money", "send_email", ""} {
			got := rules.Rate(Subject{Action: action, Roles: roles, Arguments: arguments, Write: true, Context: Context{Untrusted: true}})
			if !slices.Contains(Risks, got.Risk) || !shownAmount.MatchString(got.Amount) || len(got.Amount) > 300 || got.Consequence == "" {
				t.Fatalf("%+v", got)
			}
			for _, r := range got.Reasons {
				if len(r.Text) > 800 || strings.ContainsFunc(r.Text, func(c rune) bool { return c > unicode.MaxASCII || !unicode.IsPrint(c) }) {
					t.Fatalf("%q", r.Text)
				}
			}
		}
		whole, err := canonical.Canonical(arguments, canonical.DefaultLimits())
		if err != nil {
			return
		}
		// What stands alone where the amount should is read, or the call is CRITICAL.
		amount, ok := canonical.Get(whole, "amount")
		if !ok || string(amount) == "null" || string(amount) == "[]" {
			return
		}
		got := rules.Rate(Subject{Roles: roles, Arguments: whole})
		if number := regexp.MustCompile(`^-?[0-9]{4,60}(\.[0-9]+)?$`).Match(amount); number && amount[0] != '0' && got.Risk.Rank() < High.Rank() {
			t.Fatalf("%s is %s", amount, got.Risk)
		}
		if (amount[0] == 't' || amount[0] == 'f' || amount[0] == '{') && got.Risk != Critical {
			t.Fatalf("%s is %s", amount, got.Risk)
		}
		if amount[0] == '"' && !grammar.Match(amount[1:len(amount)-1]) && got.Risk != Critical {
			t.Fatalf("%s is %s", amount, got.Risk)
		}
	})
}

func BenchmarkRate(b *testing.B) {
	rules := newRules(b, 0, 0, "", map[string]float64{"EUR": 1.08})
	for name, arguments := range map[string]string{
		"none":     `{"subject":"Invoice 17","to":"bob@example.com"}`,
		"number":   `{"amount":1250.5,"subject":"Invoice 17","to":"bob@example.com"}`,
		"text":     `{"amount":"1,250.50","currency":"EUR","subject":"Invoice 17","to":"bob@example.com"}`,
		"thousand": `{"amount":[` + strings.Repeat(`12.34,`, 999) + `12.34]}`,
	} {
		b.Run(name, func(b *testing.B) {
			s := Subject{Action: "transfer_money", Roles: amountRole, Arguments: []byte(arguments), Write: true, Context: Context{Untrusted: true}}
			b.ReportAllocs()
			for b.Loop() {
				rules.Rate(s)
			}
		})
	}
}

// Recipients may be the names of an object's members: to: {"mallory@evil.example": "cc"}.
func TestDestinationsMayBeNamesOfMembers(t *testing.T) {
	got := Destinations(map[string]string{"to": "destination"}, []byte(`{"to":{"mallory@evil.example":"cc"}}`))
	if !slices.Contains(got, `"mallory@evil.example"`) {
		t.Errorf("it goes to %v: once anything was sent to a cc, everybody is known", got)
	}
}
