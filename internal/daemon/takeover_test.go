package daemon

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/internal/clients"
)

// What the file of credentials is written with is what is read from it, whatever the values are.
func TestEnvFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), envFile)
	if vars, problems := readEnvFile(path); vars != nil || problems != nil {
		t.Errorf("without a file: %v, %v", vars, problems)
	}
	want := map[string]string{"A": "", "B": "plain", "C": "two\nlines\r", "D": ` "quoted" `, "E": `"`, "F": "a=b#c", "G": "${A}", "H": "é\u00a0", "I": `{"x": "<&>"}`, "J": "\t", "K": `\n`, "L": "# no comment"}
	text, err := envText(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, problems := readEnvFile(path); len(problems) > 0 || !maps.Equal(got, want) {
		t.Errorf("%v became %v, %v\n%s", want, got, problems, text)
	}
	if _, err := envText(map[string]string{"A": "\xff"}); err == nil {
		t.Error("a value that is no text was written")
	}
	for name, bad := range map[string]string{"no sign": "A\n", "export": "export A=b\n", "twice": "A=b\nA=c\n", "open quote": "A=\"b\n", "no name": "=b\n", "NUL": "A=\x00\n", "no text": "A=\xff\n", "long": "A=" + strings.Repeat("x", maxEnvFile)} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if vars, problems := readEnvFile(path); len(problems) == 0 {
			t.Errorf("%s was read as %v", name, vars)
		}
	}
	if err := os.WriteFile(path, []byte("A=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if vars, problems := readEnvFile(path); len(problems) != 1 || !strings.Contains(problems[0].Remedy, "chmod 600") {
			t.Errorf("with mode %v: %v, %v", mode, vars, problems)
		}
	}
	if _, problems := readEnvFile(t.TempDir()); len(problems) != 1 {
		t.Error("a folder was read")
	}
}

// The file comes before the environment, and no server reaches it.
func TestEnvFileDecides(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SP_ONE", "environment")
	t.Setenv("SP_TWO", "environment")
	if err := os.WriteFile(filepath.Join(dir, envFile), []byte("SP_ONE=file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "sallyport.yaml")
	if err := os.WriteFile(config, []byte("upstreams: {a: {command: [x], cwd: sub, env: {ONE: \"${SP_ONE}\", TWO: \"${SP_TWO}\"}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := LoadConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if env := cfg.Upstreams["a"].Env; env["ONE"] != "file" || env["TWO"] != "environment" {
		t.Errorf("the server has %v", env)
	}
	servers, paths, err := cfg.servers(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(paths.Secrets, "\n"), filepath.Join(dir, envFile)) {
		t.Errorf("the file of credentials is not among what no server reaches: %v", paths.Secrets)
	}
	if servers[0].Dir != filepath.Join(dir, "sub") {
		t.Errorf("it starts in %s", servers[0].Dir)
	}
	if with, without := cfg.launchHash("a"), (&Config{Upstreams: map[string]UpstreamConfig{"a": {Command: []string{"x"}, Env: map[string]string{"ONE": "", "TWO": ""}}}}).launchHash("a"); with == without {
		t.Error("a server that starts in another folder counts as started in the same way")
	}
}

// Whatever the names and values are: the configuration is read as these servers, and no credential stands in it.
func TestTakeOver(t *testing.T) {
	secret := func(s string) clients.Value { return clients.Value{Text: s, Secret: true} }
	plain := func(s string) clients.Value { return clients.Value{Text: s} }
	servers := map[string]clients.Server{
		"a-b": {Command: []clients.Value{plain("x"), secret("canary-1"), plain("- yes: [no] # x"), plain("~"), plain("1e3"), plain("")}, Env: map[string]string{"TOKEN": "canary-2", "A_B_TOKEN": "canary-3"}},
		"a_b": {Command: []clients.Value{plain("x")}, Env: map[string]string{"TOKEN": "canary-4", "token": "canary-5", "É": "canary-6"}},
		"9":   {URL: secret("https://u:canary-7@h.example/"), Headers: map[string]string{"X-Key": "canary-8 ${HOME} \"\n"}},
		"c":   {Command: []clients.Value{plain("x")}, Folder: "/elsewhere"},
	}
	dir, folder := filepath.Join(t.TempDir(), "gw"), t.TempDir()
	if _, err := InitFrom(dir, TakeOver{Servers: servers, Project: folder, Developer: true}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sallyport.yaml"))
	if err != nil || strings.Contains(string(text), "canary") {
		t.Errorf("%v\n%s", err, text)
	}
	if st, err := os.Stat(filepath.Join(dir, envFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file of credentials: %v, %v", st.Mode(), err)
	}
	cfg, err := LoadConfig(filepath.Join(dir, "sallyport.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Upstreams["a-b"].Env; got["TOKEN"] != "canary-2" || got["A_B_TOKEN"] != "canary-3" {
		t.Errorf("a-b has %v", got)
	}
	if got := cfg.Upstreams["a_b"].Env; got["TOKEN"] != "canary-4" || got["token"] != "canary-5" {
		t.Errorf("a_b has %v", got)
	}
	if got := cfg.Upstreams["9"].Headers["X-Key"]; got != "canary-8 ${HOME} \"\n" {
		t.Errorf("9 has %q", got)
	}
	if cfg.Upstreams["c"].Cwd != "/elsewhere" || cfg.Upstreams["a-b"].Cwd != folder || cfg.Flow.Project != folder || !cfg.Flow.FreeLevel1 {
		t.Errorf("%+v", cfg.Upstreams)
	}
	if problems, err := Lint(t.Context(), "", nil, filepath.Join(dir, "sallyport.yaml")); err != nil || len(problems) > 0 {
		t.Errorf("it does not lint clean: %v, %v", problems, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".gitignore")); err == nil {
		t.Error("a .gitignore was written outside of a repository")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	bad := t.TempDir()
	if written, err := InitFrom(bad, TakeOver{Servers: servers, Project: home, Developer: true}); err == nil || len(written) > 0 || !strings.Contains(err.Error(), "flow.project") {
		t.Errorf("a home was made a project: %v, %v", written, err)
	}
	if files, _ := os.ReadDir(bad); len(files) > 0 {
		t.Errorf("%d files were written of an installation that does not load", len(files))
	}
	if _, err := InitFrom(t.TempDir(), TakeOver{Servers: map[string]clients.Server{"a": {Command: []clients.Value{plain("${HOME}")}}}, Project: "/p"}); err == nil {
		t.Error("a text that would be read as a reference was written")
	}
}

func TestServerID(t *testing.T) {
	for name, want := range map[string]string{"git": "git", "My Search!": "My-Search", "io.github.x/y": "io-github-x-y", "comm": "comm-server", "Sallyport": "Sallyport-server", "é": "", "--": "", strings.Repeat("a", 90): strings.Repeat("a", 40)} {
		if got := ServerID(name); got != want {
			t.Errorf("%q became %q, not %q", name, got, want)
		}
	}
}

// A server of the catalogue gets its labels, and the sandbox full where it is known to work: by the package that the gateway fetches, and by nothing that
// the client's file could have put in its place.
func TestTakeOverLabels(t *testing.T) {
	command := func(words ...string) (s clients.Server) {
		for _, w := range words {
			s.Command = append(s.Command, clients.Value{Text: w})
		}
		return s
	}
	with := func(s clients.Server, variable string) clients.Server {
		s.Env = map[string]string{variable: "x"}
		return s
	}
	const thinking, github = "@modelcontextprotocol/server-sequential-thinking", "@modelcontextprotocol/server-github@2025.4.8"
	for name, c := range map[string]struct {
		server                  clients.Server
		labels, sandbox, egress string
	}{
		"works in full":         {server: command("npx", "-y", thinking), labels: "catalogue", sandbox: "full", egress: "none"},
		"needs the network":     {server: with(command("npx", "-y", github), "GITHUB_PERSONAL_ACCESS_TOKEN"), labels: "catalogue", sandbox: "full", egress: "any"},
		"needs its folders":     {server: command("npx", "-y", "@modelcontextprotocol/server-filesystem", "."), labels: "catalogue"},
		"names a file":          {server: command("npx", "-y", thinking, "./notes"), labels: "catalogue"},
		"unknown":               {server: command("npx", "-y", "@nobody/server")},
		"looks like one":        {server: command("npx", "-y", "@modelcontextprotocol/server-sequentia1-thinking")},
		"a folder's program":    {server: command("node", "node_modules/"+thinking+"/dist/index.js")},
		"a program of the name": {server: command("mcp-server-sequential-thinking")},
		"another registry":      {server: with(command("npx", "-y", thinking), "npm_config_registry")},
		"another program first": {server: with(command("npx", "-y", thinking), "NODE_OPTIONS")},
		"a host":                {server: clients.Server{URL: clients.Value{Text: "https://mcp.example/"}}},
	} {
		u := TakeOver{Servers: map[string]clients.Server{"s": c.server}}.upstream("", "s", &variables{all: map[string]string{}})
		if u.Labels != c.labels || u.Sandbox != c.sandbox || u.Egress.Mode != c.egress {
			t.Errorf("%s: labels %q, sandbox %q, egress %q", name, u.Labels, u.Sandbox, u.Egress.Mode)
		}
	}
}

// A server that works on the project gets its folder, where that is the developer's: its command doesn't name it.
func TestTakeOverLetsTheProjectIn(t *testing.T) {
	words := func(words ...string) (s clients.Server) {
		for _, w := range words {
			s.Command = append(s.Command, clients.Value{Text: w})
		}
		return s
	}
	const git = "@cyanheads/git-mcp-server@2.15.3"
	for name, c := range map[string]struct {
		server    clients.Server
		developer bool
		dir, want string
	}{
		"in its folder":        {words("npx", "-y", git), true, "/p", "."},
		"beside it":            {words("npx", "-y", git), true, "/gateway", "/p"},
		"for nobody":           {words("npx", "-y", git), false, "/p", ""},
		"another server":       {words("npx", "-y", "@modelcontextprotocol/server-memory"), true, "/p", ""},
		"of a project's wish":  {words("node", "node_modules/@cyanheads/git-mcp-server/dist/index.js"), true, "/p", ""},
		"that nobody has seen": {words("npx", "-y", "@nobody/git"), true, "/p", ""},
	} {
		u := TakeOver{Servers: map[string]clients.Server{"s": c.server}, Project: "/p", Developer: c.developer}.upstream(c.dir, "s", &variables{all: map[string]string{}})
		if got := strings.Join(u.Paths, " "); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
