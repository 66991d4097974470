package npm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @scope/server@1.2.3 docs":    "@scope/server 1.2.3 [docs]",
		"npx server":                         "server  []",
		"npx --yes -q server@latest -y":      "server latest [-y]",
		"/usr/bin/npx -y server@^1.0 a b":    "server ^1.0 [a b]",
		"npx":                                "",
		"npx -y":                             "",
		"npx -p server run":                  "",
		"npx -c echo":                        "",
		"npx ./local":                        "",
		"npx ../x":                           "",
		"npx git+https://example.com/x.git":  "",
		"npx user/repository":                "",
		"npx https://example.com/x.tgz":      "",
		"npx server@file:../x":               "",
		"npx server@npm:other@1.0.0":         "",
		"npx server@1.0.0/../../x":           "",
		"npx @scope/../x":                    "",
		"npx SERVER":                         "",
		"node server":                        "",
		"npm exec server":                    "server  []",
		"npm exec --yes server@1.0.0 -- -a":  "server 1.0.0 [-a]",
		"npm x -y -- server -a -- b":         "server  [-a -- b]",
		"npm exec server -a":                 "",
		"npm exec server docs":               "",
		"npm exec -c echo":                   "",
		"npm exec":                           "",
		"npm install server":                 "",
		"npx --registry=https://x/ server@1": "",
	} {
		p, ok := Of(strings.Fields(command))
		got := fmt.Sprintf("%s %s %v", p.Name, p.Version, p.Args)
		if !ok {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
		if ok {
			if f := p.Folder("/d"); filepath.Dir(f) != "/d" {
				t.Errorf("%s is kept at %s", command, f)
			}
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("npx -y @scope/server@1.2.3 docs")
	f.Add("npx -y ../../x")
	f.Fuzz(func(t *testing.T, line string) {
		p, ok := Of(strings.Split(line, " "))
		if ok && (filepath.Dir(p.Folder("/d")) != "/d" || strings.HasPrefix(p.Spec(), "-")) {
			t.Errorf("%q is kept at %s", line, p.Folder("/d"))
		}
	})
}
