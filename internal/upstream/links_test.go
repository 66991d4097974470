package upstream

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/sandbox"
)

// What a command names is followed by the operator's links, and by none that a server may have made.
func TestReachFollowsTheOperatorsLinksAlone(t *testing.T) {
	root := tree(t, "data/signing.key", "data/servers/mem/", "disk/docs/a.txt", "home/.ssh/id", "conf/mem/", "conf/work/sub/", "app/package.json", "app/index.js", "venv/bin/python")
	at := func(name string) string { return filepath.Join(root, name) }
	for from, to := range map[string]string{
		"conf/docs": at("disk/docs"), "conf/up": "../disk/docs", "conf/round": "round", "home/docs": "../conf/docs", // the operator's
		"conf/mem/notes.json": at("data/signing.key"), "conf/work/sub/id": at("home/.ssh/id"), "conf/work/ssh": "../../home/.ssh", // a server's
		"data/servers/mem/notes.json": at("home/.ssh/id"), "conf/work/run": at("home/.ssh/id"), "conf/work/x.js": at("home/.ssh/id"), "app/python": at("venv/bin/python"),
	} {
		if err := os.Symlink(to, at(from)); err != nil {
			t.Fatal(err)
		}
	}
	h := GatewayPaths{Home: at("home"), Secrets: []string{at("data")}}
	writer := Config{ID: "writer", Command: []string{"/usr/bin/env", at("conf/work")}, Dir: at("conf"), Confine: Confinement{Sandbox: Partial}}
	for name, c := range map[string]struct {
		command     []string
		env         string
		paths       []string
		write, read []string
		theirs      bool
	}{
		"a folder behind a link":             {command: []string{"env", "docs"}, write: []string{"disk/docs"}},
		"a relative link":                    {command: []string{"env", "./up"}, write: []string{"disk/docs"}},
		"two links":                          {command: []string{"env", at("home/docs")}, write: []string{"disk/docs"}},
		"a link to itself":                   {command: []string{"env", "./round"}, paths: []string{at("conf/round")}},
		"a file that it was to make":         {command: []string{"env"}, env: at("conf/mem/notes.json"), write: []string{"conf/mem"}},
		"the same under paths":               {command: []string{"env"}, paths: []string{at("conf/mem"), at("conf/mem/notes.json")}, write: []string{"conf/mem"}, theirs: true},
		"a file in its folder":               {command: []string{"env"}, env: at("data/servers/mem/notes.json"), write: []string{"data/servers/mem"}},
		"a file in another's folder":         {command: []string{"env"}, paths: []string{at("conf/work/sub/id")}, theirs: true},
		"below a link in another's folder":   {command: []string{"env"}, paths: []string{at("conf/work/ssh/id")}, theirs: true},
		"a program in another's folder":      {command: []string{at("conf/work/run")}, theirs: true},
		"a script in another's folder":       {command: []string{"env", at("conf/work/x.js")}, read: []string{"conf/work"}, theirs: true},
		"a program in a project that is run": {command: []string{at("app/python"), at("app/index.js")}, read: []string{"app", "venv/bin/python"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "/usr/bin:/bin")
			cfg := Config{ID: "mem", Command: c.command, Dir: at("conf"), Confine: Confinement{Sandbox: Partial, Paths: c.paths, Folder: at("data/servers/mem")}}
			if c.env != "" {
				cfg.Env = map[string]string{"FILE": c.env}
			}
			program := c.command[0]
			if program == "env" {
				program = "/usr/bin/env"
			}
			r := reachOf(cfg, program, h, writer)
			below := func(list []string) (all []string) {
				for _, p := range list {
					all = append(all, strings.TrimPrefix(p, root+"/"))
				}
				return all
			}
			if got := below(r.write); !slices.Equal(got, c.write) {
				t.Errorf("writes %v, want %v", got, c.write)
			}
			if got := below(r.read); !slices.Equal(got, c.read) {
				t.Errorf("reads %v, want %v", got, c.read)
			}
			if left := strings.Join(r.omitted, "\n"); strings.Contains(left, errPlanted.Error()) != c.theirs {
				t.Errorf("leaves %q", left)
			}
			for from, to := range maps.All(r.links) {
				if real, err := filepath.EvalSymlinks(from); err != nil || real != to {
					t.Errorf("%s leads to %s, and not to %s", from, real, to)
				}
			}
		})
	}
}

// A server that puts links where its own command looks next time gets nothing by them.
func TestPlantedLinkLeadsNowhere(t *testing.T) {
	if tier, missing := sandbox.Servers(); tier == sandbox.None {
		cannot(t, strings.Join(missing, " "))
	}
	root := tree(t, "data/servers/", "conf/mem/", "home/.ssh/id")
	if err := os.WriteFile(root+"/data/signing.key", []byte("the key"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{ID: "mem", Dir: root + "/conf", Env: map[string]string{"FILE": root + "/conf/mem/notes.json", "STATE": root + "/data/servers/mem/state.json"},
		Confine: Confinement{Sandbox: Partial, Folder: root + "/data/servers/mem"},
		Command: []string{"/bin/sh", "-c", `cat $FILE $STATE; rm -f $FILE $STATE; ln -s ` + root + `/data/signing.key $FILE; ln -s ` + root + `/home/.ssh/id $STATE; cat $FILE $STATE; echo x > $FILE`}}
	m, err := New([]Config{cfg}, Options{Gateway: GatewayPaths{Secrets: []string{root + "/data"}, Home: root + "/home"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 2 {
		box, _, err := m.servers["mem"].sandboxed(launch{program: "/bin/sh", argv: cfg.Command}, []string{"PATH=/usr/bin:/bin", "FILE=" + cfg.Env["FILE"], "STATE=" + cfg.Env["STATE"]})
		if err != nil {
			t.Fatal(err)
		}
		p, err := box.Command()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p.Cmd.Stdout = &out
		if err := p.Cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Started(time.Minute); err != nil {
			t.Fatal(err)
		}
		p.Wait()
		p.Close()
		if out.Len() > 0 {
			t.Errorf("it read %q", &out)
		}
	}
	if key, err := os.ReadFile(root + "/data/signing.key"); err != nil || string(key) != "the key" {
		t.Errorf("the key is now %q, %v", key, err)
	}
	if err := errors.Join(os.Remove(root+"/data/servers/mem/state.json"), os.Remove(root+"/conf/mem/notes.json")); err != nil {
		t.Error("the links were not there: ", err)
	}
}

func TestFoldersAreTheServersOwn(t *testing.T) {
	root := tree(t, "data/servers/", "home/u/x/", "conf/sallyport.yaml", "conf/agents/a.yaml", "conf/work/", "free/", "b/")
	for from, to := range map[string]string{"conf/link": root + "/data", "conf/here": root + "/conf", "free/b": root + "/b"} {
		if err := os.Symlink(to, filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	h := GatewayPaths{Home: root + "/home/u", Secrets: []string{root + "/data", root + "/conf/sallyport.yaml", root + "/conf/agents"}}
	for folder, want := range map[string]string{
		"data/servers/a": "", "free/a": "", "free/new/a": "", "home/u/x": "", "conf/own": "",
		"data": "holds what is the gateway's own", "conf": "holds what is the gateway's own", ".": "holds what is the gateway's own", "conf/here": "holds what is the gateway's own",
		"conf/agents/a": "lies in what is the gateway's own", "data/servers": "lies in what is the gateway's own", "data/packages/x": "lies in what is the gateway's own",
		"conf/link/packages": "lies in what is the gateway's own", "home/u": "more than what belongs", "home": "more than what belongs", "/usr/lib/x": "of the system's", "/var/tmp": "more than what belongs",
		"b/inner": "of the server b", "free/b": "of the server b", "conf/work/a": "the server w writes",
	} {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(root, folder)
		}
		err := CheckFolders([]Config{
			{ID: "a", Command: []string{"/bin/sh"}, Dir: root + "/conf", Confine: Confinement{Sandbox: Partial, Folder: folder}},
			{ID: "b", Command: []string{"/bin/sh"}, Dir: root + "/conf", Confine: Confinement{Sandbox: Partial, Folder: root + "/b"}},
			{ID: "w", Command: []string{"/bin/sh", "work", root + "/home/u/x/new"}, Dir: root + "/conf", Confine: Confinement{Sandbox: Partial, Folder: root + "/data/servers/w"}},
		}, h)
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", folder, err, want)
		}
	}
}

// What runs with the gateway's rights is written by no server, and of what others run the operator is told.
func TestProgramsOfOthers(t *testing.T) {
	root := tree(t, "work/free/package.json", "work/free/index.js", "work/held/run.py", "work/bin/server")
	at := func(name string) string { return filepath.Join(root, name) }
	cfg := Config{ID: "files", Command: []string{"/usr/bin/env", at("work")}, Dir: root, Confine: Confinement{Sandbox: Partial}}
	r := reachOf(cfg, "/usr/bin/env", GatewayPaths{}, cfg,
		Config{ID: "free", Command: []string{"/usr/bin/env", at("work/free/index.js")}, Dir: root, Confine: Confinement{Sandbox: Unconfined}},
		Config{ID: "bare", Command: []string{at("work/bin/server")}, Dir: root, Confine: Confinement{Sandbox: Unconfined}},
		Config{ID: "held", Command: []string{"/usr/bin/env", at("work/held/run.py")}, Dir: root, Confine: Confinement{Sandbox: Partial}})
	if want := []string{at("work/free"), at("work/free/index.js"), at("work/bin/server")}; !slices.Equal(r.secrets, want) {
		t.Errorf("%v, want %v", r.secrets, want)
	}
	if left := strings.Join(r.omitted, "\n"); !strings.Contains(left, "the server held runs it") || !strings.Contains(left, "run by the server bare") {
		t.Errorf("%q", left)
	}
	// What an environment names as code is read, and so is a program among the arguments.
	cfg = Config{ID: "x", Command: []string{"/usr/bin/env", at("work/bin/server")}, Env: map[string]string{"PATH": at("work/bin") + ":/usr/bin", "PYTHONPATH": at("work/held")}, Confine: Confinement{Sandbox: Partial}}
	if r := reachOf(cfg, "/usr/bin/env", GatewayPaths{}); len(r.write) > 0 || !slices.Equal(r.read, []string{at("work/bin"), at("work/held")}) {
		t.Errorf("writes %v, reads %v", r.write, r.read)
	}
}
