package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sallyport.example/internal/identity"
)

// What the detector finds in a result, or in what an untrusted session gives a call, is in no file of the data directory, also while the session is open.
func TestSecretsAreKeptAsHashes(t *testing.T) {
	w := newTracedWorld(t)
	p := w.tainted()
	const seen, gave = "Zk8-wuNdErbar-4711", "qR5xTraBand-9922-zz"
	w.says("mail.find", structured(fmt.Sprintf(`{"mails":[{"id":"m-1041","subject":"Offer from Acme","sender":"sales@acme.example","password":%q,"body":"The password: %s is new"}]}`, seen, seen)))
	w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
	w.mustPermit(w.do(p, "mail_find", fmt.Sprintf(`{"q":"Acme","password":%q}`, gave), ""))
	rows, err := w.db.Evidence(t.Context(), p.ID, 0)
	if err != nil || len(rows) < 4 {
		t.Fatal(len(rows), err)
	}
	hashes, hashed := 0, regexp.MustCompile(`\x00\x16[\w+/]{22}|"hashes":`) // in place of a text, or of pieces that were given away
	for _, row := range rows {
		hashes += len(hashed.FindAll(row.Body, -1))
		for _, secret := range []string{seen, gave, strings.ToLower(seen), "wunderbar", "traband"} {
			if strings.Contains(string(row.Body), secret) {
				t.Errorf("%q stands in %s", secret, row.Body)
			}
		}
	}
	if hashes < 3 {
		t.Errorf("%d hashes", hashes)
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "*"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{seen, gave} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%q stands in %s", secret, filepath.Base(file))
			}
		}
	}
}

// At the bound of what a session keeps, nothing more is confirmed by what comes, and calls are asked about; the session that follows begins anew.
func TestAtTheBoundOfEvidence(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes thousands of calls")
	}
	w := newTracedWorld(t)
	p := w.tainted()
	w.mustPermit(w.do(p, "slack_send", to("sales@acme.example"), ""))
	w.says("mail.find", structured(`{"mails":[]}`))
	fill := func(p identity.Principal) {
		for i := range 300 {
			w.mustPermit(w.do(p, "mail_find", fmt.Sprintf(`{"q":"Acme %d %s"}`, i, strings.Repeat(fmt.Sprintf("word%d ", i), 130)), ""))
		}
	}
	fill(p)
	w.says("mail.find", structured(`{"mails":[{"id":"m-2000","subject":"Offer from Acme","sender":"billing@acme.example"}]}`))
	w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
	w.mustAsk(w.do(p, "slack_send", to("billing@acme.example"), "")) // the sender of such a mail, read too late
	w.mustPermit(w.do(p, "slack_send", to("sales@acme.example"), ""))
	fresh := w.tainted()
	w.mustPermit(w.do(fresh, "slack_send", to("sales@acme.example"), ""))
}
