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
