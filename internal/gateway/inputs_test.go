package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
)

// folder plays a workspace: one file, with content, that comm.send reads.
type folder struct {
	mu      sync.Mutex
	content string
	fails   error
}

func (f *folder) set(content string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content = content
}

func (f *folder) inputs(context.Context, string, json.RawMessage) (*call.Inputs, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &call.Inputs{Files: []call.InputFile{{Path: "run.sh", Size: int64(len(f.content)), SHA256: call.HashBytes([]byte(f.content))}}}, f.fails
}

// newInputsWorld has a comm.send that reads a file.
func newInputsWorld(t *testing.T) (*commWorld, *folder) {
	f := &folder{content: "echo hello"}
	return newCommWorld(t, func(o *gateway.Options) {
		for i := range o.Commands {
			if o.Commands[i].Name == "send" {
				o.Commands[i].Inputs = f.inputs
			}
		}
	}), f
}

// A yes is for the files that were shown: they are under its digest, and where they change, the call is asked about anew.
func TestYesIsForTheFilesThatWereShown(t *testing.T) {
	w, f := newInputsWorld(t)
	p := w.open("worker", "erin", widgets)
	first := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	q := w.question(first)
	if q.Inputs == nil || len(q.Inputs.Files) != 1 || q.Inputs.Files[0].SHA256 != call.HashBytes([]byte("echo hello")) {
		t.Fatalf("the person is shown %+v", q.Inputs)
	}
	other := q.Approval
	other.Inputs = &call.Inputs{Files: []call.InputFile{{Path: "run.sh", Size: q.Inputs.Files[0].Size, SHA256: call.HashBytes([]byte("echo owned"))}}}
	if other.Intact() {
		t.Error("the files are not under the digest")
	}
	w.mustRespond("bob", first, approval.Approve, "")
	f.set("echo owned")
	second := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if second == first || w.cmd.runs.Load() != 0 {
		t.Error("it ran, or waits, on a yes to other files")
	}
	if old := w.question(first); old.State != approval.Superseded || !strings.Contains(old.Reason, "files") {
		t.Errorf("%s: %q", old.State, old.Reason)
	}
	w.mustRespond("bob", second, approval.Approve, "")
	var shown *call.Inputs
	w.cmd.run = func(_ context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
		shown = r.Inputs
		return catalogue.Brought{Source: "x", Blocks: []catalogue.Block{{Text: "done"}}}, nil
	}
	a := w.mustPermit(w.do(p, "comm_send", sendPage, ""))
	if shown == nil || !shown.Same(w.question(second).Inputs) {
		t.Errorf("what runs is told that the person was shown %+v", shown)
	}
	for _, e := range w.entries() {
		if e.Kind == audit.Intent && e.CallID == a.CallID && !strings.Contains(string(e.Detail), call.HashBytes([]byte("echo owned"))) {
			t.Errorf("the files are not on record: %s", e.Detail)
		}
	}
}

// A rejection is of the call, whatever its files are: changing one byte brings no second question.
func TestRejectionHoldsWhateverTheFilesAre(t *testing.T) {
	w, f := newInputsWorld(t)
	p := w.open("worker", "erin", widgets)
	w.mustRespond("bob", w.mustAsk(w.do(p, "comm_send", sendPage, "")), approval.Reject, "no")
	f.set("echo something else")
	w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.ApprovalRejected)
}

// A declaration that was approved covers the files that were shown with it.
func TestApprovedDeclarationIsForTheFilesThatWereShown(t *testing.T) {
	w, f := newInputsWorld(t)
	p := w.open("worker", "erin", widgets)
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	if w.question(d.ApprovalID).Inputs == nil {
		t.Fatal("the person is not shown the files")
	}
	w.mustRespond("bob", d.ApprovalID, approval.Approve, "")
	f.set("echo owned")
	if a := w.do(p, "comm_send", `{}`, d.DeclarationID); a.Verdict.Decision == fault.Permit || w.cmd.runs.Load() != 0 {
		t.Errorf("it ran on other files: %+v", a.Verdict)
	}
}

// What can't be described is not asked about.
func TestFilesThatCannotBeShownAreRefused(t *testing.T) {
	w, f := newInputsWorld(t)
	p := w.open("worker", "erin", widgets)
	f.fails = fault.New(fault.LimitQuota, "A person would have to answer for too much.")
	w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.LimitQuota)
	if d := w.mustDeclare(p, "comm.send", getPage, fault.Deny); d.Verdict.Code != fault.LimitQuota {
		t.Errorf("declared: %+v", d.Verdict)
	}
}
