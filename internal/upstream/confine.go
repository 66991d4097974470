package upstream

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/npm"
	"sallyport.example/internal/sandbox"
)

// Sandbox says how a server that the gateway starts is confined.
type Sandbox string

const (
	Full       Sandbox = "full"    // it reaches its folder, and on the network the hosts that the operator lists
	Partial    Sandbox = "partial" // it also reaches what its command and environment name, and by default the network
	Unconfined Sandbox = "none"    // it can do what the gateway can
)

// Confinement is what an operator says about a server's sandbox. The zero value is Partial with the whole network.
type Confinement struct {
	Sandbox Sandbox
	Folder  string          // the server's own: absolute, made when it is not there
	Paths   []string        // more that it may read and write, absolute
	Network sandbox.Network // "" is any in Partial and none in Full
	Hosts   []string        // of ProxyNetwork
}

// GatewayPaths are paths of the gateway that the sandboxes of all servers depend on.
type GatewayPaths struct {
	Secrets  []string // no server reaches them: the data directory, the configuration, declarations, policies, the log's anchor
	Home     string   // the home of the gateway's user; a server that it starts has its folder for a home
	Packages string   // where packages of the npm registry are kept
}

type toolchain struct{ dir, variable string }

// toolchains are where language runtimes and package runners keep programs and libraries, in the home of the gateway's user, and the variable that
// tells a program with another home where that is. Credentials of package registries lie elsewhere.
var toolchains = []toolchain{
	{".nvm/versions", ""}, {".volta", "VOLTA_HOME"}, {".asdf", "ASDF_DATA_DIR"}, {".local/share/mise", "MISE_DATA_DIR"}, {".local/share/fnm", ""}, {".fnm", ""}, {".n", ""},
	{".pyenv", "PYENV_ROOT"}, {".rbenv", "RBENV_ROOT"}, {".rustup/toolchains", ""}, {".cargo/bin", ""}, {".sdkman/candidates", ""}, {".deno/bin", ""}, {".bun/bin", ""},
	{".local/bin", ""}, {".local/lib", ""}, {".local/pipx/venvs", ""}, {".local/share/pipx", "PIPX_HOME"}, {".local/share/uv/python", "UV_PYTHON_INSTALL_DIR"},
	{".local/share/uv/tools", "UV_TOOL_DIR"}, {".local/share/pnpm", "PNPM_HOME"}, {"go/bin", ""}, {".dotnet", "DOTNET_ROOT"}, {".cache/ms-playwright", "PLAYWRIGHT_BROWSERS_PATH"},
	{".cache/puppeteer", "PUPPETEER_CACHE_DIR"},
}

// systemDirs hold programs that every server may run.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu/store", "/snap", "/home/linuxbrew/.linuxbrew"}

// kernelDirs hold no files of anybody's: a server has what the sandbox gives it of them, and what is named there is no reason for more.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// sharedFolders are folders of a home that hold more than one program's affairs.
var sharedFolders = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".local", ".local/share", ".local/state", ".cache", ".password-store", ".mozilla", "bin"}

// codeFiles are the endings of files that an interpreter runs: their projects are read, and not written.
var codeFiles = []string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", ".py", ".pyz", ".rb", ".php", ".pl", ".jar", ".sh", ".bash", ".lua", ".wasm", ".dll", ".exs"}

// projectMarks lie at the top of a project.
var projectMarks = []string{"package.json", "pyproject.toml", "setup.py", "requirements.txt", "pyvenv.cfg", "go.mod", "Cargo.toml", "Gemfile", "composer.json", "deno.json", ".git"}

// reach is what a sandbox lets in beside the server's folder, and the variables that tell the server where its tools are.
type reach struct {
	read, write []string
	env         []string
	links       map[string]string // names of listed paths that are links, with the target of each
	secrets     []string          // programs that run with the gateway's rights: who writes them can do what the gateway can
	omitted     []string          // paths that are named and not let in, each with the reason
}

// codeVariables are the variables that name programs and libraries, which others run, too. A server may read what they or those of toolchains name,
// and not write it.
var codeVariables = []string{"PATH", "NODE_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "CLASSPATH", "GOROOT", "GEM_HOME", "GEM_PATH", "RUBYLIB", "PERL5LIB"}

func ofCode(variable string) bool {
	return slices.Contains(codeVariables, variable) || slices.ContainsFunc(toolchains, func(t toolchain) bool { return t.variable == variable })
}

// namedPaths are the paths that a server's command and environment name, but for code.
func (c Config) namedPaths(h GatewayPaths) (paths []string) {
	for _, arg := range c.Command[1:] {
		paths = append(paths, pathsIn(arg, c.Dir, h.Home)...)
	}
	for name, value := range c.Env {
		if !ofCode(name) {
			paths = append(paths, pathsIn(value, c.Dir, h.Home)...)
		}
	}
	return paths
}

// reachOf reads a server's configuration as its operator would: what the command and the environment name, the server is meant to have. It follows no
// link that it, or one of the others, may have made.
func reachOf(cfg Config, program string, h GatewayPaths, others ...Config) reach {
	r := reach{links: map[string]string{}}
	p := placesOf(append(slices.Clone(others), cfg), h)
	r.letProgramBeRead(program, h.Home)
	if real, err := p.resolve(program); err == nil {
		r.letProgramBeRead(real, h.Home)
	}
	r.addToolsOf(cfg, h.Home)
	for _, path := range cfg.namedPaths(h) {
		r.addNamed(path, cfg, h, p)
	}
	r.write = let(r.write, cfg.Confine.Paths...)
	for _, path := range cfg.Confine.Paths {
		if !exists(path) {
			r.omit(path + " is not there: make it before the server starts")
		}
	}
	r.read, r.write = outermost(r.follow(r.read, p)), r.follow(r.write, p)
	for _, path := range r.write {
		switch {
		case within(path, p.folders...): // its own, or another's, which is a secret
		case within(path, h.Secrets...):
			r.omit(path + " is the gateway's own")
		case slices.ContainsFunc(h.Secrets, func(secret string) bool { return within(secret, path) }):
			r.omit(path + " holds what is the gateway's own: only what is beside that when the server starts is let in, and nothing new can be made right there")
		}
	}
	r.protectPrograms(cfg, h, others)
	slices.Sort(r.omitted)
	r.omitted = slices.Compact(r.omitted)
	return r
}

// let adds paths to a list of what is let in, but for what every server has.
func let(list []string, paths ...string) []string {
	for _, p := range paths {
		if p != "" && p != "/" && !within(p, systemDirs...) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

func (r *reach) omit(reason string) { r.omitted = append(r.omitted, reason) }

// letProgramBeRead adds a program or script, with what belongs to it.
func (r *reach) letProgramBeRead(file, home string) {
	r.read = let(r.read, append([]string{file}, installation(file, home)...)...)
}

// addToolsOf adds the programs and libraries that a server finds by its environment, or in the home of the gateway's user.
func (r *reach) addToolsOf(cfg Config, home string) {
	path := os.Getenv("PATH")
	if own, ok := cfg.Env["PATH"]; ok {
		path = own
	}
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) && exists(dir) && !holds(dir, home) {
			r.read = let(r.read, append([]string{filepath.Clean(dir)}, installation(filepath.Join(dir, "x"), home)...)...)
		}
	}
	for _, t := range toolchains {
		if dir := filepath.Join(home, t.dir); home != "" && exists(dir) {
			r.read = let(r.read, dir)
			if _, own := cfg.Env[t.variable]; t.variable != "" && !own {
				r.env = append(r.env, t.variable+"="+dir)
			}
		}
	}
	for name, value := range cfg.Env {
		if ofCode(name) && name != "PATH" {
			r.read = let(r.read, slices.DeleteFunc(pathsIn(value, cfg.Dir, home), func(p string) bool { return holds(p, home) })...)
		}
	}
}

// addNamed adds what the command or the environment names at path.
func (r *reach) addNamed(path string, cfg Config, h GatewayPaths, p places) {
	full := cfg.Confine.Sandbox == Full
	st, err := os.Stat(path)
	if _, planted := p.resolve(path); errors.Is(planted, errPlanted) && !hasCodeName(path) {
		err = planted // a server made it a link: what was meant is a file there
	}
	switch {
	case within(path, kernelDirs...):
	case err != nil || isDatabase(path) && !st.IsDir():
		// It is to be made, or has files beside it that come and go: so the folder is meant.
		switch parent := filepath.Dir(path); {
		case full:
		case !broad(parent, cfg.Dir, h.Home):
			r.write = let(r.write, parent)
		case err == nil:
			r.write = let(r.write, path)
		case !within(path, cfg.Confine.Folder) && !within(path, cfg.Confine.Paths...):
			r.omit(path + " is not there, and its folder holds more than what this server needs")
		}
	case path == "/":
		r.omit("the root is never let in: name folders")
	case st.Mode().IsRegular() && IsCode(path):
		r.letProgramBeRead(path, h.Home)
	case (st.Mode().IsRegular() || st.IsDir()) && !full:
		r.write = let(r.write, path)
	}
}

// protectPrograms keeps the programs of the gateway and of servers without a sandbox out of what a server writes, and tells of those of other servers.
func (r *reach) protectPrograms(cfg Config, h GatewayPaths, others []Config) {
	protect := func(whose string, paths ...string) {
		for _, p := range paths {
			if p = realPath(p); within(p, r.write...) && !slices.Contains(r.secrets, p) {
				r.secrets = append(r.secrets, p)
				r.omit(p + " is run by " + whose + ", with all that the gateway may do")
			}
		}
	}
	if self, err := os.Executable(); err == nil {
		protect("the gateway", self)
	}
	for _, other := range others {
		if other.ID == cfg.ID || len(other.Command) == 0 {
			continue
		}
		var programs []string
		if program, err := lookProgram(other.Command[0]); err == nil {
			programs = append(programs, program)
		}
		for _, p := range other.namedPaths(h) {
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && IsCode(p) {
				programs = append(programs, p)
			}
		}
		for _, p := range programs {
			if other.Confine.Sandbox == Unconfined {
				protect("the server "+other.ID, append(installation(p, h.Home), p)...)
			} else if real := realPath(p); within(real, r.write...) {
				r.omit(real + " is let in, and the server " + other.ID + " runs it: what is written there runs as that server")
			}
		}
	}
}

// installation lists what belongs to a program or script beside its own file: the tree of its runtime, its modules, its project. It is never the
// home itself, or what holds it.
func installation(file, home string) (dirs []string) {
	keep := func(dir string) {
		if dir != "/" && !holds(dir, home) {
			dirs = append(dirs, dir)
		}
	}
	dir := filepath.Dir(file)
	if before, _, ok := strings.Cut(file, "/node_modules/"); ok {
		keep(before + "/node_modules")
	}
	if base := filepath.Base(dir); base == "bin" || base == "sbin" || base == "shims" {
		if top := filepath.Dir(dir); top != filepath.Join(home, ".local") && hasAny(top, "lib", "lib64", "share", "libexec", "pyvenv.cfg") {
			keep(top)
		}
	}
	if !hasCodeName(file) {
		return dirs
	}
	for at := dir; at != "/" && at != home; at = filepath.Dir(at) {
		if hasAny(at, projectMarks...) {
			keep(at)
			return dirs
		}
	}
	keep(dir)
	return dirs
}

// pathsIn are the paths that a value names: the value itself, what stands after an equals sign, and the parts of a list.
func pathsIn(value, dir, home string) (paths []string) {
	if len(value) > 4096 {
		return nil
	}
	candidates := []string{value}
	if _, after, ok := strings.Cut(value, "="); ok {
		candidates = append(candidates, after)
	}
	for _, c := range slices.Clone(candidates) {
		if filepath.IsAbs(c) && exists(c) {
			continue // a name with a comma, and no list
		}
		candidates = append(candidates, strings.FieldsFunc(c, func(r rune) bool { return r == ':' || r == ',' || r == ';' })...)
	}
	for _, c := range candidates {
		c = strings.TrimPrefix(strings.Trim(c, `"' `), "file://")
		if rest, ok := strings.CutPrefix(c, "~/"); ok && home != "" {
			c = filepath.Join(home, rest)
		}
		if c == "" || strings.Contains(c, "://") || strings.HasPrefix(c, "-") {
			continue
		}
		raw := c
		if !filepath.IsAbs(c) {
			c = filepath.Join(dir, c)
		}
		c = filepath.Clean(c)
		// A name with nothing there is a path only if it is written as one, and there is a folder to make it in.
		if written := strings.Contains(raw, "/"); (exists(c) || written && exists(filepath.Dir(c))) && !slices.Contains(paths, c) {
			paths = append(paths, c)
		}
	}
	return paths
}

// isDatabase tells whether a file is one of those that keep others beside it, or that are replaced by another one whenever they change.
func isDatabase(file string) bool {
	return slices.Contains([]string{".db", ".sqlite", ".sqlite3", ".duckdb", ".jsonl"}, strings.ToLower(filepath.Ext(file)))
}

// broad tells whether a folder holds more than one server's affairs, so that naming a file in it can't mean all of it.
func broad(dir, start, home string) bool {
	if home != "" && (holds(dir, home) || slices.ContainsFunc(sharedFolders, func(s string) bool { return dir == filepath.Join(home, s) }) ||
		slices.ContainsFunc(toolchains, func(t toolchain) bool { return within(dir, filepath.Join(home, t.dir)) })) {
		return true
	}
	return dir == "/" || within(dir, kernelDirs...) || within(start, dir) || slices.Contains([]string{"/tmp", "/var/tmp", "/dev/shm", "/etc", "/var", "/srv", "/mnt", "/media", "/home"}, dir)
}

// outermost leaves out what lies below another of the paths, which are sorted.
func outermost(paths []string) (kept []string) {
	for _, p := range paths {
		if !within(p, kept...) {
			kept = append(kept, p)
		}
	}
	return kept
}

// within tells whether path is one of dirs or below one.
func within(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, strings.TrimSuffix(d, "/")+"/") })
}

// holds tells whether a folder is the home, or holds it.
func holds(dir, home string) bool { return home != "" && within(home, dir) }

// hasCodeName tells whether a file is one of those that an interpreter runs.
func hasCodeName(file string) bool {
	return slices.Contains(codeFiles, strings.ToLower(filepath.Ext(file)))
}

// IsCode tells whether a file is one that is run, and not one that is written.
func IsCode(file string) bool {
	return hasCodeName(file) || isProgram(file)
}

// isProgram tells whether a file is a program. The bit alone says little: some file systems set it on all.
func isProgram(file string) bool {
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm()&0o111 == 0 || !st.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, 4)
	n, _ := io.ReadFull(f, start)
	return string(start[:n]) == "\x7fELF" || n >= 2 && string(start[:2]) == "#!"
}

func hasAny(dir string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return exists(filepath.Join(dir, name)) })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// launch names the program that is started for a server: one of the machine, or of a package that the gateway keeps.
type launch struct {
	program string
	argv    []string
	code    []string // folders of the gateway that hold it
}

// launch finds the program, and fetches the package where npx would. A machine without a sandbox has nowhere to fetch it in: npx does it then.
func (s *server) launch(ctx context.Context) (launch, error) {
	p, ok := npm.Of(s.cfg.Command)
	if tier, _ := sandbox.Servers(); !ok || s.o.Gateway.Packages == "" || tier == sandbox.None {
		program, err := lookProgram(s.cfg.Command[0])
		if err != nil {
			if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
				err = nil // the sentence says all of it
			}
			return launch{}, fault.Wrap(err, fault.ConfigurationInvalid, "Its program %q can't be found.", display.Line(s.cfg.Command[0], 256)).Try("Install it, or give its whole path as the first word of the command.")
		}
		return launch{program: program, argv: s.cfg.Command}, nil
	}
	pin, err := p.Fetched(s.o.Gateway.Packages)
	if err != nil {
		s.log.Info("fetching the package, once", "package", p.Spec())
		if pin, err = FetchPackage(ctx, p, s.o.Gateway); err != nil {
			return launch{}, err
		}
		s.log.Info("fetched the package; the server starts from it from now on", "package", pin.Name, "version", pin.Version, "integrity", pin.Integrity)
	}
	dir, err := filepath.EvalSymlinks(p.Folder(s.o.Gateway.Packages))
	if err != nil {
		return launch{}, err
	}
	program := filepath.Join(dir, pin.Bin)
	return launch{program: program, argv: append([]string{program}, p.Args...), code: []string{dir}}, nil
}

// FetchPackage fetches a package with an npm that can write nothing else.
func FetchPackage(ctx context.Context, p npm.Package, h GatewayPaths) (npm.Pin, error) {
	return p.Fetch(ctx, h.Packages, h.Home, func(program string) sandbox.Server {
		r := reachOf(Config{Command: []string{program}, Confine: Confinement{Sandbox: Full}}, program, h)
		return sandbox.Server{Path: program, Env: r.env, Read: r.read, Secrets: h.Secrets}
	})
}

// sandboxed returns the sandbox of the server's program, and the paths that are named and not let in, each with the reason.
func (s *server) sandboxed(l launch, env []string) (box sandbox.Server, omitted []string, err error) {
	cfg, h := s.cfg, s.o.Gateway
	if err := os.MkdirAll(cfg.Confine.Folder, 0o700); err != nil {
		return box, nil, fault.Wrap(err, fault.ConfigurationInvalid, "The folder of the server %s can't be made.", cfg.ID).At("upstreams." + cfg.ID + ".folder")
	}
	p := placesOf(s.all, h)
	folder, err := p.resolve(cfg.Confine.Folder)
	if err != nil {
		return box, nil, fault.Wrap(err, fault.ConfigurationInvalid, "The folder of the server %s can't be used: %v.", cfg.ID, err).At("upstreams." + cfg.ID + ".folder")
	}
	dir := folder
	if cfg.Dir != "" {
		if dir, err = p.resolve(cfg.Dir); err != nil {
			return box, nil, err
		}
	}
	if err := homeLinks(folder, h.Home, cfg.Confine.Paths); err != nil {
		return box, nil, err
	}
	r := reachOf(cfg, l.program, h, s.all...)
	env = append(slices.Clone(env), r.env...)
	if _, own := cfg.Env["HOME"]; !own {
		env = append(env, "HOME="+folder)
	}
	network := cfg.Confine.Network
	if network == "" {
		network = sandbox.AnyNetwork
		if cfg.Confine.Sandbox == Full {
			network = sandbox.NoNetwork
		}
	}
	secrets := slices.Concat(h.Secrets, r.secrets)
	for _, other := range s.all {
		if f := other.Confine.Folder; f != "" && f != cfg.Confine.Folder {
			secrets = append(secrets, f)
			if real := realPath(f); real != f {
				secrets = append(secrets, real)
			}
		}
	}
	return sandbox.Server{
		Path: l.program, Argv: l.argv, Env: env, Dir: dir, Folder: folder, Code: l.code, Read: r.read, Write: r.write, Links: r.links, Secrets: secrets, Network: network,
	}, r.omitted, nil
}

// homeLinks lets a server find what the operator gave it of the home of the gateway's user where it would look for it: in its own home, which is its
// folder. What is there already stays. The server can write there, so nothing is followed out of it.
func homeLinks(folder, home string, paths []string) error {
	if home == "" {
		return nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, p := range paths {
		rest, ok := strings.CutPrefix(p, home+"/")
		if !ok || within(folder, p) {
			continue
		}
		if _, err := root.Lstat(rest); err == nil {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(rest), 0o700); err != nil {
			return err
		}
		if err := root.Symlink(p, rest); err != nil {
			return err
		}
	}
	return nil
}

// lookProgram finds the program of a command.
func lookProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
