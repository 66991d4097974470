package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// example is the fenced block of docs/operations.md that starts with the line "# name", after a line for the shell.
func example(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(page), "```") {
		_, block, _ = strings.Cut(block, "\n") // its language
		if i%2 == 1 && strings.HasPrefix(strings.TrimPrefix(block, "#!/bin/sh\n"), "# "+name+"\n") {
			return block
		}
	}
	t.Fatalf("docs/operations.md has no example of %s", name)
	return ""
}

// project is a repository as a user has one: what `sallyport init` wrote, committed.
type project struct {
	t   *testing.T
	dir string
	env []string
}

func newProject(t *testing.T) project {
	t.Helper()
	bin := build(t, "sallyport.example/cmd/sallyport")
	p := project{t, t.TempDir(), append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "PRE_COMMIT_HOME="+t.TempDir(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=ann", "GIT_COMMITTER_EMAIL=ann@example.com")}
	for _, line := range []string{"git init -q .", "sallyport init .", "printf '%s\n' sallyport-data/ > .gitignore", "git add .", "git commit -q -m first"} {
		if out, err := p.sh(line); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return p
}

func (p project) sh(line string) (string, error) {
	cmd := exec.Command("bash", "-e", "-c", line)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p project) write(name, text string, mode os.FileMode) {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		p.t.Fatal(err)
	}
}

// spoil makes the declaration of the project a violation of P0, and returns what it was.
func (p project) spoil() (file, was string) {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "agents", "*.yaml"))
	if err != nil || len(found) == 0 {
		p.t.Fatalf("init wrote no declaration: %v %v", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		p.t.Fatal(err)
	}
	bad := strings.Replace(string(text), "killSwitchEnabled: true", "killSwitchEnabled: false", 1)
	if bad == string(text) {
		p.t.Fatalf("the declaration of init has no switch:\n%s", text)
	}
	file, err = filepath.Rel(p.dir, found[0])
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(file, bad, 0o644)
	return file, string(text)
}

// TestCommitHooks: with each of the two hooks of the documentation, git takes a commit of a good declaration and refuses one of a violation.
func TestCommitHooks(t *testing.T) {
	_, err := exec.LookPath("pre-commit")
	for name, c := range map[string]struct {
		here    bool
		install func(p project)
	}{
		"pre-commit": {err == nil, func(p project) {
			p.write(".pre-commit-config.yaml", example(t, ".pre-commit-config.yaml"), 0o644)
			if out, err := p.sh("git add .pre-commit-config.yaml && pre-commit install"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}},
		"a hook of git": {true, func(p project) { p.write(".git/hooks/pre-commit", example(t, ".git/hooks/pre-commit"), 0o755) }},
	} {
		t.Run(name, func(t *testing.T) {
			requireTool(t, c.here, name)
			p := newProject(t)
			c.install(p)
			file, was := p.spoil()
			out, err := p.sh("git commit -a -m bad")
			if err == nil || !strings.Contains(out, "A-03") || !strings.Contains(out, file) {
				t.Errorf("a violation is committed: %v\n%s", err, out)
			}
			p.write(file, was+"# looked at\n", 0o644)
			if out, err := p.sh("git commit -a -m good"); err != nil {
				t.Errorf("a good declaration is not committed: %v\n%s", err, out)
			}
			if out, err := p.sh("git log --format=%s"); err != nil || out != "good\nfirst\n" {
				t.Errorf("the commits are %q %v", out, err)
			}
		})
	}
}

// TestWorkflow runs the steps of the workflow of the documentation as a runner does: all of a good declaration pass; of a violation the check fails, names
// the line, and its report is written all the same.
func TestWorkflow(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Run, Uses, If string
				With          map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(example(t, ".github/workflows/sallyport.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	steps := workflow.Jobs["lint"].Steps
	if len(steps) != 4 {
		t.Fatalf("the workflow has %d steps", len(steps))
	}
	// run returns what the steps printed, and whether the job fails.
	run := func(p project) (printed string, failed bool) {
		for _, s := range steps {
			switch {
			case failed && s.If != "always()":
			case s.Run != "":
				out, err := p.sh(s.Run)
				printed += out
				failed = failed || err != nil
			case s.With["sarif_file"] != "":
				report, err := os.ReadFile(filepath.Join(p.dir, s.With["sarif_file"]))
				if err != nil {
					t.Errorf("the report that is uploaded: %v", err)
				}
				printed += string(report)
			}
		}
		return printed, failed
	}
	p := newProject(t)
	if printed, failed := run(p); failed || !strings.Contains(printed, `"2.1.0"`) {
		t.Errorf("a good declaration: failed is %v\n%s", failed, printed)
	}
	file, _ := p.spoil()
	printed, failed := run(p)
	if !failed || !strings.Contains(printed, "::error file="+file+",line=") || !strings.Contains(printed, `"ruleId": "A-03"`) && !strings.Contains(printed, `"ruleId":"A-03"`) {
		t.Errorf("a violation: failed is %v\n%s", failed, printed)
	}
}
