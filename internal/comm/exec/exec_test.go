package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	os.Exit(m.Run())
}

func runner(t testing.TB, o Options) *Runner {
	t.Helper()
	if r := sandbox.Probe(); r.Tier == sandbox.None {
		if runtime.GOOS == "linux" && os.Getenv("SALLYPORT_TEST_ALL") == "1" {
			t.Fatalf("no sandbox here, and SALLYPORT_TEST_ALL=1 wants everything checked: %s", r.Missing)
		}
		t.Skipf("not checked: no sandbox here: %s", r.Missing)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func workspace(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// idle is a watch that sees nothing.
func idle() error { return nil }

func must(t testing.TB, r *Runner, ws string, argv ...string) *sandbox.Outcome {
	t.Helper()
	out, err := r.Run(t.Context(), ws, argv, "", idle)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// own is a directory where only we may write, as the system's are; that of the tests is below one where everybody may.
func own(t testing.TB) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skipf("not checked: %v", err)
	}
	dir, err := os.MkdirTemp(home, ".sallyport-exec-test-")
	if err != nil {
		t.Skipf("not checked: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func copyProgram(t testing.TB, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o700)
	}
	if err := errors.Join(err, os.Chmod(to, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestNew(t *testing.T) {
	dir := own(t)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, "/usr/bin/true", dir+"/good", 0o755)
	copyProgram(t, "/usr/bin/true", dir+"/writable", 0o757)
	copyProgram(t, "/usr/bin/true", dir+"/plain", 0o644)
	copyProgram(t, "/usr/bin/true", dir+"/setuid", 0o755|os.ModeSetuid)
	os.Mkdir(dir+"/open", 0o700)
	copyProgram(t, "/usr/bin/true", dir+"/open/true", 0o755)
	os.Chmod(dir+"/open", 0o777)
	os.Symlink(dir+"/open/true", dir+"/into-open")
	os.Symlink(dir+"/good", dir+"/open/out-of-open")
	for name, want := range map[string]string{
		"no-such-program":         "was not found in " + Path,
		"":                        "neither a name",
		"..":                      "neither a name",
		"./true":                  "neither a name",
		"../true":                 "neither a name",
		dir + "/absent":           "was not found",
		dir:                       "not a regular file",
		"/dev/null":               "not a regular file",
		script:                    "script",
		dir + "/writable":         "written to by everybody",
		dir + "/plain":            "not executable",
		dir + "/setuid":           "changes its user",
		dir + "/open/true":        "everybody may write",
		dir + "/into-open":        "everybody may write",
		dir + "/open/out-of-open": "everybody may write",
	} {
		_, err := New(Options{Allow: []string{"true", name}})
		if !fault.Is(err, fault.ConfigurationInvalid) || !strings.Contains(err.Error(), want) || fault.Of(err).Field != "allow[1]" {
			t.Errorf("%q: %v", name, err)
		}
	}
	r, err := New(Options{Allow: []string{"sh", "cat", dir + "/good"}, Limits: sandbox.Limits{Wall: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Programs(); !slices.Equal(got, []string{dir + "/good", "cat", "sh"}) {
		t.Errorf("%q", got)
	}
	if want := DefaultLimits; r.limits.Wall != time.Second || r.limits.Memory != want.Memory || r.limits.Processes != want.Processes {
		t.Errorf("%+v", r.limits)
	}
}

func TestArguments(t *testing.T) {
	r := runner(t, Options{Allow: []string{"true"}})
	long := strings.Repeat("a", maxArgument)
	for name, argv := range map[string][]string{
		"none":               {},
		"too many":           append([]string{"true"}, make([]string, maxArguments)...),
		"too long":           {"true", long + "a"},
		"too long in all":    append([]string{"true"}, long, long, long, long, long, long, long, long),
		"NUL":                {"true", "a\x00b"},
		"carriage return":    {"true", "a\rb"},
		"escape":             {"true", "a\x1b[0m"},
		"C1":                 {"true", "a\u0085b"},
		"line separator":     {"true", "a\u2028b"},
		"not UTF-8":          {"true", "a\xff"},
		"control in program": {"true\n"},
	} {
		if _, err := r.Run(t.Context(), workspace(t), argv, "", idle); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Run(t.Context(), workspace(t), []string{"true"}, strings.Repeat("a", maxStdin+1), idle); !fault.Is(err, fault.RequestMalformed) {
		t.Errorf("stdin: %v", err)
	}
	if _, err := r.Run(t.Context(), workspace(t), []string{"true", "tab\tand ünïcode", "", long}, "in", idle); err != nil {
		t.Error(err)
	}
}

func TestNotAllowed(t *testing.T) {
	r := runner(t, Options{Allow: []string{"cat", "true"}})
	for _, name := range []string{"sh", "/usr/bin/cat", "./cat", "../usr/bin/true", "CAT", "cat ", ""} {
		_, err := r.Run(t.Context(), workspace(t), []string{name}, "", idle)
		if !fault.Is(err, fault.PermissionDenied) || !strings.Contains(fault.Of(err).Remedy, "cat, true") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// EX-3: these seven variables, and nothing else.
func TestEnvironment(t *testing.T) {
	t.Setenv("SALLYPORT_TEST_SECRET", "hunter2")
	t.Setenv("LD_PRELOAD", "")
	ws := workspace(t)
	out := must(t, runner(t, Options{Allow: []string{"env"}}), ws, "env")
	got := map[string]string{}
	for line := range strings.Lines(string(out.Stdout)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[k] = v
	}
	for k, v := range map[string]string{"PATH": Path, "HOME": ws, "USER": "sandbox", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"} {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	if len(got) != 7 || got["TMPDIR"] == "" || got["TMPDIR"] != got["TEMP"] {
		t.Errorf("%q", got)
	}
}

func TestOutcome(t *testing.T) {
	r := runner(t, Options{Allow: []string{"cat", "false", "sleep", "dd"}, Limits: sandbox.Limits{Wall: 3 * time.Second, Output: 10}})
	out, err := r.Run(t.Context(), workspace(t), []string{"cat"}, "a longer text", idle)
	if err != nil || string(out.Stdout) != "a longer t" || !out.StdoutTruncated {
		t.Errorf("%+v %v", out, err)
	}
	if out := must(t, r, workspace(t), "false"); out.ExitCode != 1 {
		t.Errorf("%+v", out)
	}
	if out, err := r.Run(t.Context(), workspace(t), []string{"sleep", "60"}, "", idle); out != nil || !fault.Is(err, fault.TimeExceeded) {
		t.Errorf("time: %+v %v", out, err)
	}
	if out := must(t, r, workspace(t), "dd", "if=/dev/zero", "of=/dev/null", "bs=1G", "count=1"); out.ExitCode != 1 {
		t.Errorf("memory: %+v", out)
	}
	if _, err := r.Run(t.Context(), "relative", []string{"false"}, "", idle); !fault.Is(err, fault.RequestMalformed) {
		t.Errorf("workspace: %v", err)
	}
}

// A run ends when its watch says so, with what the watch said, and its tree with it.
func TestWatch(t *testing.T) {
	r := runner(t, Options{Allow: []string{"sh"}, Limits: sandbox.Limits{Wall: 20 * time.Second}})
	ws := workspace(t)
	full := fault.New(fault.LimitQuota, "full")
	start := time.Now()
	out, err := r.Run(t.Context(), ws, []string{"sh", "-c", "trap '' TERM; touch began; sleep 60; touch ended"}, "", func() error {
		if _, err := os.Stat(ws + "/began"); err == nil {
			return full
		}
		return nil
	})
	if out != nil || err != full || time.Since(start) > 10*time.Second {
		t.Errorf("%+v %v after %s", out, err, time.Since(start))
	}
}

// No more than so many programs run at once; who waits for a place does so no longer than its context.
func TestPlaces(t *testing.T) {
	r := runner(t, Options{Allow: []string{"cat", "sleep"}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range maxRuns {
		running.Go(func() { r.Run(ctx, workspace(t), []string{"sleep", "60"}, "", idle) })
	}
	for len(r.places) < maxRuns {
		time.Sleep(time.Millisecond)
	}
	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := r.Run(short, workspace(t), []string{"cat"}, "", idle); !fault.Is(err, fault.LimitRate) {
		t.Errorf("a fifth: %v", err)
	}
	cancel()
	running.Wait()
	if out, err := r.Run(t.Context(), workspace(t), []string{"cat"}, "", idle); err != nil || out.ExitCode != 0 {
		t.Errorf("afterwards: %v", err)
	}
}

// A program that starts others works, in the same sandbox.
func TestGit(t *testing.T) {
	if _, err := os.Stat("/usr/bin/git"); err != nil {
		t.Skip("not checked: git is not here")
	}
	r := runner(t, Options{Allow: []string{"git"}})
	ws := workspace(t)
	if err := os.WriteFile(ws+"/a.txt", []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"git", "init", "-q"}, {"git", "add", "a.txt"}, {"git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first"}, {"git", "log", "--oneline"}} {
		out := must(t, r, ws, argv...)
		if out.ExitCode != 0 {
			t.Fatalf("%q: %+v %s", argv, out, out.Stderr)
		}
		if argv[1] == "log" && !bytes.Contains(out.Stdout, []byte("first")) {
			t.Errorf("%s", out.Stdout)
		}
	}
	if out := must(t, r, ws, "git", "clone", "https://example.com/x.git"); out.ExitCode == 0 {
		t.Error("git reached the network")
	}
}

// What stands in the workspace is never what runs, though the working directory is there.
func TestWorkspaceIsNotSearched(t *testing.T) {
	r := runner(t, Options{Allow: []string{"cat", "env"}})
	ws := workspace(t)
	copyProgram(t, "/usr/bin/false", ws+"/cat", 0o755)
	copyProgram(t, "/usr/bin/false", ws+"/planted", 0o755)
	t.Setenv("PATH", ws+":"+os.Getenv("PATH"))
	if out := must(t, r, ws, "cat"); out.ExitCode != 0 {
		t.Errorf("the workspace's cat ran: %+v", out)
	}
	if _, err := New(Options{Allow: []string{"planted"}}); err == nil {
		t.Error("a program of the caller's PATH was allowed")
	}
	if out := must(t, r, ws, "env", "planted"); out.ExitCode != 127 { // not found
		t.Errorf("%+v", out)
	}
}

// A program that changed since it was allowed is not run, whether it was replaced or written over.
func TestChangedProgram(t *testing.T) {
	dir := own(t)
	path := dir + "/program"
	for how, change := range map[string]func(){
		"replaced": func() {
			copyProgram(t, "/usr/bin/false", path+".new", 0o755)
			os.Rename(path+".new", path)
		},
		"written over": func() { copyProgram(t, "/usr/bin/false", path, 0o755) },
		"a link now": func() {
			os.Remove(path)
			os.Symlink("/usr/bin/true", path)
		},
		"gone":           func() { os.Remove(path) },
		"writable":       func() { os.Chmod(path, 0o777) },
		"a pipe now":     func() { os.Remove(path); mkfifo(t, path) },
		"another mode":   func() { os.Chmod(path, 0o755|os.ModeSetuid) },
		"a script now":   func() { os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755) },
		"one more byte":  func() { appendTo(t, path) },
		"an empty file":  func() { os.Truncate(path, 0) },
		"a directory":    func() { os.Remove(path); os.Mkdir(path, 0o755) },
		"unreadable now": func() { os.Remove(path); os.Symlink(path, path) },
	} {
		os.RemoveAll(path)
		copyProgram(t, "/usr/bin/true", path, 0o755)
		r := runner(t, Options{Allow: []string{path}})
		if out := must(t, r, workspace(t), path); out.ExitCode != 0 {
			t.Fatalf("unchanged: %+v %s", out, out.Stderr)
		}
		change()
		if _, err := r.Run(t.Context(), workspace(t), []string{path}, "", idle); !fault.Is(err, fault.PermissionDenied) {
			t.Errorf("%s: %v", how, err)
		}
	}
}

func appendTo(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("x")
}

// TestAttackCases runs the shared list's arguments; its process cases have tests of their own, by name, here and in package sandbox.
func TestAttackCases(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "shared", "cases", "attacks", "paths.json"))
	if err != nil {
		t.Skip("not checked: the shared attack cases are not beside the repository")
	}
	var file struct {
		Cases []struct{ ID, Cat, Arg, Why string }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]string{
		"path-116": "sandbox.TestIgnoresSIGTERM", "path-118": "sandbox.TestEndlessOutput", "path-120": "sandbox.TestInheritsNothing",
		"path-121": "TestWorkspaceIsNotSearched", "path-122": "TestChangedProgram", "path-124": "sandbox.TestSetsid",
	}
	r := runner(t, Options{Allow: []string{"cat", "sort", "ls"}})
	seen := 0
	for _, c := range file.Cases {
		switch c.Cat {
		case "process":
			if elsewhere[c.ID] == "" {
				t.Errorf("%s (%s) has no test", c.ID, c.Why)
			}
		case "command-arg":
			seen++
			t.Run(c.ID, func(t *testing.T) {
				parent := workspace(t)
				ws := parent + "/ws"
				secret := parent + "/app.env"
				if err := errors.Join(os.Mkdir(ws, 0o700), os.WriteFile(secret, []byte("secret"), 0o600), os.WriteFile(ws+"/ok.txt", []byte("ok\n"), 0o600)); err != nil {
					t.Fatal(err)
				}
				for _, argv := range [][]string{{"cat", c.Arg}, {"cat", "--", c.Arg}, {"sort", c.Arg, "ok.txt"}, {"ls", c.Arg}} {
					out, err := r.Run(t.Context(), ws, argv, "", idle)
					if strings.Contains(c.Arg, "\n") {
						if !fault.Is(err, fault.RequestMalformed) {
							t.Errorf("%q: %v", argv, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					// Literal: it reaches the program as it is, which fails as nothing outside is there for it.
					if out.ExitCode == 0 || bytes.Contains(out.Stdout, []byte("secret")) || bytes.Contains(out.Stdout, []byte("root:")) {
						t.Errorf("%q: %+v %s", argv, out, out.Stdout)
					}
				}
				if _, err := os.Stat("/etc/cron.d/x"); err == nil {
					t.Error("/etc/cron.d/x was written")
				}
			})
		}
	}
	if seen == 0 {
		t.Error("the list has no cases for us")
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("cat", "a\nb")
	f.Add("", "\u2028")
	f.Add("a\tb", strings.Repeat("x", maxArgument+1))
	f.Fuzz(func(t *testing.T, a, b string) {
		if check([]string{a, b}, "") != nil {
			return
		}
		if strings.ContainsAny(a+b, "\x00\n\r\x1b\x7f\u0085\u2028\u2029") || len(a) > maxArgument || len(b) > maxArgument {
			t.Errorf("%q %q", a, b)
		}
	})
}

// A name of a file can stand by itself, after a = or after a short option's letter.
func TestWords(t *testing.T) {
	for argv, want := range map[string]string{
		"cat": "", "cat a b": "a b", "dd if=in of=out": "if=in in of=out out", "grep -fpatterns --file=x=y -n": "-fpatterns patterns --file=x=y x=y -n", "sh -": "-",
	} {
		if got := strings.Join(Words(strings.Fields(argv)), " "); got != want {
			t.Errorf("%s: %s", argv, got)
		}
	}
	if Words(nil) != nil {
		t.Error("words of nothing")
	}
}
