package provenance

import (
	"strings"
	"testing"
)

var forge = &Profile{Level: 2, Args: map[string]Role{
	"owner": Target, "repo": Target, "channel": Destination, "user": Target, "assignees": Destination, "recipient": Destination, "path": Target, "title": Name, "to": Destination, "full": Target, "issue_number": Selector, "repository": Selector,
}, MayOmit: []string{"channel", "assignees", "recipient", "to"}}

// repositories is forge where the operator has called a repository by its name.
var repositories = &Profile{Level: 2, Args: map[string]Role{"owner": Repository, "repo": Repository, "path": Path, "title": Name, "issue_number": Selector, "repository": Repository}}

// Handles confirm the arguments of a matching name, and no others.
func TestNamesAsPeopleWriteThem(t *testing.T) {
	for _, c := range []struct {
		words, args string
		ok          bool
	}{
		{"Open an issue in acme/site about the login.", `{"owner":"acme","repo":"site"}`, true},
		{"Open an issue in acme/site.", `{"owner":"Acme","repo":"Site"}`, true},
		{"Open an issue in Acme/Site!", `{"owner":"acme","repo":"site"}`, true},
		{`Open an issue in "acme/site".`, `{"owner":"acme","repo":"site"}`, true},
		{"Open an issue in `acme/site`", `{"owner":"acme","repo":"site"}`, true},
		{"What is new in acme/site's issues?", `{"owner":"acme","repo":"site"}`, true},
		{"List what acme/site has", `{"owner":"acme"}`, true},
		{"Look at acme/site", `{"repository":"acme/site"}`, true},
		{"Look at acme/web-ui_2.x", `{"owner":"acme","repo":"web-ui_2.x"}`, true},
		{"Compare acme/site with beta/tools", `{"owner":"beta","repo":"tools"}`, true},
		{"Tell #team that it is done.", `{"channel":"team"}`, true},
		{"Tell #team that it is done.", `{"channel":"#team"}`, true},
		{"Tell (#general)", `{"channel":"General"}`, true},
		{"Ask @name about it", `{"user":"name"}`, true},
		{"Ask @name, @john.doe and @ann-b.", `{"assignees":["@name","john.doe","ann-b"]}`, true},
		{"Send @bob a note", `{"recipient":"bob"}`, true},

		// The parts are of one repository, and in their places.
		{"Look at acme/site", `{"owner":"site","repo":"acme"}`, false},
		{"Look at acme/site", `{"owner":"site"}`, false},
		{"Look at acme/site", `{"repo":"acme","owner":"acme"}`, false},
		{"Look at acme/site", `{"owner":"acme","repo":"other"}`, false},
		{"Compare acme/site with beta/tools", `{"owner":"acme","repo":"tools"}`, false},
		{"Compare acme/site with beta/tools", `{"owner":["acme","beta"],"repo":"tools"}`, false},
		{"Look at acme/site", `{"repo":"site"}`, false}, // of whoever is the default
		{"Look at acme/site", `{"repository":"acme"}`, false},
		{"Look at acme/site", `{"repository":"evil/site"}`, false},
		// Other arguments.
		{"Look at acme/site", `{"recipient":"acme"}`, false},
		{"Look at acme/site", `{"to":"acme"}`, false},
		{"Look at acme/site", `{"user":"acme"}`, false},
		{"Look at acme/site", `{"channel":"site"}`, false},
		{"Look at acme/site", `{"path":"site"}`, false},
		{"Look at acme/site", `{"title":"site"}`, false},
		{"Look at acme/site", `{"owner":"acm"}`, false},
		{"Look at acme/site", `{"owner":"acme ","repo":"site"}`, false},
		{"Look at acme/site", `{"owner":{"acme":1}}`, false},
		{"Tell #team", `{"user":"team"}`, false},
		{"Tell #team", `{"recipient":"team"}`, false},
		{"Tell #team", `{"owner":"team"}`, false},
		{"Tell #team", `{"channel":"tea"}`, false},
		{"Tell #team", `{"channel":"@team"}`, false},
		{"Tell #team", `{"channel":"##team"}`, false},
		{"Ask @name", `{"channel":"name"}`, false},
		{"Ask @name", `{"user":"#name"}`, false},
		{"Ask @name", `{"owner":"name"}`, false},
		{"Ask @name", `{"to":"name"}`, false},
		{"Ask @john.doe", `{"user":"john"}`, false},
		{"Ask @john.doe", `{"user":"doe"}`, false},
		// What is something else.
		{"Read a/b/c", `{"owner":"a","repo":"b"}`, false},
		{"Read docs/acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read https://forge.example/acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read forge.example/acme", `{"owner":"forge.example","repo":"acme"}`, false},
		{"Read //acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read /acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read ./acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read ../acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read .acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read acme/site/", `{"owner":"acme","repo":"site"}`, false},
		{"Read acme/site?x=1", `{"owner":"acme","repo":"site"}`, false},
		{"Read acme/site#readme", `{"owner":"acme","repo":"site"}`, false},
		{"Read acme/site:8080", `{"owner":"acme","repo":"site"}`, false},
		{"Read x=acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read ~acme/site", `{"owner":"acme","repo":"site"}`, false},
		{`Read c:\acme/site`, `{"owner":"acme","repo":"site"}`, false},
		{"Read @acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Write to x@acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read acme/site*", `{"owner":"acme","repo":"site"}`, false},
		{"Read *acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read docs/report.pdf", `{"owner":"docs","repo":"report.pdf"}`, false},
		{"Read git acme/site.git", `{"owner":"acme","repo":"site.git"}`, false},
		{"Read the folder acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read the branch called acme/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read the acme/site directory", `{"owner":"acme","repo":"site"}`, false},
		{"Read this and/or that", `{"owner":"and","repo":"or"}`, false},
		{"Ask him/her", `{"owner":"him","repo":"her"}`, false},
		{"At most 3/4 of it", `{"owner":"3","repo":"4"}`, false},
		{"Since 2024/may", `{"owner":"2024","repo":"may"}`, false},
		{"Read acme /site", `{"owner":"acme","repo":"site"}`, false},
		{"Read acme/\nsite", `{"owner":"acme","repo":"site"}`, false},
		{"Read acme\u200b/site", `{"owner":"acme","repo":"site"}`, false},
		{"Read аcme/site", `{"owner":"acme","repo":"site"}`, false}, // another letter
		{"See https://x.example/#team", `{"channel":"team"}`, false},
		{"In C#team", `{"channel":"team"}`, false},
		{"Fix #12", `{"channel":"12"}`, false},
		{"Mail ann@name", `{"user":"name"}`, false},
		{"Mail ann@books.example", `{"user":"books.example"}`, false},
		{"Mail @ann@books.example", `{"user":"ann"}`, false},
	} {
		r := judged(forge, c.words, c.args)
		if (r.Verdict == Permit) != c.ok || c.ok && (r.Evidence[0].By != ByRequest || !strings.Contains(r.Reason, "in the person's request")) {
			t.Errorf("%q %s: %s %s", c.words, c.args, r.Verdict, r.Reason)
		}
		if strings.Contains(c.args, "owner") || strings.Contains(c.args, "repo") {
			if r := judged(repositories, c.words, c.args); (r.Verdict == Permit) != c.ok {
				t.Errorf("with the role repository: %q %s: %s %s", c.words, c.args, r.Verdict, r.Reason)
			}
		}
	}
}

// Where money moves, nobody is named so; nor is anything else than a recipient, a target or an id.
func TestNamesAsPeopleWriteThemPayNobody(t *testing.T) {
	for _, role := range roles {
		p := &Profile{Level: 2, Args: map[string]Role{"recipient": role, "owner": role, "channel": role}}
		for _, args := range []string{`{"recipient":"bobby"}`, `{"owner":"acme"}`, `{"channel":"crew"}`} {
			r := judged(p, "Look at acme/site for @bobby and #crew", args)
			if want := role == Destination || role == Target || role == Selector || role == Repository && strings.Contains(args, "owner"); (r.Verdict == Permit) != want {
				t.Errorf("%s %s: %s %s", role, args, r.Verdict, r.Reason)
			}
		}
		if role == Destination || role == Target || role == Selector || role == Repository {
			p.Args["sum"] = Amount
			for _, args := range []string{`{"recipient":"bobby"}`, `{"owner":"acme"}`, `{"recipient":"bobby","sum":5}`} {
				if r := judged(p, "Look at acme/site for @bobby and pay 5", args); r.Verdict == Permit {
					t.Errorf("%s %s: %s", role, args, r.Reason)
				}
			}
		}
	}
}
