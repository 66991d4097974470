package project

import (
	"path/filepath"
	"strings"
)

// kinds are what is run, or read as orders, later, by names in lower case. A name stands for a file or folder anywhere in the project and for all that is
// below it; one that ends in * stands for all that begin so, and one that begins with * for all that end so.
//
// What a project's own builds and programs run (Makefile, package.json, its code) is not here: that is the work itself. What was installed beside it
// (node_modules, venv) is: nobody reads a change there, since version control leaves it out.
var kinds = []struct{ is, names string }{
	{"git's own, or a hook of its", ".git *.git .gitmodules .overcommit.yml captainhook.json grumphp.yml .lintstagedrc* lint-staged.config* .simple-git-hooks* simple-git-hooks* .gitattributes .gitconfig .husky .githooks lefthook* .lefthook* .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml .trunk .hg .svn .jj .sl .bzr"},
	{"what agents read as instructions, or clients as their configuration", `claude.md claude.local.md agents.md agents.override.md gemini.md qwen.md skill.md copilot-instructions.md
.claude .claude.json .cursor .cursorrules .cursorignore .codex .gemini .vscode *.code-workspace .idea .zed .fleet .windsurf .windsurfrules .continue .continuerc.json .roo .roorules* .roomodes
.cline .clinerules .aider* .goosehints .goose .kiro .amazonq .junie .augment .opencode opencode.json opencode.jsonc .agents .agent .trae .qoder .kilocode .mcp.json mcp.json .mcp
claude_desktop_config.json .claude-plugin .rules warp.md .warp crush.md .crush .crush.json crush.json .openhands .openhands_instructions .factory .replit replit.md .ruler .rovodev .tabnine .cody .vs .nova* *.sublime-project .devcontainer devcontainer.json .devcontainer.json
agent.md .clinerules* .augment* .qwen .sourcegraph .idx .continuerules .kilocodemodes .kilocoderules* .firebender firebender.json .iflow iflow.md .codebuddy codebuddy.md .lingma .comate .codeium
.copilot .qodo .pr_agent.toml pr_agent.toml best_practices.md .coderabbit.yaml .coderabbit.yml .greptile greptile.json amazonq.md codex.md .helix .theia .void .pearai .amp .conductor conductor.json
.zencoder *.mdc *.instructions.md *.prompt.md *.chatmode.md *.agent.md *.mcpb *.dxt .mcp.yaml gemini-extension.json .ai .airules airules.md`},
	{"the gateway's own", "sallyport.yaml sallyport.env sallyport.schema.json sallyport-data"},
	{"what a shell reads or runs", `*.sh *.bash *.zsh *.fish *.ksh *.csh *.ps1 *.psm1 *.psd1 *.bat *.cmd .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
.zlogout .kshrc .cshrc .tcshrc .login .inputrc .env .env.* .envrc .direnv .tool-versions mise.toml .mise.toml mise.local.toml .mise.local.toml .mise .rtx.toml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .netrc
.curlrc .wgetrc .vimrc .exrc .nvimrc .nvim.lua .tmux.conf .gdbinit .lldbinit .dir-locals.el .dir-locals-2.el .rprofile .renviron .irbrc .pryrc .pdbrc .ghci .ocamlinit .psqlrc .sqliterc .lvimrc *.command *.desktop *.pth sitecustomize.py usercustomize.py .ssh .gnupg .aws .config .local
gradlew mvnw .mvn .gradle .cargo .yarn .pnp.* .bundle .bazelrc .venv venv node_modules __pycache__ *.pyc flake.nix shell.nix default.nix devenv.nix .devenv devbox.json .devbox .flox .iex.exs .erlang
.octaverc .pylintrc .vim .nvim .emacs .emacs.d *.elc .screenrc .bsp .solargraph.yml .autoenv* .kube .docker .terraformrc *.lnk *.vbs *.vbe *.wsf *.hta *.scr *.reg *.scpt *.applescript *.terminal *.workflow autorun.inf`},
	{"what a build server runs", `.github .gitlab .gitlab-ci* .circleci .travis.yml .buildkite .drone.yml .drone.yaml .woodpecker .woodpecker.yml .woodpecker.yaml .forgejo .gitea .teamcity .semaphore
azure-pipelines* .azure-pipelines bitbucket-pipelines.yml jenkinsfile* appveyor.yml .appveyor.yml cloudbuild.yaml cloudbuild.yml buildspec.yml buildspec.yaml .cirrus.yml codemagic.yaml bitrise.yml
wercker.yml .gitpod.yml .builds .build.yml .azuredevops netlify.toml .netlify vercel.json .vercel render.yaml .platform .platform.app.yaml .upsun amplify.yml .ebextensions appspec.yml .tekton
.zuul.yaml zuul.yaml .zuul.d .prow.yaml .evergreen.yml .taskcluster.yml .readthedocs.yaml .readthedocs.yml .onedev-buildspec.yml .harness codefresh.yml .codefresh .goreleaser* renovate.json*
.renovaterc* dependabot.yml .dagger dagger.json fly.toml railway.json railway.toml .scrutinizer.yml`},
}

// exact, endings and beginnings are kinds by how a name is compared.
var exact, endings, beginnings = func() (exact, endings, beginnings map[string]string) {
	exact, endings, beginnings = map[string]string{}, map[string]string{}, map[string]string{}
	for _, k := range kinds {
		for _, name := range strings.Fields(k.names) {
			if rest, ok := strings.CutPrefix(name, "*"); ok {
				endings[rest] = k.is
			} else if rest, ok := strings.CutSuffix(name, "*"); ok {
				beginnings[rest] = k.is
			} else {
				exact[name] = k.is
			}
		}
	}
	return exact, endings, beginnings
}()

// ActsLater says what a file or folder anywhere is, if by its name it is run or read as orders later; "" if it isn't.
func ActsLater(path string) string { return actsLater(filepath.Clean(path)) }

// actsLater says what a path of the project is, if that is run or read as orders later; "" if it isn't.
func actsLater(path string) string {
	steps := strings.Split(filepath.ToSlash(path), "/")
	if fold(steps[len(steps)-1]) == "head" { // with it git takes a folder for a repository, whose configuration it runs, whatever its name
		return "what makes a folder a repository of git's"
	}
	for i, step := range steps {
		name := fold(step)
		if is := exact[name]; is != "" {
			return is
		}
		for ending, is := range endings {
			if strings.HasSuffix(name, ending) {
				return is
			}
		}
		for beginning, is := range beginnings {
			if strings.HasPrefix(name, beginning) {
				return is
			}
		}
		if i > 0 && name != "" && fold(steps[i-1]) == "hooks" && hooks[name] {
			return "a hook"
		}
	}
	return ""
}

// hooks are the names of git's hooks, which lie in a folder of the name hooks that the repository's configuration names.
var hooks = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(`applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit pre-rebase post-checkout
post-merge pre-push pre-receive update proc-receive post-receive post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman
p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change`) {
		all[name] = true
	}
	return all
}()
