package review

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

// trace finds where the session has read a value, and what stands in its place elsewhere.
func (r *reviewer) trace(v *Value) {
	same := provenance.Compare(v.Text)
	for _, rec := range r.records {
		for _, x := range rec.Values {
			if is, _ := same.With(x.Text); is || within(x.Text, v.Text) {
				v.Seen = append(v.Seen, sighting(rec, x))
				break
			}
		}
	}
	if host := hostOf(v.Text); len(v.Seen) == 0 && host != "" && v.kind == "link" {
		for _, rec := range r.records {
			if i := slices.IndexFunc(rec.Values, func(x provenance.ReadValue) bool { return within(x.Text, host) }); i >= 0 {
				v.Seen = append(v.Seen, sighting(rec, rec.Values[i]))
			}
		}
	}
	// What no outsider wrote says most, then what came first.
	slices.SortStableFunc(v.Seen, func(a, b Sighting) int { return rank(a) - rank(b) })
	v.Seen = v.Seen[:min(len(v.Seen), maxSightings)]
	v.Others = r.others(v, same)
	v.resembles = r.resembling(v, same)
}

// hostOf is the host of a web address; "" if there is none. Who sent an agent to a host has most often named no more of the address.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// within tells whether a longer text has the value, as a reader would find it there: whatever spaces and marks stand in an account number.
func within(longer, value string) bool {
	if len(value) < minShared || len(longer) <= len(value) {
		return false
	}
	if provenance.Kind(value) == "account" {
		return strings.Contains(bare(longer), bare(value))
	}
	in, of := strings.ToLower(" "+longer+" "), strings.ToLower(value)
	for from := 0; ; {
		i := strings.Index(in[from:], of)
		if i < 0 {
			return false
		}
		if i += from; !wordByte(in[i-1]) && !wordByte(in[i+len(of)]) {
			return true
		}
		from = i + 1
	}
}

// bare is the letters and digits of a text.
func bare(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return -1
	}, s)
}

func rank(s Sighting) int {
	if s.Outsider {
		return 1
	}
	return 0
}

func sighting(rec provenance.Read, x provenance.ReadValue) Sighting {
	return Sighting{
		Place: place(rec), Value: x.Text, Operation: rec.Operation, CallID: rec.CallID, Record: rec.Number, Field: x.Field, At: call.TimeOf(rec.CallID), Outsider: !x.Trusted,
	}
}

// others are the values that stand where one would look for this one: in the request, and in records that it names or that share another value
// with the call.
func (r *reviewer) others(v *Value, same provenance.Comparison) []Sighting {
	var all []Sighting
	add := func(s Sighting) {
		if !slices.ContainsFunc(all, func(o Sighting) bool { is, _ := provenance.Compare(o.Value).With(s.Value); return is }) {
			all = append(all, s)
		}
	}
	for _, x := range inWords(r.Request, v) {
		if is, alike := same.With(x); !is && alike {
			add(Sighting{Place: "the request", Value: x})
		}
	}
	for _, rec := range r.records {
		named := rec.Named != "" || r.requestHas(rec)
		if !named && !r.shares(rec, v) || has(rec, same) {
			continue
		}
		for _, x := range rec.Values {
			if is, alike := same.With(x.Text); alike && !is && inPlaceOf(v, rec, x, named) {
				add(sighting(rec, x))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Sighting) int { return rank(a) - rank(b) })
	return all[:min(len(all), maxSightings)]
}

// has tells whether the record has the value.
func has(rec provenance.Read, same provenance.Comparison) bool {
	return slices.ContainsFunc(rec.Values, func(x provenance.ReadValue) bool { is, _ := same.With(x.Text); return is })
}

// minShared is the length from which on a value that a record shares with the call, or with the request, says that both are about one matter.
const minShared = 4

// shares tells whether the record has another value of the call, and no outsider wrote it.
func (r *reviewer) shares(rec provenance.Read, v *Value) bool {
	for _, leaf := range provenance.Leaves(r.Approval.Arguments) {
		text, ok := leaf.Value.(string)
		if !ok || text == v.Text || len(text) < minShared || provenance.Kind(text) == "number" {
			continue
		}
		same := provenance.Compare(text)
		if slices.ContainsFunc(rec.Values, func(x provenance.ReadValue) bool { is, _ := same.With(x.Text); return is && x.Trusted }) {
			return true
		}
	}
	return false
}

// requestHas tells whether the request has a name or a number of the record.
func (r *reviewer) requestHas(rec provenance.Read) bool {
	return slices.ContainsFunc(rec.Values, func(x provenance.ReadValue) bool {
		if x.Part || len(x.Text) < minShared || !slices.Contains(namingFields, field(x.Field)) {
			return false
		}
		return within(r.Request, x.Text)
	})
}

func wordByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b >= 0x80 || b == '-' || b == '_'
}

// The last names of fields, without marks, as they are compared.
var (
	senderFields = strings.Fields("from sender author by user reporter owner fromaddress fromemail senderemail createdby")
	namingFields = strings.Fields("id number name title subject invoice invoicenumber reference ref key customer vendor supplier company filename path")
	amountFields = strings.Fields("amount total sum price due amountdue totalamount gross balance value cost")
)

// field is the last name of a path in the form in which names of fields are compared.
func field(path string) string {
	path = strings.ToLower(path[strings.LastIndexByte(path, '.')+1:])
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(path)
}

// inPlaceOf tells whether one would look for the call's value where the record has this one.
func inPlaceOf(v *Value, rec provenance.Read, x provenance.ReadValue, named bool) bool {
	at := field(x.Field)
	own := at == field(v.Argument)
	switch role := provenance.Role(v.Role); role {
	case provenance.Destination, provenance.Identity:
		switch v.kind {
		case "account":
			return x.Trusted || !x.Part
		case "mail", "link":
			return !slices.Contains(senderFields, at) && (x.Trusted || named && !x.Part)
		}
		return own && !x.Part
	case provenance.Amount:
		return (own || slices.Contains(amountFields, at)) && (x.Trusted || named && !x.Part)
	case provenance.Selector, provenance.Target:
		return named && !x.Part && (own || at == "id" && strings.HasSuffix(field(v.Argument), "id"))
	case provenance.URL:
		return named && x.Trusted
	}
	return false
}

var (
	wordsOfAccount = regexp.MustCompile(`\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{2,4}){3,8}\b`)
	wordsOfMail    = regexp.MustCompile(`[^\s<>()"',;:]+@[^\s<>()"',;:]+\.[a-zA-Z]{2,}`)
	wordsOfMoney   = regexp.MustCompile(`(?:\b(?:EUR|USD|GBP|CHF|JPY)|[€$£]) ?([0-9][0-9.,]*[0-9]|[0-9])|([0-9][0-9.,]*[0-9]|[0-9]) ?(?:(?:EUR|USD|GBP|CHF|JPY|euros?|dollars?)\b|[€$£])`)
)

// maxWords bounds what of a request is looked through.
const maxWords = 16 << 10

// inWords are the values in the person's words that could stand for this one.
func inWords(request string, v *Value) []string {
	request = request[:min(len(request), maxWords)]
	const most = 8
	switch {
	case provenance.Role(v.Role) == provenance.Amount:
		var all []string
		for _, m := range wordsOfMoney.FindAllStringSubmatch(request, most) {
			all = append(all, strings.ReplaceAll(m[1]+m[2], ",", ""))
		}
		return all
	case provenance.Role(v.Role) != provenance.Destination && provenance.Role(v.Role) != provenance.Identity:
		return nil
	case v.kind == "account":
		return wordsOfAccount.FindAllString(request, most)
	case v.kind == "mail":
		return wordsOfMail.FindAllString(request, most)
	}
	return nil
}

// resembling finds a value that no outsider wrote, or that the request has, for which this one can be taken; "" if there is none.
func (r *reviewer) resembling(v *Value, same provenance.Comparison) string {
	name := v.kind != "mail" && v.kind != "link" && v.kind != "account"
	if name && (!reaches(*v) || v.kind == "number") {
		return ""
	}
	look := func(known string) string {
		if is, alike := same.With(known); is || !alike {
			return ""
		}
		if why := threat.Resembles(v.Text, known); why != "" {
			return known + ": " + why
		}
		return ""
	}
	if name {
		for _, known := range namesOfLength(r.Request[:min(len(r.Request), maxWords)], len(strings.Fields(v.Text))) {
			if found := look(known); found != "" {
				return found
			}
		}
	}
	for _, known := range append(wordsOfMail.FindAllString(r.Request[:min(len(r.Request), maxWords)], 8), wordsOfAccount.FindAllString(r.Request[:min(len(r.Request), maxWords)], 8)...) {
		if found := look(known); found != "" {
			return found
		}
	}
	for _, rec := range r.records {
		for _, x := range rec.Values {
			if x.Trusted || rec.Named != "" && !x.Part {
				if found := look(x.Text); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

// longestName is how many words a name that is looked for in a request has at most.
const longestName = 6

// namesOfLength are the runs of so many words of a text, without the marks around them.
func namesOfLength(text string, n int) (all []string) {
	words := strings.Fields(text)
	for i := 0; n > 0 && n <= longestName && i+n <= len(words); i++ {
		all = append(all, strings.Trim(strings.Join(words[i:i+n], " "), ".,;:!?\"'“”„()"))
	}
	return all
}
