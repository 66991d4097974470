package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/egress"
)

// BenchmarkFetch is what a fetch costs, by how much of the gateway is around it: net/http alone (with and without a connection of its own
// for each request, as the gateway has), the egress client, and comm_fetch over the HTTP API with corridor, two durable audit entries,
// conversion and fence. comm_list_files is a call that reaches nobody, for what the corridor costs by itself. One page of 16 KiB that
// may not be kept, from a server on loopback; x-net-http is the ratio to net/http in the same run.
//
//	go test ./test/e2e -run ^$ -bench Fetch
func BenchmarkFetch(b *testing.B) {
	page := []byte("<!doctype html><title>Prices</title><p>" + strings.Repeat("Product X costs 49 euros. ", 630))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(page)
	}))
	b.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	direct := func(c *http.Client) func(b *testing.B) {
		return func(b *testing.B) {
			resp, err := c.Get(srv.URL)
			if err != nil {
				b.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || !bytes.Equal(got, page) {
				b.Fatalf("%v, %d bytes", err, len(got))
			}
		}
	}
	fresh := http.DefaultTransport.(*http.Transport).Clone()
	fresh.DisableKeepAlives = true
	alone, err := egress.New(egress.Policy{Domains: []string{host}, Protocols: []string{"http"}}, egress.Options{})
	if err != nil {
		b.Fatal(err)
	}
	w := start(b, opens(srv.URL)+plenty)
	created, err := w.root.StartSession(context.Background(), client.OpenSession{AgentID: "tester", UserRequest: asked})
	if err != nil {
		b.Fatal(err)
	}
	agent := w.client(w.agent, created.SessionToken)
	arguments, err := json.Marshal(with(map[string]any{"url": srv.URL}))
	if err != nil {
		b.Fatal(err)
	}
	call := func(tool string, arguments json.RawMessage) func(b *testing.B) {
		return func(b *testing.B) {
			a, err := agent.Call(context.Background(), created.SessionID, tool, arguments)
			if err != nil || a.Result == nil {
				b.Fatal(err, a)
			}
		}
	}
	reads, err := json.Marshal(with(map[string]any{"path": "none", "depth": 1}))
	if err != nil {
		b.Fatal(err)
	}
	if a, err := agent.Call(context.Background(), created.SessionID, "comm_write_file", json.RawMessage(`{"path":"none/x","content":"x","justification":`+show(why)+`}`)); err != nil || a.Result == nil {
		b.Fatal(err, a)
	}
	var least time.Duration
	for _, how := range []struct {
		name string
		once func(b *testing.B)
	}{
		{"net-http", direct(&http.Client{})},
		{"net-http-fresh", direct(&http.Client{Transport: fresh})},
		{"egress", func(b *testing.B) {
			resp, err := alone.Do(context.Background(), egress.Request{URL: srv.URL})
			if err != nil || !bytes.Equal(resp.Body, page) {
				b.Fatal(err)
			}
		}},
		{"comm_list_files", call("comm_list_files", reads)},
		{"comm_fetch", call("comm_fetch", arguments)},
	} {
		b.Run(how.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				how.once(b)
			}
			each := b.Elapsed() / time.Duration(b.N)
			if least == 0 {
				least = each
			}
			b.ReportMetric(float64(each)/float64(least), "x-net-http")
		})
	}
}
