package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// strangers is a program of another module that uses the three public packages.
const strangers = `package main

import (
	"fmt"

	"sallyport.example/client"
	"sallyport.example/flow"
	"sallyport.example/guard"
)

func main() {
	gate, err := guard.NewPhaseGate("knowledge.search")
	if err != nil {
		panic(err)
	}
	fmt.Println(gate.Check("comm.fetch", guard.Execution))

	labels := []flow.Label{"internal"}
	mail, err := flow.Resolve(flow.Spec{ID: "mail.search", Name: "search", Sensitivity: flow.InternalSource, Effect: flow.Read}, labels)
	if err != nil {
		panic(err)
	}
	web, err := flow.Resolve(flow.Spec{ID: "web.search", Name: "web_search", Effect: flow.Read}, labels)
	if err != nil {
		panic(err)
	}
	fmt.Println(flow.Judge(web, flow.Raise(nil, mail, "call_1")).Allowed)

	_, err = client.New("http://127.0.0.1:7576", "spt_user_example")
	fmt.Println(err)
}
`

// useToday is how the README has another module require this one, as long as nobody serves the module path.
const useToday = "go mod edit -require=sallyport.example@v0.0.0 -replace=sallyport.example="

// Another module builds against guard, flow and client as the README says, without a network and with nothing in the module cache: the
// public packages need nothing but the standard library.
func TestAnotherModuleBuildsAgainstThePublicPackages(t *testing.T) {
	if !strings.Contains(read(t, "README.md"), "\n"+useToday+"../sallyport\n") {
		t.Errorf("the README does not say %q", useToday)
	}
	here, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module stranger.example\n\ngo 1.26.0\n", "main.go": strangers} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOMODCACHE="+filepath.Join(dir, "empty"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run(strings.Fields(useToday + here)...)
	if got := run("go", "run", "."); got != "<nil>\nfalse\n<nil>\n" {
		t.Errorf("it prints:\n%s", got)
	}
}

// "make module" sets another module path over the tree: nothing keeps the old one, and what other modules import builds under the new one.
func TestModulePathCanBeSet(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		missing(t, "make")
	}
	dir := clone(t)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("make", "module", "MODULE=example.com/gates/sallyport")
	if got := run("go", "list", "-m"); got != "example.com/gates/sallyport\n" {
		t.Errorf("the module is %q", got)
	}
	run("go", "build", "./guard", "./flow", "./client")
	if out, err := exec.Command("git", "-C", dir, "grep", "-n", `"sallyport\.example`).Output(); err == nil {
		t.Errorf("the old path is left in:\n%s", out)
	}
}
