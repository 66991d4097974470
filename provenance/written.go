package provenance

import "strings"

// How people write names of places and of each other, beside the values that stand in their words whole: acme/site is the repository site of
// acme, #team the channel team, and @name the person name. Each is read only as a word of its own, and vouches only for an argument that is
// called so: what an argument's name does not say, a word with a sign in front does not mean either.

// The arguments that such words are for, as bareName has their names.
var (
	ownerNames   = set("owner repoowner repositoryowner org organization organisation")
	repoNames    = set("repo repos reponame repository repositories repositoryname")
	channelNames = set("channel channels channelname room roomname")
	personNames  = set("user users username usernames person login handle assignee assignees reviewer reviewers member members mention mentions recipient recipients")
)

// places are what people say of a word with a slash in it that is no repository.
var places = set(`path paths folder folders directory directories dir file files branch branches tag tags ref package packages module modules image images endpoint
endpoints route routes label labels page pages section sections pfad ordner verzeichnis datei dateien zweig dossier fichier chemin branche carpeta archivo ruta rama`)

// calling join such a word with the name behind it.
var calling = set("called named is heißt namens appelé nommé llamado llamada")

// written are the names of this kind in a person's words, in lower case: "acme/site", "#team", "@name".
type written map[string]bool

// write notes that a word of the request is at a place of w.words, if it may be such a name. Around it nothing may stand but quotes, the end of a sentence, and
// marks that set it apart on both sides.
func (w *Words) write(head, token, tail string) {
	if strings.Trim(head, "'’") != strings.Trim(tail, ".:!?'’") || len(token) > maxValue {
		return
	}
	if isSlug(token) || len(token) > 1 && (token[0] == '#' || token[0] == '@') && isHandle(token[1:]) {
		w.signs = append(w.signs, len(w.words))
	}
}

// readSigns takes the noted words in, but for repositories that the words around them say are something else.
func (w *Words) readSigns() {
	w.written = written{}
	word := func(at int) string { // "" where a sentence begins or ends
		if at < 0 || at >= len(w.words) {
			return ""
		}
		return w.plain[at]
	}
	for _, at := range w.signs {
		token := strings.ToLower(w.words[at])
		if strings.Contains(token, "/") {
			before := word(at - 1)
			if calling[before] {
				before = word(at - 2)
			}
			if places[before] || places[word(at+1)] || telling(token) == 0 && !w.marked(w.words[at]) {
				continue
			}
		}
		w.written[token] = true
	}
	w.signs = nil
}

// isSlug reports whether a word is an owner and a repository: one slash, no host name, no file, and letters on both sides.
func isSlug(s string) bool {
	owner, repo, ok := strings.Cut(s, "/")
	if !ok || len(owner) > 39 || len(repo) > 100 || !nameOf(owner, "-") || !nameOf(repo, "-_.") || repo[0] == '.' || repo[len(repo)-1] == '.' {
		return false
	}
	for _, part := range []string{owner, repo} {
		if joining[strings.ToLower(part)] {
			return false
		}
	}
	_, ending, dotted := cutLast(repo, ".")
	return !dotted || !files[strings.ToLower(ending)] && !strings.EqualFold(ending, "git")
}

// isHandle reports whether a word can be the name of a channel or of a person: it begins with a letter, so that #12 is none.
func isHandle(s string) bool {
	return len(s) <= 80 && letterASCII(s[0]) && nameOf(s, "-_.") && s[len(s)-1] != '.'
}

// nameOf reports whether s has letters, digits and these marks alone, and a letter among them.
func nameOf(s, marks string) bool {
	letters := false
	for _, c := range []byte(s) {
		switch {
		case letterASCII(c):
			letters = true
		case c >= '0' && c <= '9' || strings.IndexByte(marks, c) >= 0:
		default:
			return false
		}
	}
	return letters
}

func letterASCII(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// asWritten reports whether the person's request has the value as people write names of its kind. Where money moves nobody is named so.
func (t *tracer) asWritten(v traced) bool {
	who := v.role == Destination || v.role == Target || v.role == Selector
	if t.s.Words == nil || !v.ok || !who && v.role != Repository || t.p.has(Amount) {
		return false
	}
	said, value, name := t.s.Words.written, strings.ToLower(v.text), lastName(v.path)
	switch {
	case ownerNames[name]:
		return nameOf(value, "-") && t.paired(v, repoNames, func(repo string) bool { return said[value+"/"+repo] }, func() bool { return said.any(value+"/", "") })
	case repoNames[name] && strings.Contains(value, "/"):
		return said[value]
	case repoNames[name]:
		for arg := range t.p.Args { // an owner that is left out may be another one
			if ownerNames[lastName(arg)] && !t.given(arg) {
				return false
			}
		}
		return nameOf(value, "-_.") && t.paired(v, ownerNames, func(owner string) bool { return said[owner+"/"+value] }, func() bool { return said.any("", "/"+value) })
	case channelNames[name]:
		return who && said["#"+strings.TrimPrefix(value, "#")]
	case personNames[name]:
		return who && said["@"+strings.TrimPrefix(value, "@")]
	}
	return false
}

// any reports whether a repository among them begins or ends so.
func (said written) any(begin, end string) bool {
	for s := range said {
		if strings.Contains(s, "/") && strings.HasPrefix(s, begin) && strings.HasSuffix(s, end) {
			return true
		}
	}
	return false
}

// paired reports whether what the call has beside the value, under one of the names, fits each time; alone where it has nothing there.
func (t *tracer) paired(v traced, names map[string]bool, fits func(other string) bool, alone func() bool) bool {
	at := v.path[:strings.LastIndexByte(v.path, '.')+1]
	found := false
	for _, o := range t.values {
		if strings.HasPrefix(o.path, at) && !strings.Contains(o.path[len(at):], ".") && names[lastName(o.path)] {
			if found = true; !fits(strings.ToLower(o.text)) {
				return false
			}
		}
	}
	return found || alone()
}

// given reports whether the call has a value at the path.
func (t *tracer) given(path string) bool {
	for _, v := range t.values {
		if v.path == path {
			return true
		}
	}
	return false
}

// has reports whether an argument is told to have the role.
func (p *Profile) has(role Role) bool {
	for _, r := range p.Args {
		if r == role {
			return true
		}
	}
	return false
}

func lastName(path string) string { return bareName(path[strings.LastIndexByte(path, '.')+1:]) }
