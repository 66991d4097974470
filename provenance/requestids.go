package provenance

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxIDPlaces bounds at how many places in the request an id is tried.
const maxIDPlaces = 100

// givesID reports whether the request gives the id for a record of the kind. A number, an id of less than four characters, a date or time, and an id
// that begins with the name of another kind (order-77) need a word before them: the name of the kind, or without a kind one of "id", "number" and
// "#". Between the name and the id, only such words and other ids may stand ("files 13 and 14").
func (w *Request) givesID(value, kind string) bool {
	if w == nil || len(kind) > maxDisplayField || w.where.count(value) == 0 && w.where.count("#"+value) == 0 {
		return false
	}
	_, isNumber := numberOf(value)
	if !isNumber && utf8.RuneCountInString(value) >= 4 && hasDigit(value) && w.where.count(value) > 0 && (!likeTime(value) || timeKinds[bareWord(kind)]) && !ofOtherKind(value, kind) {
		return true
	}
	called := kindNamesOf(kind)
	for _, token := range []string{value, "#" + value} {
		tried := 0
		for at := range w.where.each(token) {
			if tried++; tried > maxIDPlaces {
				break
			}
			if w.kindBefore(at, token[0] == '#', called) {
				return true
			}
		}
	}
	return false
}

// timeKinds are the kinds whose ids are dates or times.
var timeKinds = set("date day time datetime timestamp hour slot timeslot week month")

// likeTime reports whether an id could be a date, a time of day, or a range of them: 2024-05-15, 15.05., 9:30, 10am, 13:00-14:00, 10h30.
func likeTime(s string) bool {
	if _, ok := dateOf(s); ok {
		return true
	}
	s = strings.ToLower(s)
	s, half := cutAnySuffix(s, "am", "pm", "uhr", "h", "z")
	if strings.Trim(s, digits+"-:./,–+th") != "" {
		return false
	}
	groups := strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if len(groups) == 4 && !half && strings.Count(s, ".") == 3 { // 10.0.0.1
		return false
	}
	short := false
	for _, g := range groups {
		if len(g) > 2 && len(g) != 4 {
			return false
		}
		short = short || len(g) <= 2
	}
	return short && (len(groups) > 1 || half)
}

func cutAnySuffix(s string, suffixes ...string) (string, bool) {
	for _, suffix := range suffixes {
		if rest, ok := strings.CutSuffix(s, suffix); ok && rest != "" && hasDigit(rest[len(rest)-1:]) {
			return rest, true
		}
	}
	return s, false
}

// recordWords are words by which people name kinds of records, also in front of their ids.
var recordWords = set(`order purchase invoice bill receipt ticket issue bug task todo case claim file folder document doc event meeting appointment mail email message
thread chat contact customer client user account deal lead offer quote contract payment transfer transaction booking reservation trip flight hotel shipment delivery parcel
package project product item article part page post comment note record request report pull merge commit branch release version build run job incident problem change
employee person team channel group room card board list sprint story policy member subscription
auftrag bestellung rechnung angebot vorgang datei ordner termin nachricht kunde konto vertrag zahlung buchung projekt artikel
commande facture fichier dossier compte client devis contrat paiement projet pedido factura archivo cuenta cliente contrato pago`)

// ofOtherKind reports whether an id begins with the name of another kind of record: order-77 is the id of an order. Without a kind it may be any.
func ofOtherKind(id, kind string) bool {
	own := bareWord(kind)
	rest := strings.TrimLeftFunc(id, unicode.IsLetter)
	name := strings.ToLower(id[:len(id)-len(rest)])
	if own == "" || rest == "" {
		return false
	}
	if !recordWords[name] {
		name = strings.TrimSuffix(name, "s")
	}
	return recordWords[name] && !strings.Contains(own, name) && !strings.Contains(name, own)
}

// kindNames are the ways in which people name a kind: pull request, pull-requests, PR.
type kindNames struct {
	singular, plural []string
	initials         string
}

func kindNamesOf(kind string) (c kindNames) {
	name := bareWord(kind)
	if name == "" {
		return c
	}
	c.plural = []string{name + "s", name + "es", strings.TrimSuffix(name, "y") + "ies"}
	if c.singular = []string{name}; strings.HasSuffix(name, "s") {
		c.plural = append(c.plural, name)
	}
	if parts := strings.FieldsFunc(strings.ToUpper(kind), func(r rune) bool { return !inWord(r) }); len(parts) > 1 {
		for _, p := range parts {
			first, _ := utf8.DecodeRuneInString(p)
			c.initials += string(first)
		}
	}
	return c
}

// idWalk is the walk back from an id to the name of its kind.
type idWalk struct {
	marked bool // "id", "number" or "#" stands before an id
	own    bool // the id has a "#" itself
	listed bool // another id stands between
	plural bool // "ids" or "numbers" stands between
	open   bool // a conjunction stands behind what is looked at
	commas bool // the id was joined to the list by a comma alone
	joined bool // a preposition stands between
	is     bool // "is" or "are" stands between
}

// reaches reports whether the name of a kind, for several records or one, may speak of the id.
func (k *idWalk) reaches(many bool) bool {
	return !k.open && (k.own || !k.listed || k.plural || many)
}

// kindBefore reports whether the words before a place name the kind of the id that stands there. Between them, another number is allowed only in a
// list of several ids ("files 13 and 14", not "file 13 to 3 people"), and an id without "id", "number" or "#" allows no prepositions ("mails with 2
// attachments"). A list ends behind its conjunction ("mails 13 and 14, 15 is fine"), and no id counts other things ("mail 3 people", "7 pm").
func (w *Request) kindBefore(at int, marked bool, kind kindNames) bool {
	k := idWalk{marked: marked, own: marked}
	if !marked && w.measures(at) {
		return false
	}
	for i := at - 1; i >= 0 && i >= at-8; i-- {
		bare := strings.Trim(w.words[i], "#")
		word := strings.ToLower(bare)
		_, isNumber := numberOf(word)
		short := strings.TrimSuffix(bare, "s")
		_, many := w.endsWith(i, kind.plural)
		first, one := w.endsWith(i, kind.singular)
		switch {
		case many || one:
			if !k.marked && (k.listed || one && w.startsClause(first)) && w.counts(at) {
				return false
			}
			return (k.marked || !k.joined && !k.is) && k.reaches(many)
		case kind.initials != "" && short == kind.initials && !commonWords[strings.ToLower(short)]:
			return k.marked && k.reaches(short != bare)
		case idWords[word]:
			if k.joined {
				return false
			}
			k.marked, k.plural = true, k.plural || strings.HasSuffix(word, "s") || word == "nummern"
		case isNumber:
			if k.joined || k.is || !w.joinsList(&k, i, at) {
				return false
			}
			k.listed, k.open = true, false
		case conjunctions[word]:
			k.open = true
		case word == "is" || word == "are":
			k.is = true
		case prepositions[word]:
			k.joined = true
		default:
			return kind.singular == nil && k.marked && k.reaches(false)
		}
	}
	return kind.singular == nil && k.marked && k.reaches(false)
}

// joinsList reports whether the number at i is an item of the same list as the id at a later place: a comma or a conjunction joins them, and behind
// the conjunction there is no further comma. An id that is the subject of a new clause is no item.
func (w *Request) joinsList(k *idWalk, i, at int) bool {
	switch comma := w.commas[i+1]; {
	case k.open:
		if k.commas {
			return false
		}
	case comma:
		k.commas = true
	case !k.own || w.words[i][0] != '#':
		return false
	}
	next := w.next(at)
	return !singularVerbs[next] && !(w.commas[at] && modalVerbs[next])
}

var singularVerbs = set("is was has stays remains looks seems isn't isnt ist war hat bleibt est reste était es está")

// modalVerbs follow a list as often as one id. Behind a comma without a conjunction they begin a clause.
var modalVerbs = set("can could should must may might will would shall kann soll muss darf peut doit puede debe")

// next is the word behind a place in the same phrase, without its marks; "" if there is none.
func (w *Request) next(at int) string {
	if at+1 >= len(w.plain) || w.commas[at+1] {
		return ""
	}
	return w.plain[at+1]
}

// measures reports whether the number at a place is a measure or part of a date: 7 pm, 13 May, 13. Mai, 3 days.
func (w *Request) measures(at int) bool {
	next := w.next(at)
	if next == "" && at+2 < len(w.plain) && w.plain[at+1] == "" && w.plain[at+2] != "may" { // behind a full stop
		return months[w.plain[at+2]] != 0
	}
	return months[next] != 0 || units[next]
}

var units = set("am pm uhr h oclock percent euro euros eur usd dollar dollars pounds minute minutes hour hours day days week weeks month months year years times people persons minuten stunden tage wochen monate mal leute personen minutes heures jours semaines mois fois personnes")

// counts reports whether the number at a place counts things: the plural of a thing follows, with up to two words before it.
func (w *Request) counts(at int) bool {
	if next := w.next(at); next == "more" || next == "of" {
		return true
	}
	for i := at + 1; i < len(w.plain) && i <= at+3; i++ {
		word := w.plain[i]
		switch {
		case word == "" || w.commas[i] || hasDigit(word) || connects(word) || thirdPerson[word]:
			return false
		case len(word) > 3 && strings.HasSuffix(word, "s") || word == "men" || word == "women" || word == "children":
			return true
		}
	}
	return false
}

// thirdPerson are verbs that follow an id as their subject: "mail 13 says".
var thirdPerson = set("says contains needs looks seems shows asks mentions describes clashes conflicts belongs comes goes includes lists wants requires fails works breaks mentions blocks depends always")

// startsClause reports whether the word at a place begins a clause, so that it may be a verb: "mail 3 people", "please order 2 books".
func (w *Request) startsClause(at int) bool {
	return at == 0 || w.plain[at-1] == "" || clauseWords[w.plain[at-1]]
}

var clauseWords = set("please and then to or also kindly now just can could would will i we you they he she anyone anybody someone somebody everyone should must lets bitte")

// endsWith reports whether the words up to a place end with one of the names, written as one word, and where the name begins. It may not begin right
// behind a function word.
func (w *Request) endsWith(at int, names []string) (first int, ok bool) {
	if word := w.plain[at]; functionWords[word] || prepositions[word] || conjunctions[word] {
		return 0, false
	}
	ok = slices.ContainsFunc(names, func(rest string) bool {
		for i := at; i >= 0 && w.plain[i] != ""; i-- {
			before, ok := strings.CutSuffix(rest, w.plain[i])
			if !ok || before == "" {
				first = i
				return ok
			}
			rest = before
		}
		return false
	})
	return first, ok
}

var (
	idWords      = set("id ids number numbers no nr # nummer nummern numéro numéros número números numero numeri")
	conjunctions = set("and or und oder et ou y")
	prepositions = set("with the of has have whose to from mit der die das dem den von avec le la les de du con el los las")
)
