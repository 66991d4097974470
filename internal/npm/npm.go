// Package npm fetches and keeps the npm packages of MCP servers. A package is fetched once, with all that it depends on; no script
// of any package is run, and npm itself runs in a sandbox where it can write nothing but the folder that it fills. A package that is kept is used until it
// is fetched again, and no registry is asked before that.
package npm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sandbox"
)

// FetchTime bounds the time for fetching a package with its dependencies.
const FetchTime = 5 * time.Minute

// sandboxTime bounds the time for building npm's sandbox.
const sandboxTime = time.Minute

// Package is a package of the npm registry that npx would run, with its arguments.
type Package struct {
	Name    string // as the registry knows it, @scope/name
	Version string // a version, a range or a tag, as the operator wrote it; "" is the newest
	Args    []string
}

// Pin names the package that was fetched.
type Pin struct {
	Name      string    `json:"name"`
	Requested string    `json:"requested,omitempty"`
	Version   string    `json:"version"`
	Integrity string    `json:"integrity"` // of the package itself, as the registry says it; of those it depends on it stands in its package-lock.json
	At        time.Time `json:"at"`
	Bin       string    `json:"bin"` // the program, below the folder
}

var (
	packageSpec    = regexp.MustCompile(`^((?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*)(?:@([A-Za-z0-9._~^><=*+-]{1,64}))?$`)
	exactVersion   = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	packageRunners = []string{"npx", "npx.cmd"}
)

// Of tells whether a command runs a package of the npm registry by npx or npm exec, and which.
func Of(command []string) (Package, bool) {
	if len(command) < 2 {
		return Package{}, false
	}
	program, rest := filepath.Base(command[0]), command[1:]
	exec := slices.Contains([]string{"npm", "npm.cmd"}, program) && slices.Contains([]string{"exec", "x"}, rest[0])
	switch {
	case exec:
		rest = rest[1:]
	case !slices.Contains(packageRunners, program):
		return Package{}, false
	}
	for len(rest) > 0 && slices.Contains([]string{"-y", "--yes", "-q", "--quiet"}, rest[0]) {
		rest = rest[1:]
	}
	if exec && len(rest) > 0 && rest[0] == "--" { // all that follows is the package's
		exec, rest = false, rest[1:]
	}
	if len(rest) == 0 {
		return Package{}, false
	}
	m := packageSpec.FindStringSubmatch(rest[0])
	if m == nil {
		return Package{}, false
	}
	args := rest[1:]
	if exec && len(args) > 0 {
		if args[0] != "--" { // npm would take options among them for its own
			return Package{}, false
		}
		args = args[1:]
	}
	return Package{Name: m[1], Version: m[2], Args: args}, true
}

// Pinned tells whether the operator named one version.
func (p Package) Pinned() bool { return exactVersion.MatchString(p.Version) }

// Spec names the package and its version for npm.
func (p Package) Spec() string {
	if p.Version == "" {
		return p.Name
	}
	return p.Name + "@" + p.Version
}

// Folder returns the folder of the package below dir. Neither part can have a slash that isn't replaced, or be a name with a meaning of its own.
func (p Package) Folder(dir string) string {
	return filepath.Join(dir, "npm-"+strings.NewReplacer("/", "+", "<", "lt", ">", "gt", "*", "any").Replace(p.Spec()))
}

// Fetched returns the pin of a package that is kept below dir.
func (p Package) Fetched(dir string) (Pin, error) {
	var pin Pin
	data, err := os.ReadFile(filepath.Join(p.Folder(dir), "pin.json"))
	if err != nil {
		return pin, err
	}
	return pin, json.Unmarshal(data, &pin)
}

// fetching holds a mutex for each folder that a package is kept in: it holds off a second fetch of the same package by this program.
var fetching sync.Map

// Fetch fetches the package and what it depends on from the registry of the user's npm, and keeps them below dir. box is the sandbox of the program
// npm: what it reads, and what it must not. The earlier one is replaced once the new one is whole.
func (p Package) Fetch(ctx context.Context, dir, home string, box func(npm string) sandbox.Server) (Pin, error) {
	same, _ := fetching.LoadOrStore(p.Folder(dir), &sync.Mutex{})
	same.(*sync.Mutex).Lock()
	defer same.(*sync.Mutex).Unlock()
	failed := func(err error, format string, args ...any) (Pin, error) {
		return Pin{}, fault.Wrap(err, fault.UpstreamFailed, "The package %s can't be fetched: %s", p.Spec(), fmt.Sprintf(format, args...)).
			Try("Look whether npm is installed and reaches its registry, or install the package yourself and give its program as the command.")
	}
	npm, err := exec.LookPath("npm")
	if err == nil {
		npm, err = filepath.Abs(npm)
	}
	if err != nil {
		return failed(err, "npm is not installed.")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return failed(err, "its folder can't be made.")
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return failed(err, "its folder can't be found.")
	}
	work, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return failed(err, "its folder can't be made.")
	}
	defer os.RemoveAll(work)
	if err := p.install(ctx, box(npm), home, work); err != nil {
		return failed(err, "%v", err)
	}
	for _, scratch := range []string{"tmp", ".npm"} {
		if err := os.RemoveAll(filepath.Join(work, scratch)); err != nil {
			return failed(err, "its folder can't be cleaned.")
		}
	}
	pin, err := p.pin(work)
	if err != nil {
		return failed(err, "%v", err)
	}
	data, err := json.MarshalIndent(pin, "", "  ")
	if err != nil {
		return Pin{}, err
	}
	if err := writeNew(filepath.Join(work, "pin.json"), append(data, '\n')); err != nil { // what was fetched may have put a link there
		return failed(err, "its pin can't be written.")
	}
	kept := p.Folder(dir)
	old := work + ".old"
	if err := os.Rename(kept, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return failed(err, "the one from before can't be moved away.")
	}
	defer os.RemoveAll(old)
	if err := os.Rename(work, kept); err != nil {
		return failed(err, "it can't be put in its place.")
	}
	return pin, nil
}

// writeNew writes a file that is not there.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// install runs npm, the program of box, in work.
func (p Package) install(ctx context.Context, box sandbox.Server, home, work string) error {
	ctx, cancel := context.WithTimeout(ctx, FetchTime)
	defer cancel()
	box.Env = append(box.Env, "HOME="+work, "PATH="+os.Getenv("PATH"), "npm_config_update_notifier=false", "npm_config_cache="+filepath.Join(work, ".npm"))
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy", "NODE_EXTRA_CA_CERTS", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			box.Env = append(box.Env, name+"="+value)
		}
	}
	rc := filepath.Join(home, ".npmrc")
	if _, err := os.Stat(rc); home != "" && err == nil { // the registry, and who may read it
		box.Env, box.Read = append(box.Env, "npm_config_userconfig="+rc), append(box.Read, rc)
	}
	box.Read = append(box.Read, "/etc/npmrc")
	box.Dir, box.Folder, box.Network = work, work, sandbox.AnyNetwork
	box.Argv = []string{"npm", "install", "--prefix", work, "--ignore-scripts", "--no-bin-links", "--no-audit", "--no-fund", "--omit=dev", "--install-links=false", "--loglevel=error", "--", p.Spec()}
	process, err := box.Command()
	if err != nil {
		return err
	}
	defer process.Close()
	output := &sandbox.Tail{Most: 2 << 10}
	process.Cmd.Stdout, process.Cmd.Stderr = output, output
	if err := process.Cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, process.Close) // its launcher then ends it
	defer stop()
	if _, err := process.Started(sandboxTime); err != nil {
		process.Close()
		process.Wait()
		return err
	}
	if err := process.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.New(p.said(output.String()))
	}
	return nil
}

// said is what npm's own error comes to, in words for people.
func (p Package) said(output string) string {
	for code, means := range map[string]string{
		"E404": "the registry has no package of this name, or does not show it to you. Is it spelled right?", "ETARGET": "the registry has no such version of it.",
		"ENOTFOUND": "the registry can't be reached: its name is not known here.", "ECONNREFUSED": "the registry can't be reached.", "ETIMEDOUT": "the registry does not answer.",
		"EAI_AGAIN": "the registry can't be reached: its name is not known here.", "E401": "the registry wants a sign-in (npm login).", "E403": "the registry refuses it.",
	} {
		if strings.Contains(output, "code "+code+"\n") {
			return means
		}
	}
	return "npm says: " + display.Line(strings.ReplaceAll(output, "\n", " "), 1<<10)
}

// pin reads what was installed. All of it comes from the registry.
func (p Package) pin(work string) (Pin, error) {
	var manifest struct {
		Version string
		Bin     json.RawMessage
	}
	root, err := os.OpenRoot(work)
	if err != nil {
		return Pin{}, err
	}
	defer root.Close()
	read := func(name string, into any) error {
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > 16<<20 {
			return errors.Join(err, fmt.Errorf("%s is no file of a usual size", name))
		}
		return json.NewDecoder(f).Decode(into)
	}
	in := filepath.Join("node_modules", filepath.FromSlash(p.Name))
	if err := read(filepath.Join(in, "package.json"), &manifest); err != nil {
		return Pin{}, fmt.Errorf("its package.json can't be read: %w", err)
	}
	bins := map[string]string{}
	name := p.Name[strings.LastIndexByte(p.Name, '/')+1:]
	var single string
	if json.Unmarshal(manifest.Bin, &single) == nil && single != "" {
		bins[name] = single
	} else if err := json.Unmarshal(manifest.Bin, &bins); err != nil || len(bins) == 0 {
		return Pin{}, errors.New("it has no program")
	}
	if _, ok := bins[name]; !ok {
		if len(bins) != 1 {
			return Pin{}, errors.New("it has several programs, and none with its own name: give the one to start as the command")
		}
		for only := range bins {
			name = only
		}
	}
	pin := Pin{Name: p.Name, Requested: p.Version, Version: manifest.Version, At: time.Now().UTC(), Bin: filepath.Join(in, filepath.FromSlash(bins[name]))}
	if st, err := root.Stat(pin.Bin); err != nil || !st.Mode().IsRegular() {
		return Pin{}, errors.Join(err, errors.New("its program is not there"))
	}
	if err := root.Chmod(pin.Bin, 0o755); err != nil { // npm may not, where its sandbox has no namespaces
		return Pin{}, err
	}
	var lock struct {
		Packages map[string]struct{ Integrity string }
	}
	if err := read("package-lock.json", &lock); err != nil {
		return Pin{}, fmt.Errorf("its package-lock.json can't be read: %w", err)
	}
	if pin.Integrity = lock.Packages["node_modules/"+p.Name].Integrity; pin.Integrity == "" {
		return Pin{}, errors.New("the registry gave no hash of it")
	}
	return pin, nil
}
