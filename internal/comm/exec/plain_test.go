package exec

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Plain programs are those that the operator lists, with options of which each is known to read nothing else.
func TestPlain(t *testing.T) {
	byDefault, none, own := &Runner{plain: DefaultPlain}, &Runner{plain: []string{}}, &Runner{plain: []string{"sh", "jq"}}
	for argv, want := range map[string]bool{
		"cat a": true, "cat -An a b": true, "cat --number a": true, "cat - a": true, "cat -- a": true, "cat --numb a": false, "cat -Q a": false, "/usr/bin/cat a": false, "sh run.sh": false,
		"grep x a": true, "grep -n -i x a": true, "grep -nie x a": true, "grep -e x -e y a": true, "grep -ex a": true, "grep -5 x a": true, "grep -A3 x a": true, "grep --color=never x a": true,
		"grep -r x .": false, "grep -R x": false, "grep -nr x": false, "grep -rf patterns": false, "grep -nf patterns a": false, "grep -f patterns a": false, "grep -fpatterns a": false,
		"grep --file=patterns a": false, "grep --file patterns a": false, "grep --fil=patterns a": false, "grep --recursive x": false, "grep --dereference-recursive x": false,
		"grep -d recurse x": false, "grep --directories=recurse x": false, "grep --exclude-from=l x a": false, "grep --include=*.c x": false, "grep -e -- -f patterns": false, "grep x -- -r": false,
		"grep -X x a": false, "grep x a -f patterns": false,
		"head -n 5 a": true, "head -n5 a": true, "head -5 a": true, "head -qc 5 a b": true, "head --lines=5 a": true, "head --files0-from=l": false, "head --li=5 a": false,
		"tail -n 5 a": true, "tail -n +5 a": true, "tail -f a": false, "tail -F a": false, "tail --follow a": false, "tail --retry a": false, "tail -nf a": true, "tail -qf a": false, "tail --pid=1 a": false,
		"wc -l a": true, "wc --words a": true, "wc --files0-from=l": false, "wc --files0-from l": false, "wc --files0 l": false, "wc --files0-from=-": false,
		"sort -n a": true, "sort -t, -k2,3 a": true, "sort --check a": true, "sort --key=2 a": true, "sort -o b a": false, "sort -T d a": false, "sort --output=b a": false,
		"sort --compress-program=./run.sh a": false, "sort --compress-program ./run.sh a": false, "sort --comp=./run.sh a": false, "sort --c=./run.sh": false,
		"sort --random-source=a b": false, "sort --files0-from=l": false, "sort --files0-from=-": false, "sort --temporary-directory=d a": false, "sort -S 5 a": false,
	} {
		if got := byDefault.Plain(strings.Fields(argv)); got != want {
			t.Errorf("%s: %t", argv, got)
		}
	}
	if byDefault.Plain(nil) || none.Plain([]string{"cat", "a"}) {
		t.Error("what nobody listed is plain")
	}
	for argv, want := range map[string]bool{"sh run.sh": true, "jq . a": true, "jq -f filter a": false, "jq --slurp . a": false, "jq . - -- a": true, "cat a": false} {
		if got := own.Plain(strings.Fields(argv)); got != want {
			t.Errorf("an operator's own, %s: %t", argv, got)
		}
	}
}

// Each option that the programs of this machine say they have is in the table, or is named here as one that reads another file, runs a program,
// follows a file, writes one, or is not worth a line.
func TestEveryOptionIsKnown(t *testing.T) {
	refused := map[string]string{
		"grep": "file recursive dereference-recursive directories devices include exclude exclude-from exclude-dir binary unix-byte-offsets",
		"head": "", "cat": "", "wc": "files0-from debug",
		"tail": "follow retry max-unchanged-stats pid sleep-interval debug",
		"sort": "compress-program files0-from output random-source temporary-directory batch-size buffer-size",
	}
	long := regexp.MustCompile(`(?m)(?:^|[ ,\[|])--([a-z][a-z0-9-]+)`)
	for _, name := range DefaultPlain {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		cmd := exec.Command(path, "--help")
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		help, err := cmd.CombinedOutput()
		if err != nil { // it has no such option
			continue
		}
		for _, m := range long.FindAllStringSubmatch(string(help), -1) {
			if !slices.Contains(options[name].long, m[1]) && !slices.Contains(strings.Fields(refused[name]), m[1]) {
				t.Errorf("%s --%s: does it read a file?", name, m[1])
			}
		}
	}
}
