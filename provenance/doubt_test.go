package provenance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.example/flow"
)

// What could be read in two ways, or only sounds like what the person meant, is asked about. Where a row has Permit it says how far that goes.

func TestANumberIsNotWhatStandsByChance(t *testing.T) {
	target := func(name string) *Profile { return &Profile{Level: 2, Args: map[string]Role{name: Target}} }
	selector := func(kind string) *Profile {
		return &Profile{Level: 2, IDKind: kind, Args: map[string]Role{"id": Selector}}
	}
	to := &Profile{Level: 2, Args: map[string]Role{"to": Destination, "extension": Destination, "to.extension": Destination}}
	for _, c := range []struct {
		words, args string
		p           *Profile
		want        Verdict
	}{
		// behind a preposition that is an argument's name, or behind a destination's
		{"Forward the report to 3 colleagues", `{"to":3}`, to, Ask},
		{"Forward the report to 3 colleagues", `{"to":[3]}`, to, Ask},
		{"Forward the report to 3 colleagues", `{"to":{"to":3}}`, to, Ask},
		{"Move the meeting to 10 and tell Ann", `{"to":"10"}`, to, Ask},
		{"Dial extension 17", `{"extension":17}`, to, Ask},
		{"Forward it to 3 colleagues", `{"to":3}`, target("to"), Ask},
		{"Please forward to 3 colleagues", `{"forward_to":3}`, target("forward_to"), Ask},
		{"Please forward to 3 colleagues", `{"forwardTo":3}`, target("forwardTo"), Ask},
		{"HasRoom 5 from 3 colleagues", `{"from":3}`, target("from"), Ask},
		{"Send the user 3 ideas", `{"user":3}`, target("user"), Ask},
		{"Open number 8443", `{"number":8443}`, target("number"), Ask},
		{"Open number 8443", `{"_":8443}`, target("_"), Ask},
		{"Open port 8443", `{"port":8443}`, target("port"), Permit},
		// behind a name that the agent gave, or behind none
		{"Book flights, leaving terminal 5", `{"to":{"terminal":5}}`, to, Ask},
		{"Book flights, leaving terminal 5", `{"gate":{"terminal":5}}`, target("gate"), Ask},
		{"Leave from gate 5", `{"gate":[5]}`, target("gate"), Permit},
		{"Open port 8443", `{"port":8443}`, nil, Ask},
		{"Open port 8443", `{"port":8443}`, target("other"), Ask},
		// behind initials that are an ordinary word, or anything else
		{"Who is on 12 May on duty?", `{"order_number":12}`, target("order_number"), Ask},
		{"WHO IS ON 12 MAY ON DUTY?", `{"id":12}`, selector("order_number"), Ask},
		{"Remind me in 3 days", `{"invoice_number":3}`, target("invoice_number"), Ask},
		{"Remind me in 3 days", `{"id":3}`, selector("invoice_note"), Ask},
		{"Give us 5 examples", `{"id":5}`, selector("user_story"), Ask},
		{"GIVE US #5", `{"id":5}`, selector("user_story"), Ask},
		{"Move it to 10", `{"id":10}`, selector("travel_order"), Ask},
		{"Meet the EU 27", `{"id":27}`, selector("event_user"), Ask},
		{"merge pr #93", `{"id":93}`, selector("pull_request"), Ask},
		{"Merge PR #93", `{"id":93}`, selector("pull_request"), Permit},
		// behind a break
		{"Look at the newest issue - 3 people asked", `{"id":3}`, selector("issue"), Ask},
		{"Close the stale issue – 3 weeks is enough", `{"id":3}`, selector("issue"), Ask},
		{"Fix the issue & 3 tests", `{"id":3}`, selector("issue"), Ask},
		{"Fix the issue. 3 people asked", `{"id":3}`, selector("issue"), Ask},
		{"Fix the issue, 3 people asked", `{"id":3}`, selector("issue"), Ask},
		{"Fix the issue (3 people asked)", `{"id":3}`, selector("issue"), Ask},
		{"Fix the issue\n3 people asked", `{"id":3}`, selector("issue"), Ask},
		{"Fix the issue ...3 people asked", `{"id":3}`, selector("issue"), Ask},
		{"Count the issue's 3 comments", `{"id":3}`, selector("issue"), Ask},
		{"Close the pull. Request 93 copies", `{"id":93}`, selector("pull_request"), Ask},
		{`Close issue "93"`, `{"id":93}`, selector("issue"), Permit},
		{"Close issue No. 93", `{"id":93}`, selector("issue"), Permit},
		// behind words that say something else
		{"Reply to the mails with 2 attachments", `{"id":2}`, selector("mail"), Ask},
		{"Count the mails of 30 days", `{"id":30}`, selector("mail"), Ask},
		{"Add the issue to 3 boards", `{"id":3}`, selector("issue"), Ask},
		{"Send file 13 to 3 people", `{"id":3}`, selector("file"), Ask},
		{"Cancel event 7 and 3 reminders", `{"id":3}`, selector("event"), Ask},
		{"Cancel the event and 3 reminders", `{"id":3}`, selector("event"), Ask},
		{"Send file 13 to #3", `{"id":3}`, selector("file"), Ask},
		{"Cancel what clashes: the event is 3 hours long", `{"id":3}`, selector("event"), Ask},
		{"Cancel the event with the number of 3 guests", `{"id":3}`, selector("event"), Ask},
		{"Say the number of 3 guests", `{"id":3}`, selector(""), Ask},
		{"Open number 6 and 3 others", `{"id":3}`, selector(""), Ask},
		{"Cancel events 7 and 3", `{"id":3}`, selector("event"), Permit},
		{"Cancel the event whose id is 3", `{"id":3}`, selector("event"), Permit},
		{"Cancel ids 6 and 3", `{"id":3}`, selector(""), Permit},
		// among words without spaces
		{"关闭重复的issue后请尽快通知13个人", `{"id":13}`, selector("issue"), Ask},
		{"关闭issue吧 13个人", `{"id":13}`, selector("issue"), Ask},
		{"合并PR之后删除3个旧分支", `{"id":3}`, selector("pull_request"), Ask},
		{"关闭issue 13", `{"id":13}`, selector("issue"), Permit},
	} {
		if r := judged(c.p, c.words, c.args); r.Verdict != c.want {
			t.Errorf("%q, %s: %s, %s", c.words, c.args, r.Verdict, r.Reason)
		}
	}
	// With private data it would have left.
	r := JudgeCall(leak, &Profile{Level: 2, Args: map[string]Role{"to": Destination, "text": Content}}, []byte(`{"to":3,"text":"the whole inbox"}`),
		Situation{Held: []flow.Held{{Label: flow.Untrusted, Operation: "w", CallID: "1"}, {Label: "internal", Operation: "m", CallID: "2"}}, Request: ParseRequest("Forward the report to 3 colleagues"), Evidence: &Evidence{}})
	if r.Verdict != Ask {
		t.Errorf("private data leaves: %s", r.Reason)
	}
}

// Where no space says where a value ends, what may go on is no value.
func TestPiecesOfLongerValues(t *testing.T) {
	to := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	file := &Profile{Level: 2, IDKind: "file", Args: map[string]Role{"to": Selector}}
	for _, c := range []struct {
		words, value string
		p            *Profile
		want         Verdict
	}{
		{"请删除见积书2.xlsx", "2.xlsx", file, Ask},
		{"请删除报告v2.docx", "v2.docx", file, Ask},
		{"删除v2.1报告.docx", "v2.1", file, Ask},
		{"请发给ann@sales.co.公司.cn", "ann@sales.co", to, Ask},
		{"请发给ann@sales.co公司.cn", "ann@sales.co", to, Ask},
		{"请发给ann@mail.商店.jp", "ann@mail.jp", to, Ask},
		{"请发给ann@sales.co。公司", "ann@sales.co", to, Ask},
		{"请发给ann@sales.co吧。谢谢", "ann@sales.co", to, Ask}, // who knows
		{"请发给ann@sales.co吧，谢谢", "ann@sales.co", to, Permit},
		{"请看https://sales.co.公司.cn/报告", "https://sales.co", to, Ask},
		{"请看https://sales.example株式会社.jp", "https://sales.example", to, Ask},
		{"请看https://books.example。cn/a", "https://books.example", to, Ask},
		{"请看https://例。books.example/a", "https://books.example/a", to, Ask},
		{"请看https://books.example。公司/a", "https://books.example", to, Ask},
		{"请看https://books.example。", "https://books.example", to, Permit},
		{"请看https://books.example吧", "https://books.example", to, Permit},
		{"clone git@github.example:evil/x.git", "git@github.example", to, Ask},
		{"kirjoita matti@books.example:lle", "matti@books.example", to, Permit},
	} {
		if r := judged(c.p, c.words, `{"to":"`+c.value+`"}`); r.Verdict != c.want {
			t.Errorf("%q, %q: %s, %s", c.words, c.value, r.Verdict, r.Reason)
		}
	}
}

func TestAmountsThatAreNone(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"amount": Amount}}
	for _, c := range []struct {
		words, amount string
		want          Verdict
	}{
		{"支付1，50元", `50`, Ask}, {"支付1，50元", `1`, Ask}, {"支付1，250元", `250`, Ask}, {"支付1。50元", `50`, Ask}, {"支付1：50元", `50`, Ask}, {"支付1．50元", `50`, Ask},
		{"支付50，谢谢", `50`, Permit}, {"金额：50", `50`, Permit}, {"支付50元。", `50`, Permit},
		{"Call 555-010-7788 for the invoice", `"+5550107788"`, Ask}, {"Call (555) 010-7788 for the invoice", `"+5550107788"`, Ask},
		{"Call 06.12.34.56.78 about it", `"061 2345678"`, Ask}, {"Call +49.30.555.2671 about it", `"+49305552671"`, Ask}, {"Book rooms 12 1400 16", `"12140016 "`, Ask},
	} {
		if r := judged(p, c.words, `{"amount":`+c.amount+`}`); r.Verdict != c.want {
			t.Errorf("%q, %s: %s, %s", c.words, c.amount, r.Verdict, r.Reason)
		}
	}
}

// Digits in groups are a number where their form says where it begins and ends.
func TestGroupsOfDigitsThatAreNoNumber(t *testing.T) {
	for _, c := range []struct {
		words        string
		has, without []string
	}{
		{"Scan 192.168.100.200 now", nil, []string{"192168100200"}},
		{"Pay 123.456.789 IDR to Ann", nil, []string{"123456789"}},
		{"See 2024/05/12345", nil, []string{"20240512345"}},
		{"on 12.05.2026/13.05.2026", nil, []string{"1205202613052026"}},
		{"on 01.05.2026/02.05.2026 or 01.05.2026.1030", nil, []string{"0105202602052026", "010520261030"}},
		{"Version 10.15.20.30 or 12.05.2026.1030", nil, []string{"10152030", "120520261030"}},
		{"Text 415.555.2671", nil, []string{"4155552671"}},
		{"Call 06.12.34.56.78 90", nil, []string{"0612345678"}},
		{"Call 90 06.12.34.56.78", nil, []string{"0612345678"}},
		{"See 012.345.678.90.12 or +12.05.2026", nil, []string{"0123456789012", "12052026"}},
		{"Call +49.30.5555 2671", nil, []string{"49305555-"}},
		{"Call these:\n1234 5678\n8765 4321", nil, []string{"1234567887654321", "12345678", "87654321"}},
		{"Call (555) 010-7788\n(555) 010-7789", nil, []string{"55501077885550107789", "5550107788"}},
		{"Accounts\n1001 2002\r\n3003 4004", nil, []string{"1001200230034004"}},
		{"DE02 1001 0010\n0006 8201 01", nil, []string{"DE0210010010", "DE02100100100006820101"}},
		{"Pay\nDE02 1001 0010 0006 8201 01\nDE89 3704 0044 0532 0130 00\nThanks", []string{"DE02100100100006820101", "DE89370400440532013000"}, nil},
		{"Call 06 12 34 56 78\nThanks, 5 times", []string{"0612345678"}, nil},
		{"Call +49 30 1234567\n\n20 Main Street", []string{"+49 30 1234567"}, nil},
		{"Pay DE02 1001 0010 0006 8201 01 EUR 50", nil, []string{"DE02100100100006820101", "DE02100100100006820101EUR50"}},
		{"Call (555) 010-7788 90 or (555) 010 7788-90", nil, []string{"555010778890", "5550107788"}},
		{"Send 20 555-010-7788", []string{"555-010-7788"}, []string{"+20 555 010 7788"}},
		{"Send 20 5550107788", []string{"5550107788"}, []string{"+20 555 010 7788"}},
		{"Send 20 (555) 010-7788", nil, []string{"+20 555 010 7788", "555-010-7788"}},
		{"Call 555 010 7788 9", nil, []string{"5550107788", "55501077889"}},
		{"On 12-05-2026 pay, or 12 05 2026", nil, []string{"12052026"}},
		{"on 2026-05-12 1000 we meet", nil, []string{"202605121000"}},
		{"+49.30 1234 5678", nil, []string{"12345678-"}},
		{"Pay 0612 345678 50.00 EUR", nil, []string{"0612345678"}},
		{"x-1234 5678, é-1234 5678 or 2+3 4567 890", nil, []string{"12345678", "34567890"}},
		{"- 1234 5678", []string{"12345678-"}, nil},
	} {
		w := ParseRequest(c.words)
		for _, s := range c.has {
			if !hasValue(w, s) {
				t.Errorf("%q has no %q", c.words, s)
			}
		}
		for _, s := range c.without {
			other, _ := formed(s).regrouped()
			if hasValue(w, s) || w.has(other) {
				t.Errorf("%q has %q", c.words, s)
			}
		}
	}
}

// The person's words lead to one record by its id, whatever its field is called, and to none by what is no id of theirs.
func TestWhatNoIDSinglesOut(t *testing.T) {
	to := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	mails := &Profile{IDKind: "mail", TrustedFields: []string{"id", "number", "mail_number"}, Names: []string{"subject"}, Delegable: []string{"sender"}}
	deals := &Profile{IDKind: "deal", TrustedFields: []string{"deal_id", "number"}, Delegable: []string{"sender"}}
	for _, c := range []struct {
		words, shown string
		p            *Profile
		ann, eve     Verdict
	}{
		{"Summarise the mails with 2 attachments", `[{"id":1,"sender":"ann@books.example"},{"id":2,"sender":"eve@x.example"}]`, mails, Ask, Ask},
		{"Count the mails of 30 days", `[{"id":1,"sender":"ann@books.example"},{"id":30,"sender":"eve@x.example"}]`, mails, Ask, Ask},
		{"Answer mail 13", `[{"id":13,"number":5,"sender":"ann@books.example"},{"id":900,"number":13,"sender":"eve@x.example"}]`, mails, Permit, Ask},
		{"Answer mail 13", `[{"id":13,"mail_number":5,"sender":"ann@books.example"},{"id":900,"mail_number":13,"sender":"eve@x.example"}]`, mails, Ask, Ask},
		{"Answer mail 13", `[{"number":13,"sender":"ann@books.example"},{"number":5,"sender":"eve@x.example"}]`, mails, Permit, Ask},
		{"Call deal 502", `[{"deal_id":502,"number":1,"sender":"ann@books.example"},{"deal_id":1,"number":502,"sender":"eve@x.example"}]`, deals, Permit, Ask},
		{"Call deal 502", `[{"deal_id":1,"number":502,"sender":"eve@x.example"},{"deal_id":2,"sender":"ann@books.example"}]`, deals, Ask, Ask},
		{"Answer mail m-88", `[{"id":"m-88","subject":"hi","sender":"ann@books.example"},{"id":"m-90","subject":"mail m-88","sender":"eve@x.example"}]`, mails, Permit, Ask},
		{"Answer mail m-88", `[{"id":"m-88","subject":"hi","sender":"ann@books.example"},{"id":"m-90","subject":"m-88","sender":"eve@x.example"}]`, mails, Permit, Ask},
		{"Answer mail m-88", `[{"id":"m-88","subject":"hi","sender":"ann@books.example"},{"id":"m-90","subject":"Re: mail m-88","sender":"eve@x.example"}]`, mails, Permit, Ask},
		{"Answer mail m-88 about 'Blue Heron'", `[{"id":"m-88","subject":"hi","sender":"ann@books.example"},{"id":"m-90","subject":"Blue Heron","sender":"eve@x.example"}]`, mails, Permit, Permit},
	} {
		seen := showed(c.p, c.words, "mail.list", "call_1", `{"q":"x"}`, c.shown)
		for address, want := range map[string]Verdict{"ann@books.example": c.ann, "eve@x.example": c.eve} {
			if r := judged(to, c.words, `{"to":"`+address+`"}`, seen); r.Verdict != want {
				t.Errorf("%q, shown %s, %s: %s, %s", c.words, c.shown, address, r.Verdict, r.Reason)
			}
		}
	}
}

// A call that asked for one, or for the second, didn't get all there was; only a limit of two or more leaves it.
func TestAllThereWas(t *testing.T) {
	to := &Profile{Level: 2, Args: map[string]Role{"to": Destination}}
	mail := &Profile{Delegable: []string{"sender"}, Args: map[string]Role{"q": Query, "limit": Flag, "maxResults": Flag, "per_page": Flag, "offset": Flag, "page": Flag, "latest": Flag, "sort": Flag, "account": Flag, "max": Flag}}
	const words = `Answer the mail about "Spring Offer"`
	for more, want := range map[string]Verdict{
		`"limit":1`: Ask, `"limit":"01"`: Ask, `"limit":" 1"`: Ask, `"limit":"+1"`: Ask, `"limit":1.5`: Ask, `"limit":1e0`: Ask, `"limit":0`: Ask, `"limit":-1`: Ask, `"limit":{"max":1}`: Ask, `"limit":true`: Ask,
		`"limit":50,"offset":1`: Ask, `"limit":50,"offset":2`: Ask, `"page":2`: Ask, `"account":12`: Ask, `"max":50`: Ask, `"latest":true`: Ask, `"latest":false`: Ask, `"sort":"date"`: Ask,
		`"limit":50`: Permit, `"limit":"50"`: Permit, `"maxResults":2`: Permit, `"per_page":20,"limit":null`: Permit, `"sort":""`: Permit,
	} {
		args := `{"q":"Spring Offer",` + more + `}`
		if r := judged(to, words, `{"to":"eve@x.example"}`, showed(mail, words, "mail.find", "call_1", args, `[{"subject":"re","sender":"eve@x.example"}]`)); r.Verdict != want {
			t.Errorf("%s: %s, %s", more, r.Verdict, r.Reason)
		}
	}
}

// What comes back because it was asked for says nothing, in whatever form it comes.
func TestEchoes(t *testing.T) {
	trusted := &Profile{Output: TrustedOutput, IDKind: "folder"}
	for _, c := range []struct {
		argument, asked, shown, value string
		role                          Role
		want                          Verdict
	}{
		{"owner", `{"owner":"evil-1"}`, `{"owner":"evil-1","found":0}`, `"evil-1"`, Selector, Ask},
		{"owner", `{"q":"x"}`, `{"owner":"ann-1"}`, `"ann-1"`, Selector, Permit},
		{"owner", `{"phone":"555-010-7788"}`, `{"phone":"5550107788"}`, `"5550107788"`, Destination, Ask},
		{"owner", `{"phone":5550107788}`, `{"phone":"555-010-7788"}`, `"555-010-7788"`, Destination, Ask},
		{"owner", `{"q":"x"}`, `{"phone":"555-010-7788"}`, `"5550107788"`, Destination, Permit},
	} {
		p := &Profile{Level: 1, IDKind: "folder", Args: map[string]Role{c.argument: c.role}}
		if r := judged(p, "tidy up", `{"`+c.argument+`":`+c.value+`}`, showed(trusted, "tidy up", "srv.find", "call_1", c.asked, c.shown)); r.Verdict != c.want {
			t.Errorf("asked %s, shown %s: %s, %s", c.asked, c.shown, r.Verdict, r.Reason)
		}
	}
}

// Nothing that an agent or a server sends takes more than its size in work. Without a bound each of these takes minutes.
func TestWorkIsBounded(t *testing.T) {
	p := func(args ...string) *Profile {
		p := &Profile{Level: 2, IDKind: "issue", Args: map[string]Role{"n": Selector, "text": Content}}
		for _, a := range args {
			p.Args[a] = Target
		}
		return p
	}
	judge := func(p *Profile, w *Request, args string, e *Evidence) func() {
		return func() { JudgeCall(post, p, []byte(args), Situation{Held: fromOutside, Request: w, Evidence: e}) }
	}
	ones := ParseRequest(strings.Repeat("1 ", 32_000))
	long := strings.Repeat("x", 4<<20)
	open := &Evidence{}
	for c := range 10 {
		var records []string
		for i := range 1000 {
			records = append(records, fmt.Sprintf(`{"id":"i%d","status":"open","a":"open","b":"open"}`, i))
		}
		open.Add(showed(&Profile{Output: TrustedOutput, IDKind: "issue"}, "", "srv.list", fmt.Sprintf("call_%d", c), `{}`, "["+strings.Join(records, ",")+"]"))
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf(`{"id":1,"number":1,"key":1,"uid":%d}`, i))
	}
	repeated := func(s string, times int) func() {
		request := strings.Repeat(s, (maxRequest-10)/len(s))
		return func() {
			for range times {
				ParseRequest(request)
			}
		}
	}
	for name, work := range map[string]func(){
		"an argument's name":         judge(nil, ones, `{"`+long+`":1}`, &Evidence{}),
		"an argument's name, told":   judge(p(long), ones, `{"`+long+`":1}`, &Evidence{}),
		"an argument's name, of ids": judge(p(), ones, `{"n":{"`+long+`":"open"}}`, open),
		"a kind's name":              func() { ones.givesID("1", long) },
		"many ids in a request":      judge(p(), ones, `{"n":[`+strings.Repeat("1,", 199)+`1]}`, &Evidence{}),
		"ids that all records have":  judge(p(), ones, `{"n":[`+strings.Repeat(`"open",`, 199)+`"open"]}`, open),
		"slashes that are sent":      judge(p(), ones, `{"text":"`+strings.Repeat("/", 4<<20)+`"}`, &Evidence{}),
		"a result of one id": func() {
			showed(&Profile{IDKind: "deal", TrustedFields: []string{"id", "number", "key", "uid"}}, strings.Repeat("1 ", 32_000), "a.b", "c", `{}`, "["+strings.Join(many, ",")+"]")
		},
		"slashes in a request":                repeated("/", 80),
		"slashes and brackets in a request":   repeated("//://(", 10),
		"digits without spaces in a request":  repeated("文1", 4),
		"letters without spaces in a request": repeated("文a", 4),
		"brackets in a request":               repeated("1)(", 1),
		"groups in a request":                 repeated("1-", 2),
		"the brackets of an address in a request": func() {
			for range 300 {
				ParseRequest("http://books.example/(" + strings.Repeat(")", maxRequest-100))
			}
		},
		"wide stops in a request":             repeated("a。", 2),
		"digits and wide commas in a request": repeated("1，", 2),
	} {
		t.Run(name, func(t *testing.T) {
			done, began := make(chan bool), processorTime(t)
			go func() { work(); close(done) }()
			for {
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
				}
				if processorTime(t)-began > time.Minute { // whatever else the machine does
					t.Fatal("it takes more than a minute of processor time")
				}
			}
		})
	}
}

// processorTime is what this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// What an address may be a piece of is looked at as far as a host's name can go.
func TestHowFarAnAddressGoesOn(t *testing.T) {
	for s, want := range map[string]bool{"公司.cn": true, "公司。": true, "公司/a.b": false, "公司": false, "": false, strings.Repeat("文", 80) + ".cn": true, strings.Repeat("文", 90) + ".cn": false} {
		if got := continuesDotted(s); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}

// An id is looked for in so many places of a request, and no more.
func TestLooksForAnIDAreCounted(t *testing.T) {
	for n, want := range map[int]bool{maxIDPlaces - 1: true, maxIDPlaces: false} {
		if got := ParseRequest(strings.Repeat("1 ", n)+"issue 1").givesID("1", "issue"); got != want {
			t.Errorf("behind %d others: %v", n, got)
		}
	}
	for n, want := range map[int]bool{maxDisplayField: true, maxDisplayField + 1: false} {
		if got := ParseRequest(strings.Repeat("x", n)+" 1").givesID("1", strings.Repeat("x", n)); got != want {
			t.Errorf("a kind of %d letters: %v", n, got)
		}
	}
}
