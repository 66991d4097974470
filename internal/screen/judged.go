package screen

import (
	"crypto/sha256"
	"math"
)

// VerdictAction is the action of an entry about what a person says of something that was screened. Its detail is a Judged.
const VerdictAction = "screening.verdict"

// Judged is what a person says of something that was screened, for the record.
type Judged struct {
	Entry  int64 `json:"entry"`  // its index in the log
	Hit    bool  `json:"hit"`    // screening had found something
	Attack bool  `json:"attack"` // the person calls it an attack
	Weight int   `json:"weight"` // for how many like it it stands: 1 for a hit, SampleOf for one of the sample
}

// SampleOf says that one call of so many without a hit is in the sample that people judge.
const SampleOf = 20

// Sampled tells whether a call is in the sample: by the digest of its id, which the gateway draws, so neither an agent nor who judges chooses.
func Sampled(callID string) bool {
	sum := sha256.Sum256([]byte("sallyport screening sample v1\x00" + callID))
	return callID != "" && (int(sum[0])<<8|int(sum[1]))%SampleOf == 0
}

// Rate is how many of those judged were so, and between which shares the true one lies with 95 % (Wilson's interval).
type Rate struct {
	Are, Of   int
	Low, High float64
}

// RateOf is the rate of so many among so many.
func RateOf(are, of int) Rate {
	r := Rate{Are: are, Of: of, High: 1}
	if of == 0 {
		return r
	}
	const z = 1.959964
	n, p := float64(of), float64(are)/float64(of)
	middle, half := p+z*z/(2*n), z*math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	r.Low, r.High = max(0, (middle-half)/(1+z*z/n)), min(1, (middle+half)/(1+z*z/n))
	return r
}

// Rates are the rates that people's words give: false alarms among hits, and attacks among calls of the sample. Of two words about one entry the later counts.
func Rates(all []Judged) (falseAlarms, missed Rate) {
	last := map[int64]Judged{}
	for _, j := range all {
		last[j.Entry] = j
	}
	var alarms, hits, attacks, others int
	for _, j := range last {
		switch {
		case j.Hit:
			hits++
			if !j.Attack {
				alarms++
			}
		default:
			others++
			if j.Attack {
				attacks++
			}
		}
	}
	return RateOf(alarms, hits), RateOf(attacks, others)
}
