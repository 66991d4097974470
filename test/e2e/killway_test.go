package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.example/client"
	"sallyport.example/internal/killsocket"
)

// pulled returns the entries about pulling the switch.
func (w *world) pulled() []client.Entry {
	return slices.DeleteFunc(w.entries(), func(e client.Entry) bool { return e.Action != "kill.disable" })
}

// noDescriptors lets the process open nothing from now on.
func (w *world) noDescriptors() {
	w.t.Helper()
	var now unix.Rlimit
	if err := unix.Prlimit(w.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &now); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Prlimit(w.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: now.Max}, nil); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = unix.Prlimit(w.cmd.Process.Pid, unix.RLIMIT_NOFILE, &now, nil) // it may have ended
	})
}

func (w *world) descriptorsAgain() {
	w.t.Helper()
	if err := unix.Prlimit(w.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 1024}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// When the gateway can take no connection and open no file, the command still stops everything, and the stop is on record, with the user who asked.
func TestKillNeedsNoDescriptor(t *testing.T) {
	w := launch(t, newPlace(t, ""))
	if st, err := os.Lstat(filepath.Join(w.place.data, killsocket.Name)); err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("%v %v", st, err)
	}
	w.noDescriptors()
	code, out, errs := cli(t, w.place, nil, "kill", "--reason", "strange mails", "--data", w.place.data, "-o", "json")
	var now client.KillStatus
	if err := json.Unmarshal([]byte(out), &now); code != 0 || err != nil || !now.Global.Active || !now.Global.Durable || !strings.Contains(errs, killsocket.Name) {
		t.Fatalf("%d %v\n%s\n%s", code, err, out, errs)
	}
	w.descriptorsAgain()
	eventually(t, 10*time.Second, "it answers over HTTP again", func() bool { return w.root.Ready(t.Context()) == nil })
	code, out, errs = cli(t, w.place, nil, "kill", "--reason", "once more", "--data", w.place.data)
	if code != 0 || strings.Contains(errs, killsocket.Name) {
		t.Errorf("over HTTP, which works again: %d %s %s", code, out, errs)
	}
	all := w.pulled()
	if by := fmt.Sprintf("uid:%d", os.Getuid()); len(all) < 2 || all[0].Actor != by || all[0].Reason != "strange mails" {
		t.Errorf("want the first by %s: %+v", by, all) // what HTTP did not answer in time may have come later, too
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.place.verify(t)
	if _, err := os.Lstat(filepath.Join(w.place.data, killsocket.Name)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestKillBySignal(t *testing.T) {
	w := launch(t, newPlace(t, ""))
	w.noDescriptors()
	for range 3 {
		if err := w.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, "the log says that the switch was pulled", func() bool { return strings.Contains(w.output.String(), "the kill switch was switched on") })
	w.descriptorsAgain()
	eventually(t, 10*time.Second, "it answers over HTTP", func() bool { return w.root.Ready(t.Context()) == nil })
	eventually(t, 10*time.Second, "the switch is written down", func() bool {
		now, err := w.root.KillStatus(t.Context())
		return err == nil && now.Global.Active && now.Global.Durable
	})
	if all := w.pulled(); len(all) != 1 || all[0].Actor != "gateway:signal" || !strings.Contains(all[0].Reason, "does not say who") {
		t.Errorf("%+v", all)
	}
	if _, err := w.root.Unkill(t.Context(), "", "over"); err != nil {
		t.Fatal(err)
	}
	if now, err := w.root.KillStatus(t.Context()); err != nil || now.Global.Active {
		t.Errorf("released over HTTP: %+v %v", now, err)
	}
}

// An agent holds as many connections as it gets, with a limit of 64 descriptors. People get through to the switch, the call that runs ends, and it is on record.
func TestKillWhileAnAgentHoldsAllConnections(t *testing.T) {
	p := newPlace(t, "", declaration("tester"), declaration("another"))
	w, err := tryLaunch(t, p, []string{"sh", "-c", `ulimit -n 64; exec "$@"`, "sh"})
	if err != nil {
		t.Fatal(err)
	}
	token := w.token("tester")
	address := strings.TrimPrefix(w.agent, "http://")
	for range 200 {
		c, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			break // the backlog is full
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", address, token)
	}
	code, out, errs := cli(t, p, nil, "kill", "--reason", "strange mails", "--data", p.data, "-o", "json")
	var now client.KillStatus
	if err := json.Unmarshal([]byte(out), &now); code != 0 || err != nil || !now.Global.Active || !now.Global.Durable {
		t.Fatalf("%d %v\n%s\n%s", code, err, out, errs)
	}
	if strings.Contains(errs, killsocket.Name) {
		t.Errorf("people's listener has places of its own: %s", errs)
	}
	if _, err := w.root.Unkill(t.Context(), "", "over"); err != nil {
		t.Fatal(err)
	}
	list, headers := modern("tools/list", "", "")
	if status, body := w.post("/mcp", w.token("another"), list, headers); status != 200 {
		t.Errorf("another agent: %d %s", status, body)
	}
}

// People's own programs have taken all places of people's listener, and each waits for news: the command goes through the socket.
func TestKillWhilePeoplesListenerIsFull(t *testing.T) {
	p := newPlace(t, "")
	w, err := tryLaunch(t, p, []string{"sh", "-c", `ulimit -n 64; exec "$@"`, "sh"})
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	address, full := strings.TrimPrefix(w.admin, "http://"), false
	for range 20 {
		c, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "GET /v1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", address, p.secret(t, "admin.token"))
		answer := make([]byte, 12)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) == "HTTP/1.1 503" {
			full = true
			break
		}
	}
	if !full {
		t.Fatal("people's listener takes all connections")
	}
	code, out, errs := cli(t, p, nil, "kill", "--reason", "strange mails", "--data", p.data, "-o", "json")
	var now client.KillStatus
	if err := json.Unmarshal([]byte(out), &now); code != 0 || err != nil || !now.Global.Active || !now.Global.Durable || !strings.Contains(errs, killsocket.Name) {
		t.Fatalf("%d %v\n%s\n%s", code, err, out, errs)
	}
}
