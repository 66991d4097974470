package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/sandbox"
)

// programs is a configuration under which comm.exec runs programs of the system. bash is for the tests that attack the sandbox: who allows it
// has only the sandbox left.
const programs = "comm: {exec: {allow: [cat, grep, env, ln, pwd, sleep, mkfifo, bash]}}\n"

// ran is what a program's result says.
type ran struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

// run runs a program, or fails the test.
func (v *visitor) run(t testing.TB, argv ...string) (r ran) {
	t.Helper()
	g := v.ask(t, "comm_exec", map[string]any{"argv": argv})
	permit(t, v, g)
	if err := json.Unmarshal([]byte(g.text(t)), &r); err != nil {
		t.Fatalf("%v: %s", err, g.text(t))
	}
	return r
}

func (v *visitor) writeFile(t testing.TB, path, content string) {
	t.Helper()
	permit(t, v, v.ask(t, "comm_write_file", map[string]any{"path": path, "content": content}))
}

func needSandbox(t *testing.T) {
	t.Helper()
	r := sandbox.Probe()
	requireTool(t, r.Tier != sandbox.None, "a sandbox ("+strings.Join(r.Missing, " ")+")")
}

// Files are written, read by programs, listed and read again; and another session sees none of it.
func TestWorkspace(t *testing.T) {
	needSandbox(t)
	w := start(t, programs+plenty)
	for _, door := range doors {
		t.Run(door, func(t *testing.T) {
			v, other := w.visit(door, "tester"), w.visit(door, "tester")
			v.writeFile(t, "notes/prices.md", "product X: 49\nproduct Y: 12\n")
			if r := v.run(t, "cat", "notes/prices.md"); r.ExitCode != 0 || r.Stdout != "product X: 49\nproduct Y: 12\n" {
				t.Errorf("%+v", r)
			}
			if r := v.run(t, "grep", "-c", "product", "notes/prices.md"); r.Stdout != "2\n" {
				t.Errorf("%+v", r)
			}
			v.run(t, "bash", "-c", "grep X notes/prices.md > notes/x.md")
			g := v.ask(t, "comm_read_file", map[string]any{"path": "notes/x.md"})
			permit(t, v, g)
			if g.text(t) != "product X: 49\n" || g.meta.Source != "workspace:notes/x.md" {
				t.Errorf("%q from %s", g.text(t), g.meta.Source)
			}
			g = v.ask(t, "comm_list_files", map[string]any{})
			permit(t, v, g)
			if s := g.text(t); !strings.Contains(s, "notes/prices.md") || !strings.Contains(s, "notes/x.md") {
				t.Errorf("%s", s)
			}
			permit(t, v, v.ask(t, "comm_search", map[string]any{"query": "product X price"}))

			// The other session.
			own := filepath.Join(w.place.data, "workspace", v.session)
			for _, path := range []string{"notes/prices.md", "../" + v.session + "/notes/prices.md", own + "/notes/prices.md", "cache/../../workspace/" + v.session + "/notes/prices.md"} {
				if g := other.ask(t, "comm_read_file", map[string]any{"path": path}); g.ok() || g.verdict.Code != "path.blocked" && g.verdict.Code != "not_found" {
					t.Errorf("%s: %+v", path, g)
				}
				if r := other.run(t, "cat", "--", path); r.ExitCode == 0 || strings.Contains(r.Stdout, "product") {
					t.Errorf("a program reads %s: %+v", path, r)
				}
			}
			g = other.ask(t, "comm_list_files", map[string]any{})
			permit(t, other, g)
			if strings.Contains(g.text(t), "prices") {
				t.Errorf("%s", g.text(t))
			}
			g = other.ask(t, "comm_search", map[string]any{"query": "product X price"})
			if g.ok() && strings.Contains(g.text(t), "prices.md") {
				t.Errorf("found by another session: %s", g.text(t))
			}
		})
	}
	w.close(t)
}

// The shared list of paths, through the doors.
func TestPathAttacks(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root(), "..", "shared", "cases", "attacks", "paths.json"))
	requireTool(t, err == nil, "the shared list of attacks (paths.json)")
	var file struct {
		Cases []struct{ ID, Cat, Op, Arg, Expected, Why, Setup string }
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	w := start(t, plenty)
	beside := filepath.Join(w.place.data, "workspace")
	write(t, filepath.Join(beside, "outside", "secret.txt"), "SECRET-WORDS")
	tried := 0
	for _, door := range doors {
		v := w.visit(door, "tester")
		v.writeFile(t, "sub/ok.txt", "fine words")
		write(t, filepath.Join(beside, v.session+"_secret", "s.txt"), "SECRET-WORDS")
		fill := strings.NewReplacer("{WS}", filepath.Join(beside, v.session), "{OUT}", filepath.Join(beside, "outside"), "{TMP}/ws", filepath.Join(beside, v.session), "{TMP}", beside)
		texts := map[string]string{}
		for _, c := range file.Cases {
			if c.Cat != "traversal" && (c.Cat != "write" || c.Setup != "") {
				continue
			}
			tried++
			for tool, arguments := range map[string]map[string]any{
				"comm_read_file": {"path": fill.Replace(c.Arg)}, "comm_write_file": {"path": fill.Replace(c.Arg), "content": "WRITTEN-WORDS"}, "comm_list_files": {"path": fill.Replace(c.Arg)},
			} {
				if tool == "comm_write_file" && (c.ID == "path-044" || c.ID == "path-047") { // a long and an odd name are no harm to write
					continue
				}
				g := v.ask(t, tool, arguments)
				if g.ok() {
					t.Errorf("%s: %s (%s) is permitted to %s: %s", door, c.ID, c.Why, tool, g.fenced())
				}
				if all := fmt.Sprintf("%+v", g); strings.Contains(all, "SECRET-WORDS") || strings.Contains(all, "root:") {
					t.Errorf("%s: %s: %s", door, c.ID, all)
				}
				texts[c.ID+" "+tool] = g.verdict.Reason
			}
		}
		// There or not, what is outside is refused in the same words.
		for _, path := range []string{"../outside/secret.txt", "../outside/nothing.txt", "/etc/passwd", "/etc/nothing-here"} {
			g := v.ask(t, "comm_read_file", map[string]any{"path": path})
			refusal(t, g, "path.blocked")
			if g.verdict.Reason != texts["path-007 comm_read_file"] {
				t.Errorf("%s: %s: %q", door, path, g.verdict.Reason)
			}
		}
		permit(t, v, v.ask(t, "comm_read_file", map[string]any{"path": "sub/ok.txt"}))
	}
	if tried < 12*len(doors) {
		t.Errorf("only %d cases", tried)
	}
	if found := grepTree(t, w.place.dir, "WRITTEN-WORDS"); len(found) > 0 {
		t.Errorf("written: %q", found)
	}
	w.close(t)
}

// grepTree finds regular files that contain the word and are not the gateway's own store.
func grepTree(t *testing.T, dir, word string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasPrefix(filepath.Base(path), "sallyport.db") {
			return err
		}
		if strings.Contains(string(read(t, path)), word) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What a program in the sandbox has, and what it tries.
func TestPrograms(t *testing.T) {
	needSandbox(t)
	site := newWebsite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "reached") })
	t.Setenv("SALLYPORT_TEST_SECRET", "SECRET-WORDS")
	w := start(t, programs+plenty)
	v := w.visit(doors[0], "tester")
	t.Run("the environment is that of EX-3", func(t *testing.T) {
		var names []string
		for line := range strings.Lines(v.run(t, "env").Stdout) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			names = append(names, name)
			switch name {
			case "PATH":
				if value != "/usr/local/bin:/usr/bin:/bin" {
					t.Errorf("PATH %s", value)
				}
			case "HOME":
				if !strings.HasSuffix(value, v.session) {
					t.Errorf("HOME %s", value)
				}
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"HOME", "LANG", "LC_ALL", "PATH", "TEMP", "TMPDIR", "USER"}) {
			t.Errorf("%q", names)
		}
		if r := v.run(t, "pwd"); strings.TrimSpace(r.Stdout) != filepath.Join(w.place.data, "workspace", v.session) {
			t.Errorf("it works in %q", r.Stdout)
		}
	})
	t.Run("no network", func(t *testing.T) {
		host := strings.TrimPrefix(site.url, "http://")
		for _, script := range []string{
			"exec 3<>/dev/tcp/" + strings.Replace(host, ":", "/", 1) + " && echo GET / >&3 && cat <&3",
			"exec 3<>/dev/tcp/" + strings.Replace(strings.TrimPrefix(w.admin, "http://"), ":", "/", 1),
			"exec 3<>/dev/udp/127.0.0.1/53 && echo x >&3",
		} {
			if r := v.run(t, "bash", "-c", script); r.ExitCode == 0 {
				t.Errorf("%s: %+v", script, r)
			}
		}
		if all := site.all(); len(all) > 0 {
			t.Errorf("the server was asked: %q", all)
		}
	})
	t.Run("no file outside", func(t *testing.T) {
		for _, path := range []string{"/etc/shadow", filepath.Join(w.place.data, "admin.token"), filepath.Join(w.place.data, "sallyport.db"), w.place.config, "/proc/1/environ", "/root/.ssh"} {
			if r := v.run(t, "cat", path); r.ExitCode == 0 || r.Stdout != "" {
				t.Errorf("%s: %+v", path, r)
			}
		}
		if r := v.run(t, "bash", "-c", "echo x > /tmp/sallyport-planted; echo x > "+filepath.Join(w.place.data, "planted")+"; cat /proc/*/environ"); strings.Contains(r.Stdout, "SECRET-WORDS") {
			t.Errorf("%+v", r)
		}
		for _, path := range []string{"/tmp/sallyport-planted", filepath.Join(w.place.data, "planted")} {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s was written", path)
			}
		}
	})
	t.Run("links and pipes that it leaves lead nowhere", func(t *testing.T) {
		v.run(t, "ln", "-s", "/etc/passwd", "link")
		v.run(t, "ln", "-s", w.place.data, "folder")
		v.run(t, "mkfifo", "pipe")
		for _, path := range []string{"link", "folder/admin.token", "pipe"} {
			within(t, 30*time.Second, path, func() {
				if g := v.ask(t, "comm_read_file", map[string]any{"path": path}); g.ok() {
					t.Errorf("%s: %s", path, g.fenced())
				}
			})
		}
		for _, path := range []string{"link", "folder/planted"} { // a link may be replaced by a file, never written through
			v.ask(t, "comm_write_file", map[string]any{"path": path, "content": "WRITTEN-WORDS"})
		}
		if strings.Contains(string(read(t, "/etc/passwd")), "WRITTEN-WORDS") {
			t.Error("/etc/passwd was written through a link")
		}
		if _, err := os.Lstat(filepath.Join(w.place.data, "planted")); err == nil {
			t.Error("a file was written through a link to a folder")
		}
	})
	t.Run("the time-out discards, and the whole tree is gone", func(t *testing.T) {
		const mark = "61.53719"
		w := start(t, strings.Replace(programs, "]}}", "], timeout: 2s}}", 1)+plenty)
		v := w.visit(doors[0], "tester")
		g := v.ask(t, "comm_exec", map[string]any{"argv": []string{"bash", "-c", "echo PARTIAL-WORDS; trap '' TERM; (trap '' TERM HUP; sleep " + mark + " &); sleep " + mark}})
		refusal(t, g, "time.exceeded")
		if strings.Contains(fmt.Sprintf("%+v", g), "PARTIAL-WORDS") {
			t.Errorf("%+v", g)
		}
		// Grace for the kernel to take away what was killed.
		eventually(t, 30*time.Second, "every process is gone", func() bool { return len(processes(t, mark)) == 0 })
		for _, e := range w.entriesOf(v.session, isOutcome) {
			if strings.Contains(show(e), "PARTIAL-WORDS") {
				t.Errorf("in the log: %s", show(e))
			}
		}
		w.close(t)
	})
	t.Run("left behind by a program that ended", func(t *testing.T) {
		const mark = "61.53727"
		v.run(t, "bash", "-c", "sleep "+mark+" >/dev/null 2>&1 </dev/null & disown; exit 0")
		eventually(t, 30*time.Second, "every process is gone", func() bool { return len(processes(t, mark)) == 0 })
	})
	t.Run("only what is allowed", func(t *testing.T) {
		for _, argv := range [][]string{{"curl", site.url}, {"/usr/bin/cat", "x"}, {"./cat"}, {"cat "}, {"CAT"}, {"sh", "-c", "id"}, {""}, {}} {
			g := v.ask(t, "comm_exec", map[string]any{"argv": argv})
			if g.ok() || g.verdict.Code != "permission.denied" && g.verdict.Code != "request.malformed" {
				t.Errorf("%q: %+v", argv, g.verdict)
			}
		}
		if r := v.run(t, "cat", "--", "x; touch made", "$(touch made)", "`touch made`", "x\tmade"); r.ExitCode == 0 {
			t.Errorf("%+v", r)
		}
		if g := v.ask(t, "comm_read_file", map[string]any{"path": "made"}); g.verdict.Code != "not_found" {
			t.Errorf("a shell stood between: %+v", g.verdict)
		}
		refusal(t, v.ask(t, "comm_exec", map[string]any{"argv": []string{"cat", "a\nb"}}), "request.malformed")
	})
	w.close(t)
}

// processes are the processes that have the word among their arguments.
func processes(t *testing.T, word string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if slices.Contains(strings.Split(string(b), "\x00"), word) {
			found = append(found, string(b))
		}
	}
	return found
}
