package provenance

import (
	"slices"
	"strconv"
	"strings"
)

// A server may take an id in more than one spelling: #7, 007, " 7", records/7, {7}, M-7. So the ids that writes select are compared without regard to it. Two
// ids that are taken for one cost a question at most.

// idForm is an id in a form in which ids are compared, or the end of one behind a separator.
type idForm struct {
	id   string
	part bool
}

// idForms are the forms of an id; ok is false if it can't be compared.
func idForms(id string) (forms []idForm, ok bool) {
	if len(id) > maxValue {
		return nil, false
	}
	all, ok := idReadings(id)
	if !ok {
		return nil, false
	}
	add := func(f idForm) {
		if f.id != "" && !slices.Contains(forms, f) {
			forms = append(forms, f)
		}
	}
	for _, s := range all {
		s = strings.ToLower(strings.TrimSpace(strings.ReplaceAll(s, decodedMark, " ")))
		if n, ok := numberOf(strings.TrimLeft(s, "+#0")); ok {
			add(idForm{n, false})
		}
		if n, err := strconv.ParseUint(s, 0, 64); err == nil {
			add(idForm{strconv.FormatUint(n, 10), false})
		}
		add(idForm{bareID(s), false})
		for i, r := range s {
			if !inWord(r) {
				add(idForm{bareID(s[i:]), true})
			}
		}
	}
	return forms, len(forms) > 0
}

// idReadings are the readings of an id, but for such as a short number has by chance.
func idReadings(id string) (all []string, ok bool) {
	all, ok = readings(id)
	return slices.DeleteFunc(all, func(s string) bool { return s != id && !hasLetterOrDigit(s) }), ok
}

// bareID is the letters and digits of an id, without zeros in front.
func bareID(s string) string {
	s = bareWord(s)
	if bare := strings.TrimLeft(s, "0"); bare != "" {
		return bare
	}
	return s
}

// addID adds an id in every form. It reports whether it can be compared.
func (s *selection) addID(id string) bool {
	forms, ok := idForms(id)
	for _, f := range forms {
		s.ids[f] = true
	}
	return ok
}

// hasID reports whether a record's id may be one that was added: one of them may be the end of the other.
func (s *selection) hasID(id string) bool {
	if len(s.ids) == 0 {
		return false
	}
	forms, ok := idForms(id)
	return !ok || slices.ContainsFunc(forms, func(f idForm) bool {
		return s.ids[idForm{f.id, false}] || !f.part && s.ids[idForm{f.id, true}]
	})
}

// selected are the values under which a selected id is kept: as it was given, without a sign and zeros in front, and as it may be meant: behind the last
// separator and without brackets. The list is empty if the id can't be compared.
func selected(id string) (values []string) {
	all, ok := idReadings(id)
	if !ok {
		return nil
	}
	for _, s := range all {
		s = strings.TrimSpace(strings.ReplaceAll(s, decodedMark, " "))
		bare := strings.Trim(s, "{}<>()[]\"'/ ")
		for _, one := range []string{s, bare, bare[strings.LastIndexAny(bare, "/:=#?&@ ,")+1:]} {
			f, ok := formOf(strings.TrimLeft(one, "#+0"))
			if !ok {
				f, ok = formOf(one)
			}
			if ok && !slices.Contains(values, f.value) {
				values = append(values, f.value)
			}
		}
	}
	return values
}
