package screen

import "unicode/utf8"

const (
	chunkWords  = 8   // words of which the features are summed up together
	windowSpan  = 4   // chunks of one window, which is what is judged
	chunkRoom   = 512 // features of one chunk at most
	gramsOfWord = 32  // letters of a word that have features: what is longer is no word
	evenOut     = 60  // added to the number of features, so that a short text is not judged by a single word
	bonusMost   = 9   // what rules can add to a window
)

// chunk is what some words in a row say.
type chunk struct {
	sum, n int32
	bonus  float32
	rule   int32 // the heaviest that was met, -1 without any
}

// reading is one pass over one view of a text.
type reading struct {
	d *Detector
	// collect takes the features of each chunk instead of the weights, in training.
	collect func(features []uint32, bonus float32)

	roll          uint64 // the last letters
	h, joined     uint32 // hash of the word so far, and of it together with the word before
	prev, before  uint32 // hashes of the words before
	prevKnown     bool   // a rule knows the word before
	start, length int    // of the word
	digits        int    // in the word
	letters       int
	singles       int // words of one letter in a row
	tags, marks   int // invisible characters that carry text
	flag          int // such characters that may still belong to a flag

	features [chunkRoom + 4*gramsOfWord]uint32
	n        int
	words    int // of the chunk
	now      chunk
	window   [windowSpan]chunk
	chunks   int

	met met

	best     float32
	bestRule int32
	limit    float32 // above which a window is a hit
	places   int     // windows that are, and that don't overlap
	counted  int     // chunks until the last of them
	wants    wants
}

// wants says which other spellings of the text are worth reading.
type wants struct{ respelled, reversed, rotated bool }

const (
	offset32 = 2166136261
	prime32  = 16777619
)

func (s *reading) begin() {
	s.roll, s.h, s.joined, s.prev, s.before = 0, offset32, offset32, 0, 0
	s.prevKnown, s.flag = false, 0
	s.start, s.length, s.digits, s.letters, s.singles, s.tags, s.marks = 0, 0, 0, 0, 0, 0, 0
	s.n, s.words, s.chunks = 0, 0, 0
	s.now = chunk{rule: -1}
	for i := range s.window {
		s.window[i] = chunk{rule: -1}
	}
	s.met.begin()
	s.best, s.bestRule = lowest, -1
	s.places, s.counted = 0, -windowSpan
	s.wants = wants{}
}

// lowest is below the score of any text.
const lowest = -100

// read reads a view from its beginning to its end.
func (s *reading) read(b []byte) {
	s.begin()
	for i := 0; i < len(b); {
		c := b[i]
		if c >= utf8.RuneSelf {
			i += s.beyondASCII(b, i)
			continue
		}
		f := ascii[c]
		if f != ' ' {
			i = s.asciiRun(b, i)
			continue
		}
		if s.length > 0 {
			if c == '\'' && i+1 < len(b) && ascii[b[i+1]] != ' ' { // don't is one word
				i++
				continue
			}
			if (c == '$' || c == '!') && i+1 < len(b) && ascii[b[i+1]] >= 'a' {
				s.wants.respelled = true
			}
			s.endWord(b)
		}
		if o := s.d.rules.opens[c]; o != nil {
			s.mark(o, b[i:])
		}
		i++
	}
	if s.length > 0 {
		s.endWord(b)
	}
	s.endChunk()
	s.judge()
}

// asciiRun adds the ASCII letters and digits that stand in a row from i on to the word, as letter does, and returns where they end.
func (s *reading) asciiRun(b []byte, i int) int {
	if s.length == 0 {
		s.start = i
	}
	h, joined, roll, n, length := s.h, s.joined, s.roll, s.n, s.length
	for ; i < len(b); i++ {
		f := uint32(ascii[b[i]])
		if f == ' ' {
			break
		}
		if f == '0' {
			s.digits++
		}
		h = (h ^ f) * prime32
		joined = (joined ^ f) * prime32
		if length++; length > gramsOfWord {
			continue
		}
		roll = roll<<8 | uint64(f)
		s.features[n] = gram(roll)
		n++
	}
	s.h, s.joined, s.roll, s.n, s.length = h, joined, roll, n, length
	return i
}

// gram is the feature of the last five letters.
func gram(roll uint64) uint32 { return uint32((roll & (1<<40 - 1)) * 0x9E3779B97F4A7C15 >> 32) }

// letter adds a letter to the word.
func (s *reading) letter(f uint32, at int) {
	if s.length == 0 {
		s.start = at
	}
	s.length++
	if f == '0' {
		s.digits++
	}
	s.h = (s.h ^ f) * prime32
	s.joined = (s.joined ^ f) * prime32
	if s.length > gramsOfWord {
		return
	}
	s.roll = s.roll<<8 | uint64(byte(f^f>>8*31))
	s.features[s.n] = gram(s.roll)
	s.n++
}

// beyondASCII handles the character at a place and returns its length.
func (s *reading) beyondASCII(b []byte, at int) int {
	r, n := utf8.DecodeRune(b[at:])
	f := s.d.fold.of(r)
	if r >= 0x1F000 || r >= 0x2000 && r < 0x3000 {
		s.invisible(r)
	}
	switch {
	case f == dropped:
		return n
	case f == separator:
		if s.length > 0 {
			s.endWord(b[:at])
		}
	case f >= several:
		for _, c := range s.d.fold.more[f-several] {
			if c == separator {
				if s.length > 0 {
					s.endWord(b[:at])
				}
				continue
			}
			s.letter(uint32(c), at)
		}
	case ideograph(f):
		if s.length > 0 {
			s.endWord(b[:at])
		}
		s.letter(uint32(f), at)
		s.endWord(b[:at+n])
	default:
		s.letter(uint32(f), at)
	}
	return n
}

// flagTags are the most such characters in a flag: two letters of a country, three of its part, and the end.
const flagTags = 6

// invisible counts the characters that show nothing and can carry text. A flag is a symbol followed by such characters, too.
func (s *reading) invisible(r rune) {
	switch {
	case r == 0x1F3F4:
		s.flag = flagTags
	case r >= 0xE0000 && r <= 0xE007F:
		if s.flag > 0 {
			s.flag--
			break
		}
		s.tags++
		if s.tags == 8 {
			s.fire(s.d.rules.hiddenTags)
		}
	case r >= 0xE0100 && r <= 0xE01EF:
		if s.marks++; s.marks == 12 {
			s.fire(s.d.rules.hiddenMarks)
		}
	default:
		s.flag = 0
	}
}

// endWord takes the word's features and looks whether rules know it. b has the word at s.start.
func (s *reading) endWord(b []byte) {
	h, n := s.h, s.n
	s.features[n] = h * 0x85EBCA6B
	s.features[n+1] = (h ^ s.prev*0x9E3779B1) * 0xC2B2AE35
	s.features[n+2] = (h ^ s.before*0x27D4EB2F) * 0x165667B1
	s.n += 3
	s.met.at++
	known := false
	if s.d.rules.maybe(h) {
		known = s.word(h)
	}
	if !known {
		switch {
		case s.digits > 0 && s.digits < s.length && s.length <= 2*gramsOfWord:
			word := b[s.start:min(len(b), s.start+4*gramsOfWord)]
			if h := unleet(word); s.d.rules.maybe(h) && s.word(h) && standsForLetter(word) {
				s.wants.respelled = true
			}
		case !s.prevKnown && s.length > 1 && s.d.rules.maybe(s.joined): // a word that was split
			s.word(s.joined)
		}
	}
	s.prevKnown = known
	if s.length == 1 && s.digits == 0 {
		if s.singles++; s.singles == 6 {
			s.wants.respelled = true
		}
	} else {
		s.singles = 0
	}
	s.before, s.prev = s.prev, h
	s.joined = h
	s.h, s.length, s.digits = offset32, 0, 0
	s.roll = s.roll<<8 | ' '
	if s.words++; s.words == chunkWords || s.n >= chunkRoom {
		s.endChunk()
	}
}

// standsForLetter tells whether a digit of the word, which a rule knows with letters for its digits, is there in place of a letter. At the end a 5 may be a number (user5, rule5),
// where the rules have the word in the plural alone: the word counts for the rules all the same, but is no reason to read the whole text again.
func standsForLetter(b []byte) bool {
	i := 0
	for ; i < len(b) && ascii[b[i]] != ' '; i++ {
		if ascii[b[i]] == '0' && i+1 < len(b) && ascii[b[i+1]] >= 'a' {
			return true
		}
	}
	return i > 2 && b[i-1] != '5' && ascii[b[i-1]] == '0'
}

// unleet hashes a word in which digits stand for letters.
func unleet(b []byte) uint32 {
	h := uint32(offset32)
	for _, c := range b {
		f := leet(c)
		if f == ' ' {
			break
		}
		h = (h ^ uint32(f)) * prime32
	}
	return h
}

// leet folds a byte, with digits read as the letters that they look like.
func leet(c byte) byte {
	switch c {
	case '0':
		return 'o'
	case '1', '!', '|':
		return 'i'
	case '3':
		return 'e'
	case '4', '@':
		return 'a'
	case '5', '$':
		return 's'
	case '7', '+':
		return 't'
	case '6', '9':
		return 'g'
	case '8':
		return 'b'
	}
	return ascii[c]
}

// endChunk sums up the weights of the chunk's features.
func (s *reading) endChunk() {
	if s.n == 0 && s.now.rule < 0 {
		return
	}
	if s.collect != nil {
		s.collect(s.features[:s.n], s.now.bonus)
	} else {
		w := s.d.model.weights
		size := uint64(len(w))
		sum := int32(0)
		for _, f := range s.features[:s.n] {
			sum += int32(int8(w[uint64(f)*size>>32]))
		}
		s.now.sum = sum
	}
	s.now.n = int32(s.n)
	s.window[s.chunks%windowSpan] = s.now
	s.chunks++
	s.now, s.n, s.words = chunk{rule: -1}, 0, 0
	if s.chunks >= windowSpan {
		s.judge()
	}
}

// judge scores the window that ends here.
func (s *reading) judge() {
	if s.chunks == 0 {
		return
	}
	var sum, n int32
	var bonus float32
	rule, heaviest := int32(-1), float32(0)
	for i := range s.window {
		c := &s.window[i]
		sum, n, bonus = sum+c.sum, n+c.n, bonus+c.bonus
		if c.rule >= 0 && s.d.rules.all[c.rule].weight > heaviest {
			rule, heaviest = c.rule, s.d.rules.all[c.rule].weight
		}
	}
	score := s.d.model.score(sum, n) + min(bonus, bonusMost)
	if score > s.limit && s.chunks >= s.counted+windowSpan {
		s.places, s.counted = s.places+1, s.chunks
	}
	if score > s.best {
		s.best, s.bestRule = score, rule
	}
}

// fire notes that a rule was met.
func (s *reading) fire(rule int32) {
	if rule < 0 || s.d.withoutTemplates && s.d.rules.all[rule].template {
		return
	}
	s.now.bonus += s.d.rules.all[rule].weight
	if s.now.rule < 0 || s.d.rules.all[rule].weight > s.d.rules.all[s.now.rule].weight {
		s.now.rule = rule
	}
}
