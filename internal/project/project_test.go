package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gitConfig names files in every way that git has.
const gitConfig = `[core]
	bare = false
	hooksPath = tools/git # ours
	hooksPath = "tools/later"
	fsmonitor = ./bin/watch --all
	sshCommand = ssh -F conf/ssh
[include]
	path = ../team.inc ; of .git
[filter "x"] clean = bin/clean %f
[alias]
	st = !bin/st.pl
[remote "origin"]
	url = https://example.com/acme/site
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
	merge = refs/heads/main
	remote = .
`

// world is a project with links in it, beside other things of the person's.
func world(t *testing.T) (dir string, p *Project) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"project/.git/hooks", "project/src/deep", "project/gw/agents", "home/.ssh", "projectile"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "project/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "project/.git/config"), []byte(gitConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"project/.cursor": "editor",
		"project/out":     "../home", "project/innocent": ".git/hooks", "project/hook": ".git/hooks/pre-commit", "project/loop": "loop", "project/near": "src/deep",
		"project/far": filepath.Join(dir, "home/.ssh/authorized_keys"), "alias": "project", "project/CLAUDE.md": "src/notes.md", "project/chain": "innocent",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	p, err = New(filepath.Join(dir, "alias"), []string{filepath.Join(dir, "project/gw/agents"), filepath.Join(dir, "project/gw/main.yaml")}, []string{filepath.Join(dir, "alias/mcp/server.js")})
	if err != nil {
		t.Fatal(err)
	}
	return dir, p
}

// Ordinary work in the project stays with the person, however it is spelt.
func TestStays(t *testing.T) {
	dir, p := world(t)
	for _, path := range []string{
		"", ".", "notes.md", "bin/other", "origin", "false", "refs/heads", "conf/x", "./src/main.go", "src/../src/x", "src//x", "tools/x", "editorial/x", "src/notes.mdx", "tools/github", "near/x.txt", "near/../y", "new/folder/file", "Makefile", "package.json", ".gitignore", ".github.md", "a b.txt", "é/ü.md", "[id].tsx",
		"hooks/useState.ts", "src/pre-commit", "src/Head/index.tsx", "head.html", "environment", "x.env.md", "shell", "claude.mdx", dir + "/project/notes.md", dir + "/alias/notes.md", "gw/other", "project", "mcp/other.js", "src/venv.md", "instructions.md", "~x/y"[1:], "update/hooks.md", "中.txt",
	} {
		if why := p.Beyond(dir+"/project", path); why != "" {
			t.Errorf("%q %s", path, why)
		}
	}
	if why := p.Beyond(dir+"/project/src", "../notes.md"); why != "" {
		t.Errorf("from a folder: %s", why)
	}
}

// What is outside, run or read as orders later, or unclear does not, in any spelling.
func TestBeyond(t *testing.T) {
	dir, p := world(t)
	for _, path := range []string{
		// outside
		"..", "../x", "/etc/passwd", dir, dir + "/projectile/x", "src/../../x", "out/x", "out", "far", "near/../../../home/x", "./a/../../b", dir + "/project/../home/x", "/proc/self/cwd/x", "loop", "loop/x", "file/x",
		// git, in spellings
		"HEAD", "src/x/HEAD", "src/x/head", ".git", ".git/hooks/pre-commit", "./a/../.git/hooks/x", "src/../.git/config", ".GIT/hooks/x", ".Git/Hooks/PRE-COMMIT", ".git./hooks/x", ".git /hooks/x", ".git. . /x", ".git//hooks/x", "sub/.git/config", ".git/", "bare.git/hooks/x",
		"innocent/x", "hook", "chain/x", "near/../../.git/config", ".gitmodules", ".gitattributes", ".husky/pre-commit", "tools/hooks/pre-commit", "tools/Hooks/Post-Merge", ".pre-commit-config.yaml", "lefthook.yml",
		"\uff0egit/config", ".ｇｉｔ/config", ".g\u200bit/config", ".git\u200d/config", "．git/hooks/x", "\u2024git/config", ".git::$INDEX_ALLOCATION/x", ".git:stream", "GIT~1/hooks/x", "git~1", ".g\u0131t/../.git/x",
		`.git\hooks\x`, "..\\x", "%2e%2e/x", ".%67it/hooks", "a%2f..%2f..", "a\x00b", "a\nb", "\u202egit", "file:///etc/passwd", "C:\\x", "~/x", "~root/x", "$HOME/x", "`id`", "a|b", "<x>", "a*", "a?",
		"\uff0e\uff0e/x", "a\uff0f..\uff0f..\uff0fx", strings.Repeat("a/", 3000),
		// agents and clients
		"src/notes.md", "near/../notes.md", "editor/rules/x", "editor", "tools/git/x", "tools/git", "Tools/../tools/git/y", "TOOLS/Git/x", "tools/later/pre-commit", "bin/watch", "bin/clean", "bin/st.pl", "team.inc", "conf/ssh", "bin", "Team.INC", "GW/Agents/dev.yaml", "Src/NOTES.md", "tools",
		"CLAUDE.md", "claude.md", "src/CLAUDE.md", "Claude.MD", "CLAUDE.md.", "AGENTS.md", "agents.override.md", "GEMINI.md", ".cursorrules", ".cursor/rules/x.mdc", ".claude/settings.json", ".codex/config.toml", ".mcp.json",
		".vscode/tasks.json", ".github/copilot-instructions.md", ".devcontainer/devcontainer.json", "SKILL.md", "x.code-workspace", ".windsurf/x", ".aider.conf.yml",
		"AGENT.md", ".clinerules-code/x.md", ".augment-guidelines", ".qwen/settings.json", ".sourcegraph/x.rule.md", ".idx/airules.md", "src/x.instructions.md", "x.mdc", "AmazonQ.md", ".pr_agent.toml",
		// installed beside the project, where nobody looks
		"node_modules/x/index.js", "venv/bin/activate", ".venv/lib/x.py", ".yarn/releases/y.cjs", ".cargo/config.toml", "gradlew", "sub/mvnw", "flake.nix", ".bsp/x.json", "src/__pycache__/x.pyc", "netlify.toml", ".readthedocs.yaml",
		// what a server of the gateway's runs
		"mcp/server.js", "MCP/Server.js", "./mcp/../mcp/server.js", "mcp",
		// ours
		"sallyport.yaml", "sallyport.env", "Sallyport.YAML", "sallyport-data/x", "gw/agents", "gw/agents/dev.yaml", "gw/main.yaml", "gw",
		// shells and build servers
		"x.sh", "bin/Deploy.SH", ".bashrc", ".envrc", ".env", ".env.local", ".npmrc", ".zshrc", "run.ps1", ".github/workflows/ci.yml", ".GitHub/workflows/x", ".gitlab-ci.yml", "Jenkinsfile", "jenkinsfile.prod", ".circleci/config.yml", "azure-pipelines.yml",
	} {
		if why := p.Beyond(dir+"/project", path); why == "" {
			t.Errorf("%q stays", path)
		}
	}
	if p.Beyond("", "notes.md") == "" || p.Beyond("", dir+"/project/notes.md") == "" {
		t.Error("a file of a server that runs elsewhere stays")
	}
	if p.Beyond(dir, "notes.md") == "" {
		t.Error("a file outside of the project, by where its server starts, stays")
	}
	for _, folder := range []string{filepath.Join(dir, "nowhere"), filepath.Join(dir, "project/file")} {
		if _, err := New(folder, nil, nil); err == nil {
			t.Errorf("%s is a project", folder)
		}
	}
}

// The configuration of a repository is found from a folder in it, and from a worktree.
func TestConfigurationOfTheRepository(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"repo/.git/config": "[core]\n\thooksPath = app/ours\n", "repo/.git/worktrees/w/commondir": "../..\n", "repo/app/x": "", "tree/.git": "gitdir: ../repo/.git/worktrees/w\n", "tree/app/x": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for folder, path := range map[string]string{"repo": "app/ours/pre-push", "repo/app": "ours/pre-push", "tree": "app/ours/pre-push", "tree/app": "ours/x"} {
		folder = filepath.Join(dir, folder)
		p, err := New(folder, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p.Beyond(folder, path) == "" || p.Beyond(folder, "notes.md") != "" {
			t.Errorf("%s: %s stays, or notes.md doesn't", folder, path)
		}
	}
}

// Every name in the table is found, alone, below a folder, as a folder, and in capitals.
func TestEveryName(t *testing.T) {
	dir, p := world(t)
	for _, k := range kinds {
		for _, name := range strings.Fields(k.names) {
			if name != strings.ToLower(name) {
				t.Errorf("%s is not in lower case", name)
			}
			name = strings.ReplaceAll(name, "*", "x")
			for _, path := range []string{name, "a/" + name, name + "/a", strings.ToUpper(name)} {
				if p.Beyond(dir+"/project", path) == "" {
					t.Errorf("%s stays", path)
				}
			}
		}
	}
	for name := range hooks {
		if p.Beyond(dir+"/project", "x/hooks/"+name) == "" {
			t.Errorf("the hook %s stays", name)
		}
	}
}

// What stays is inside, after the system has walked it.
func FuzzBeyond(f *testing.F) {
	for _, s := range []string{"a", "../a", "out/../a", "near/../.git/x", ".GIT", "innocent/./x", "/etc"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		dir, p := world(t)
		if strings.ContainsRune(path, 0) || path == "" || p.Beyond(dir+"/project", path) != "" {
			return
		}
		root, err := os.OpenRoot(dir + "/project") // which refuses what leads out of it, so that a failure here writes nowhere else
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		inside := strings.TrimPrefix(strings.TrimPrefix(path, dir+"/project"), "/")
		if inside == "" {
			return
		}
		if file, err := root.OpenFile(inside, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			file.Close()
		} else if strings.Contains(err.Error(), "escapes") {
			t.Fatalf("%q leads out: %v", path, err)
		}
		if names, _ := os.ReadDir(dir + "/project/.git/hooks"); len(names) > 0 {
			t.Fatalf("%q wrote a hook", path)
		}
	})
}

// A commit stays with the person where it runs nothing: the repository has no hooks, and nothing says that they lie elsewhere.
func TestHooks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	t.Setenv("HOME", home)
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, repo := range []string{"plain", "sample", "hooked", "unrunnable", "husky", "included", "conditional"} {
		put("p/"+repo+"/.git/config", "[core]\n\tbare = false\n[user]\n\tname = Ann\n")
		put("p/"+repo+"/src/a.js", "")
	}
	put("p/sample/.git/hooks/pre-commit.sample", "#!/bin/sh\n")
	put("p/sample/.git/hooks/README", "")
	put("p/hooked/.git/hooks/Pre-Commit", "#!/bin/sh\n")
	put("p/unrunnable/.git/hooks/post-index-change", "") // whoever may set its mode may do so later
	put("p/husky/.git/config", "[core]\n\thooksPath = .husky/_\n")
	put("p/included/.git/config", "[ include ]\n\tpath = ../team.inc\n")
	put("p/conditional/.git/config.worktree", "[includeIf \"gitdir:~/\"]\n\tpath = x\n")
	put("p/plain/src/fake/HEAD", "ref: refs/heads/main\n")
	if err := os.Symlink("loop", filepath.Join(dir, "p/loop")); err != nil {
		t.Fatal(err)
	}
	p, err := New(filepath.Join(dir, "p"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, runs := range map[string]bool{
		"plain": false, "plain/src": false, "plain/src/a.js": false, "sample": false, "sample/../plain": false, dir + "/p/plain": false,
		"hooked": true, "hooked/src": true, "unrunnable": true, "husky": true, "husky/src/a.js": true, "included": true, "conditional": true,
		"plain/src/fake": true, "plain/src/fake/x": true, "loop": true, "": true, "$HOME": true,
	} {
		if why := p.Hooks(filepath.Join(dir, "p"), path); (why != "") != runs {
			t.Errorf("%q: %q", path, why)
		}
	}
	if p.Hooks("", "plain") == "" {
		t.Error("a server that runs elsewhere commits where nothing runs")
	}
	put("home/.config/git/config", "[core]\n\tHooksPath=/opt/hooks\n")
	if p.Hooks(filepath.Join(dir, "p"), "plain") == "" {
		t.Error("the user's own configuration names hooks, and a commit runs nothing")
	}
}
