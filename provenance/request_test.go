package provenance

import (
	"strings"
	"testing"
)

func TestWordsHaveValuesWhole(t *testing.T) {
	for _, c := range []struct {
		words   string
		has     []string
		without []string
	}{
		{"Write to ann@books.example, and (bob@books.example). Not to <cy@books.example>!", []string{"ann@books.example", "BOB@books.example", "cy@books.example"}, []string{"n@books.example", "books.example", "ann@books", "ann"}},
		{"Write to bob@books.example.Then stop.", []string{"bob@books.example"}, nil},
		{"Write to bob@books.example.org", []string{"bob@books.example.org"}, []string{"bob@books.example"}},
		{"ann@books.example's list", []string{"ann@books.example"}, nil},
		{"Read https://books.example/a/b?c=d, www.owl.example and heron.example.", []string{"https://books.example/a/b?c=d", "books.example/a/b?c=d", "www.owl.example", "http://www.owl.example/", "https://heron.example/"}, []string{"https://books.example/a/b", "https://books.example", "books.example", "https://owl.example", "example", "https://books.example/a/b?c=d&e"}},
		{"Pay 10.50, then $1200 and €8 and 3x", []string{"10.50", "10.5", "1200", "8"}, []string{"10", "5", "50", "1", "200", "12", "3"}},
		{"Account DE89370400440532013000 now", []string{"DE89370400440532013000", "DE89 3704 0044 0532 0130 00"}, []string{"DE8937040044", "89370400440532013000"}},
		{"Open the Falcon's nest-report and 'Blue Heron'; bill-2023.txt", []string{"falcon", "Blue Heron", "blue  heron", "bill-2023.txt", "nest-report", "open the falcon"}, []string{"nest", "report", "lue Heron", "Blue Hero", "bill", "2023", "bill-2023", "2023.txt", "al", "on"}},
		{"Falcons fly. Falcon.", []string{"falcon", "falcons"}, []string{"falc"}},
		{"a.b c/d e@f #g h_i j-k l+m n%o p=q r&s t~u", nil, []string{"a", "b", "c", "d", "g", "i", "j", "k"}},
		{"Grüße an Jürgen, Iñigo", []string{"jürgen", "JÜRGEN", "iñigo"}, []string{"jurgen", "rgen", "gen", "inigo", "igo"}},
		{"", nil, []string{"a", "the", "0"}},
		{"see x\u200by and z", nil, []string{"xy", "x", "y"}},
	} {
		w := ParseRequest(c.words)
		for _, s := range c.has {
			if f, ok := formOf(s); !ok || !w.has(f) {
				t.Errorf("%q has no %q", c.words, s)
			}
		}
		for _, s := range c.without {
			if f, ok := formOf(s); ok && w.has(f) {
				t.Errorf("%q has %q", c.words, s)
			}
		}
	}
	var nobody *Request
	if nobody.has(form{text, "the"}) || nobody.namesRecord("Blue Heron", bySystem) || nobody.givesID("1", "") || nobody.hasTime("2024-05-15") || nobody.literal("") {
		t.Error("nobody said something")
	}
	if (&Request{}).has(form{text, "the"}) || (&Request{}).givesID("1", "") {
		t.Error("no words say something")
	}
}

// A request that is too long is read to its last whole word.
func TestWordsBehindTheBoundSayNothing(t *testing.T) {
	for space, step := range map[string]int{" ": 1, "\n": 5, "\u00a0": 5} { // what is true of one space at every place is tried at some of the others
		fill := strings.Repeat("a"+space, maxRequest)
		for cut := 0; cut < 24; cut += step {
			w := ParseRequest(fill[:(maxRequest-24)/(1+len(space))*(1+len(space))] + strings.Repeat("b", cut) + space + "bob@books.community")
			for f := range w.forms {
				if f.kind == mail && f.value != "bob@books.community" || f.kind == link {
					t.Errorf("cut after %d: %v", cut, f)
				}
			}
		}
	}
	for cut := range 24 {
		if w := ParseRequest(strings.Repeat("a,", maxRequest/2-12) + strings.Repeat("b", cut) + ",bob@books.community"); len(w.forms) != 0 && !w.forms[form{mail, "bob@books.community"}] {
			t.Errorf("without a space, %d: %d values", cut, len(w.forms))
		}
	}
	if w := ParseRequest(strings.Repeat("a ", maxRequest) + "bob@books.example"); w.has(form{mail, "bob@books.example"}) {
		t.Error("what stands behind the bound is read")
	}
}

func TestNamingARecord(t *testing.T) {
	const words = "Please read the mail about the Blue Heron and pay 'invoice' to Owl. Also look at report_2024.pdf, the heron page, meeting notes and 4711. Sarah said so."
	for value, want := range map[string]struct{ system, outsider bool }{
		"Blue Heron":         {true, true},
		"the Blue Heron":     {true, true},
		"about the":          {false, false}, // ordinary words
		"said so":            {true, false},  // one word, and one that only joins
		"to Owl":             {true, false},
		"meeting notes":      {false, false},
		"the":                {false, false},
		"mail":               {false, false},
		"pay":                {false, false},
		"Heron":              {true, false}, // a part of a longer name
		"heron":              {true, false},
		"Owl":                {true, true},
		"Sarah":              {true, false}, // a capital that a sentence begins with
		"said":               {true, false},
		"report_2024.pdf":    {true, true},
		"4711":               {false, false}, // numbers name nothing
		"lue Heron":          {false, false},
		"Blue Heron 2":       {false, false},
		"page, meeting":      {false, false},
		"":                   {false, false},
		"Ow":                 {false, false},
		"Blue\u200b Heron":   {false, false},
		"Please read the":    {false, false},
		"Sarah said":         {true, true},
		"BLUE HERON AND PAY": {true, true},
	} {
		w := ParseRequest(words)
		if got := w.namesRecord(value, bySystem); got != want.system {
			t.Errorf("a system's field %q names it: %v", value, got)
		}
		if got := w.namesRecord(value, byOutsider); got != want.outsider {
			t.Errorf("an outsider's field %q names it: %v", value, got)
		}
	}
	if ParseRequest("send it to owl").namesRecord("owl", byOutsider) || !ParseRequest("send it to 'owl'").namesRecord("owl", byOutsider) || !ParseRequest("send it to the Owl").namesRecord("owl", byOutsider) {
		t.Error("a word is set apart by quotes and by a capital inside a sentence")
	}
}

// Every ordinary word alone, and any two of them, name nothing that an outsider wrote.
func TestOrdinaryWordsNameNothing(t *testing.T) {
	var all []string
	for word := range commonWords {
		all = append(all, word)
	}
	w := ParseRequest("so " + strings.Join(all, " ") + ".")
	for word := range functionWords {
		if !commonWords[word] {
			t.Errorf("%q only joins, and is not ordinary", word)
		}
	}
	for i, word := range all {
		if w.namesRecord(word, byOutsider) || w.namesRecord(word, bySystem) || i > 0 && w.namesRecord(all[i-1]+" "+word, byOutsider) {
			t.Errorf("%q names a record", word)
		}
		if word != strings.ToLower(word) || len(strings.Fields(word)) != 1 {
			t.Errorf("%q is never found", word)
		}
	}
}

func TestIDsInWords(t *testing.T) {
	for _, c := range []struct {
		words, id, kind string
		want            bool
	}{
		{"Cancel event 7", "7", "event", true}, {"Cancel events 7", "7", "event", true}, {"Cancel Event 7.", "7", "Event", true}, {"Cancel event 7", "7", "file", false}, {"Cancel event 7", "7", "", false},
		{"Cancel event #7", "7", "event", true}, {"Cancel event #7", "7", "file", false}, {"Cancel event id 7", "7", "file", false}, {"Cancel events 6, 7 and 8", "7", "event", true}, {"Cancel the event with the id 7", "7", "event", true},
		{"Cancel id 7", "7", "", true}, {"Cancel ID: 7", "7", "", true}, {"Cancel number 7", "7", "", true}, {"Cancel #7", "7", "", true}, {"Cancel 7", "7", "", false}, {"Cancel 7", "7", "event", false},
		{"Invite 7 people, then cancel event 7", "7", "event", true}, {"Invite 7 people to event 8", "7", "event", false}, {"Cancel event 8, invite 7", "7", "event", false},
		{"Cancel ab1", "ab1", "event", false}, {"Cancel event ab1", "ab1", "event", true}, {"Cancel ab12", "ab12", "event", true}, {"Cancel AB12", "ab12", "event", false}, {"Cancel ab123", "ab12", "event", false},
		{"Cancel falcon", "falcon", "event", false}, {"Cancel event falcon", "falcon", "event", true}, {"Cancel 20240515", "20240515", "event", false},
		{"", "7", "event", false}, {"Cancel event ", "", "event", false}, {"Cancel event 7", " 7", "event", false}, {"Cancel event 7", "7.0", "event", false},
	} {
		if got := ParseRequest(c.words).givesID(c.id, c.kind); got != c.want {
			t.Errorf("%q gives %s %q: %v", c.words, c.kind, c.id, got)
		}
	}
}

func TestDaysAndTimesInWords(t *testing.T) {
	const words = "Meet on May 15th, 2024 at 10:00, or 3 June at 4pm, or 2025-01-02. Lunch at 12, tea at 9am; March was long."
	for value, want := range map[string]bool{
		"2024-05-15": true, "2023-05-15": true, "2024-05-15 18:30": true, "2024-06-03": true, "2025-01-02": true, "2025-01-02T23:00": true, "2030-12-24 10:00": true, "2030-12-24 16:00": true, "2030-12-24 12:00": true, "2030-12-24 09:00": true,
		"2024-05-14": false, "2024-06-04": false, "2024-01-02": false, "2026-01-02": false, "2030-12-24": false, "2030-12-24 10:01": false, "2030-12-24 04:30": false, "2030-12-24 21:00": false, "10:00": false, "May 15": false, "": false, "2024-03-15": true,
	} {
		if want && value == "2024-03-15" { // "March" has no day next to it
			want = false
		}
		if got := ParseRequest(words).hasTime(value); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func TestASecretHasToBeThereToTheLetter(t *testing.T) {
	p := &Profile{Level: 2, Args: map[string]Role{"password": Credential}}
	for value, want := range map[string]Verdict{"Xk9 Pass-Word": Permit, "xk9 pass-word": Ask, "XK9 PASS-WORD": Ask, "Xk9": Permit, "Pass": Ask, "k9 Pass-Word": Ask, "set": Ask, "the password": Ask, "Password": Ask} {
		if r := judged(p, "Please set the password Xk9 Pass-Word now", `{"password":"`+value+`"}`); r.Verdict != want {
			t.Errorf("%q: %s, %s", value, r.Verdict, r.Reason)
		}
	}
}
