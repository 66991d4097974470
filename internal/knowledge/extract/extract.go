// Package extract takes the text out of files in formats of their own: pages, PDF and DOCX. It starts this binary again as a child in the sandbox, which reads one file from its
// standard input and writes its text.
//
// Promises: no parser of such a format runs in the gateway. The child has no network, no file but its own empty folder, and bounds of time and memory; what it says is the text, or one of a
// closed list of reasons. Where the machine can't hold the sandbox, nothing is read.
package extract

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/sandbox"
)

// childName is the child's argv[0]. Whoever gives it to this binary by hand gets a process that reads a file and writes its text.
const childName = "sallyport-extract"

// Bounds of one child.
const (
	wall   = 20 * time.Second
	cpu    = 15 * time.Second
	memory = 3 << 30   // of address space, much of which the runtime only reserves
	heap   = 256 << 20 // from which on the child's memory is collected all the time
)

// atOnce bounds the children that run at once.
const atOnce = 2

// problem is why a file has no text. It is the child's exit code.
type problem int

const (
	none   problem = iota
	broken problem = iota + 9
	empty
	locked
	large
	encoding
)

func (p problem) Error() string { return fmt.Sprintf("problem %d", int(p)) }

// fault is what people are told.
func (p problem) fault(mediaType string) *fault.Error {
	bad := func(format string, args ...any) *fault.Error {
		return fault.New(fault.RequestMalformed, format, args...).At("content")
	}
	switch p {
	case empty:
		return bad("The file has no text.").Try("If it is a scan, recognise its text first, and give that.")
	case locked:
		return bad("The file is encrypted.").Try("Give a copy without a password.")
	case large:
		return bad("The text of the file has more than %d bytes, or the file unfolds to far more than it has.", knowledge.MaxContent).Try("Split it into several documents.")
	case encoding:
		return bad("The file is not text in UTF-8.").Try("Convert it to UTF-8.")
	}
	return bad("The file can't be read as %s: it is broken, or another format.", mediaType).Try("Open it and save it again, or give its text.")
}

// Init serves as the child, where this process was started as one; it does not return then. It is called at the beginning of main.
func Init() {
	if len(os.Args) != 2 || os.Args[0] != childName {
		return
	}
	debug.SetMemoryLimit(heap)
	file, err := io.ReadAll(os.Stdin)
	if err != nil {
		os.Exit(int(broken))
	}
	text, p := textOf(os.Args[1], file)
	if p == none {
		if _, err := io.WriteString(os.Stdout, text); err != nil {
			p = broken
		}
	}
	os.Exit(int(p))
}

// textOf reads a file. Parsers of strangers may panic on what they did not expect.
func textOf(mediaType string, file []byte) (text string, p problem) {
	defer func() {
		if recover() != nil {
			text, p = "", broken
		}
	}()
	switch mediaType {
	case knowledge.HTML:
		text, p = page(file)
	case knowledge.PDF:
		text, p = pdfText(file)
	case knowledge.DOCX:
		text, p = docxText(file)
	default:
		p = broken
	}
	switch {
	case p != none:
		return "", p
	case len(text) > knowledge.MaxContent:
		return "", large
	case !utf8.ValidString(text):
		return "", encoding
	}
	return text, none
}

// Extractor starts the children.
type Extractor struct {
	dir    string // where their folders are made
	places chan struct{}
}

// New returns an Extractor whose children have their folders below dir. What a crash left there is removed.
func New(dir string) (*Extractor, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	return &Extractor{dir: dir, places: make(chan struct{}, atOnce)}, err
}

// Text is the text of a file of one of the types that knowledge.Foreign names. RequestMalformed says why there is none.
func (x *Extractor) Text(ctx context.Context, mediaType string, file []byte) (string, error) {
	select {
	case x.places <- struct{}{}:
		defer func() { <-x.places }()
	case <-ctx.Done():
		return "", fault.Wrap(ctx.Err(), fault.TimeExceeded, "Other files are being read.").Try("Try again in a moment.")
	}
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return "", fault.Wrap(err, fault.SandboxUnavailable, "The gateway's own program is not where it was.")
	}
	program, err := os.Open("/proc/self/exe") // the very program that runs, whatever its name leads to by now
	if err != nil {
		return "", fault.Wrap(err, fault.SandboxUnavailable, "The gateway's own program can't be opened.")
	}
	defer program.Close()
	dir, err := os.MkdirTemp(x.dir, "file-")
	if err != nil {
		return "", fault.Wrap(err, fault.StoreUnavailable, "A folder to read the file in can't be made.")
	}
	defer os.RemoveAll(dir)
	out, err := sandbox.Run(ctx, sandbox.Command{
		Program: program, Path: own, Argv: []string{childName, mediaType}, Dir: dir, Stdin: file, Env: []string{"GOMAXPROCS=1", "LANG=C.UTF-8"},
		Limits: sandbox.Limits{Wall: wall, CPU: cpu, Memory: memory, File: 1, Output: knowledge.MaxContent + 1, Processes: 256, OpenFiles: 64},
	})
	switch {
	case fault.Is(err, fault.SandboxUnavailable):
		return "", fault.Wrap(err, fault.SandboxUnavailable, "%s files are read in a sandbox, which this machine can't hold.", mediaType).At("content_type").Try("Give the text, as text/markdown. `sallyport doctor` says what the sandbox needs.")
	case err != nil:
		return "", err
	case out.TimedOut || out.Signal != "" || out.ExitCode == 2: // 2: the runtime ended it, for want of memory
		return "", fault.Wrap(fmt.Errorf("exit %d, signal %q, timed out %t: %.300q", out.ExitCode, out.Signal, out.TimedOut, out.Stderr), fault.RequestMalformed, "The file takes too long, or too much memory, to read.").At("content").Try("Give its text, or split it.")
	case out.ExitCode != 0:
		return "", problem(out.ExitCode).fault(mediaType)
	case out.StdoutTruncated:
		return "", large.fault(mediaType)
	}
	return string(out.Stdout), nil
}
