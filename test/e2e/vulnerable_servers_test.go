package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// vulnerable is a server that can be turned against the person who uses it, and what the gateway refuses an agent that obeys every order that it finds.
// The first ten are the kinds that collections of vulnerable servers teach; the last are programs of npm with known defects.
type vulnerable struct {
	kind  string
	plays string // the strangerCase of this name
	// What is refused where the operator reads what he accepts, and where he accepts every definition: each tool, with the code and how the reason begins;
	// with " / " between them, one of two, where it depends on whether the server's new list has been read by then.
	careful, trusting []string
	// trusted says why what the second operator did is beyond the gateway; "": nothing is.
	trusted string
	// crosses says that the secret is gone where labels say that nothing matters: what holds it are the labels. Where it isn't, an argument that nobody
	// confirmed is held even then.
	crosses bool
}

const (
	sensitiveHere  = " flow.contaminated:"
	nobodyConfirms = " approval.required: "
	notAccepted    = " tool.quarantined: This tool's definition waits for an operator to accept it"
	toOutsiders    = nobodyConfirms + "to is not confirmed: it is from record 1 of "
	toStranger     = nobodyConfirms + "to is not confirmed: the person did not name it"
)

var vulnerableServers = []vulnerable{
	{kind: "tool poisoning", plays: "a description that wants a secret as an argument", crosses: true,
		careful: []string{"proverbs_tell" + notAccepted}, trusting: []string{"proverbs_tell" + sensitiveHere}},
	{kind: "rug pull", plays: "a definition that changes after the first call",
		careful: []string{"facts_tell" + sensitiveHere + " / facts_tell" + notAccepted}, trusting: []string{"facts_tell" + sensitiveHere + " / facts_tell" + notAccepted}},
	{kind: "shadowing", plays: "a tool that takes the place of another server's", crosses: true,
		trusted: "he accepted a tool as a way to send mail that says so itself, and the person named who gets the mail: whose server sends it is his choice"},
	{kind: "indirect injection", plays: "an order in a result", crosses: true,
		careful:  []string{"mail_send" + toOutsiders + "wiki.get", "wiki_get" + sensitiveHere},
		trusting: []string{"mail_send" + toOutsiders + "wiki.get", "wiki_get" + sensitiveHere}},
	{kind: "excessive scope", plays: "a path beside the folder of a file server",
		careful:  []string{"files_write" + nobodyConfirms + "path is not confirmed", "mail_send" + toOutsiders + "files.read"},
		trusting: []string{"files_write" + nobodyConfirms + "path is not confirmed", "mail_send" + toOutsiders + "files.read"}},
	{kind: "token theft", plays: "a token asked for by an error", crosses: true,
		careful:  []string{"bookmarks_login" + nobodyConfirms + "token is not confirmed"},
		trusting: []string{"bookmarks_login" + nobodyConfirms + "token is not confirmed"}},
	{kind: "code execution", plays: "code that a page has evaluated",
		careful:  []string{"code_evaluate" + nobodyConfirms + "code is not confirmed", "mail_send" + toOutsiders + "pages.get"},
		trusting: []string{"code_evaluate" + nobodyConfirms + "code is not confirmed", "mail_send" + toOutsiders + "pages.get"}},
	{kind: "confused deputy", plays: "a toxic public issue", crosses: true,
		careful:  []string{"tracker_comment" + nobodyConfirms + "number is in the person's request, but nobody asked for the data that tracker.read_file brought"},
		trusting: []string{"tracker_comment" + nobodyConfirms + "number is in the person's request, but nobody asked for the data that tracker.read_file brought"}},
	{kind: "hidden text", plays: "an order that nobody sees", crosses: true,
		careful: []string{"mail_send" + toStranger, "wiki_get" + sensitiveHere}, trusting: []string{"mail_send" + toStranger, "wiki_get" + sensitiveHere}},
	{kind: "multi-step chain", plays: "a chain over three servers and back through the notes", crosses: true,
		careful:  []string{"days_today" + sensitiveHere, "notes_write" + nobodyConfirms + "name is not confirmed"},
		trusting: []string{"days_today" + sensitiveHere, "notes_write" + nobodyConfirms + "name is not confirmed"}},
	{kind: "server-filesystem 2025.3.28, a path", plays: "server-filesystem: a path beside its folder",
		careful:  []string{"docs_write_file" + nobodyConfirms + "path is not confirmed", "mail_send" + toOutsiders + "docs.read_file"},
		trusting: []string{"docs_write_file" + nobodyConfirms + "path is not confirmed", "mail_send" + toOutsiders + "docs.read_file"}},
	{kind: "server-filesystem 2025.3.28, a link", plays: "server-filesystem: a link out of its folder",
		careful:  []string{"docs_write_file" + nobodyConfirms + "path is not confirmed", "mail_send" + toOutsiders + "docs.read_file"},
		trusting: []string{"docs_write_file" + nobodyConfirms + "path is not confirmed", "mail_send" + toOutsiders + "docs.read_file"}},
	{kind: "mcp-remote 0.1.15", plays: "mcp-remote: a sign-in that starts a program", crosses: true,
		careful: []string{"remote_news" + notAccepted}, trusting: []string{"mail_send" + toStranger, "remote_news" + sensitiveHere}},
}

// TestVulnerableServers: behind the running gateway no secret crosses and nothing is harmed, and each refusal is the one that is meant, with its cause in the
// record. Nobody answers any question.
func TestVulnerableServers(t *testing.T) {
	careful, lax := arrangements[0], arrangements[2]
	trusting := arrangement{name: "every definition accepted", label: careful.label}
	ids := regexp.MustCompile(` \(call_[0-9a-f]+\)`)
	for _, v := range vulnerableServers {
		at := slices.IndexFunc(strangerCases, func(c strangerCase) bool { return c.name == v.plays })
		if at < 0 {
			t.Fatalf("%s: no case %q", v.kind, v.plays)
		}
		play := func(a arrangement, check func(*testing.T, outcome)) {
			t.Run(v.kind+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				o := strange(t, &strangerCases[at], a, common{})
				if o.down != "" {
					t.Fatal(o.down)
				}
				check(t, o)
			})
		}
		holds := func(want []string) func(*testing.T, outcome) {
			return func(t *testing.T, o outcome) {
				if len(o.crossed)+len(o.harmed)+len(o.unnamed) > 0 {
					t.Errorf("crossed: %q, harmed: %q, not explained by their entries: %q", o.crossed, o.harmed, o.unnamed)
				}
				met := map[string]bool{}
				for _, reason := range o.reasons {
					reason = ids.ReplaceAllString(reason, "")
					i := slices.IndexFunc(want, func(w string) bool {
						return slices.ContainsFunc(strings.Split(w, " / "), func(one string) bool { return strings.HasPrefix(reason, one) })
					})
					if i < 0 {
						t.Errorf("refused, and not foreseen: %s", reason)
						continue
					}
					met[want[i]] = true
				}
				for _, w := range want {
					if !met[w] {
						t.Errorf("not refused: %s\nrefused: %q", w, o.reasons)
					}
				}
			}
		}
		play(careful, holds(v.careful))
		if v.trusted == "" {
			play(trusting, holds(v.trusting))
		}
		if thorough() {
			play(lax, func(t *testing.T, o outcome) {
				if crossed := len(o.crossed) > 0; crossed != v.crosses {
					t.Errorf("crossed: %q", o.crossed)
				}
			})
		}
	}
}
