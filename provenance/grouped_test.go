package provenance

import (
	"strconv"
	"strings"
	"testing"
)

func hasValue(w *Request, s string) bool {
	f, ok := formOf(s)
	return ok && w.has(f)
}

// Where no space stands between words, or endings hang on, an address is still one; but no piece of another is.
func TestValuesAmongWordsWithoutSpaces(t *testing.T) {
	for _, c := range []struct {
		words   string
		has     []string
		without []string
	}{
		{"请把会议纪要发给ann@books.example。", []string{"ann@books.example"}, []string{"n@books.example", "books.example"}},
		{"请发给ann@books.example，谢谢", []string{"ann@books.example"}, nil},
		{"ann@books.exampleさんに返信してください", []string{"ann@books.example"}, []string{"books.example"}},
		{"「見積書.xlsx」をann@books.exampleと共有", []string{"ann@books.example", "見積書.xlsx"}, []string{"積書.xlsx"}},
		{"見積書2.xlsxを送って", nil, []string{"2.xlsx", "xlsx"}},
		{"ann@books.example에게 알려 주세요", []string{"ann@books.example"}, nil},
		{"ayse@books.example'a yaz", []string{"ayse@books.example"}, nil},
		{"kirjoita matti@books.example:lle", []string{"matti@books.example"}, nil},
		{"请看https://books.example/a吧", nil, []string{"https://books.example/a", "https://books.example"}}, // how far does it go?
		{"请看https://books.example/a。", []string{"https://books.example/a"}, nil},
		{"请打开https://books.example吧", []string{"https://books.example"}, nil},
		{"看例books.example/a", nil, []string{"books.example/a", "books.example"}}, // the name of another host
		{"支付500元给他", []string{"500"}, []string{"50", "5"}},
		{"écrire àann@books.example", nil, []string{"ann@books.example"}}, // a letter before it makes it another
		{"发给éann@books.example吧", nil, []string{"ann@books.example"}},
		{"发给ann@books.exampleé吧", nil, []string{"ann@books.example"}},
		{"поann@books.example", nil, []string{"ann@books.example"}},
	} {
		w := ParseRequest(c.words)
		for _, s := range c.has {
			if !hasValue(w, s) {
				t.Errorf("%q has no %q", c.words, s)
			}
		}
		for _, s := range c.without {
			if hasValue(w, s) {
				t.Errorf("%q has %q", c.words, s)
			}
		}
	}
	if w := ParseRequest("请删除邮件m-88。"); !w.givesID("m-88", "mail") || w.givesID("m-8", "mail") {
		t.Error("an id among such words")
	}
	if w := ParseRequest("请回复《季度报告》和季度总结"); !w.namesRecord("季度报告", byOutsider) || w.namesRecord("季度总结", byOutsider) {
		t.Error("such quotes set a name apart, and nothing else does")
	}
}

// Accounts and telephone numbers are written in groups, and found as a whole: no beginning, no end, and nothing of two of them.
func TestNumbersInGroups(t *testing.T) {
	for _, c := range []struct {
		words   string
		has     []string
		without []string
	}{
		{"Pay DE02 1001 0010 0006 8201 01, please", []string{"DE02100100100006820101", "DE02-1001-0010-0006-8201-01"}, []string{"DE02100100100006", "100100100006820101", "DE0210010010000682010", "001000068201"}},
		{"Pay DE02 1001 0010 0006 8201 01.", []string{"DE02100100100006820101"}, nil},
		{"pay 50 to de02 1001 0010 0006 8201 01", []string{"DE02100100100006820101"}, nil},
		{"Pay GB29 NWBK 6016 1331 9268 19 THE RENT", []string{"GB29NWBK60161331926819"}, []string{"GB2960161331926819", "GB29NWBK60161331926819THE", "60161331926819"}},
		{"Pay DE02 1001 0010 0006 8201 01 EUR 50", nil, []string{"DE02100100100006820101"}}, // where does it end?
		{"From DE02 1001 0010 0006 8201 01 DE89 3704 0044 0532 0130 00", []string{"DE02100100100006820101", "DE89370400440532013000"}, []string{"0532013000", "820101DE89370400"}},
		{"Call +49 (30) 1234-567 or 06 12 34 56 78 : now", []string{"+49 30 1234567", "49301234567 "[:11] + "-", "0612345678"}, []string{"1234567", "30 1234567", "12345678", "061234567"}},
		{"Fax to (555) 010-7788.", []string{"555-010-7788"}, []string{"1555-010-7788"}},
		{"Call 06.12.34.56.78, or +1.415.555.2671.", []string{"0612345678"}, []string{"12345678-", "061234567"}},
		{"Call +49.30.555.2671.", []string{"+49-30-555-2671"}, []string{"305552671"}},
		{"Call 0176/55/5667", nil, []string{"0176-55-5667"}},
		{"on 12.05.2026, 05/12/2026, 2026/05/12 and 1.234.567.89x at 10.20.30.4 or 1234.5678 or 12..345678 or a12.3456.7890 or 12..3456.7899 or 1.234.56787 or 1.2345.6786", nil, []string{"1234567899-", "123456787-", "123456786-", "A1234567890", "12052026-", "05122026-", "20260512-", "1234567890-", "1020304 "[:7] + "-", "12345678-", "1234567890-"}},
		{"Order 114-5532-8871, 114-5532-8872", []string{"11455328871-", "11455328872-"}, []string{"114553288711455328872-"}},
		{"My account 12345678", nil, []string{"ACCOUNT12345678"}},
		{"user AB 12345678", nil, []string{"AB12345678"}},
		{"on 2026-05-12 we meet", nil, []string{"20260512-"}},
		{"a/1234 5678 b", nil, []string{"12345678-"}},
		{"1234 5678/b", nil, []string{"12345678-"}},
		{"1234 5678.90", nil, []string{"12345678-", "1234567890-"}},
		{"x1234 5678é", nil, []string{"12345678-", "X12345678"}},
		{"1234 5678@books.example", nil, []string{"12345678-"}},
		{"12 3456 - 789", nil, []string{"123456789-"}},
		{"12 34 56 78, 90 and 12", []string{"12345678-"}, []string{"1234567890-", "12345690-"}},
	} {
		w := ParseRequest(c.words)
		for _, s := range c.has {
			if !hasValue(w, s) {
				t.Errorf("%q has no %q", c.words, s)
			}
		}
		for _, s := range c.without {
			if hasValue(w, s) {
				t.Errorf("%q has %q", c.words, s)
			}
		}
	}
}

// In one piece the digits of an account read as a number. As an amount they are no account.
func TestAccountsWithAndWithoutGroups(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "amount": Amount}}
	book := &Profile{Output: TrustedOutput, Names: []string{"name"}}
	for _, c := range []struct {
		words, shown, args string
		want               Verdict
	}{
		{"Fax it to 555-010-7788", `{}`, `{"to":"5550107788"}`, Permit},
		{"Fax it to 555-010-7788", `{}`, `{"to":5550107788}`, Permit},
		{"Fax it to 5550107788", `{}`, `{"to":"555-010-7788"}`, Permit},
		{"Fax it to 555-010-7788", `{}`, `{"to":"5550107789"}`, Ask},
		{"Fax it to 0555-010-7788", `{}`, `{"to":"5550107788"}`, Ask},
		{"Fax it to the 'Owl Shop'", `{"name":"Owl Shop","fax":"555-010-7788"}`, `{"to":"5550107788"}`, Permit},
		{"Fax it to the 'Owl Shop'", `{"name":"Owl Shop","fax":5550107788}`, `{"to":"555-010-7788"}`, Permit},
		{"Fax it to the 'Owl Shop'", `[{"name":"Blue Heron","fax":"555-010-7788"},{"name":"Owl Shop","fax":"555-010-7789"}]`, `{"to":"5550107788"}`, Ask},
		{"The fax is 555-010-7788", `{}`, `{"amount":5550107788}`, Ask},
		{"For the 'Owl Shop'", `{"name":"Owl Shop","fax":"555-010-7788"}`, `{"amount":5550107788}`, Ask},
	} {
		r := judged(p, c.words, c.args, showed(book, c.words, "srv.book", "call_1", `{}`, c.shown))
		if r.Verdict != c.want {
			t.Errorf("%q, shown %s, %s: %s, %s", c.words, c.shown, c.args, r.Verdict, r.Reason)
		}
	}
	r := JudgeCall(post, p, []byte(`{"to":"5550107788"}`), Situation{Held: fromOutside, Own: []string{"555-010-7788"}})
	if r.Verdict != Permit {
		t.Errorf("the person's own: %s", r.Reason)
	}
}

func TestAmountsWithACommaBeforeTheCents(t *testing.T) {
	for words, want := range map[string][]string{
		"1.250,00 €": {"1250"}, "89,50 EUR": {"89.5"}, "€1.234.567,5": {"1234567.5"}, "0,5": {"0.5"}, "1,250": {"1250"}, "$1,250.75": {"1250.75"}, "¥5000": {"5000"}, "1.250": {"1.25"},
		"12.34,5": nil, "1.25,00": nil, "1,2,3": nil, "1.250,000": nil, "1..250,00": nil,
	} {
		got := []string(nil)
		for f := range ParseRequest("Pay " + words + " now").forms {
			if f.kind == number {
				got = append(got, f.value)
			}
		}
		if len(got) != len(want) || len(want) == 1 && (form{number, got[0]}) != formed(want[0]) {
			t.Errorf("%q has the amounts %q, want %q", words, got, want)
		}
	}
}

func formed(s string) form {
	f, _ := formOf(s)
	return f
}

// A record whose id the person says is singled out by it: but not by a number of another thing, or of another kind, and not by what an outsider
// calls an id.
func TestARecordIsCalledByItsID(t *testing.T) {
	deals := &Profile{IDKind: "deal", TrustedFields: []string{"deal_id", "value"}, Delegable: []string{"contact.email"}}
	for _, c := range []struct {
		words, shown string
		profile      *Profile
		want         Verdict
	}{
		{"Tell the contact of deal 502", `[{"deal_id":502,"contact":{"email":"ann@books.example"}},{"deal_id":503,"contact":{"email":"eve@x.example"}}]`, deals, Permit},
		{"Tell the contacts of deals 50 and 502", `[{"deal_id":502,"contact":{"email":"ann@books.example"}},{"deal_id":50,"contact":{"email":"eve@x.example"}}]`, deals, Permit},
		{"Tell the contacts of deals 50 and 502", `[{"deal_id":502,"contact":{"email":"eve@x.example"}},{"deal_id":50,"contact":{"email":"ann@books.example"}}]`, deals, Permit},
		{"Tell the contact of deal 503", `[{"deal_id":502,"contact":{"email":"ann@books.example"}},{"deal_id":503,"contact":{"email":"eve@x.example"}}]`, deals, Ask},
		{"Tell the contact of file 502", `[{"deal_id":502,"contact":{"email":"ann@books.example"}}]`, deals, Ask},
		{"Tell the 502 people", `[{"deal_id":502,"contact":{"email":"ann@books.example"}}]`, deals, Ask},
		{"Tell the contact of deal 502", `[{"deal_id":502,"contact":{"email":"ann@books.example"}},{"deal_id":502,"contact":{"email":"eve@x.example"}}]`, deals, Ask}, // two of them
		{"Tell the contact of deal 502", `[{"deal_id":501,"value":502,"contact":{"email":"ann@books.example"}}]`, deals, Ask},
		{"Tell the contact of deal 502", `[{"deal_id":501,"note":{"id":502},"contact":{"email":"ann@books.example"}}]`, deals, Ask},
		{"Tell the contact of deal 502", `[{"deal_id":502,"contact":{"email":"ann@books.example"}}]`, &Profile{IDKind: "deal", Delegable: []string{"contact.email"}}, Ask}, // an outsider may have written it
	} {
		p := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
		r := judged(p, c.words, `{"to":"ann@books.example"}`, showed(c.profile, c.words, "crm.get", "call_1", `{"query":"x"}`, c.shown))
		if r.Verdict != c.want {
			t.Errorf("%q, shown %s: %s, %s", c.words, c.shown, r.Verdict, r.Reason)
		}
	}
}

// A field that the system sets holds an id for an argument of its name: of a record of the same kind, whole, and for nothing else.
func TestAnIDFieldMayHaveTheArgumentsName(t *testing.T) {
	const words = "Merge 'Blue Heron'"
	pulls := func() *Profile {
		return &Profile{IDKind: "pull_request", TrustedFields: []string{"number", "size"}, Names: []string{"title"}}
	}
	free := pulls()
	free.TrustedFields = []string{"size"}
	kindless := pulls()
	kindless.IDKind = ""
	trusted := pulls()
	trusted.Output = TrustedOutput
	for _, c := range []struct {
		argument, shown, value string
		profile                *Profile
		want                   Verdict
	}{
		{"number", `{"number":93,"title":"Blue Heron"}`, `93`, pulls(), Permit},
		{"number", `{"number":93,"title":"Blue Heron"}`, `"93"`, pulls(), Permit},
		{"Number", `{"number":93,"title":"Blue Heron"}`, `93`, pulls(), Permit},
		{"numbers", `{"number":93,"title":"Blue Heron"}`, `[93]`, pulls(), Permit},
		{"pull_request_number", `{"number":93,"title":"Blue Heron"}`, `93`, pulls(), Permit},
		{"pullRequestNumber", `{"number":93,"title":"Blue Heron"}`, `93`, pulls(), Permit},
		{"number", `{"pull_request_number":93,"title":"Blue Heron"}`, `93`, &Profile{IDKind: "pull_request", TrustedFields: []string{"pull_request_number"}, Names: []string{"title"}}, Permit},
		{"number", `{"number":93,"title":"Blue Heron"}`, `93`, trusted, Permit},
		{"number", `{"number":93,"title":"Blue Heron"}`, `93.0`, pulls(), Ask},
		{"number" + strings.Repeat("_", 2*maxDisplayField), `{"number":93,"title":"Blue Heron"}`, `93`, pulls(), Ask},
		{"number", `{"number":93,"title":"Blue Heron"}`, `9`, pulls(), Ask},
		{"number", `{"number":"093","title":"Blue Heron"}`, `93`, pulls(), Ask},
		{"number", `{"size":93,"number":1,"title":"Blue Heron"}`, `93`, pulls(), Ask},
		{"number", `{"head":{"number":93},"title":"Blue Heron"}`, `93`, &Profile{IDKind: "pull_request", TrustedFields: []string{"head"}, Names: []string{"title"}}, Ask},
		{"number", `{"number":[93,94],"title":"Blue Heron"}`, `93`, pulls(), Permit},
		{"number", `{"number":"93 94","title":"Blue Heron"}`, `"93 94"`, pulls(), Ask},
		{"number", `{"number":93,"title":"Blue Heron"}`, `93`, free, Ask},
		{"number", `{"number":93,"title":"Blue Heron"}`, `93`, kindless, Ask},
		{"number", `{"number":93,"title":"Owl"}`, `93`, pulls(), Ask},
		{"number", `{"number":93,"title":"Blue Heron"}`, `93`, &Profile{IDKind: "issue", TrustedFields: []string{"number"}, Names: []string{"title"}}, Ask},
		{"item", `{"number":93,"title":"Blue Heron"}`, `93`, pulls(), Ask},
	} {
		p := &Profile{Level: 2, IDKind: "pull_request", Args: map[string]Role{c.argument: Selector}}
		r := judged(p, words, `{"`+c.argument+`":`+c.value+`}`, showed(c.profile, words, "srv.pulls", "call_1", `{"number":93}`, c.shown))
		if r.Verdict != c.want {
			t.Errorf("%s %s, shown %s: %s, %s", c.argument, c.value, c.shown, r.Verdict, r.Reason)
		}
	}
	// That a call is answered with what it was given is no evidence for anything but the id of what it gave.
	p := &Profile{Level: 2, IDKind: "pull_request", Args: map[string]Role{"number": Destination}}
	r := judged(p, words, `{"number":"12345678"}`, showed(trusted, words, "srv.pulls", "call_1", `{"number":"12345678"}`, `{"number":"12345678","title":"Blue Heron"}`))
	if r.Verdict != Ask {
		t.Errorf("an echo confirms: %s", r.Reason)
	}
	// Where nobody said what ids there are, a field is one by its own name only.
	p = &Profile{Level: 2, Args: map[string]Role{"number": Selector}}
	if r := judged(p, words, `{"number":93}`, showed(kindless, words, "srv.pulls", "call_1", `{"query":"x"}`, `{"number":93,"title":"Blue Heron"}`)); r.Verdict != Ask {
		t.Errorf("without a kind: %s", r.Reason)
	}
	for _, v := range showed(trusted, words, "srv.pulls", "call_1", `{}`, `{"number":93,"head":{"number":94}}`).Records[0].Values {
		if v.Code != (v.Field == "number") {
			t.Errorf("%+v", v)
		}
	}
	if !MaySupply("srv.merge", &Profile{IDKind: "pull_request", Args: map[string]Role{"number": Selector}}, "number", "srv.pulls", pulls(), "number") ||
		MaySupply("srv.merge", &Profile{IDKind: "pull_request", Args: map[string]Role{"item": Selector}}, "item", "srv.pulls", pulls(), "number") {
		t.Error("a plan says something else")
	}
}

func TestIDsOfKindsOfTwoWords(t *testing.T) {
	for _, c := range []struct {
		words, id, kind string
		want            bool
	}{
		{"Merge pull request 93", "93", "pull_request", true}, {"Merge Pull-Request #93", "93", "pull_request", true}, {"Merge pull requests 92 and 93", "93", "pull-request", true}, {"Merge PR #93", "93", "pull_request", true}, {"Merge PRs 92 and 93", "93", "pull_request", false}, {"Merge PRs #92 and #93", "92", "pull_request", true}, {"Merge PR number 93", "93", "pull_request", true},
		{"Merge request 93", "93", "pull_request", false}, {"Merge pull 93", "93", "pull_request", false}, {"Merge push request 93", "93", "pull_request", false}, {"Merge p 93", "93", "pull", false}, {"Merge #93", "93", "pull_request", false},
		{"Delete entries 1 and 2", "2", "entry", true}, {"Delete boxes 1 and 2", "2", "box", true}, {"Delete box 2", "2", "boxes", false},
		{"Lösche den Termin mit der Nummer 42", "42", "termin", true}, {"Supprime le message avec le numéro 42", "42", "message", true}, {"Borra el mensaje con el número 42", "42", "mensaje", true}, {"Lösche den Termin, 42 Leute", "42", "mail", false},
	} {
		if got := ParseRequest(c.words).givesID(c.id, c.kind); got != c.want {
			t.Errorf("%q gives %s %q: %v", c.words, c.kind, c.id, got)
		}
	}
}

// People leave out what a name has around it. Where something has the name in full, that is meant; two of them are nobody.
func TestNamesThatPeopleShorten(t *testing.T) {
	for _, c := range []struct {
		words string
		names []string // of the records, of which the first is the one
		want  Verdict
	}{
		{"Share the Q3 report", []string{"Q3 report.docx", "Q4 report.docx"}, Permit},
		{"Share the team budget", []string{"team_budget.xlsx", "x.txt"}, Permit},
		{"Share the team budget", []string{"team-budget.xlsx"}, Permit},
		{"Share team-budget", []string{"team-budget.xlsx"}, Permit},
		{"Answer 'Blue Heron'", []string{"Re: AW: Blue Heron", "Re: Owl"}, Permit},
		{"Call Jane Falcon", []string{"Falcon, Jane", "Heron, Jane"}, Permit},
		{"Share the Q3 report", []string{"Q3 report.docx", "Q3 report.pdf"}, Ask}, // which?
		{"Share the Q3 report", []string{"Q3 report.docx", "Q3 report"}, Ask},     // the other
		{"Share the Q3 report", []string{"Q3 report", "Q3 report.docx"}, Permit},
		{"Share the Q3 report", []string{"Q3 report.docx", "the Q3 report.docx"}, Ask},
		{"Answer 'Blue Heron'", []string{"Re: Blue Heron", "Blue Heron"}, Ask},
		{"Answer 'Blue Heron'", []string{"Re: Blue Heron", "Fwd: Blue Heron"}, Ask},
		{"Share 'Q3 report.pdf'", []string{"Q3 report.docx"}, Ask}, // another file
		{"Share the 'Salaries'", []string{"Salaries.xlsx"}, Ask},
		{"Answer 'Heron'", []string{"Re: Heron"}, Ask},
		{"Share the report", []string{"the report.docx"}, Ask},
		{"Share the Q3 report", []string{"Q3 report.company"}, Ask},
		{"Share the Q3 report", []string{"Q3 report: final.docx"}, Ask},
		{"Call Jane Falcon", []string{"Falcon, Jane, Dr."}, Ask},
		{"Call Jane Falcon", []string{"Falcon,Jane"}, Ask},
	} {
		p := &Profile{Level: 2, Args: map[string]Role{"id": Selector}}
		var shown []string
		for i, name := range c.names {
			shown = append(shown, `{"id":"f`+strconv.Itoa(i)+`","name":"`+name+`"}`)
		}
		r := judged(p, c.words, `{"id":"f0"}`, showed(&Profile{TrustedFields: []string{"id"}, Names: []string{"name"}}, c.words, "srv.list", "call_1", `{"query":"x"}`, "["+strings.Join(shown, ",")+"]"))
		if r.Verdict != c.want {
			t.Errorf("%q, shown %q: %s, %s", c.words, c.names, r.Verdict, r.Reason)
		}
	}
}

func TestAddressesWithBrackets(t *testing.T) {
	for words, want := range map[string]string{
		"Read https://books.example/Heron_(bird).":           "https://books.example/Heron_(bird)",
		"(see https://books.example/Heron_(bird))":           "https://books.example/Heron_(bird)",
		"[this](https://books.example/Heron_(bird)), please": "https://books.example/Heron_(bird)",
		"<https://books.example/a_(b)_(c)?d=(e)>":            "https://books.example/a_(b)_(c)?d=(e)",
		"(https://books.example/a)":                          "https://books.example/a",
	} {
		w := ParseRequest(words)
		if !hasValue(w, want) {
			t.Errorf("%q has no %q", words, want)
		}
		for _, other := range []string{want + ")", want + "(", want + "/x", "https://books.example/Heron_(bird", "https://books.example/a_(b)", "https://books.example/a_(b)_(c)"} {
			if hasValue(w, other) {
				t.Errorf("%q has %q", words, other)
			}
		}
	}
}

// A short number is that of an argument only where the request calls it so.
func TestAShortNumberMeansWhatTheRequestCallsIt(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"port": Target, "to.extension": Destination, "room_no": Target, "lock.door": Target}, MayOmit: []string{"to.extension"}}
	for _, c := range []struct {
		words, args string
		want        Verdict
	}{
		{"Open port 8443", `{"port":8443}`, Permit}, {"Open ports 80 and 8443", `{"port":8443}`, Permit}, {"Open port 8443", `{"port":"8443"}`, Permit}, {"Dial extension 17", `{"to":{"extension":17}}`, Ask}, {"Open door 5", `{"lock":{"door":5}}`, Permit},
		{"Open port 8443", `{"port":844}`, Ask}, {"Open port 8443", `{"port":443}`, Ask}, {"Open 8443 ports", `{"port":8443}`, Ask}, {"Open number 8443", `{"port":8443}`, Ask},
		{"Open port 8443", `{"to":{"extension":8443}}`, Ask}, {"Open port 8443", `{"other":8443}`, Ask}, {"Open port 8443", `{"":8443}`, Ask},
	} {
		if r := judged(p, c.words, c.args); r.Verdict != c.want {
			t.Errorf("%q, %s: %s, %s", c.words, c.args, r.Verdict, r.Reason)
		}
	}
}
