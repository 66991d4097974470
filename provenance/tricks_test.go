package provenance

import (
	"strings"
	"testing"
)

// Ways in which a session could have a stranger's record taken for the one that the person means. Each is played as the gateway does; without the step that is
// called the trick, most of them would end in a permit.
func TestTricksSingleNothingOut(t *testing.T) {
	const words = "Answer the sender of 'Lathe 4000', and share the file 'Plan.docx'"
	const before = `[{"id":7,"subject":"win","sender":"eve@x.example"},{"id":9,"subject":"Tools","sender":"ann@books.example"}]`
	const after = `[{"id":7,"subject":"Lathe 4000","sender":"eve@x.example"},{"id":9,"subject":"Tools","sender":"ann@books.example"}]`
	const noIDs = `[{"subject":"Lathe 4000","sender":"eve@x.example"},{"subject":"Tools","sender":"ann@books.example"}]`
	fill := &Profile{Level: 1, IDKind: "mail", Args: map[string]Role{"id": Selector}}                                                       // the server chooses the name
	name := &Profile{Level: 1, IDKind: "mail", Args: map[string]Role{"which": Query, "subject": Name}}                                      // by a search
	file := &Profile{Level: 1, IDKind: "mail", TrustedFields: []string{"id"}, Args: map[string]Role{"subject": Name, "text": Content}}      // makes a record
	many := &Profile{Level: 1, IDKind: "mail", Args: map[string]Role{"ids": Selector}}                                                      // a list, or an object by id
	sent := &Profile{Level: 2, IDKind: "mail", TrustedFields: []string{"id"}, Args: map[string]Role{"to": Destination, "subject": Content}} // makes one in the outbox
	for trick, play := range map[string]func(s *session){
		"fill":                                  func(s *session) { s.write("mail.fill", fill, `{"id":7}`) },
		"fill, the id in an object":             func(s *session) { s.write("mail.fill", many, `{"ids":{"7":"Lathe 4000"}}`) },
		"fill, the id as a name":                func(s *session) { s.write("mail.fill", many, `{"ids":{"7":true}}`) },
		"fill, the id in a list":                func(s *session) { s.write("mail.fill", many, `{"ids":[[[7]]]}`) },
		"fill, the id in JSON in a text":        func(s *session) { s.write("mail.fill", fill, `{"id":"{\"id\":7}"}`) },
		"fill, the id in a list in a text":      func(s *session) { s.write("mail.fill", fill, `{"id":"9,7"}`) },
		"fill the last":                         func(s *session) { s.write("mail.fill", fill, `{"id":"last"}`) },
		"fill all":                              func(s *session) { s.write("mail.fill", fill, `{"id":"*"}`) },
		"fill a range":                          func(s *session) { s.write("mail.fill", fill, `{"id":"1-8"}`) },
		"fill from the end":                     func(s *session) { s.write("mail.fill", fill, `{"id":"-2"}`) },
		"fill by no id":                         func(s *session) { s.write("mail.fill", fill, `{}`) },
		"fill by an argument that nobody knows": func(s *session) { s.write("mail.fill", fill, `{"ID":"7"}`) },
		"fill, and fail":                        func(s *session) { s.begin("mail.fill", fill, `{"id":7}`, true) },
		"name by a search":                      func(s *session) { s.write("mail.name", name, `{"which":"win","subject":"Lathe 4000"}`) },
		"name by a search for the sender":       func(s *session) { s.write("mail.name", name, `{"which":"from:eve@x.example","subject":"x"}`) },
		"name in wide letters":                  func(s *session) { s.write("mail.name", name, `{"which":"x","subject":"Ｌａｔｈｅ ４０００"}`) },
		"name with invisible characters":        func(s *session) { s.write("mail.name", name, `{"which":"x","subject":"La\u200bthe 4\u00ad000"}`) },
		"name with tags":                        func(s *session) { s.write("mail.name", name, `{"which":"x","subject":"La<b>t</b>he 4000"}`) },
		"name in hexadecimal":                   func(s *session) { s.write("mail.name", name, `{"which":"x","subject":"4c617468652034303030"}`) },
		"name in a longer text":                 func(s *session) { s.write("mail.name", name, `{"which":"x","subject":"AAA Lathe 4000 BBB"}`) },
		"name in two calls": func(s *session) {
			s.write("mail.name", name, `{"which":"x","subject":"Lathe"}`)
			s.write("mail.name", name, `{"which":"x","subject":"Lathe 4000"}`)
		},
		"make one, and its text goes elsewhere": func(s *session) { s.write("mail.make", file, `{"subject":"Lathe 4000","text":"x"}`, `{"id":7}`) },
		"make one under the id of another":      func(s *session) { s.write("mail.make", file, `{"subject":"Lathe 4000","text":"id: 7"}`, `{"id":7}`) },
		"an answer to the server's question": func(s *session) {
			s.write("mail.make", file, `{"subject":"x"}`)
			s.e.Add(GivenAway(GivenCall{Operation: "mail.make", CallID: "call_2", Profile: file, Arguments: []byte(`{"x":"7"}`), Writes: true}))
		},
		"a mail of this subject that is sent back": func(s *session) {
			s.e = Evidence{}
			s.write("mail.send", sent, `{"to":"ann@books.example","subject":"Lathe 4000"}`, `{"id":70}`)
		},
		"too much to keep":           func(s *session) { s.read("mail.find", office, `{"q":"`+strings.Repeat("x ", maxGivenAway/2)+`"}`) },
		"arguments too deep to read": func(s *session) { s.write("mail.fill", fill, strings.Repeat(`{"id":`, 40)+`7`+strings.Repeat(`}`, 40)) },
		"too many ids to keep":       func(s *session) { s.write("mail.fill", many, `{"ids":[`+strings.Repeat("1000,", 300)+`7]}`) },
		"too many encodings": func(s *session) {
			s.write("mail.name", name, `{"which":"x","subject":"Lathe `+strings.Repeat("%25", 30)+`204000"}`)
		},
	} {
		t.Run(trick, func(t *testing.T) {
			s := newSession(t, words)
			s.read("mail.list", office, `{}`, after)
			s.wants(sendMail, `{"to":"eve@x.example","body":"Yes"}`, Permit) // it is meant, if the session does nothing
			for _, later := range []string{after, noIDs} {
				s := newSession(t, words)
				s.read("mail.list", office, `{}`, before)
				play(s)
				s.read("mail.list", office, `{}`, later)
				s.read("mail.find", office, `{"q":"Lathe 4000"}`, later)
				if later == noIDs && !strings.HasPrefix(trick, "fill") {
					continue // a record without an id may be any that was not there before
				}
				s.wants(sendMail, `{"to":"eve@x.example","body":"Yes"}`, Ask)
			}
		})
	}
}
