package comm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm/exec"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

// programs is operations that may run a shell, with the folder that they keep their data in.
func programs(t *testing.T) (run func(context.Context, ...string) error, data string) {
	t.Helper()
	if sandbox.Probe().Tier == sandbox.None {
		t.Skip("not checked: no sandbox here")
	}
	data = filepath.Join(t.TempDir(), "data")
	c, err := New(Options{
		Data: data, Exec: exec.Options{Allow: []string{"sh", "dd", "true"}, Limits: sandbox.Limits{Wall: 10 * time.Second}},
		NetworkTimeout: 5 * time.Second, FileTimeout: 5 * time.Second, ExecTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(ctx context.Context, argv ...string) error {
		for _, command := range c.Commands() {
			if command.Name == "exec" {
				_, err := command.Run(ctx, catalogue.CommandRun{Session: session, Parameters: canonical(t, map[string]any{"argv": argv})})
				return err
			}
		}
		return errors.New("no comm.exec")
	}, data
}

// A workspace that holds more than a session may have takes no more programs: each could write 64 MiB a file, for as many files as it
// likes, until the disk is full and the audit log, which is on it, can't be written.
func TestProgramsDoNotFillTheDisk(t *testing.T) {
	run, data := programs(t)
	if err := run(t.Context(), "true"); err != nil {
		t.Fatal(err)
	}
	// As five runs of dd would leave it, but sparse, to be kind to the disk: files count by their length.
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		f, err := os.Create(filepath.Join(data, "workspace", session, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(64<<20), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var before *fault.NotDispatched
	if err := run(t.Context(), "dd", "if=/dev/zero", "of=6", "bs=1M", "count=1", "status=none"); !fault.Is(err, fault.LimitQuota) || !errors.As(err, &before) {
		t.Errorf("a program wrote more into a workspace that holds 320 MiB, of 256 that a session may have: %v", err)
	}
}

// What is written by one run is bounded, too, and the number of its files.
func TestOneProgramDoesNotFillTheDisk(t *testing.T) {
	run, data := programs(t)
	_ = run(t.Context(), "sh", "-c", "i=0; while [ $i -lt 10100 ]; do : > f$i; i=$((i+1)); done; for i in 1 2 3 4 5; do dd if=/dev/zero of=big$i bs=1M count=0 seek=60 status=none; done")
	entries, err := os.ReadDir(filepath.Join(data, "workspace", session))
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			bytes += fi.Size()
		}
	}
	if len(entries) > 10_000 || bytes > 256<<20 {
		t.Errorf("one run left %d files of %d bytes; a session may have 10000 and 256 MiB", len(entries), bytes)
	}
}

// A sandbox that failed after its program was started is no proof that nothing was done.
func TestFailedSandboxIsNoProof(t *testing.T) {
	var none *fault.NotDispatched
	err := settled(fault.New(fault.SandboxUnavailable, "The sandbox failed.")) // as supervise says it of a launcher that ended with no word
	if errors.As(err, &none) {
		t.Error("the outcome of a program whose launcher was killed is recorded as nothing, and not as unknown")
	}
}

// A program that a person answered for runs on what the person was shown, or not at all.
func TestProgramRunsOnWhatWasShown(t *testing.T) {
	if sandbox.Probe().Tier == sandbox.None {
		t.Skip("not checked: no sandbox here")
	}
	w := newWorld(t)
	w.remake(Options{Data: w.data, Exec: exec.Options{Allow: []string{"cat", "sh"}}})
	for name, c := range map[string]struct {
		argv  []string
		spoil string // the file that changes after the answer; "": none does
		runs  bool
	}{
		"a script":                              {[]string{"sh", "run.sh"}, "", true},
		"a script that changed":                 {[]string{"sh", "run.sh"}, "run.sh", false},
		"a script that another one belongs to":  {[]string{"sh", "run.sh"}, "lib.sh", false},
		"a file that no word names":             {[]string{"sh", "-c", ". ./run.sh"}, "run.sh", false},
		"a file that is only read":              {[]string{"cat", "run.sh"}, "run.sh", false},
		"another than the file that is read":    {[]string{"cat", "run.sh"}, "lib.sh", true},
		"a file that is there since the answer": {[]string{"cat", "run.sh", "new.txt"}, "new.txt", false},
	} {
		for file, content := range map[string]string{"run.sh": "echo hello\n", "lib.sh": "echo lib\n"} {
			w.mustRun("write_file", object{"path": file, "content": content})
		}
		if err := os.RemoveAll(filepath.Join(w.data, "workspace", session, "new.txt")); err != nil {
			t.Fatal(err)
		}
		parameters := canonical(t, map[string]any{"argv": c.argv})
		shown, err := w.commands["exec"].Inputs(t.Context(), session, parameters)
		if err != nil {
			t.Fatal(err)
		}
		if c.spoil != "" {
			w.mustRun("write_file", object{"path": c.spoil, "content": "echo owned\n"})
		}
		b, err := w.commands["exec"].Run(t.Context(), catalogue.CommandRun{Session: session, Parameters: parameters, Inputs: shown})
		var none *fault.NotDispatched
		switch {
		case c.runs && (err != nil || len(b.Blocks) == 0):
			t.Errorf("%s: %v", name, err)
		case !c.runs && (!fault.Is(err, fault.ApprovalMismatch) || !errors.As(err, &none)):
			t.Errorf("%s: %v, %+v", name, err, b)
		}
	}
}
