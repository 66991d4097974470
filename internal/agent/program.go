package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// ProgramPath is where programs of runs are looked for.
const ProgramPath = "/usr/local/bin:/usr/bin:/bin"

const (
	// maxProgramBytes and maxProgramFiles bound what the files of one run.command hold together.
	maxProgramBytes = 256 << 20
	maxProgramFiles = 20_000
)

// What stands in Run.Files in place of a hash. None of them is the length of one.
const (
	fileMissing = "missing"
	fileUnfit   = "unfit" // no regular file, outside of the folder, too much, or not to be read
)

var (
	// systemPrograms are the folders whose programs come with the operating system: its updates are no change of a declaration. What was installed beside
	// them (localPrograms) is one.
	systemPrograms = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
	localPrograms  = []string{"/usr/local"}
)

func below(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(path, f+"/") })
}

func ofTheSystem(path string) bool { return below(path, systemPrograms) && !below(path, localPrograms) }

// Staged is a program that is ready to start: the very bytes that were hashed.
type Staged struct {
	Argv    []string
	Path    string
	Program *os.File // open: its owner closes it. nil: Path is a copy, or comes with the system
}

// wordFile is one word of run.command that names files.
type wordFile struct {
	text   string
	beside string // below the folder of the declaration, free of links; "": it lies elsewhere
	path   string // elsewhere: the real path
}

// programs finds the files that the words of run.command name, and the program itself.
type programs struct {
	d      *Declaration
	folder string
	root   *os.Root // the folder
	copies *os.Root // where copies go; nil: nothing is copied
	bytes  int64    // read so far
	files  int
}

func (d *Declaration) programs() (*programs, error) {
	folder, err := filepath.Abs(filepath.Dir(d.File))
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	return &programs{d: d, folder: folder, root: root}, err
}

// named is the word of run.command with a number; false where it names no file whose content belongs to the declaration.
func (p *programs) named(i int) (w wordFile, is bool, err error) {
	w.text = p.d.Run.Command[i]
	if rest, beside := strings.CutPrefix(w.text, "./"); beside {
		real, err := filepath.EvalSymlinks(filepath.Join(p.folder, rest))
		if err != nil {
			return w, true, err
		}
		if w.beside, is = strings.CutPrefix(real, p.folder+string(filepath.Separator)); !is {
			return w, true, errors.New("outside of the folder")
		}
		if i == 0 {
			err = executable(real)
		}
		return w, true, err
	}
	if i == 0 {
		if w.path, err = program(w.text); err != nil {
			return w, true, err
		}
		return w, !ofTheSystem(w.path), nil
	}
	if !filepath.IsAbs(w.text) {
		return w, false, nil
	}
	if w.path, err = filepath.EvalSymlinks(w.text); err != nil || !below(w.path, localPrograms) { // nothing else can be read in the sandbox
		return w, false, nil
	}
	info, err := os.Stat(w.path)
	return w, err == nil && info.Mode().IsRegular(), nil
}

// hash is the SHA-256 of what a word names. What lies beside the declaration is copied to a path below copies, if there is that. The hash of a folder covers
// the names, links and contents of all that is in it.
func (p *programs) hash(w wordFile, to string) (string, error) {
	if w.beside == "" {
		f, err := openProgram(w.path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return p.read(f, io.Discard)
	}
	info, err := p.root.Stat(w.beside)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return p.file(w.beside, to)
	}
	tree := sha256.New()
	err = fs.WalkDir(p.root.FS(), w.beside, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inner := strings.TrimPrefix(name, w.beside)
		at, said := filepath.Join(to, inner), ""
		switch kind := e.Type(); {
		case kind.IsDir():
			if p.files++; p.copies != nil {
				err = p.copies.MkdirAll(at, 0o700)
			}
		case kind&fs.ModeSymlink != 0:
			p.files++
			if said, err = p.root.Readlink(name); err == nil && p.copies != nil {
				err = errors.Join(p.free(at), p.copies.Symlink(said, at))
			}
		default:
			said, err = p.file(name, at)
		}
		if err == nil && p.files > maxProgramFiles {
			err = errors.New("too many files")
		}
		fmt.Fprintf(tree, "%s %q %q\n", e.Type(), inner, said)
		return err
	})
	return hex.EncodeToString(tree.Sum(nil)), err
}

// free makes room for a copy.
func (p *programs) free(at string) error {
	err := p.copies.MkdirAll(filepath.Dir(at), 0o700)
	if rerr := p.copies.Remove(at); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// file hashes one regular file of the folder, and copies it.
func (p *programs) file(name, to string) (string, error) {
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if p.copies == nil {
		return p.read(f, io.Discard)
	}
	if err := p.free(to); err != nil {
		return "", err
	}
	copied, err := p.copies.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return "", err
	}
	sum, err := p.read(f, copied)
	return sum, errors.Join(err, copied.Close())
}

// read hashes an open regular file, within the bounds of all of them, and copies it.
func (p *programs) read(f *os.File, to io.Writer) (string, error) {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, errors.New("not a regular file"))
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, to), io.LimitReader(f, maxProgramBytes+1))
	p.bytes += n
	p.files++
	if err == nil && p.bytes > maxProgramBytes {
		err = errors.New("too many bytes")
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// noted is what stands in Run.Files about a word.
func noted(sum string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fileMissing
	case err != nil:
		return fileUnfit
	}
	return sum
}

// filesNow is Run.Files as the files are now; nil where the run has none.
func (d *Declaration) filesNow() map[string]string {
	if d.Run == nil || d.Run.Kind != RunCommand {
		return nil
	}
	now := map[string]string{}
	p, err := d.programs()
	if err != nil {
		return map[string]string{d.Run.Command[0]: noted("", err)}
	}
	defer p.root.Close()
	for i := range d.Run.Command {
		w, is, err := p.named(i)
		if !is {
			continue
		}
		sum := ""
		if err == nil {
			sum, err = p.hash(w, "")
		}
		now[w.text] = noted(sum, err)
	}
	if len(now) == 0 {
		return nil
	}
	return now
}

// hashFiles takes the files of the run into the declaration, and so into its digest.
func (d *Declaration) hashFiles() error {
	if d.Run == nil || d.Run.Kind != RunCommand {
		return nil
	}
	r := *d.Run
	r.Files = d.filesNow()
	d.Run = &r
	return d.seal()
}

// WithoutFiles is the digest that the declaration had before the files of its run belonged to it.
func (d *Declaration) WithoutFiles() string {
	if d.Run == nil || d.Run.Files == nil {
		return d.Digest
	}
	before, r := *d, *d.Run
	r.Files = nil
	if before.Run = &r; before.seal() != nil {
		return ""
	}
	return before.Digest
}

// CheckFiles tells whether the files of the run are those of the declaration. An AgentUnapproved fault: they changed since it was loaded; a
// ConfigurationInvalid one: they never were what can be started.
func (d *Declaration) CheckFiles() error { return d.compare(d.filesNow()) }

func (d *Declaration) compare(now map[string]string) error {
	var changed []string
	for _, text := range slices.Sorted(maps.Keys(now)) {
		if d.Run.Files[text] != now[text] {
			what := map[string]string{fileMissing: " is missing", fileUnfit: " can't be read"}[now[text]]
			changed = append(changed, display.Quote(text, shownMost)+cmp.Or(what, " changed"))
		}
	}
	for text := range d.Run.Files {
		if _, still := now[text]; !still {
			changed = append(changed, display.Quote(text, shownMost)+" is another file")
		}
	}
	if len(changed) > 0 {
		return fault.New(fault.AgentUnapproved, "The program of the agent %s is not the one that its declaration was loaded with: %s.", d.AgentID, strings.Join(changed[:min(len(changed), 5)], ", ")).
			Try("Undo the change, or have it approved: sallyport reload, then sallyport agents diff %s, then sallyport agents approve %s --digest DIGEST", d.AgentID, d.AgentID)
	}
	for _, text := range slices.Sorted(maps.Keys(now)) {
		if why := unstartable(now[text]); why != "" {
			return unfit(nil, text, why)
		}
	}
	return nil
}

// unstartable says why what is noted of a word keeps the run from starting; "" where it doesn't.
func unstartable(noted string) string {
	switch noted {
	case fileMissing:
		return "names no file beside the declaration, and no program in " + ProgramPath
	case fileUnfit:
		return fmt.Sprintf("is not a program or a file that can be hashed: it may not lead out of the folder of the declaration, a program may not be writable by everybody, and all files together have at most %d MiB and are at most %d, folders and links counted", maxProgramBytes>>20, maxProgramFiles)
	}
	return ""
}

// lintFiles names what runs of the declaration can't start with.
func (d *Declaration) lintFiles() (all []Problem) {
	if d.Run == nil {
		return nil
	}
	for i, text := range d.Run.Command {
		if why := unstartable(d.Run.Files[text]); why != "" {
			all = append(all, d.Problem(fmt.Sprintf("run.command[%d]", i), P1, display.Quote(text, shownMost)+" "+why+", so no run can start", "put it there, or correct the name"))
		}
	}
	return all
}

func unfit(cause error, word, why string) error {
	return fault.Wrap(cause, fault.ConfigurationInvalid, "%s in the declaration's run.command %s.", display.Quote(word, 120), why)
}

// Stage readies the program of the run: what lies beside the declaration is copied below dir, and the program is opened. What it returns has the hashes
// that the declaration has, whatever becomes of the files meanwhile. Errors are those of CheckFiles. dir is nobody else's. copied says that it has the copies
// already, which a program may be reading: they stay as they are.
func (d *Declaration) Stage(dir string, copied bool) (s Staged, err error) {
	p, err := d.programs()
	if err != nil {
		return s, unfit(err, d.File, "has no folder")
	}
	defer p.root.Close()
	if !copied {
		if p.copies, err = os.OpenRoot(dir); err != nil {
			return s, err
		}
		defer p.copies.Close()
	}
	defer func() {
		if err != nil && s.Program != nil {
			s.Program.Close()
		}
	}()
	now := map[string]string{}
	for i, text := range d.Run.Command {
		w, is, err := p.named(i)
		switch {
		case !is:
			s.Argv = append(s.Argv, text)
			if i == 0 {
				s.Path = w.path
			}
			continue
		case err != nil:
			now[text] = noted("", err)
			continue
		}
		sum := ""
		if w.beside != "" {
			at := strings.TrimPrefix(filepath.Clean("/"+text), "/") // as it is named, so that what names its neighbours finds them
			sum, err = p.hash(w, at)
			at = filepath.Join(dir, at)
			if s.Argv = append(s.Argv, at); i == 0 {
				s.Path = at
			}
		} else if s.Argv = append(s.Argv, text); i > 0 {
			sum, err = p.hash(w, "")
		} else if s.Path = w.path; s.Program == nil {
			if s.Program, err = openProgram(w.path); err == nil {
				sum, err = p.read(s.Program, io.Discard)
			}
		}
		now[text] = noted(sum, err)
	}
	return s, d.compare(now)
}

// openProgram opens a file to be read and executed. A pipe or device is never waited for.
func openProgram(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// program finds a program by its name or its absolute path, and returns its real path.
func program(name string) (string, error) {
	candidates := []string{name}
	if !filepath.IsAbs(name) {
		if strings.ContainsRune(name, '/') {
			return "", errors.New("neither a name nor an absolute path")
		}
		candidates = nil
		for dir := range strings.SplitSeq(ProgramPath, ":") {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, at := range candidates {
		path, err := filepath.EvalSymlinks(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return path, executable(path)
	}
	return "", fs.ErrNotExist
}

// executable tells whether a path is a program that can be started.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return errors.Join(err, errors.New("not an executable file"))
	}
	if info.Mode().Perm()&0o002 != 0 {
		return errors.New("everybody may write to it")
	}
	return nil
}
