// Package claims checks what is claimed against several sources (TH-6): a claim has fields, and a source is a collection of the knowledge store that has records with
// fields. A sentence, and what no record of a source is about, goes to the judge, a model, where the operator named one; without it nobody confirms nor denies it.
//
// Promises: the sources that the operator configured are always asked, and no others count; seven of ten are compared in whole numbers; a source that is silent,
// fails or contradicts itself does not confirm; sources that confirm by one text, or by documents of one domain, are one.
package claims

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/library"
)

// Claim is what is claimed: that an attribute of a subject has a value, or a sentence.
type Claim struct {
	Subject   string `json:"subject"`
	Attribute string `json:"attribute"`
	Value     string `json:"value"`
	Sentence  string `json:"sentence"`
}

// Parse reads a claim: an object with the fields, or a text, which is a sentence.
func Parse(raw json.RawMessage) (c Claim, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if len(raw) > 0 && raw[0] == '"' {
		err = d.Decode(&c.Sentence)
	} else {
		err = d.Decode(&c)
	}
	if err != nil || len(raw) == 0 {
		return Claim{}, fault.Wrap(err, fault.RequestMalformed, "A claim is an object with subject, attribute and value, or a text.").At("claim")
	}
	return c, c.Check()
}

// fields tells whether the claim has fields.
func (c *Claim) fields() bool { return c.Subject != "" && c.Attribute != "" && c.Value != "" }

// Check refuses a claim that says nothing.
func (c *Claim) Check() error {
	switch {
	case c.fields() && c.Sentence == "" && len(c.Subject)+len(c.Attribute)+len(c.Value) < 3000:
		return nil
	case c.Sentence != "" && c.Subject+c.Attribute+c.Value == "" && len(c.Sentence) <= 4000:
		return nil
	}
	return fault.New(fault.RequestMalformed, "A claim has a subject, an attribute and a value, or is one sentence.").At("claim").
		Try(`Write {"subject": "the travel rule", "attribute": "deadline", "value": "30 days"}.`)
}

// Source is what one source says.
type Source struct {
	Source   string `json:"source"`
	Confirms *bool  `json:"confirms" doc:"true, false, or null: it is silent, failed, or contradicts itself"`
	Quote    string `json:"quote,omitempty"`
	Counts   bool   `json:"counts" doc:"The operator configured it"`
	Note     string `json:"note,omitempty" doc:"Why nothing could be asked"`

	citations []library.Citation
	labels    []string
	origins   []string // texts and domains that it confirms by
}

// Answer says whether a claim is valid.
type Answer struct {
	Valid      bool     `json:"is_valid"`
	Confidence float64  `json:"confidence" doc:"Independent sources that confirm, of all that count"`
	Sources    []Source `json:"sources"`
}

// Read is what was read for an answer, with its labels and the collections that it was read in.
func (a *Answer) Read() (read []library.Citation, sources, labels []string) {
	for _, s := range a.Sources {
		read, labels = append(read, s.citations...), append(labels, s.labels...)
		if len(s.citations) > 0 {
			sources = append(sources, strings.TrimPrefix(s.Source, prefix))
		}
	}
	return read, sources, labels
}

const (
	prefix     = "knowledge."
	maxSources = 50
	maxQuote   = 300
)

// Options of a Checker.
type Options struct {
	Library *library.Library
	Log     *slog.Logger
	// Configured are the sources that count, as knowledge.COLLECTION, and the least number of independent ones.
	Configured func() (sources []string, least int)
	Record     func(ctx context.Context, entries ...audit.Entry) error
	Judge      Judge
}

// Checker checks claims.
type Checker struct{ o Options }

// New makes one.
func New(o Options) *Checker { return &Checker{o} }

// Validate asks the configured sources, and those that the caller adds, which don't count, in a snapshot ("": the newest). by is who asks, for the record, and
// asking how an agent asks the judge; where that is nil the gateway asks on its own account: for people, and about what agents said, never for an agent.
func (k *Checker) Validate(ctx context.Context, r knowledge.Reader, by audit.Entry, asking ask.Ask, snapshot string, c Claim, more []string) (Answer, error) {
	if err := c.Check(); err != nil {
		return Answer{}, err
	}
	if len(more) > maxSources {
		return Answer{}, fault.New(fault.RequestMalformed, "At most %d sources.", maxSources).At("sources")
	}
	configured, least := k.o.Configured()
	asked := ctx
	ctx, end := context.WithTimeout(ctx, allTime)
	defer end()
	a := Answer{Sources: []Source{}}
	for _, name := range append(slices.Clone(configured), more...) {
		if slices.ContainsFunc(a.Sources, func(s Source) bool { return s.Source == name }) {
			continue
		}
		s := k.ask(ctx, r, snapshot, name, &c, &party{by, asking})
		s.Counts = slices.Contains(configured, name)
		a.Sources = append(a.Sources, s)
	}
	if err := asked.Err(); errors.Is(err, context.Canceled) { // a source that was not waited for says nothing about the claim
		return Answer{}, fault.Wrap(err, fault.TimeExceeded, "The check of the claim ended before all sources had answered.").Try("Check it again.")
	}
	a.judge(least)
	return a, k.record(context.WithoutCancel(ctx), by, &a)
}

// judge says whether the sources confirm the claim: seven of ten, and at least so many independent ones.
func (a *Answer) judge(least int) {
	confirmed, all := count(a.Sources)
	if all > 0 {
		a.Confidence = float64(confirmed) / float64(all)
	}
	a.Valid = confirmed*10 >= all*7 && confirmed >= max(least, 1)
}

// record puts the check on record; a claim that is not valid as possible poisoning.
func (k *Checker) record(ctx context.Context, e audit.Entry, a *Answer) error {
	detail, err := json.Marshal(map[string]any{"confidence": a.Confidence, "sources": verdicts(a.Sources)})
	if err != nil {
		return err
	}
	e.Kind, e.Action, e.Decision, e.Detail = audit.Decision, "claim", "ok", detail
	if !a.Valid {
		e.Decision = "deny"
		e.Reason = fmt.Sprintf("possible poisoning: a claim is confirmed by %.0f%% of its sources", a.Confidence*100)
		k.o.Log.Warn("a claim is not confirmed: possible poisoning", "confidence", a.Confidence, "by", e.Actor)
	}
	return k.o.Record(ctx, e)
}

// verdicts are what sources say, without their words.
func verdicts(sources []Source) map[string]string {
	said := map[string]string{}
	for _, s := range sources {
		switch {
		case s.Confirms == nil:
			said[s.Source] = "null"
		default:
			said[s.Source] = fmt.Sprint(*s.Confirms)
		}
	}
	return said
}

// count tells how many independent sources confirm, of how many that count. Sources that confirm by one text or one domain are one.
func count(sources []Source) (confirmed, all int) {
	seen := map[string]int{} // an origin's group
	groups := map[int]bool{}
	for i, s := range sources {
		switch {
		case !s.Counts:
		case s.Confirms == nil || !*s.Confirms:
			all++
		default:
			group := i
			for _, o := range s.origins {
				if g, ok := seen[o]; ok {
					for other, of := range seen {
						if of == group {
							seen[other] = g
						}
					}
					delete(groups, group)
					group = g
				}
				seen[o] = group
			}
			groups[group] = true
		}
	}
	return len(groups), all + len(groups)
}

// ask asks one source. What the reader may not read is silent.
func (k *Checker) ask(ctx context.Context, r knowledge.Reader, snapshot, name string, c *Claim, by *party) Source {
	s := Source{Source: name}
	collection, ok := strings.CutPrefix(name, prefix)
	if !ok {
		s.Note = "A source is written as knowledge. and the name of a collection."
		return s
	}
	if r.All && !slices.ContainsFunc(k.o.Library.Collections(), func(c library.Collection) bool { return c.Name == collection }) {
		s.Note = "The knowledge store has no document in a collection of this name."
		return s
	}
	only := knowledge.Reader{Sources: []string{collection}, Labels: r.Labels, AllLabels: r.All || r.AllLabels}
	if !r.All && !r.AllSources && !slices.Contains(r.Sources, collection) {
		return s
	}
	if c.fields() && k.records(ctx, only, snapshot, c, &s) {
		return s
	}
	k.judged(ctx, only, snapshot, c, by, &s)
	return s
}

// records asks the records of a source. It tells whether some are about what is claimed.
func (k *Checker) records(ctx context.Context, only knowledge.Reader, snapshot string, c *Claim, s *Source) bool {
	found, err := k.o.Library.Search(ctx, only, nil, snapshot, c.Subject+" "+c.Attribute, library.MaxHits)
	if err != nil {
		k.o.Log.Warn("a source of claims can't be asked", "source", s.Source, "error", err)
		return false
	}
	yes, no := 0, 0
	asked := map[string]bool{}
	for _, h := range found.Hits {
		if asked[h.Document] {
			continue
		}
		asked[h.Document] = true
		text, err := k.o.Library.TextOf(ctx, only, h.Citation)
		if err != nil {
			continue // withdrawn a moment ago
		}
		for _, record := range Records(text) {
			value, has := record.says(c)
			if !has {
				continue
			}
			if s.Quote == "" {
				s.Quote = clip(record.Quote)
			}
			s.citations, s.labels = append(s.citations, library.Citation{Document: h.Document, Version: h.Version, Span: record.Span}), append(s.labels, h.Labels...)
			if canonical(value) != canonical(c.Value) {
				no++
				continue
			}
			yes++
			s.from(h.Key, record.Quote)
		}
	}
	if (yes > 0) != (no > 0) { // one that says both contradicts itself
		s.Confirms = new(bool)
		*s.Confirms = yes > 0
	}
	return yes+no > 0
}

// from notes by what a source confirms: texts, and who the document belongs to.
func (s *Source) from(key string, texts ...string) {
	for _, text := range texts {
		s.origins = append(s.origins, "text:"+words(text))
	}
	if u, err := url.Parse(key); err == nil && u.Host != "" {
		s.origins = append(s.origins, "domain:"+domain(u.Hostname()))
	}
}

// domain is who a host belongs to, as far as its name tells: evil.example of www.evil.example. An address stands for itself.
func domain(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	if registered, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return registered
	}
	return host
}

func clip(s string) string {
	if len(s) <= maxQuote {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuote], "") + "…"
}
