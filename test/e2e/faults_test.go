package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to hold the database's lock from outside

	"sallyport.example/client"
	"sallyport.example/internal/daemon"
)

// withoutStore is what must hold while the store can't be written: calls are refused within 2 s with audit.unavailable and without an
// effect; the switch works at once, not durable yet; and 2 s after the store is back, calls are served and the switch is on record.
func withoutStore(t *testing.T, breakIt func(t *testing.T, w *world) (restore func())) {
	config, done := effects(t)
	p := newPlace(t, config, declaration("tester"), declaration("victim"))
	data := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	p.data = filepath.Join(data, "data")
	withoutStoreAt(t, p, done.Load, breakIt)
}

func withoutStoreAt(t *testing.T, p place, effect func(any) (any, bool), breakIt func(t *testing.T, w *world) (restore func())) {
	w := launch(t, p)
	token, victim := w.token("tester"), w.token("victim")
	c := w.client(w.agent, token)
	calls := 0
	call := func(c *client.Client) *client.CallAnswer {
		t.Helper()
		calls++
		var a *client.CallAnswer
		within(t, 2*time.Second, "an answer", func() {
			var err error
			if a, err = c.Call(t.Context(), client.Own, "fx_do", json.RawMessage(fmt.Sprintf(`{"n":"%d"}`, calls))); err != nil {
				t.Fatal(err)
			}
		})
		return a
	}
	for range 3 {
		if a := call(c); a.Result == nil {
			t.Fatalf("before: %+v", a)
		}
	}
	if a := call(w.client(w.agent, victim)); a.Result == nil {
		t.Fatalf("before: %+v", a)
	}
	cs := w.connect(token, revision1125, nil)
	restore := breakIt(t, w)
	refused := 0
	for i := 0; refused < 3; i++ {
		a := call(c)
		if a.Result != nil && i < 10_000 {
			continue // there was room left
		}
		if a.Verdict.Code != "audit.unavailable" || a.Verdict.Decision != "deny" || !a.Verdict.Retriable {
			t.Fatalf("%+v", a)
		}
		if _, had := effect(fmt.Sprint(calls)); had {
			t.Errorf("call %d was refused, and had its effect", calls)
		}
		refused++
	}
	within(t, 2*time.Second, "a refusal over MCP", func() {
		if r := must(t, cs, "fx_do", map[string]any{"n": "mcp"}); r.code() != "audit.unavailable" {
			t.Errorf("%s", r.text())
		}
	})
	within(t, time.Second, "the kill", func() {
		s, err := w.root.Kill(t.Context(), "victim", "the disk is full")
		if err != nil || !s.Agents["victim"].Active || s.Agents["victim"].Durable {
			t.Errorf("%v %+v", err, s)
		}
	})
	within(t, time.Second, "a skipped call", func() {
		if a := call(w.client(w.agent, victim)); a.Verdict.Code != "kill_switch.active" || a.Verdict.Status != "SKIPPED" {
			t.Errorf("%+v", a)
		}
	})
	restore()
	back := time.Now()
	for {
		if a := call(c); a.Result != nil {
			break
		} else if time.Since(back) > slack(2*time.Second) {
			t.Fatalf("2 s after the store is back: %+v", a)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("served again after %s", time.Since(back).Round(time.Millisecond))
	eventually(t, 2*time.Second, "the switch is durable", func() bool {
		s, err := w.root.KillStatus(t.Context())
		return err == nil && s.Agents["victim"].Durable
	})
	found := false
	for _, e := range w.entries() {
		found = found || e.Action == "kill.disable" && e.Agent == "victim" && e.Reason == "the disk is full"
	}
	if !found {
		t.Error("the kill is not in the record")
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if report := p.verify(t); len(report.Unknown) > 0 {
		t.Errorf("unknown: %v", report.Unknown)
	}
	// And after a start on what is there now, the switch still holds.
	w = launch(t, p)
	if s, err := w.root.KillStatus(t.Context()); err != nil || !s.Agents["victim"].Active {
		t.Errorf("%v %+v", err, s)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// A disk without room: a small file system of its own where that can be had, else a limit on the size of files.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "sallyport-e2e", dir).Run()
	if err == nil {
		t.Cleanup(func() {
			if err := exec.Command("umount", dir).Run(); err != nil {
				t.Errorf("umount: %v", err)
			}
		})
		config, done := effects(t)
		p := newPlace(t, config, declaration("tester"), declaration("victim"))
		p.data = filepath.Join(dir, "data")
		withoutStoreAt(t, p, done.Load, func(t *testing.T, w *world) func() {
			ballast := filepath.Join(dir, "ballast")
			f, err := os.Create(ballast)
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{1 << 20, 64 << 10, 4 << 10, 1} { // to the last byte
				for {
					if _, err := f.Write(make([]byte, size)); err != nil {
						break
					}
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.Remove(ballast); err != nil {
					t.Fatal(err)
				}
			}
		})
		return
	}
	_, err = exec.LookPath("prlimit")
	requireTool(t, err == nil, "mount (as root) or prlimit, to fill a disk,")
	withoutStore(t, func(t *testing.T, w *world) func() {
		limit := func(size string) {
			if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(w.cmd.Process.Pid), "--fsize="+size+":").CombinedOutput(); err != nil {
				t.Fatalf("prlimit: %v %s", err, out)
			}
		}
		limit("4096")
		return func() { limit("unlimited") }
	})
}

// Another process holds the database's write lock for 10 s.
func TestLockedStore(t *testing.T) {
	withoutStore(t, func(t *testing.T, w *world) func() {
		db, err := sql.Open("sqlite", filepath.Join(w.place.data, "sallyport.db"))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := db.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		locked := time.Now()
		return func() {
			time.Sleep(time.Until(locked.Add(10 * time.Second)))
			if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
				t.Error(err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Ways to start wrongly that need more than the command line's own tests have: a port in use, a directory of somebody else's, a
// directory in use by another gateway.
func TestBadStarts(t *testing.T) {
	refused := func(t *testing.T, w *world, err error, words ...string) {
		t.Helper()
		if err == nil {
			_ = w.stop()
			t.Fatal("it starts")
		}
		for _, word := range append(words, "exit status 2") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q is not in: %v", word, err)
			}
		}
		if strings.Contains(err.Error(), "goroutine ") || strings.Contains(err.Error(), "Usage:") {
			t.Errorf("not one plain sentence: %v", err)
		}
	}
	t.Run("port in use", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		for _, field := range []string{"listen", "admin_listen"} {
			p := newPlace(t, "")
			b, err := os.ReadFile(p.config)
			if err != nil {
				t.Fatal(err)
			}
			write(t, p.config, strings.Replace(string(b), "\n"+field+": 127.0.0.1:0", "\n"+field+": "+ln.Addr().String(), 1))
			if field == "listen" {
				write(t, p.config, strings.Replace(string(b), "listen: 127.0.0.1:0", "listen: "+ln.Addr().String(), 1))
			}
			w, err := tryLaunch(t, p, nil)
			refused(t, w, err, field, "in use", "port 0")
		}
	})
	t.Run("a directory of another user", func(t *testing.T) {
		requireTool(t, os.Getuid() == 0, "root, to start the gateway as another user,")
		p := newPlace(t, "")
		for dir := p.dir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{p.config, filepath.Join(p.dir, "agents", "a0.yaml")} {
			if err := os.Chmod(file, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		binary := filepath.Join(p.dir, "sallyport") // where another user can run it
		b, err := os.ReadFile(build(t, "sallyport.example/cmd/sallyport"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(binary, b, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, "serve", "--config", p.config, "--data", p.data)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "permission denied") || !strings.Contains(string(out), "--data") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("a directory in use", func(t *testing.T) {
		p := newPlace(t, "")
		first := launch(t, p)
		addresses := filepath.Join(p.data, "addresses.json")
		before, err := os.ReadFile(addresses)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := daemon.LoadConfig(p.config)
		if err != nil {
			t.Fatal(err)
		}
		d, err := daemon.New(t.Context(), cfg, daemon.Options{Data: p.data})
		if err == nil {
			_ = d.Close()
			t.Fatal("two gateways on one directory")
		}
		if !strings.Contains(err.Error(), "in use by another gateway") || !strings.Contains(err.Error(), fmt.Sprint(first.cmd.Process.Pid)) {
			t.Error(err)
		}
		after, err := os.ReadFile(addresses)
		if err != nil || string(after) != string(before) {
			t.Errorf("the second one changed the addresses: %v %s", err, after)
		}
		if status, _ := first.send(http.MethodGet, first.admin+"/healthz", "", "", nil); status != http.StatusOK {
			t.Errorf("the first one answers %d", status)
		}
		if err := first.stop(); err != nil {
			t.Error(err)
		}
	})
}
