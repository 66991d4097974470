package files

import (
	"path"
	"strings"
	"unicode/utf8"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

const (
	maxPath  = 1024 // bytes of a path, after the workspace's own folder
	maxName  = 255  // bytes of one name
	maxDepth = 32   // folders inside one another
)

// place is the file or folder of an agent's path: rel inside the workspace, or inside the cache.
type place struct {
	rel    string // "." for the folder itself
	cache  bool
	shown  string // as the agent would write it
	folder bool   // it ends in a slash, or in . or .., so it names a folder
}

// place decides by the path's text alone, and reads no file system.
func (w *Workspace) place(name string) (place, error) { return resolve(w.dir, name) }

// resolve turns an agent's path into a place. "." and ".." are resolved by text. A path that begins with the workspace's own folder
// is relative to it; other absolute paths leave it. dir is absolute and clean.
func resolve(dir, name string) (place, error) {
	if name == dir {
		name = "."
	} else if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
		name = "./" + rest
	}
	if name == "" {
		return place{}, fault.New(fault.RequestMalformed, "the path is empty").At("path").Try(`"." is the workspace itself.`)
	}
	if len(name) > maxPath {
		return place{}, refusedName("is longer than %d bytes", maxPath)
	}
	if name[0] == '/' {
		return place{}, outside(nil)
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return place{}, outside(nil)
			}
		default:
			depth++
			if problem := nameProblem(part); problem != "" {
				return place{}, refusedName("%s", problem)
			}
		}
	}
	if depth > maxDepth {
		return place{}, refusedName("is more than %d folders deep", maxDepth)
	}
	p := place{shown: path.Clean(name)}
	last := name[strings.LastIndexByte(name, '/')+1:]
	p.folder = last == "" || last == "." || last == ".."
	p.rel = p.shown
	if p.rel == cacheDir {
		p.rel, p.cache = ".", true
	} else if rest, ok := strings.CutPrefix(p.rel, cacheDir+"/"); ok {
		p.rel, p.cache = rest, true
	}
	return p, nil
}

// nameProblem says why a name is refused, or "". Names are kept to what every system, terminal and shell takes for one plain name,
// because programs and people meet them too; nothing is normalised.
func nameProblem(name string) string {
	switch {
	case len(name) > maxName:
		return "has a name that is too long"
	case display.Line(name, len(name)) != name:
		return "has a name with characters that are invisible, not printable or not UTF-8"
	case strings.ContainsAny(name, "\\:*?\"<>|`"), strings.Contains(name, "$("):
		return "has a name with one of \\ : * ? \" < > | ` $( in it"
	case strings.ContainsAny(name, "\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c"):
		return "has a name with a character that looks like a slash"
	case strings.Trim(name, ".\u2024\u2025\u2026\ufe52\uff0e\uff61") == "":
		return "has a name that looks like dots"
	case name[0] == '~', name[0] == '-':
		return "has a name that begins with ~ or -"
	case name[0] == ' ', strings.HasSuffix(name, " "), strings.HasSuffix(name, "."):
		return "has a name that begins with a space or ends in a space or a dot"
	case encoded(name):
		return "has a name with a percent-encoded dot, slash, percent or control character"
	case strings.HasPrefix(strings.ToLower(name), tempPrefix):
		return "has a name that is reserved"
	case device(name):
		return "has a name that is a device on some systems"
	}
	return ""
}

// encoded tells whether name would be another path once decoded, however often.
func encoded(name string) bool {
	for {
		i := strings.IndexByte(name, '%')
		if i < 0 || i+2 >= len(name) {
			return false
		}
		hi, lo := unhex(name[i+1]), unhex(name[i+2])
		if hi >= 0 && lo >= 0 {
			switch c := byte(hi<<4 | lo); {
			case c < ' ', c == 0x7f, c == '.', c == '/', c == '\\', c == '%', c == ':':
				return true
			}
		}
		name = name[i+1:]
	}
}

func unhex(c byte) int { return strings.IndexByte("0123456789abcdef", c|0x20) }

// device tells whether name is a Windows device, whatever its extension.
func device(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	switch base = strings.ToUpper(strings.TrimRight(base, " ")); base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	if port, ok := strings.CutPrefix(base, "COM"); ok || strings.HasPrefix(base, "LPT") {
		if !ok {
			port = base[len("LPT"):]
		}
		return utf8.RuneCountInString(port) == 1 && strings.ContainsAny(port, "0123456789¹²³")
	}
	return false
}

// outside is the one refusal of everything that leaves the workspace, there or not.
func outside(cause error) error {
	return fault.Wrap(cause, fault.PathBlocked, "The path leaves the session's workspace.").At("path").
		Try("Use a path relative to the workspace, such as notes/plan.md.")
}

func refusedName(format string, args ...any) error {
	return fault.New(fault.PathBlocked, "The path "+format+".", args...).At("path").Try("Use plain names of letters, digits, -, _ and dots.")
}
