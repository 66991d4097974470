package provenance

import (
	"maps"
	"slices"
	"strings"
)

// People write some names with a sign: acme/site is the repository site of acme, #team is the channel team, and @name is a person. Each has to be
// a word of its own, and confirms only arguments of a matching name: owner and repo, channel, user and the like.

// The arguments that handles can confirm, by bareName.
var (
	ownerNames   = set("owner repoowner repositoryowner org organization organisation")
	repoNames    = set("repo repos reponame repository repositories repositoryname")
	channelNames = set("channel channels channelname room roomname")
	personNames  = set("user users username usernames person login handle assignee assignees reviewer reviewers member members mention mentions recipient recipients")
)

// notRepository are the words by which people say that a word with a slash is something other than a repository.
var notRepository = set(`path paths folder folders directory directories dir file files branch branches tag tags ref package packages module modules image images endpoint
endpoints route routes label labels page pages section sections pfad ordner verzeichnis datei dateien zweig dossier fichier chemin branche carpeta archivo ruta rama`)

// namingVerbs connect such a word with the name behind it.
var namingVerbs = set("called named is heißt namens appelé nommé llamado llamada")

// handles are the names with a sign in a request, in lower case: "acme/site", "#team", "@name".
type handles map[string]bool

// noteHandle notes that the word at the end of words may be a handle. Only quotes, the end of a sentence, and marks on both sides may surround a
// handle.
func (w *Request) noteHandle(head, token, tail string) {
	if strings.Trim(head, "'’") != strings.Trim(tail, ".:!?'’") || len(token) > maxValue {
		return
	}
	if isRepository(token) || len(token) > 1 && (token[0] == '#' || token[0] == '@') && isHandle(token[1:]) {
		w.handlesAt = append(w.handlesAt, len(w.words))
	}
}

// readHandles keeps the noted handles, except for words with a slash that the request calls something other than a repository.
func (w *Request) readHandles() {
	w.handles = handles{}
	word := func(at int) string { // "" outside a phrase
		if at < 0 || at >= len(w.words) {
			return ""
		}
		return w.plain[at]
	}
	for _, at := range w.handlesAt {
		token := strings.ToLower(w.words[at])
		if strings.Contains(token, "/") {
			before := word(at - 1)
			if namingVerbs[before] {
				before = word(at - 2)
			}
			if notRepository[before] || notRepository[word(at+1)] || countDistinctive(token) == 0 && !w.setApart(w.words[at]) {
				continue
			}
		}
		w.handles[token] = true
	}
	w.handlesAt = nil
}

// isRepository reports whether a word is an owner and a repository: one slash, letters on both sides, no host name and no file.
func isRepository(s string) bool {
	owner, repo, ok := strings.Cut(s, "/")
	if !ok || len(owner) > 39 || len(repo) > 100 || !onlyNameChars(owner, ownerChars) || !onlyNameChars(repo, repoChars) || repo[0] == '.' || repo[len(repo)-1] == '.' {
		return false
	}
	for _, part := range []string{owner, repo} {
		if functionWords[strings.ToLower(part)] {
			return false
		}
	}
	_, ending, dotted := cutLast(repo, ".")
	return !dotted || !isFileEnding(ending) && !strings.EqualFold(ending, "git")
}

// isHandle reports whether a word can be the name of a channel or a person: it begins with a letter, so 12 of #12 is none.
func isHandle(s string) bool {
	return len(s) <= 80 && strings.IndexByte(lower+upper, s[0]) >= 0 && onlyNameChars(s, repoChars) && s[len(s)-1] != '.'
}

// onlyNameChars reports whether s consists of these characters, with at least one letter.
func onlyNameChars(s string, of *chars) bool {
	return strings.ContainsAny(s, lower+upper) && only(s, of)
}

// inHandles reports whether the request has the value as a handle of the argument's kind. Handles do not count for operations that take an amount.
func (t *tracer) inHandles(v traced) bool {
	who := v.role == Destination || v.role == Target || v.role == Selector
	if t.s.Request == nil || !v.ok || !who && v.role != Repository || t.p.hasRole(Amount) {
		return false
	}
	handles, value, name := t.s.Request.handles, strings.ToLower(v.text), lastName(v.path)
	switch {
	case ownerNames[name]:
		return onlyNameChars(value, ownerChars) && t.fitsPartner(v, repoNames, func(repo string) bool { return handles[value+"/"+repo] }, func() bool { return handles.any(value+"/", "") })
	case repoNames[name] && strings.Contains(value, "/"):
		return handles[value]
	case repoNames[name]:
		for arg := range t.p.Args { // a missing owner may be another one
			if ownerNames[lastName(arg)] && !slices.ContainsFunc(t.values, func(v traced) bool { return v.path == arg }) {
				return false
			}
		}
		return onlyNameChars(value, repoChars) && t.fitsPartner(v, ownerNames, func(owner string) bool { return handles[owner+"/"+value] }, func() bool { return handles.any("", "/"+value) })
	case channelNames[name]:
		return who && handles["#"+strings.TrimPrefix(value, "#")]
	case personNames[name]:
		return who && handles["@"+strings.TrimPrefix(value, "@")]
	}
	return false
}

// any reports whether one of the repositories begins or ends this way.
func (h handles) any(begin, end string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(h)), func(s string) bool {
		return strings.Contains(s, "/") && strings.HasPrefix(s, begin) && strings.HasSuffix(s, end)
	})
}

// fitsPartner reports whether every value that the call has beside this one, under one of the names, fits it. alone answers if there is none.
func (t *tracer) fitsPartner(v traced, names map[string]bool, fits func(other string) bool, alone func() bool) bool {
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

func lastName(path string) string { return bareName(path[strings.LastIndexByte(path, '.')+1:]) }
