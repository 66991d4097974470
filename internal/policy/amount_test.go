package policy

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	canonical "sallyport.example/internal/call"
)

func TestReadAmount(t *testing.T) {
	for _, c := range []struct {
		text    string // JSON
		value   string // "" unreadable
		code    string
		twoWays bool
	}{
		{`0`, "0", "", false},
		{`1250.5`, "1250.5", "", false},
		{`-1250.5`, "1250.5", "", false},
		{`1e+21`, "1000000000000000000000", "", false},
		{`1e-7`, "0.0000001", "", false},
		{`9007199254740993`, "9007199254740993", "", true}, // no double: the next ones are 1 less and 3 more
		{`9007199254740995`, "9007199254740996", "", true},
		{`-9999.99999999999999999`, "10000", "", true},
		{`9999.999999999998`, "9999.999999999998", "", false},
		{`1e40`, "1" + strings.Repeat("0", 40), "", false},
		{`1e41`, "", "", false},
		{`1e-41`, "", "", false},
		{`1e999999999`, "", "", false},
		{`1e-999999999`, "", "", false},
		{`1E999999999999999999999`, "", "", false},
		{strings.Repeat("9", 64), "1" + strings.Repeat("0", 64), "", true},
		{strings.Repeat("9", 65), "", "", false},

		{`"0"`, "0", "", false},
		{`"007"`, "7", "", false},
		{`"12.50"`, "12.5", "", false},
		{`"-12.50"`, "12.5", "", false},
		{`"  12.50  "`, "12.5", "", false},
		{`"USD 5"`, "5", "USD", false},
		{`"USD5"`, "5", "USD", false},
		{`"5 USD"`, "5", "USD", false},
		{`"5USD"`, "5", "USD", false},
		{`"usd 5"`, "5", "USD", false},
		{`"5 chf"`, "5", "CHF", false},
		{`"$5"`, "5", "USD", false},
		{`"5$"`, "5", "USD", false},
		{`"€ 5"`, "5", "EUR", false},
		{`"5 €"`, "5", "EUR", false},
		{`"£5.25"`, "5.25", "GBP", false},
		{`"-$5"`, "5", "USD", false},
		{`"$-5"`, "5", "USD", false},
		{`"- 5"`, "", "", false},
		{`"-$-5"`, "", "", false},
		{`"--5"`, "", "", false},
		{`"+5"`, "", "", false},
		{`"5-"`, "", "", false},
		{`"(5)"`, "", "", false},
		{`"$5 USD"`, "", "", false},
		{`"USD 5 EUR"`, "", "", false},
		{`"US$5"`, "", "", false},
		{`"Usd 5"`, "", "", false},
		{`"¥5"`, "", "", false},
		{`"5 dollars"`, "", "", false},

		{`"1,234,567.89"`, "1234567.89", "", false},
		{`"1.234.567,89"`, "1234567.89", "", false},
		{`"1 234 567.89"`, "1234567.89", "", false},
		{`"1'234'567.89"`, "1234567.89", "", false},
		{`"1,234,567"`, "1234567", "", false},
		{`"1.234.567"`, "1234567", "", false},
		{`"1 000"`, "1000", "", false},
		{`"$1,000.00"`, "1000", "USD", false},

		{`"1,000"`, "1000", "", true},
		{`"1.000"`, "1000", "", true},
		{`"-1.000 EUR"`, "1000", "EUR", true},
		{`"0.999"`, "999", "", true},
		{`"1.0000"`, "1", "", false},
		{`"9999.99999999999999999"`, "10000", "", true}, // as a double
		{`"-$9,999.99999999999999999"`, "10000", "USD", true},
		{`"999.9999999999999999 EUR"`, "1000", "EUR", true},
		{`"1000.0000000000000000001"`, "1000.0000000000000000001", "", true}, // more than the double
		{`"0.1"`, "0.1", "", false},
		{`"12,50"`, "1250", "", true},
		{`"12,5000"`, "125000", "", true},
		{`"1 234,56"`, "123456", "", true},
		{`"1'234,56"`, "123456", "", true},

		{`"1,2,3"`, "", "", false},
		{`"1,00,000"`, "", "", false},
		{`"1,0000,000"`, "", "", false},
		{`"1000,000,000"`, "", "", false},
		{`"1,234.567.890"`, "", "", false},
		{`"1,234 567"`, "", "", false},
		{`"1  000"`, "", "", false},
		{`"1 00"`, "", "", false},
		{`"1.5.5"`, "", "", false},
		{`".5"`, "", "", false},
		{`"5."`, "", "", false},
		{`",5"`, "", "", false},
		{`""`, "", "", false},
		{`" "`, "", "", false},
		{`"-"`, "", "", false},
		{`"$"`, "", "", false},
		{`"USD"`, "", "", false},
		{`"ten"`, "", "", false},
		{`"12k"`, "", "", false},
		{`"12 k"`, "", "", false},
		{`"1e3"`, "", "", false},
		{`"0x10"`, "", "", false},
		{`"1_000"`, "", "", false},
		{`"1/2"`, "", "", false},
		{`"NaN"`, "", "", false},
		{`"Inf"`, "", "", false},
		{`"5%"`, "", "", false},
		{`"5\n"`, "", "", false},
		{`"\t5"`, "", "", false},
		{`"5\u0000"`, "", "", false},
		{`"5\u00a0"`, "", "", false},    // no-break space
		{`"1\u202f000"`, "", "", false}, // narrow no-break space
		{`"1\u2019000"`, "", "", false}, // typographic apostrophe
		{`"\u22125"`, "", "", false},    // minus sign
		{`"５０００"`, "", "", false},       // full width
		{`"1０"`, "", "", false},         // half of it full width
		{`"١٢٣"`, "", "", false},        // Arabic-Indic
		{`"1２345"`, "", "", false},      // one of them full width
		{`"५"`, "", "", false},          // Devanagari
		{`"²"`, "", "", false},          // superscript
		{`"Ⅻ"`, "", "", false},          // Roman
		{`"5 ſſſ"`, "", "", false},      // upper case of these is SSS
		{`"ＵＳＤ 5"`, "", "", false},      // full width
		{`"5\u202e000"`, "", "", false}, // right to left
		{`"5\u200b000"`, "", "", false}, // zero width
		{`"` + strings.Repeat("9", 64) + `"`, "1" + strings.Repeat("0", 64), "", true},
		{`"` + strings.Repeat("9", 65) + `"`, "", "", false},

		{`true`, "", "", false},
		{`{}`, "", "", false},
		{`{"value":5}`, "", "", false},
	} {
		d := json.NewDecoder(strings.NewReader(c.text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		a, ok := readAmount(v)
		switch {
		case ok != (c.value != ""):
			t.Errorf("%s: readable is %v", c.text, ok)
		case !ok:
		default:
			want, _ := new(big.Rat).SetString(c.value)
			if a.value.Cmp(want) != 0 || a.currency != c.code || a.twoWays != c.twoWays {
				t.Errorf("%s: %s %q, two ways %v; want %s %q, %v", c.text, decimal(a.value), a.currency, a.twoWays, c.value, c.code, c.twoWays)
			}
		}
	}
}

func TestReadCode(t *testing.T) {
	for in, want := range map[string]string{"USD": "USD", "usd": "USD", "Usd": "", "": "", "US": "", "USDT": "", "U1D": "", "ſſſ": "", "ÜSD": "", "\u212aRW": "", " US": ""} {
		if got := readCode(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestDecimalAndThousands(t *testing.T) {
	for in, want := range map[string][2]string{
		"0": {"0", "0"}, "999": {"999", "999"}, "1000": {"1000", "1,000"}, "12500": {"12500", "12,500"}, "1234567.5": {"1234567.50", "1,234,567.50"},
		"0.125": {"0.125", "0.125"}, "1250.50": {"1250.50", "1,250.50"}, "999999": {"999999", "999,999"}, "1e-40": {"0." + strings.Repeat("0", 39) + "1", "0." + strings.Repeat("0", 39) + "1"},
	} {
		n, _ := new(big.Rat).SetString(in)
		if got := [2]string{decimal(n), thousands(n)}; got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// However a number is grouped, it is never read as less than it is.
func TestGroupingNeverShrinksAnAmount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := fmt.Sprint(rapid.Int64Range(0, 1e15).Draw(t, "whole"))
		fraction := rapid.StringMatching(`[0-9]{0,4}`).Draw(t, "fraction")
		point := rapid.SampledFrom([]string{".", ","}).Draw(t, "point")
		separator := rapid.SampledFrom([]string{"", " ", "'", ",", "."}).Filter(func(s string) bool { return s != point }).Draw(t, "separator")
		text := whole
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + separator + text[i:]
		}
		exact := whole
		if fraction != "" {
			text, exact = text+point+fraction, whole+"."+fraction
		}
		text = rapid.SampledFrom([]string{"", "-", "$", "-EUR ", "£ -", "   "}).Draw(t, "before") + text
		n, _ := new(big.Rat).SetString(exact)
		a, ok := readText(text)
		if !ok || a.value.Cmp(n) < 0 || !a.twoWays && a.value.Cmp(n) != 0 {
			t.Fatalf("%q is read as %v, %v", text, a, ok)
		}
	})
}

// grammar is what readAmount says it reads, once more.
var grammar = func() *regexp.Regexp {
	const currency, number = `([A-Z]{3}|[a-z]{3}|[$€£])`, `([0-9]+([.,][0-9]+)?|[0-9]{1,3}((,[0-9]{3})+([.][0-9]+)?|([.][0-9]{3})+(,[0-9]+)?|( [0-9]{3})+([.,][0-9]+)?|('[0-9]{3})+([.,][0-9]+)?))`
	return regexp.MustCompile(`^ *(-?` + number + `( *` + currency + `)?|-` + currency + ` *` + number + `|` + currency + ` *-?` + number + `) *$`)
}()

func FuzzAmount(f *testing.F) {
	for _, s := range []string{"", "5", "-5 USD", "€ 1.234,56", "1,000", "1.000", "12,50", "1 234,56", "12k", "５", "1e999999999", "0x1p4", "1/3", "1__0", "\xff", "$-5", "-$-5", " 5 "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := readText(s)
		if want := len(s) <= maxAmountText && grammar.MatchString(s); ok != want {
			t.Fatalf("%q: readable is %v", s, ok)
		}
		if !ok {
			return
		}
		if a.value.Sign() < 0 || a.currency != "" && !isCode(a.currency) {
			t.Fatalf("%q: %s %q", s, a.value, a.currency)
		}
		// What common programs make of it is never more.
		plain := strings.Trim(s, "-$€£ ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
		for _, program := range []*strings.Replacer{
			strings.NewReplacer(",", "", " ", "", "'", ""),  // drops what groups
			strings.NewReplacer(" ", "", "'", "", ",", "."), // takes a comma for a point
		} {
			if n, ok := new(big.Rat).SetString(program.Replace(plain)); ok && n.Cmp(a.value) > 0 {
				t.Fatalf("%q is read as %s, others read %s", s, decimal(a.value), decimal(n))
			}
		}
	})
}

func TestDestinations(t *testing.T) {
	roles := map[string]string{"to": "destination", "cc": "destination", "message.to": "destination", "url": "url", "body": "content"}
	for _, c := range []struct{ arguments, want string }{
		{``, ``},
		{`{}`, ``},
		{`{"body":"x","url":"https://a"}`, ``},
		{`{"to":"b@example.com"}`, `"b@example.com"`},
		{`{"TO":"b@example.com"}`, `"b@example.com"`},
		{`{"cc":["c","b","c"],"to":"b"}`, `"b" "c"`},
		{`{"message":[{"to":"x"},{"to":[["y"]]},{"to":null},{}]}`, `"x" "y"`},
		{`{"message.to":"x"}`, `"x"`},
		{`{"message":"x"}`, `"x"`}, // where the path does not go on, what stands there counts
		{`{"to":{"address":"x","name":"y","primary":true}}`, `"address" "name" "primary" "x" "y" true`},
		{`{"to":{"mallory@evil.example":"cc"}}`, `"cc" "mallory@evil.example"`}, // recipients may be the names
		{`{"to":[{"a":{"b":null}},{"":[]}]}`, `"" "a" "b"`},
		{`{"message":{"from":"x","to":{"y":{}}}}`, `"y"`},
		{`{"to":null}`, ``},
		{`{"to":12345678901234567890}`, `12345678901234567890`},
		{`{"to":"<a&b>\"\u2028"}`, "\"<a&b>\\\"\u2028\""},
	} {
		if got := strings.Join(Destinations(roles, []byte(c.arguments)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.arguments, got, c.want)
		}
	}
	if got := Destinations(nil, []byte(`{"to":"x"}`)); got != nil {
		t.Errorf("without roles: %q", got)
	}
}

func FuzzDestinations(f *testing.F) {
	for _, s := range []string{`{"to":"a"}`, `{"to":["a",{"b":1e300}]}`, `{"message":{"to":"\u2028"}}`, `[]`, `{"to":`, `{"to":"\ud800"}`} {
		f.Add([]byte(s))
	}
	roles := map[string]string{"to": "destination", "message.to": "destination"}
	f.Fuzz(func(t *testing.T, arguments []byte) {
		got := Destinations(roles, arguments)
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("%q", got)
		}
		whole, err := canonical.Canonical(arguments, canonical.DefaultLimits())
		if err != nil {
			return
		}
		for _, d := range Destinations(roles, whole) {
			if !strings.Contains(string(whole), d) || d[0] == '{' || d[0] == '[' || d == "null" {
				t.Fatalf("%s is no scalar of %s", d, whole)
			}
		}
	})
}

// A server that reads an amount into a double moves what that double is: a text just under a threshold is at it.
func TestAmountInTextIsReadAsADoubleToo(t *testing.T) {
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

// A currency that only we read makes the amount small for us alone: the server takes its own, which is the base currency here. 99,999 of it is
// CRITICAL; in JPY it would be 999.99.
func TestCurrencyThatTheServerDoesNotReadIsNoCurrency(t *testing.T) {
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
