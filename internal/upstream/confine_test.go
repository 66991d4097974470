package upstream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/npm"
	"sallyport.example/internal/sandbox"
)

// tree makes files, and folders where a name ends in a slash, and returns where.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(root, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir != path {
			text, mode := "text\n", os.FileMode(0o644)
			if base := filepath.Base(dir); base == "bin" || base == ".bin" || filepath.Base(path) == "server" {
				text, mode = "#!/bin/sh\n", 0o755
			}
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestReach(t *testing.T) {
	root := tree(t, "home/u/.ssh/id", "home/u/.nvm/versions/node/v20/bin/node", "home/u/.nvm/versions/node/v20/lib/", "home/u/.volta/", "home/u/.local/bin/uvx", "home/u/.local/share/keyrings/login",
		"home/u/app/package.json", "home/u/app/build/index.js", "home/u/app/secret", "home/u/venv/bin/server", "home/u/venv/pyvenv.cfg", "home/u/.aws/credentials",
		"conf/docs/a.txt", "conf/notes/x.db", "conf/sallyport.yaml", "conf/data/signing.key", "data/mem/", "plain/server", "mods/node_modules/.bin/tool", "mods/node_modules/dep/x.js")
	at := func(name string) string { return filepath.Join(root, name) }
	home, conf := at("home/u"), at("conf")
	t.Setenv("PATH", "/usr/bin:/bin:"+at("home/u/.nvm/versions/node/v20/bin"))
	h := GatewayPaths{Home: home, Secrets: []string{at("conf/data"), at("conf/sallyport.yaml")}}
	for name, c := range map[string]struct {
		command     []string
		env         map[string]string
		paths       []string
		sandbox     Sandbox
		read, write []string // beside what PATH and the home's toolchains give
		left        string
	}{
		"a folder by a bare name":       {command: []string{"/usr/bin/env", "docs"}, write: []string{at("conf/docs")}},
		"a folder by a relative path":   {command: []string{"/usr/bin/env", "./docs/"}, write: []string{at("conf/docs")}},
		"a file by a flag":              {command: []string{"/usr/bin/env", "--file=docs/a.txt"}, write: []string{at("conf/docs/a.txt")}},
		"a list":                        {command: []string{"/usr/bin/env"}, env: map[string]string{"DIRS": at("data/mem") + ":" + at("plain")}, write: []string{at("data/mem"), at("plain")}},
		"a file address":                {command: []string{"/usr/bin/env", "file://" + at("data/mem")}, write: []string{at("data/mem")}},
		"the home by its short name":    {command: []string{"/usr/bin/env", "~/.aws/credentials"}, write: []string{at("home/u/.aws/credentials")}},
		"a file that is to be made":     {command: []string{"/usr/bin/env"}, env: map[string]string{"MEMORY": at("data/mem/new.jsonl")}, write: []string{at("data/mem")}},
		"a database with its journal":   {command: []string{"/usr/bin/env", "notes/x.db"}, write: []string{at("conf/notes")}},
		"a new file in a broad folder":  {command: []string{"/usr/bin/env", at("home/u/new.db")}, left: "its folder holds more"},
		"the root":                      {command: []string{"/usr/bin/env", "/"}, left: "the root is never let in"},
		"the data directory":            {command: []string{"/usr/bin/env", "data"}, write: []string{at("conf/data")}, left: "is the gateway's own"},
		"the configuration's folder":    {command: []string{"/usr/bin/env", "."}, write: []string{at("conf")}, left: "holds what is the gateway's own"},
		"no paths":                      {command: []string{"/usr/bin/env", "--", "-v", "https://example.com/docs", "word", ""}},
		"a script and its project":      {command: []string{"/usr/bin/env", at("home/u/app/build/index.js")}, read: []string{at("home/u/app")}},
		"a script without a project":    {command: []string{"/usr/bin/env", at("mods/node_modules/dep/x.js")}, read: []string{at("mods/node_modules")}},
		"a program of an environment":   {command: []string{at("home/u/venv/bin/server")}, read: []string{at("home/u/venv")}},
		"a program by itself":           {command: []string{at("plain/server")}, read: []string{at("plain/server")}},
		"a program among modules":       {command: []string{at("mods/node_modules/.bin/tool")}, read: []string{at("mods/node_modules")}},
		"a program in the home's bin":   {command: []string{at("home/u/.local/bin/uvx")}},
		"more paths":                    {command: []string{"/usr/bin/env"}, paths: []string{at("home/u/app")}, write: []string{at("home/u/app")}},
		"nothing that is named in full": {command: []string{"/usr/bin/env", "docs"}, sandbox: Full},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Command: c.command, Dir: conf, Env: c.env, Confine: Confinement{Sandbox: c.sandbox, Paths: c.paths, Folder: at("conf/data/servers/x")}}
			got := reachOf(cfg, c.command[0], h)
			want := append([]string{at("home/u/.nvm/versions"), at("home/u/.volta"), at("home/u/.local/bin")}, c.read...)
			slices.Sort(want)
			if !slices.Equal(got.read, want) {
				t.Errorf("reads %v, want %v", got.read, want)
			}
			if !slices.Equal(got.write, c.write) {
				t.Errorf("writes %v, want %v", got.write, c.write)
			}
			if left := strings.Join(got.omitted, "\n"); !strings.Contains(left, c.left) || c.left == "" && left != "" {
				t.Errorf("leaves %q, want %q", left, c.left)
			}
			if !slices.Contains(got.env, "VOLTA_HOME="+at("home/u/.volta")) {
				t.Errorf("environment %v", got.env)
			}
		})
	}
}

// What the operator gave a server of the home stands where the server looks for it, and a link that the server planted leads nobody out.
func TestHomeLinks(t *testing.T) {
	root := tree(t, "home/.mcp-auth/token", "home/.config/tool/key", "folder/", "elsewhere/")
	home, folder := root+"/home", root+"/folder"
	if err := os.Symlink(root+"/elsewhere", folder+"/.config"); err != nil {
		t.Fatal(err)
	}
	if err := homeLinks(folder, home, []string{home + "/.mcp-auth"}); err != nil {
		t.Fatal(err)
	}
	if err := homeLinks(folder, home, []string{home + "/.mcp-auth"}); err != nil {
		t.Error("a second start fails: ", err)
	}
	if to, err := os.Readlink(folder + "/.mcp-auth"); err != nil || to != home+"/.mcp-auth" {
		t.Errorf("%q, %v", to, err)
	}
	if err := homeLinks(folder, home, []string{home + "/.config/tool"}); err == nil {
		t.Error("a link out of the folder was followed")
	}
	if entries, _ := os.ReadDir(root + "/elsewhere"); len(entries) > 0 {
		t.Errorf("made outside of the folder: %v", entries)
	}
}

// A server in its sandbox has its folder for a home, what it was given, and nothing of the house; beside it another one.
func TestConfinedServer(t *testing.T) {
	if tier, missing := sandbox.Servers(); tier == sandbox.None {
		cannot(t, strings.Join(missing, " "))
	}
	root := tree(t, "data/signing.key", "data/servers/", "docs/a.txt")
	script := root + "/server.sh"
	answer := `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"%s","version":"0"}}}`
	text := `while read line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([^,}]*\).*/\1/p')
  seen="home=${HOME##*/},key=$(cat ` + root + `/data/signing.key >/dev/null 2>&1 && echo read || echo no),doc=$(cat ` + root + `/docs/a.txt >/dev/null 2>&1 && echo read || echo no),own=$(echo x > $HOME/f && echo wrote)"
  case "$line" in *'"initialize"'*) printf '` + fmt.Sprintf(answer, "%s", "%s") + `\n' "$id" "$seen";; *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id";; esac
done
`
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	m, _ := start(t, Config{Command: []string{"/bin/sh", script, "docs"}, Dir: root, Confine: Confinement{Sandbox: Partial, Folder: root + "/data/servers/mine"}}, func(o *Options) {
		o.Gateway = GatewayPaths{Secrets: []string{root + "/data"}}
	})
	if s := m.Status()[0]; s.Name != "home=mine,key=no,doc=read,own=wrote" || s.Sandbox != Partial {
		t.Errorf("%+v", s)
	}
}

func cannot(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SALLYPORT_TEST_ALL") == "1" {
		t.Fatalf("%s, and SALLYPORT_TEST_ALL=1 wants everything checked", what)
	}
	t.Skipf("not checked: %s", what)
}

// fakeNPM puts a program named npm before others. It makes what an installation would be.
func fakeNPM(t *testing.T, script string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

const goodPackage = `
mkdir -p node_modules/@s/srv/dist
echo '{"version":"1.2.3","bin":{"srv":"dist/i.js","other":"o.js"},"scripts":{"postinstall":"touch /tmp/owned"}}' > node_modules/@s/srv/package.json
echo '#!/bin/sh' > node_modules/@s/srv/dist/i.js
chmod +x node_modules/@s/srv/dist/i.js
echo '{"packages":{"node_modules/@s/srv":{"integrity":"sha512-abc"}}}' > package-lock.json
`

func TestPackageFetch(t *testing.T) {
	if tier, missing := sandbox.Servers(); tier == sandbox.None {
		cannot(t, strings.Join(missing, " "))
	}
	root := tree(t, "data/signing.key", "data/packages/")
	dir := root + "/data/packages"
	h := GatewayPaths{Secrets: []string{root + "/data"}, Packages: dir}
	p := npm.Package{Name: "@s/srv", Version: "1.2.3"}
	fetch := func(script string) (npm.Pin, error) {
		fakeNPM(t, script)
		return FetchPackage(t.Context(), p, h)
	}
	pin, err := fetch(`case "$*" in *--ignore-scripts*"-- @s/srv@1.2.3") ;; *) echo "asked $*"; exit 9;; esac` + "\n" + goodPackage)
	if err != nil || pin.Version != "1.2.3" || pin.Integrity != "sha512-abc" || pin.Bin != "node_modules/@s/srv/dist/i.js" {
		t.Fatalf("%+v, %v", pin, err)
	}
	if kept, err := p.Fetched(dir); err != nil || kept != pin {
		t.Errorf("%+v, %v", kept, err)
	}
	for name, c := range map[string]struct{ script, want string }{
		"npm fails":         {`echo "E404 no \033[2Jsuch"; exit 1`, "npm says: E404 no"},
		"npm reads the key": {`cat ` + root + `/data/signing.key && echo read it; exit 1`, "npm says: cat"},
		"no program":        {goodPackage + `echo '{"version":"1.2.3"}' > node_modules/@s/srv/package.json`, "it has no program"},
		"a program outside": {goodPackage + `echo '{"version":"1.2.3","bin":"../../../../../../bin/sh"}' > node_modules/@s/srv/package.json`, "can't be fetched"},
		"a link outside":    {goodPackage + `ln -sf /bin/sh node_modules/@s/srv/dist/i.js`, "can't be fetched"},
		"two programs":      {goodPackage + `echo '{"version":"1.2.3","bin":{"a":"dist/i.js","b":"dist/i.js"}}' > node_modules/@s/srv/package.json`, "several programs"},
		"no hash":           {goodPackage + `echo '{}' > package-lock.json`, "no hash"},
		"no lock":           {goodPackage + `rm package-lock.json`, "package-lock.json"},
		"a link for a pin":  {goodPackage + `ln -s ` + root + `/data/signing.key pin.json`, "its pin can't be written"},
		"a pin of its own":  {goodPackage + `echo '{"bin":"../../../../bin/sh"}' > pin.json`, "its pin can't be written"},
		"no JSON":           {goodPackage + `echo hi > node_modules/@s/srv/package.json`, "package.json can't be read"},
	} {
		_, err := fetch(c.script)
		if !fault.Is(err, fault.UpstreamFailed) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "read it") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
		if kept, err := p.Fetched(dir); err != nil || kept != pin {
			t.Errorf("%s: what was kept before is now %+v, %v", name, kept, err)
		}
	}
	if key, err := os.ReadFile(root + "/data/signing.key"); err != nil || string(key) != "text\n" {
		t.Errorf("the key is now %q, %v", key, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRehearsalNamesWhatBreaks(t *testing.T) {
	if tier, missing := sandbox.Servers(); tier == sandbox.None {
		cannot(t, strings.Join(missing, " "))
	}
	root := tree(t, "data/signing.key", "home/.tool/state")
	house := func(o *Options) { o.Gateway = GatewayPaths{Secrets: []string{root + "/data"}, Home: root + "/home"} }
	rehearse := func(c Confinement) Rehearsal {
		c.Folder = root + "/data/servers/tool"
		m, err := New([]Config{{ID: "tool", Command: []string{"/bin/sh", "-c", "cat " + root + "/home/.tool/state && exit 3"}, Confine: c}}, func() Options { var o Options; house(&o); return o }())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.Rehearse(t.Context(), sandbox.Forbidden{Processes: []int{os.Getpid()}}, true)[0]
	}
	r := rehearse(Confinement{Sandbox: Partial})
	if r.Err == nil || len(r.Reached) > 0 || r.Tried == 0 || !strings.Contains(r.Stderr, ".tool/state") {
		t.Errorf("%+v", r)
	}
	if r := rehearse(Confinement{Sandbox: Partial, Paths: []string{root + "/home/.tool"}}); !strings.Contains(fmt.Sprint(r.Err), "exit status 3") {
		t.Errorf("with the path it still misses something: %+v", r)
	}
	m, err := New([]Config{{ID: "free", Command: []string{"/bin/sh"}, Confine: Confinement{Sandbox: Unconfined}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if r := m.Rehearse(context.Background(), sandbox.Forbidden{}, true)[0]; r.Sandbox != Unconfined || r.Tried != 0 || r.Err != nil {
		t.Errorf("%+v", r)
	}
}
