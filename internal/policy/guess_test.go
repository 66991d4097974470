package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	canonical "sallyport.example/internal/call"
)

func TestNamedAmount(t *testing.T) {
	for name, want := range map[string]likeness{
		"amount": isAmount, "Amount": isAmount, "AMOUNT": isAmount, "amounts": isAmount, "amount2": isAmount, "amount_cents": isAmount, "totalAmount": isAmount,
		"transferamount": isAmount, "amountUSD": isAmount, "amt": isAmount, "txn-amt": isAmount, "amount_is_final": isAmount,
		"total": mayBe, "grandTotal": mayBe, "price": mayBe, "unit_price": mayBe, "price_usd": mayBe, "costs": mayBe, "fee": mayBe, "fees": mayBe, "payment": mayBe,
		"payment_value": mayBe, "sum": mayBe, "salary": mayBe, "budgetEUR": mayBe,
		"": noAmount, "_": noAmount, "7": noAmount, "totalThoughts": noAmount, "total_pages": noAmount, "summary": noAmount, "costume": noAmount, "price_list": noAmount,
		"payment_method": noAmount, "discount": noAmount, "mount": noAmount, "text": noAmount, "fee_id": noAmount, "value": noAmount, "path": noAmount, "números": noAmount,
	} {
		if got := likenessOf(name); got != want || likenessOf([]byte(name)) != want || NamedAmount(name) != (want != noAmount) {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

// An argument that is named like an amount is rated as one, unless the operator said what it is. It only raises.
func TestGuessedAmounts(t *testing.T) {
	r := newRules(t, 0, 0, "", map[string]float64{"KWD": 3.2, "JPY": 0.0067})
	for _, c := range []struct {
		arguments string
		risk      Risk   // of a write without an action
		moves     Risk   // of one that moves money
		amount    string // as it is shown
	}{
		{`{"recipient":"x"}`, Low, High, ""},
		{`{"amount":50000,"recipient":"x"}`, High, Critical, "50000 USD"},
		{`{"amount":999.99}`, Low, High, "999.99 USD"},
		{`{"amount":"50,000.00 USD"}`, High, Critical, "50000 USD"},
		{`{"amount":-50000}`, High, Critical, "50000 USD"},
		{`{"AMOUNT":50000}`, High, Critical, "50000 USD"},
		{`{"price_usd":"1000"}`, High, High, "1000 USD"},
		{`{"transfers":[{"amount":600},{"amount":600}]}`, High, High, "1200 USD"},
		{`{"order":{"lines":[{"unit":{"price":20000}}]}}`, High, Critical, "20000 USD"},
		{`{"amount":{"currency":"USD","value":"20000.00"}}`, High, Critical, "20000 USD"},
		{`{"amount":{"USD":20000}}`, High, Critical, "20000 USD"},
		{`{"amount":{"minor":20000,"note":"see above"}}`, High, Critical, "20000 USD"},
		{`{"amount":{"x":20000}}`, High, Critical, "20000 USD"},
		{`{"amount":[10000,10000]}`, High, Critical, "20000 USD"},
		{`{"payment":{"account":123456,"to":"DE02 1203 0000"}}`, Low, High, ""},
		{`{"payment":{"account":123456,"amount":20000}}`, High, Critical, "20000 USD"},
		{`{"payment":{"value":20000}}`, High, Critical, "20000 USD"},
		{`{"payment":"pm_card_visa","total":"see below","tip":"look twice"}`, Low, High, ""},
		{`{"amount":"fifty thousand"}`, High, Critical, "unreadable"},
		{`{"amount":1e99}`, High, Critical, "unreadable"},
		{`{"amount":"","price":null,"total":true}`, Low, High, ""},
		{`{"amount":4000,"currency":"KWD"}`, High, Critical, "4000 KWD"},
		{`{"amount":400,"currency":"kwd"}`, High, High, "400 KWD"},
		{`{"amount":50000,"currency":"JPY"}`, High, Critical, "50000 USD"}, // a guess makes nothing less of it
		{`{"amount":"50000 JPY"}`, High, Critical, "50000 USD"},
		{`{"amount":5,"currency":"BTC"}`, High, Critical, "unreadable"},
		{`{"totalThoughts":5000,"thought":"the amount is 50000"}`, Low, High, ""},
		{`{` + strings.Repeat(`"x":{`, 50) + `"amount":50000` + strings.Repeat(`}`, 51), High, Critical, "50000 USD"},
	} {
		args, err := canonical.Canonical([]byte(c.arguments), canonical.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for action, want := range map[string]Risk{"": c.risk, "transfer_money": c.moves} {
			got := r.Rate(Subject{Action: action, Write: true, Arguments: args})
			if got.Risk != want || got.Amount != c.amount {
				t.Errorf("%s %q: %s %q, want %s %q", c.arguments, action, got.Risk, got.Amount, want, c.amount)
			}
			for _, reason := range got.Reasons {
				if amount := reason.Code == ReasonAmount || reason.Code == ReasonUnreadableAmount; amount != strings.HasSuffix(reason.Text, guessed) {
					t.Errorf("%s: %s", c.arguments, reason.Text)
				}
			}
		}
		if got := r.Rate(Subject{Arguments: args}); got.Risk != Low { // a read, or what only the person sees
			t.Errorf("%s as a read: %v", c.arguments, got)
		}
	}
}

// The operator's word on an argument, or on what it is in, is the last one. What is left without a word is added to what has the role amount.
func TestGuessedAmountsBesideRoles(t *testing.T) {
	r := newRules(t, 0, 0, "", map[string]float64{"KWD": 3.2})
	for _, c := range []struct {
		roles     map[string]string
		arguments string
		risk      Risk
		amount    string
	}{
		{map[string]string{"amount": "content"}, `{"amount":50000}`, Low, ""},
		{map[string]string{"amount": "content"}, `{"Amount":50000}`, Low, ""},
		{map[string]string{"order": "content"}, `{"order":{"amount":50000}}`, Low, ""},
		{map[string]string{"order": "content"}, `{"order2":{"amount":50000}}`, High, "50000 USD"},
		{map[string]string{"amount": "amount"}, `{"amount":600}`, Low, "600 USD"},
		{map[string]string{"amount": "amount"}, `{"amount":600,"fee":500}`, High, "1100 USD"},
		{map[string]string{"amount": "amount"}, `{"amount":600,"fee":"none"}`, Low, "600 USD"},
		{map[string]string{"amount": "amount"}, `{"amount":"x","fee":500}`, Critical, "unreadable"},
		{map[string]string{"unit": "currency"}, `{"amount":400,"unit":"KWD"}`, High, "400 KWD"},
	} {
		if got := r.Rate(Subject{Write: true, Roles: c.roles, Arguments: []byte(c.arguments)}); got.Risk != c.risk || got.Amount != c.amount {
			t.Errorf("%v %s: %s %q, want %s %q", c.roles, c.arguments, got.Risk, got.Amount, c.risk, c.amount)
		}
	}
}

// Whatever a call holds, its names raise the risk or leave it, and a hostile call costs little.
func TestGuessesOnlyRaise(t *testing.T) {
	r := newRules(t, 0, 0, "", map[string]float64{"KWD": 3.2, "JPY": 0.0067})
	names := rapid.SampledFrom([]string{"amount", "Amount", "price", "payment", "currency", "value", "USD", "to", "order"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.SampledFrom([]any{nil, true, "", "x", "50 JPY", "KWD", "JPY", "1,000", 5, 999.5, 50000, -1})
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(value(depth-1), 0, 2), func(v []any) any { return v }),
			rapid.Map(rapid.MapOfN(names, value(depth-1), 0, 3), func(v map[string]any) any { return v }))
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Subject{Write: true, Roles: map[string]string{}, Action: rapid.SampledFrom([]string{"", "send_email", "transfer_money", "delete_data"}).Draw(t, "action")}
		for range rapid.IntRange(0, 2).Draw(t, "roles") {
			s.Roles[names.Draw(t, "path")] = rapid.SampledFrom([]string{"amount", "currency", "content"}).Draw(t, "role")
		}
		raw, err := json.Marshal(rapid.MapOfN(names, value(3), 0, 4).Draw(t, "arguments"))
		if err != nil {
			t.Fatal(err)
		}
		if s.Arguments, err = canonical.Canonical(raw, canonical.DefaultLimits()); err != nil {
			t.Skip("names that differ only in case")
		}
		with := r.Rate(s)
		s.Write = false
		if without := r.Rate(s); with.Risk.Rank() < without.Risk.Rank() {
			t.Fatalf("%v %s: %s with guesses, %s without", s.Roles, s.Arguments, with.Risk, without.Risk)
		}
	})
	var many strings.Builder
	many.WriteString(`{"a":0`)
	for i := range 90_000 {
		fmt.Fprintf(&many, `,"amount%05d":1`, i)
	}
	many.WriteString("}")
	if got := r.Rate(Subject{Write: true, Arguments: []byte(many.String())}); got.Risk != High || got.Amount != "unreadable" {
		t.Errorf("many amounts: %v", got)
	}
}

// A change that nobody classified is at least MEDIUM, whatever made it riskier.
func TestUnclassifiedWrites(t *testing.T) {
	r := newRules(t, 0, 0, "", nil)
	for _, c := range []struct {
		s     Subject
		risk  Risk
		codes string
	}{
		{Subject{Write: true, Unclassified: true}, Medium, "unclassified"},
		{Subject{Write: true}, Low, ""},
		{Subject{Write: true, Unclassified: true, Context: Context{Untrusted: true}}, Medium, "untrusted"},
		{Subject{Write: true, Unclassified: true, Context: Context{Untrusted: true, NewTool: true}}, High, "untrusted new_tool"},
		{Subject{Write: true, Unclassified: true, Arguments: []byte(`{"amount":50000}`)}, High, "amount"},
	} {
		if got := r.Rate(c.s); got.Risk != c.risk || codes(got) != c.codes {
			t.Errorf("%+v: %s %s, want %s %s", c.s, got.Risk, codes(got), c.risk, c.codes)
		}
	}
}

func BenchmarkGuess(b *testing.B) {
	r := newRules(b, 0, 0, "", nil)
	args := []byte(`{"body":"` + strings.Repeat("some text with an amount of 5 ", 30) + `","labels":["a","b"],"owner":"acme","repo":"lathe","title":"A longer title"}`)
	b.ReportAllocs()
	for b.Loop() {
		if r.guess(nil, args).any {
			b.Fatal("an amount")
		}
	}
}
