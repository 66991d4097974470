package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/client"
)

// A gateway among servers that are dead, hang, flood, answer without end or with 100 MB: the one good server is served as if it were
// alone, memory stays bounded, and nothing of it outlives the daemon (issue: "harms nobody else").
func TestMisbehavingServersHarmNobody(t *testing.T) {
	stop := make(chan struct{})
	hang := func(r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}
	good := &scripted{tools: plainTools("get"), answer: says("fine")}
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts, by its backlog, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	pages := atomic.Int64{}
	servers := map[string]http.Handler{
		"hangs": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hang(r) }),
		"hugeresult": &scripted{tools: plainTools("get"), write: func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/call" {
				return false
			}
			writeHuge(w, m)
			return true
		}},
		"endlesslist": &scripted{write: func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/list" {
				return false
			}
			rpc(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":%s,"nextCursor":"c%d"}}`, m.ID, plainTools(fmt.Sprintf("t%d", pages.Add(1)))(0), pages.Load()))
			return true
		}},
		"flood": &scripted{tools: plainTools("get"), write: func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/call" {
				return false
			}
			w.Header().Set("Content-Type", "text/event-stream")
			note := strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n", 1000)
			for range 10_000 {
				if _, err := io.WriteString(w, note); err != nil {
					return true
				}
			}
			return true
		}},
		"slowdrip": &scripted{tools: plainTools("get"), write: func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/call" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			for {
				if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
					return true
				}
				select {
				case <-stop:
					return true
				case <-time.After(20 * time.Millisecond):
				}
			}
		}},
		"garbage": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("\x00\xff{{{{"))
		}),
		"cut": &scripted{tools: plainTools("get"), write: func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/call" {
				return false
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return true
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"jsonrpc\":")
			_ = c.Close()
			return true
		}},
	}
	config := "upstreams:\n"
	for name, h := range servers {
		timeout := "2s"
		if name == "hugeresult" {
			timeout = "60s" // its size is what ends it, on a slow machine, too
		}
		config += fmt.Sprintf("  %s: {url: %q, timeout: %s}\n", name, serve(t, h), timeout)
	}
	t.Cleanup(func() { close(stop) }) // before the servers close
	config += fmt.Sprintf("  good: {url: %q}\n  dead: {url: \"http://127.0.0.1:%d/mcp\"}\n  mute: {url: \"http://%s/mcp\", timeout: 2s}\n  exits: {command: [\"false\"]}\n  noise: {command: [\"yes\"]}\noperations:\n",
		good.url(t), freePort(t), mute.Addr())
	for name := range servers {
		config += fmt.Sprintf("  %s.*: {sensitivity: none, effect: read}\n", name)
	}
	config += "  good.*: {sensitivity: none, effect: read, output: trusted}\nlimits: {calls_per_minute: 1000000, execution_budget: 10h}\n"
	p := newPlace(t, config)
	var w *world
	within(t, 20*time.Second, "the start", func() { w = launch(t, p) })
	token := w.token("tester")
	var attackers sync.WaitGroup
	answers := sync.Map{}
	for name := range servers {
		for range 2 {
			attackers.Go(func() {
				a, err := w.client(w.agent, token).Call(t.Context(), client.Own, name+"_get", json.RawMessage(`{}`))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				answers.Store(name, a)
				if a.Result != nil {
					t.Errorf("%s: a result came through: %.200s", name, a.Result)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { attackers.Wait(); close(done) }()
	c := w.client(w.agent, token)
	longest, calls := time.Duration(0), 0
	for running := true; running; calls++ {
		began := time.Now()
		if a, err := c.Call(t.Context(), client.Own, "good_get", json.RawMessage(`{}`)); err != nil || a.Result == nil {
			t.Fatalf("the good server: %v %+v", err, a)
		}
		longest = max(longest, time.Since(began))
		select {
		case <-done:
			running = false
		case <-time.After(5 * time.Millisecond):
		}
	}
	peak := peakMiB(t, w.cmd.Process.Pid)
	t.Logf("%d calls of the good server meanwhile, the longest %s; peak memory %.0f MiB", calls, longest.Round(time.Millisecond), peak)
	if longest > slack(2*time.Second) {
		t.Errorf("a call of the good server took %s", longest)
	}
	if most := 256.0; peak > most && !raced {
		t.Errorf("the gateway took %.0f MiB", peak)
	}
	for name, code := range map[string]string{"hugeresult": "result.too_large", "slowdrip": "time.exceeded", "cut": "upstream.failed"} {
		a, _ := answers.Load(name)
		if answer, ok := a.(*client.CallAnswer); !ok || answer.Verdict.Code != code {
			t.Errorf("%s: %+v", name, a)
		}
	}
	within(t, 15*time.Second, "the end", func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	p.verify(t)
}

// peakMiB is the largest resident size that the process has had.
func peakMiB(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	requireTool(t, err == nil, "/proc, to measure memory,")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return float64(kb) / 1024
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
