// Package screen tells how much a text looks like an attempt to order an agent about: the words of a result, an argument, a request or a definition that
// say to leave the task, to hide something, to give something away. It reads; what a hit does is decided elsewhere.
//
// A text is read in one pass, folded: small letters, letters that look alike as one, nothing invisible. Escapes are undone, and what is encoded is read as well,
// two levels deep and up to four times the length of the text; what lies beyond is reported as not screened. Rules, which are data, and a small linear model
// of words and letters score each window of some thirty words; the text has the score of its highest window.
//
// A hit is a reason for care and proves nothing, and no hit proves nothing either: an order in plain words inside data looks like any other sentence. Nothing
// may rest on this package alone.
package screen

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"sync"
	"time"
)

// Channel is by what way a text comes.
type Channel string

// The channels.
const (
	Request    Channel = "request"    // a person's words
	Model      Channel = "model"      // a model's message
	Arguments  Channel = "arguments"  // of a call
	Result     Channel = "result"     // of a tool
	Definition Channel = "definition" // of a tool, or a server's instructions
	Page       Channel = "page"       // fetched
	Snippet    Channel = "snippet"    // of a search
	Document   Channel = "document"   // of the knowledge store
	Output     Channel = "output"     // of a program
)

// Channels are all of them.
var Channels = []Channel{Request, Model, Arguments, Result, Definition, Page, Snippet, Document, Output}

// kind is which thresholds hold for a channel: what people and models write to agents reads like an order more often than what tools return.
func (c Channel) kind() int {
	switch c {
	case Request, Model, Arguments:
		return people
	}
	return tools
}

// Report is what was found in a text.
type Report struct {
	Hit bool
	// Score is above 0 where the text is above the threshold of its channel and length.
	Score float32
	// Rule is the heaviest rule that was met where the score is highest; "model" where none was.
	Rule string
	// Places is how many windows, none of which overlap, are above the threshold: in the spelling of the text that has most of them.
	Places int
	// Partly says that something of the text was not screened, because it was encoded too deeply or was too much.
	Partly bool
}

//go:embed rules.txt
var ownRules []byte

//go:embed model.bin
var ownModel string

// Detector is ready to screen texts. It does not change, and is safe for concurrent use.
type Detector struct {
	rules            *rules
	model            *model
	fold             *foldings
	withoutTemplates bool
	digest           [sha256.Size]byte // of the operator's rules
	pool             sync.Pool         // *scratch
}

// Options changes what a detector knows.
type Options struct {
	// Rules is an operator's own file, which adds to the program's rules, and Name what errors call it.
	Rules []byte
	Name  string
	// WithoutTemplates leaves out the rules that have words of published benchmarks.
	WithoutTemplates bool
	// Model is a model's file, in place of the program's.
	Model string
}

// New reads rules and model.
func New(o Options) (*Detector, error) {
	r, err := parseRules(ownRules, o.Name, o.Rules)
	if err != nil {
		return nil, err
	}
	file := ownModel
	if o.Model != "" {
		file = o.Model
	}
	m, err := parseModel(file)
	if err != nil {
		return nil, err
	}
	d := &Detector{rules: r, model: m, fold: folded(), withoutTemplates: o.WithoutTemplates, digest: sha256.Sum256(o.Rules)}
	d.pool.New = func() any {
		s := &scratch{}
		s.reading.d = d
		s.reading.met.last = make([]uint32, r.steps)
		return s
	}
	return d, nil
}

// Version names the model and the date of the newest rules.
func (d *Detector) Version() string {
	return d.model.Version + "/" + d.rules.date.Format(time.DateOnly)
}

// Dated is the date of the program's rules, and that of the operator's; the same where there are none.
func (d *Detector) Dated() (program, operator time.Time) { return d.rules.own, d.rules.last }

// Digest tells the operator's rules from others.
func (d *Detector) Digest() [sha256.Size]byte { return d.digest }

const (
	levels      = 2 // of encoding
	decodedMost = 4 // times the text
	keptMost    = 4 << 20
)

// scratch is memory of one pass; nothing in it outlives a call.
type scratch struct {
	reading   reading
	plain     [levels + 1][2][]byte // by level: escapes undone once, and twice
	decoded   [levels + 1][]byte
	respelled []byte

	score  float32
	rule   int32
	places int
	left   int // bytes that may still be decoded
	partly bool
}

// Scan screens a text.
func (d *Detector) Scan(channel Channel, text []byte) Report {
	s := d.pool.Get().(*scratch)
	s.score, s.rule, s.partly, s.left = lowest, -1, false, decodedMost*len(text)
	s.places, s.reading.limit = 0, d.model.limit(channel.kind(), len(text))
	s.text(text, 0)
	r := Report{Score: s.score - s.reading.limit, Places: s.places, Partly: s.partly, Rule: "model"}
	r.Hit = r.Score > 0
	if s.rule >= 0 {
		r.Rule = d.rules.all[s.rule].id
	}
	s.release(d)
	return r
}

// The events of findings.
const (
	eventHit        = "threat.hit"
	eventUnscreened = "threat.unscreened"
)

// Found is what screening found in a text, for the record. It has none of the text.
type Found struct {
	Event    string  `json:"event"`    // threat.hit, or threat.unscreened for what could not be screened whole
	Detector string  `json:"detector"` // its version
	Rule     string  `json:"rule"`
	Channel  string  `json:"channel"`
	Score    float32 `json:"score"`            // above the threshold; at most 0 where a judge made the hit, or nothing was found
	Places   int     `json:"places,omitempty"` // of the text
	Source   string  `json:"source"`
}

// Hit reports whether it is a hit.
func (f *Found) Hit() bool { return f != nil && f.Event == eventHit }

// Raised is a hit by the word of a judge, of what was none.
func (f *Found) Raised(by string) *Found {
	hit := *f
	hit.Event, hit.Rule = eventHit, by
	return &hit
}

// Worse is the worse of two findings, with the places of both; nil: there is none.
func (f *Found) Worse(other *Found) *Found {
	if f == nil || other == nil {
		return cmp.Or(f, other)
	}
	worse, rest := *f, other
	if other.Hit() && !f.Hit() || other.Hit() == f.Hit() && other.Score > f.Score {
		worse, rest = *other, f
	}
	worse.Places += rest.Places
	return &worse
}

// Find screens a text that comes from the source; nil: nothing was found. A nil detector finds nothing.
func (d *Detector) Find(channel Channel, source string, text []byte) *Found {
	found, _ := d.Near(channel, source, text)
	return found
}

// Grey is how far below the threshold a text is one that the detector is not sure of.
const Grey = 2

// Near is Find that also tells of a text in which nothing was found, and which is near the threshold.
func (d *Detector) Near(channel Channel, source string, text []byte) (found, near *Found) {
	if d == nil {
		return nil, nil
	}
	r := d.Scan(channel, text)
	f := &Found{Event: eventHit, Detector: d.Version(), Rule: r.Rule, Channel: string(channel), Score: r.Score, Places: r.Places, Source: source}
	switch {
	case r.Hit:
		return f, nil
	case r.Partly:
		f.Event = eventUnscreened
		return f, nil
	case r.Score > -Grey:
		f.Event = ""
		return nil, f
	}
	return nil, nil
}

func (s *scratch) release(d *Detector) {
	size := cap(s.respelled)
	for i := range s.plain {
		size += cap(s.plain[i][0]) + cap(s.plain[i][1]) + cap(s.decoded[i])
	}
	if size <= keptMost {
		d.pool.Put(s)
	}
}

// text screens a text that was decoded so many times.
func (s *scratch) text(b []byte, level int) {
	for i := 0; escaped(b); i++ {
		if i == levels {
			var more bool
			s.respelled, more = unescape(s.respelled[:0], b)
			s.partly = s.partly || more
			break
		}
		out, any := unescape(s.plain[level][i][:0], b)
		s.plain[level][i] = out
		if !any {
			break
		}
		b = out
	}
	s.view(b)
	s.others(b)
	out := s.decoded[level][:0]
	for from := 0; ; {
		start, end := nextEncoded(b, from)
		if start == len(b) {
			break
		}
		from = end
		if end-start > s.left {
			s.partly = true
			break
		}
		was := len(out)
		out = undo(out, b[start:end])
		if len(out) == was {
			continue
		}
		if level == levels {
			s.partly, out = true, out[:0]
			break
		}
		s.left -= len(out) - was
		if end < len(b) && b[end] == '=' || end+1 < len(b) && b[end] != '\n' && b[end] != '\r' { // lines of one text follow one another
			out = append(out, '\n')
		}
	}
	s.decoded[level] = out
	if len(out) > 0 {
		s.text(out, level+1)
	}
}

// view reads one spelling of a text.
func (s *scratch) view(b []byte) {
	s.reading.read(b)
	s.places = max(s.places, s.reading.places)
	if s.reading.best > s.score {
		s.score, s.rule = s.reading.best, s.reading.bestRule
	}
}

// others reads the other spellings that the first one gave reason for.
func (s *scratch) others(b []byte) {
	w := s.reading.wants
	if w.respelled {
		s.respelled = s.reading.d.respell(s.respelled[:0], b)
		s.view(s.respelled)
	}
	if w.reversed {
		s.respelled = append(s.respelled[:0], b...)
		for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
			s.respelled[i], s.respelled[j] = s.respelled[j], s.respelled[i]
		}
		s.view(s.respelled)
	}
	if w.rotated {
		s.respelled = rotate(append(s.respelled[:0], b...))
		s.view(s.respelled)
	}
}

// Chunk is some words in a row, as features for training.
type Chunk struct {
	Features []uint32 // each a hash
	Bonus    float32  // what rules add
}

// Chunks returns a text's chunks, for training: in the first spelling, with escapes undone.
func (d *Detector) Chunks(text []byte) []Chunk {
	s := d.pool.Get().(*scratch)
	defer d.pool.Put(s)
	if escaped(text) {
		text, _ = unescape(nil, text)
	}
	var out []Chunk
	s.reading.collect = func(features []uint32, bonus float32) {
		out = append(out, Chunk{append([]uint32(nil), features...), bonus})
	}
	s.reading.read(text)
	s.reading.collect = nil
	return out
}

// What training has to know of how chunks are judged.
const (
	WindowSpan = windowSpan
	EvenOut    = evenOut
	BonusMost  = bonusMost
)
