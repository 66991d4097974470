//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.example/internal/fault"
)

// partial runs f where the tier Partial can be had: as an ordinary user (TestAsNobody comes here too).
func partial(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("TestAsNobody runs it")
	}
	if Probe().Landlock < 6 {
		cannot(t, "Landlock has no scopes here")
	}
}

// A program that still runs replaces the temporary directory of the session's next run by a link. What the link leads to must not become
// part of the next run's workspace.
func TestTemporaryDirectorySwappedForALink(t *testing.T) {
	partial(t)
	dir, secret := outside(t)
	swapper := shell(t, `while :; do for d in .sallyport-*.tmp; do [ -h "$d" ] || { mv "$d" "old$d" && ln -s "$0" "$d"; }; done; done 2>/dev/null`)
	swapper.Argv = append(swapper.Argv, dir)
	swapper.Limits.CPU = 15 * time.Second
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	go func() { defer close(done); run(ctx, swapper, Partial) }()
	victim := shell(t, `cat "$0"; echo changed > "$0"`)
	victim.Argv, victim.Dir = append(victim.Argv, secret), swapper.Dir
	patience := 2 * time.Second
	if os.Getenv("SALLYPORT_TEST_ALL") == "1" {
		patience = 10 * time.Second
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		out, err := run(ctx, victim, Partial)
		if err != nil {
			continue // the race was won in a way that stopped it
		}
		data, _ := os.ReadFile(secret)
		if strings.Contains(string(out.Stdout), "secret") || string(data) != "secret" {
			t.Fatalf("read %q outside, and left %q there", out.Stdout, data)
		}
	}
	stop()
	<-done
}

// The tier Partial promises that of what is outside a program learns whether it is there and how big it is, and that is all.
func TestPartialWatchesNothingOutside(t *testing.T) {
	partial(t)
	dir, secret := outside(t)
	if err := unix.Setxattr(secret, "user.note", []byte("hunter2"), 0); err != nil {
		t.Log("no extended attributes here:", err)
	}
	for _, attack := range []string{"watch", "getxattr"} {
		t.Run(attack, func(t *testing.T) {
			a := attacker(t, "later-"+attack, dir, secret)
			stop := make(chan struct{})
			go func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						os.WriteFile(filepath.Join(dir, "name-of-another-session"), nil, 0o600)
					}
				}
			}()
			out := must(t, a, Partial)
			close(stop)
			if out.ExitCode != failed {
				t.Errorf("learnt %q", out.Stdout)
			}
		})
	}
}

// A program must not be able to end the launcher: its run would count as one that never was.
func TestLauncherSurvivesSignalsFromInside(t *testing.T) {
	if Probe().Tier != Full {
		cannot(t, "no namespaces here")
	}
	for _, abi := range []int{1, 5, Probe().Landlock} { // kernels before 6.12 have an ABI below 6, and are let into the tier Full
		const send = `for s in HUP QUIT ABRT SEGV PIPE USR1 INT TRAP SYS BUS PROF; do echo $s >> effect; kill -$s 1; sleep 0.05; done; exit 5`
		if s, answer := launchBy(t, send, abi); s == nil || s.Exit != 5 {
			t.Errorf("ABI %d: the program ran, and the launcher said %q", abi, answer)
		}
	}
}

// launchBy is supervise with another Landlock than the kernel's.
func launchBy(t *testing.T, script string, abi int) (*status, string) {
	t.Helper()
	c := shell(t, script)
	var st unix.Stat_t
	if err := unix.Stat(c.Dir, &st); err != nil {
		t.Fatal(err)
	}
	p, err := newPipes()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	program, err := os.Open(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	spec := launchSpec{Tier: Full, Landlock: abi, Root: os.Geteuid() == 0, Program: c.Path, Argv: c.Argv, Env: c.Env, Dir: c.Dir, Workspace: fileID{st.Dev, st.Ino}, Temp: tempDir, Limits: generous}
	cmd := launcherCommand(spec, c.Dir, p.spec.r, p.status.w, program)
	cmd.SysProcAttr.Pdeathsig = 0
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.status.w.Close()
	json.NewEncoder(p.spec.w).Encode(spec)
	answer, _ := io.ReadAll(p.status.r)
	cmd.Wait()
	if _, err := os.Stat(c.Dir + "/effect"); err != nil {
		t.Fatalf("the program did not run: %s", answer)
	}
	var s status
	if json.Unmarshal(answer, &s) != nil {
		return nil, string(answer)
	}
	return &s, string(answer)
}

// What the gateway keeps next to its workspaces stays closed wherever the operator put it, also where programs are at home.
func TestNeighboursOfAWorkspaceBelowTheSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can write there")
	}
	data, err := os.MkdirTemp("/usr/local", "sallyport-beside-")
	if err != nil {
		cannot(t, "/usr/local can't be written to")
	}
	defer os.RemoveAll(data)
	os.WriteFile(data+"/signing.key", []byte("secret"), 0o600)
	ws := data + "/workspace/sess_1"
	if err := os.MkdirAll(ws, 0o700); err != nil {
		t.Fatal(err)
	}
	c := shell(t, `cat ../../signing.key`)
	c.Dir = ws
	out, err := Run(t.Context(), c)
	if !fault.Is(err, fault.SandboxUnavailable) || strings.Contains(string(out.Stdout), "secret") {
		t.Errorf("a program ran beside the key: %q %v", out.Stdout, err)
	}
}

// A program of the agent's own making does not run through the dynamic loader either. Only the tier Full can promise that: Landlock does not
// judge what is mapped into memory to be executed.
func TestLoaderRunsNothingOfTheWorkspace(t *testing.T) {
	loader := ""
	for _, l := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		if _, err := os.Stat(l); err == nil {
			loader = l
		}
	}
	if loader == "" {
		cannot(t, "no loader")
	}
	if Probe().Tier != Full {
		cannot(t, "no namespaces here")
	}
	out := must(t, shell(t, `cp /usr/bin/echo mine; `+loader+` ./mine ran`), Full)
	if strings.Contains(string(out.Stdout), "ran") {
		t.Error("it ran")
	}
}

// Nothing is left of a run on the machine: no mount, no file beside the workspace.
func TestNothingIsLeftBehind(t *testing.T) {
	mounts := func() string { b, _ := os.ReadFile("/proc/self/mountinfo"); return string(b) }
	tmp := func() (names []string) {
		all, _ := filepath.Glob(os.TempDir() + "/sallyport-*")
		return all
	}
	tiers(t, func(t *testing.T, tier Tier) {
		m, f := mounts(), tmp()
		must(t, shell(t, `echo x > "$TMPDIR/x"; mkdir d; mkfifo p; ln -s / l`), tier)
		if mounts() != m {
			t.Errorf("mounts were\n%s\nand are\n%s", m, mounts())
		}
		if g := tmp(); len(g) > len(f) {
			t.Errorf("files were %q and are %q", f, g)
		}
	})
}

// Where memory runs out, the kernel must choose the program, and not the gateway or its database.
func TestProgramIsTheFirstToGo(t *testing.T) {
	if Probe().Tier != Full {
		cannot(t, "no namespaces here")
	}
	out := must(t, shell(t, `cat /proc/self/oom_score_adj`), Full)
	if strings.TrimSpace(string(out.Stdout)) != "1000" {
		t.Errorf("oom_score_adj is %q", out.Stdout)
	}
}

// Outside, what a program makes is the gateway's user's: none of it may lend that user to others, by whatever call it is made.
func TestNoFileLendsItsOwner(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		c := shell(t, `cp /usr/bin/id a; chmod 4755 a; chmod u+s,g+s a; mkdir b; chmod 2777 b; exit 0`)
		must(t, c, tier)
		lend := attacker(t, "later-lend")
		lend.Dir = c.Dir
		if out := must(t, lend, tier); out.ExitCode != failed || len(out.Stdout) == 0 {
			t.Errorf("%+v %s", out, out.Stdout)
		}
		left, err := os.ReadDir(c.Dir)
		if err != nil || len(left) < 3 {
			t.Errorf("%v %v", left, err)
		}
		for _, e := range left {
			if info, err := e.Info(); err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
			}
		}
	})
}
