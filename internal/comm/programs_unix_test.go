//go:build unix

package comm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm/exec"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

// What a person was shown stays as it is until the program has ended: writes and other programs of the session wait.
func TestNothingChangesUnderAnApprovedProgram(t *testing.T) {
	if sandbox.Probe().Tier == sandbox.None {
		t.Skip("not checked: no sandbox here")
	}
	w := newWorld(t)
	w.remake(Options{Data: w.data, Exec: exec.Options{Allow: []string{"sh"}}})
	w.mustRun("write_file", object{"path": "run.sh", "content": "read line < wait\ncat run.sh\n"})
	pipe := filepath.Join(w.data, "workspace", session, "wait")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	parameters := canonical(t, map[string]any{"argv": []string{"sh", "run.sh"}})
	shown, err := w.commands["exec"].Inputs(t.Context(), session, parameters)
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		b   catalogue.Brought
		err error
	}
	ended := make(chan end, 1)
	go func() {
		b, err := w.commands["exec"].Run(t.Context(), catalogue.CommandRun{Session: session, Parameters: parameters, Inputs: shown})
		ended <- end{b, err}
	}()
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns once the program reads
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = w.commands["write_file"].Run(ctx, catalogue.CommandRun{Session: session, Parameters: canonical(t, object{"path": "run.sh", "content": "echo owned\n"})})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("written while it ran: %v", err)
	}
	fmt.Fprintln(f, "go on")
	f.Close()
	e := <-ended
	if e.err != nil || !strings.Contains(e.b.Blocks[0].Text, "cat run.sh") || strings.Contains(e.b.Blocks[0].Text, "owned") {
		t.Errorf("%v, %+v", e.err, e.b)
	}
}
