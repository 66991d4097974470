package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sallyport.example/internal/daemon"
)

// clientScenarios are the suites' scenarios for clients that the gateway can play: its upstream side is one. The scenarios about OAuth
// are none of them: the gateway has its servers' credentials from the operator.
var clientScenarios = []struct {
	pkg, revision, name string
}{
	{"conformance-2025-11-25", revision1125, "initialize"},
	{"conformance-2025-11-25", revision1125, "tools_call"},
	{"conformance-2025-11-25", revision1125, "elicitation-sep1034-client-defaults"},
	{"conformance-2026-07-28", revision0728, "tools_call"},
	{"conformance-2026-07-28", revision0728, "request-metadata"},
	{"conformance-2026-07-28", revision0728, "sep-2322-client-request-state"},
	{"conformance-2026-07-28", revision0728, "http-standard-headers"},
	{"conformance-2026-07-28", revision0728, "http-custom-headers"},
	{"conformance-2026-07-28", revision0728, "http-invalid-tool-headers"},
	{"conformance-2026-07-28", revision0728, "json-schema-ref-no-deref"},
	{"conformance-2026-07-28", revision0728, "json-schema-2020-12-preservation"},
}

// These say that this program is to be the client that a suite starts: with which program before the gateway, and in which revision.
const (
	bridgeVariable   = "SALLYPORT_E2E_BRIDGE"
	revisionVariable = "SALLYPORT_E2E_REVISION"
)

// The official suites' scenarios for clients, with the gateway between the suite's server and the Go SDK's client of everything: what
// the suite's server gets to see is the gateway's upstream side (mcp-127).
func TestConformanceOfUpstreamSide(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not checked: the conformance suites (-short)")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	driver := build(t, "github.com/modelcontextprotocol/go-sdk/conformance/everything-client")
	for _, s := range clientScenarios {
		t.Run(s.revision+" "+s.name, func(t *testing.T) {
			index := npm(t, s.pkg+"/dist/index.js")
			out := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, node(t), index, "client", "--command", self, "--scenario", s.name, "--spec-version", s.revision, "-o", out)
			cmd.Env = append(os.Environ(), bridgeVariable+"="+driver, revisionVariable+"="+s.revision)
			printed, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			passed, _, failed := readResults(t, out)
			for _, why := range failed {
				t.Errorf("%s\n%s", why, printed)
			}
			if len(passed) != 1 {
				t.Errorf("nothing was checked: %s", printed)
			}
		})
	}
}

// bridge is the client that a suite starts with its server's address: a gateway before that server, and the Go SDK's client of everything
// before the gateway. It returns the exit code.
func bridge(driver, server string) int {
	err := func() error {
		dir, err := os.MkdirTemp("", "sallyport-bridge-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		config := fmt.Sprintf(`listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
upstreams: {suite: {url: %q, client_features: [elicitation, sampling, roots]}}
operations: {suite.*: {expose_as: "{tool}", output: trusted, sensitivity: none, effect: read, external_io: false}}
`, server)
		cfg, err := daemon.ParseConfig("bridge", []byte(config), dir)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		d, err := daemon.New(ctx, cfg, daemon.Options{Data: filepath.Join(dir, "data"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		if err != nil {
			cancel()
			return err
		}
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		secret, err := os.ReadFile(filepath.Join(dir, "data", "local.token"))
		if err != nil {
			cancel()
			return errors.Join(err, <-done)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			cancel()
			return errors.Join(err, <-done)
		}
		target, err := url.Parse(d.AgentURL())
		if err != nil {
			cancel()
			return errors.Join(err, <-done)
		}
		proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+string(secret[:len(secret)-1]))
		}}
		front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// The driver speaks the newest revision that it is offered. A server that may ask back while a call runs needs an older client.
			if os.Getenv(revisionVariable) < revision0728 && r.Header.Get("Mcp-Method") == "server/discover" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			fullDuplex(proxy).ServeHTTP(w, r)
		})}
		go front.Serve(ln)
		cmd := exec.Command(driver, "http://"+ln.Addr().String()+"/mcp")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err = cmd.Run()
		cancel()
		return errors.Join(err, front.Close(), <-done)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
