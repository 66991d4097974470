package demo

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport.example/client"
)

func TestDemo(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	began := time.Now()
	if err := Run(t.Context(), Options{Out: &out, Version: "test"}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("it took %v", d)
	}
	for _, want := range []string{
		"the plan is rejected", "a safe order of the same calls: web_search, search_email, search_docs", "the plan is approved",
		"deny at the flow stage, flow.contaminated", "because: label internal, brought by mail.search_email", "0 problems, 0 intents without outcome",
		"transfer(480 EUR) waits: risk HIGH, 0 of 1 answers", "nothing is paid",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.ContainsRune(out.String(), '\x1b') {
		t.Error("there are colours without a terminal")
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v behind (%v)", left, err)
	}
	t.Log(out.String())
}

// With keep it stays, says where it is, and ends with its context.
func TestKeep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Run(ctx, Options{Out: w, Keep: true})
		w.Close()
		done <- err
	}()
	address := regexp.MustCompile(`console is at (http://[0-9.:]+)`)
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !address.MatchString(seen.String()) {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v after\n%s", err, seen.String())
		}
		seen.Write(buf[:n])
	}
	resp, err := http.Get(address.FindStringSubmatch(seen.String())[1] + "/healthz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the gateway does not answer: %v, %v", resp, err)
	}
	cancel()
	go io.Copy(io.Discard, r)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Somebody who looks on answers with the link that is printed: what the agent wants runs once they approve, and not before.
func TestAnswer(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for decision, want := range map[string]string{"approve": "Transferred 480.00 EUR to DE02 1203 0000 0000 2020 51.", "reject": "not this month"} {
		t.Run(decision, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() {
				err := Run(ctx, Options{Out: w, Wait: true})
				w.Close()
				done <- err
			}()
			link := regexp.MustCompile(`(http://[0-9.:]+)/login/link/\S+`)
			data := regexp.MustCompile(`--data (\S+)`)
			var seen strings.Builder
			buf := make([]byte, 4096)
			for !strings.Contains(seen.String(), "comes back") {
				n, err := r.Read(buf)
				if err != nil {
					t.Fatalf("%v after\n%s", err, seen.String())
				}
				seen.Write(buf[:n])
			}
			token, err := os.ReadFile(data.FindStringSubmatch(seen.String())[1] + "/admin.token")
			if err != nil {
				t.Fatal(err)
			}
			admin, err := client.New(link.FindStringSubmatch(seen.String())[1], strings.TrimSpace(string(token)))
			if err != nil {
				t.Fatal(err)
			}
			page, err := admin.Approvals(ctx, client.ApprovalQuery{State: "pending"})
			if err != nil || len(page.Approvals) != 1 {
				t.Fatalf("%+v, %v", page, err)
			}
			a := page.Approvals[0]
			if decision == "approve" {
				_, err = admin.Approve(ctx, a.ApprovalID, a.Digest, "")
			} else {
				_, err = admin.Reject(ctx, a.ApprovalID, a.Digest, "not this month")
			}
			if err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(r)
			if err != nil || <-done != nil || !strings.Contains(string(rest), want) {
				t.Errorf("%v: %s", err, rest)
			}
		})
	}
}
