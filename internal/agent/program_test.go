package agent

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
)

// withProgram is a folder with a declaration of a run, and what its command names.
func withProgram(t *testing.T, command string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "agents")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "incident-advisor.yaml"), Example()+"run: {kind: command, command: "+command+"}\n")
	for name, text := range files {
		put(t, filepath.Join(dir, name), text)
	}
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func only(t *testing.T, dir string) *Declaration {
	t.Helper()
	set, problems := Load(dir)
	all := set.All()
	if len(all) != 1 {
		t.Fatal(problems)
	}
	return all[0]
}

// TestLoadNamesWhatCannotStart: the check of declarations says at its place which word of run.command no run can start with.
func TestLoadNamesWhatCannotStart(t *testing.T) {
	for command, want := range map[string]string{
		"[./advise]": "", "[cat, ./advise]": "", "[cat, ./facts.json]": `P1: run.command[1]: "./facts.json" names no file`, "[no-such-program]": `P1: run.command[0]: "no-such-program" names no file`,
		"[./gone]": `P1: run.command[0]: "./gone" names no file`, "[./plain]": `P1: run.command[0]: "./plain" is not a program`,
	} {
		dir := withProgram(t, command, map[string]string{"advise": "#!/bin/sh\n", "plain": "x"})
		if err := os.Chmod(filepath.Join(dir, "plain"), 0o600); err != nil {
			t.Fatal(err)
		}
		set, problems := Load(dir)
		if len(set.All()) != 1 {
			t.Fatalf("%s: it is not loaded: %v", command, problems)
		}
		found := ""
		for _, p := range problems {
			if strings.HasPrefix(p.Field, "run.") {
				found += p.String()
			}
		}
		if want == "" && found != "" || !strings.Contains(found, want) || want != "" && !strings.Contains(found, "incident-advisor.yaml:") {
			t.Errorf("%s: %q, want %q", command, found, want)
		}
	}
}

// TestProgramsBelongToDeclarations changes what a run starts in each way, and has the digest change with it, the start refused, and the copy of it refused, too.
func TestProgramsBelongToDeclarations(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "advisor")
	put(t, elsewhere, "\x7fELF one")
	link := func(from, to string) error {
		if err := os.Remove(from); err != nil {
			return err
		}
		return os.Symlink(to, from)
	}
	for name, c := range map[string]struct {
		command string
		files   map[string]string
		change  func(dir string) error
		said    string // in the refusal
	}{
		"the program beside it": {"[./advisor]", map[string]string{"advisor": "one"}, func(dir string) error { return os.WriteFile(dir+"/advisor", []byte("two"), 0o700) }, `"./advisor"`},
		"of the same length and time": {"[./advisor]", map[string]string{"advisor": "one"}, func(dir string) error {
			info, err := os.Stat(dir + "/advisor")
			if err == nil {
				err = os.WriteFile(dir+"/advisor", []byte("two"), 0o700)
			}
			if err == nil {
				err = os.Chtimes(dir+"/advisor", info.ModTime(), info.ModTime())
			}
			return err
		}, `"./advisor"`},
		"a script that an interpreter reads": {"[sh, ./advisor.sh, fast]", map[string]string{"advisor.sh": "echo 1"}, func(dir string) error { return os.WriteFile(dir+"/advisor.sh", []byte("echo 2"), 0o700) }, `"./advisor.sh"`},
		"a link that is led elsewhere":       {"[sh, ./advisor.sh]", map[string]string{"advisor.sh": "echo 1", "other.sh": "echo 2"}, func(dir string) error { return link(dir+"/advisor.sh", "other.sh") }, `"./advisor.sh"`},
		"a link that is led out":             {"[sh, ./advisor.sh]", map[string]string{"advisor.sh": "echo 1"}, func(dir string) error { return link(dir+"/advisor.sh", "/etc/passwd") }, `"./advisor.sh" can't be read`},
		"it is missing":                      {"[sh, ./advisor.sh]", map[string]string{"advisor.sh": "echo 1"}, func(dir string) error { return os.Remove(dir + "/advisor.sh") }, `"./advisor.sh" is missing`},
		"a pipe in its place": {"[sh, ./advisor.sh]", map[string]string{"advisor.sh": "echo 1"}, func(dir string) error {
			return link(dir+"/advisor.sh", "/dev/stdin")
		}, `"./advisor.sh" can't be read`},
		"everybody may write to the program": {"[./advisor]", map[string]string{"advisor": "one"}, func(dir string) error { return os.Chmod(dir+"/advisor", 0o777) }, `"./advisor" can't be read`},
		"a file in a folder":                 {"[sh, ./lib]", map[string]string{"lib/a.sh": "1", "lib/b/c.sh": "2"}, func(dir string) error { return os.WriteFile(dir+"/lib/b/c.sh", []byte("3"), 0o700) }, `"./lib"`},
		"one more in a folder":               {"[sh, ./lib]", map[string]string{"lib/a.sh": "1"}, func(dir string) error { return os.WriteFile(dir+"/lib/b.sh", nil, 0o700) }, `"./lib"`},
		"another name in a folder":           {"[sh, ./lib]", map[string]string{"lib/a.sh": "1"}, func(dir string) error { return os.Rename(dir+"/lib/a.sh", dir+"/lib/b.sh") }, `"./lib"`},
		"a link in a folder":                 {"[sh, ./lib]", map[string]string{"lib/a.sh": "1", "lib/b.sh": "1"}, func(dir string) error { return link(dir+"/lib/b.sh", "a.sh") }, `"./lib"`},
		"a program elsewhere":                {"[" + elsewhere + "]", nil, func(string) error { return os.WriteFile(elsewhere, []byte("\x7fELF two"), 0o700) }, "advisor"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := withProgram(t, c.command, c.files)
			was := only(t, dir)
			if again := only(t, dir); again.Digest != was.Digest {
				t.Fatal("the digest is another one each time")
			}
			if err := was.CheckFiles(); err != nil {
				t.Fatal(err)
			}
			if without := was.WithoutFiles(); without == was.Digest || without == "" {
				t.Errorf("%q is its digest without the program, and with it", without)
			}
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			now := only(t, dir)
			if now.Digest == was.Digest || now.WithoutFiles() != was.WithoutFiles() {
				t.Errorf("%v: the digest stayed, or something else changed", now.Run.Files)
			}
			err := was.CheckFiles()
			if fault.Of(err).Code != fault.AgentUnapproved || !strings.Contains(err.Error(), c.said) {
				t.Errorf("before it starts: %v", err)
			}
			if _, err := was.Stage(t.TempDir(), false); fault.Of(err).Code != fault.AgentUnapproved {
				t.Errorf("as it starts: %v", err)
			}
		})
	}
}

// TestProgramsOfTheSystem: what comes with the operating system and what names no file belong to no digest.
func TestProgramsOfTheSystem(t *testing.T) {
	d := only(t, withProgram(t, "[sh, -c, 'exit 0', /etc/passwd, advisor.sh, https://advisor.example/]", nil))
	if d.Run.Files != nil || d.WithoutFiles() != d.Digest {
		t.Errorf("%v", d.Run.Files)
	}
	if s, err := d.Stage(t.TempDir(), false); err != nil || !slices.Equal(s.Argv, d.Run.Command) || !strings.HasSuffix(s.Path, "sh") && !strings.HasSuffix(s.Path, "busybox") {
		t.Errorf("%+v %v", s, err)
	}
}

// TestUnfitPrograms: what can't be started is no reason to refuse the declaration, and is refused when it is to start, with what is wrong.
func TestUnfitPrograms(t *testing.T) {
	for command, said := range map[string]string{
		"[./missing]":               "names no file",
		"[no-such-program-at-all]":  "names no file",
		"[sh, ./missing.sh]":        "names no file",
		"[sh, ./]":                  "may not lead out",
		"[sh, ./../../etc/passwd]":  "names no file",
		"[sh, ./../outside.sh]":     "may not lead out",
		"[bin/advisor]":             "is not a program",
		"[./advisor.sh, ./missing]": "names no file",
	} {
		t.Run(command, func(t *testing.T) {
			dir := withProgram(t, command, map[string]string{"advisor.sh": "x", "../outside.sh": "x"})
			d := only(t, dir)
			if err := d.CheckFiles(); fault.Of(err).Code != fault.ConfigurationInvalid || !strings.Contains(err.Error(), said) {
				t.Errorf("%v: %v", d.Run.Files, err)
			}
			if _, err := d.Stage(t.TempDir(), false); fault.Of(err).Code != fault.ConfigurationInvalid {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestStagedProgramsAreWhatWasHashed: what starts is a copy, or the file that is open, whatever becomes of the files between the look and the start.
func TestStagedProgramsAreWhatWasHashed(t *testing.T) {
	dir := withProgram(t, "[./bin/advisor, ./lib, ./lib/a.sh, ./../agents/b.sh, fast]", map[string]string{"bin/advisor": "one", "lib/a.sh": "two", "lib/deep/c.sh": "three", "b.sh": "four"})
	if err := os.Symlink("deep/c.sh", dir+"/lib/l.sh"); err != nil {
		t.Fatal(err)
	}
	d, copies := only(t, dir), t.TempDir()
	s, err := d.Stage(copies, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/advisor", "lib/a.sh", "lib/deep/c.sh", "b.sh"} {
		put(t, filepath.Join(dir, name), "changed")
	}
	for at, want := range map[string]string{s.Path: "one", s.Argv[1] + "/a.sh": "two", s.Argv[1] + "/deep/c.sh": "three", s.Argv[1] + "/l.sh": "three", s.Argv[2]: "two", s.Argv[3]: "four"} {
		if text, err := os.ReadFile(at); err != nil || string(text) != want || !strings.HasPrefix(at, copies+"/") {
			t.Errorf("%s: %q %v", at, text, err)
		}
	}
	if s.Argv[0] != s.Path || s.Argv[4] != "fast" {
		t.Errorf("%q", s.Argv)
	}

	elsewhere := filepath.Join(t.TempDir(), "advisor")
	put(t, elsewhere, "one")
	d = only(t, withProgram(t, "["+elsewhere+"]", nil))
	if s, err = d.Stage(t.TempDir(), false); err != nil {
		t.Fatal(err)
	}
	defer s.Program.Close()
	put(t, elsewhere+".new", "changed")
	if err := os.Rename(elsewhere+".new", elsewhere); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(io.NewSectionReader(s.Program, 0, 100))
	if err != nil || string(text) != "one" {
		t.Errorf("%q %v", text, err)
	}
}

// TestLinksLeadNoCopyAway: a link in a folder that is copied does not lead what is copied next out of the copies.
func TestLinksLeadNoCopyAway(t *testing.T) {
	dir := withProgram(t, "[sh, ./lib, ./lib/out/a.sh]", map[string]string{"lib/real/a.sh": "x"})
	away := t.TempDir()
	d := only(t, dir)
	d.Run.Files = map[string]string{} // whatever it says
	if err := os.Symlink(away, dir+"/lib/out"); err != nil {
		t.Fatal(err)
	}
	put(t, away+"/a.sh", "y")
	if _, err := d.Stage(t.TempDir(), false); err == nil {
		t.Error("it is staged")
	}
	if entries, err := os.ReadDir(away); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

// Links count as files do: a folder with very many of them is hashed and copied for no run.
func TestManyLinksAreTooMany(t *testing.T) {
	dir := withProgram(t, "[./advisor.sh, ./data]", map[string]string{"advisor.sh": "x", "data/first": "x"})
	for i := range maxProgramFiles {
		if err := os.Symlink("first", filepath.Join(dir, "data", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := only(t, dir).CheckFiles(); err == nil || !strings.Contains(err.Error(), "are at most 20000") {
		t.Errorf("%v", err)
	}
}
