package egress

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func BenchmarkCheck(b *testing.B) {
	c, err := New(Policy{Domains: []string{"example.com", "*.example.org", "docs.example.net:8443", "allowed.pub"}}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, u := range map[string]string{"allowed": "https://allowed.pub/a/b?c=d", "idn": "https://münchen.pub/", "private": "https://10.0.0.1/", "unlisted": "https://other.pub/"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Check(u)
			}
		})
	}
}

// What Do costs beside net/http: with a connection for each request, as Do has, and with one that is kept.
func BenchmarkFetch(b *testing.B) {
	page := []byte(strings.Repeat("<p>some text of a page</p>\n", 1500)) // 40 KB
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
	for _, scheme := range []string{"http", "https"} {
		srv := httptest.NewUnstartedServer(h)
		srv.EnableHTTP2 = true
		pool := x509.NewCertPool()
		if scheme == "http" {
			srv.Start()
		} else {
			srv.StartTLS()
			pool.AddCert(srv.Certificate())
		}
		b.Cleanup(srv.Close)
		c, err := New(Policy{Domains: []string{srv.Listener.Addr().String()}, Protocols: []string{scheme}}, Options{RootCAs: pool})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(scheme+"/egress", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp, err := c.Do(b.Context(), Request{URL: srv.URL})
				if err != nil || len(resp.Body) != len(page) {
					b.Fatal(err)
				}
			}
		})
		for name, once := range map[string]bool{"plain-new": true, "plain-kept": false} {
			b.Run(scheme+"/"+name, func(b *testing.B) {
				tr := srv.Client().Transport.(*http.Transport).Clone()
				tr.DisableKeepAlives, tr.DisableCompression = once, true
				client := &http.Client{Transport: tr}
				b.ReportAllocs()
				for b.Loop() {
					resp, err := client.Get(srv.URL)
					if err != nil {
						b.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || len(body) != len(page) {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
