package policy

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Risk is how much an operation can do (HI-1).
type Risk string

const (
	Low      Risk = "LOW"
	Medium   Risk = "MEDIUM"
	High     Risk = "HIGH"
	Critical Risk = "CRITICAL"
)

// Risks is the order of the tiers, lowest first.
var Risks = []Risk{Low, Medium, High, Critical}

// Rank is the place in the order. A word that is no tier is above all of them.
func (r Risk) Rank() int {
	if i := slices.Index(Risks, r); i >= 0 {
		return i
	}
	return len(Risks)
}

// Rules are the operator's thresholds, exact. The zero Rules has a threshold of nothing and knows no currency, so every amount
// reaches it. Immutable; safe for concurrent use.
type Rules struct {
	high, critical *big.Rat // in the base currency
	base           string
	rates          map[string]*big.Rat // one unit of a currency in the base currency
	guesses        bool                // roles are guesses: no currency makes less of an amount
}

// Defaults of NewRules. The requirement states its thresholds in this currency.
const (
	DefaultHigh     = 1000
	DefaultCritical = 10000
	DefaultCurrency = "USD"
)

// NewRules checks the thresholds of the configuration: amounts in the base currency from which a call is HIGH, and CRITICAL if it
// moves money or deletes data. 0 and "" are the defaults (1000, 10000, USD). rates are what one unit of a currency (ISO 4217) is in
// the base currency. Floats count as the shortest decimals that stand for them, which is what was written. Errors are
// fault.ConfigurationInvalid, at a field of approvals.
func NewRules(high, critical float64, base string, rates map[string]float64) (Rules, error) {
	if high == 0 {
		high = DefaultHigh
	}
	if critical == 0 {
		critical = DefaultCritical
	}
	if base == "" {
		base = DefaultCurrency
	}
	r := Rules{high: exactly(high), critical: exactly(critical), base: base, rates: make(map[string]*big.Rat, len(rates))}
	switch {
	case r.high == nil:
		return Rules{}, fault.New(fault.ConfigurationInvalid, "%v is no amount", high).At("approvals.high_amount").Try("Give a positive number, or leave it out for %d.", DefaultHigh)
	case r.critical == nil:
		return Rules{}, fault.New(fault.ConfigurationInvalid, "%v is no amount", critical).At("approvals.critical_amount").Try("Give a positive number, or leave it out for %d.", DefaultCritical)
	case r.high.Cmp(r.critical) > 0:
		return Rules{}, fault.New(fault.ConfigurationInvalid, "%s is over critical_amount, which is %s", decimal(r.high), decimal(r.critical)).At("approvals.high_amount").
			Try("Lower high_amount, or raise critical_amount.")
	case !isCode(base):
		return Rules{}, fault.New(fault.ConfigurationInvalid, "%q is no currency", display.Line(base, shownMost)).At("approvals.currency").Try("Give the code's three capital letters, such as USD.")
	}
	for _, code := range slices.Sorted(maps.Keys(rates)) {
		at := "approvals.rates." + display.Line(code, shownMost)
		rate := exactly(rates[code])
		switch {
		case !isCode(code):
			return Rules{}, fault.New(fault.ConfigurationInvalid, "%q is no currency", display.Line(code, shownMost)).At(at).Try("Give the code's three capital letters, such as EUR.")
		case rate == nil:
			return Rules{}, fault.New(fault.ConfigurationInvalid, "%v is no rate", rates[code]).At(at).Try("Give what one %s is in %s, a positive number.", code, base)
		case code == base && rate.Cmp(one) != 0:
			return Rules{}, fault.New(fault.ConfigurationInvalid, "one %s is %v %s", code, rates[code], base).At(at).Try("Leave the base currency out of the rates.")
		}
		r.rates[code] = rate
	}
	return r, nil
}

// exactly is the decimal that a float stands for, or nil if it is not positive and finite.
func exactly(f float64) *big.Rat {
	if !(f > 0) || math.IsInf(f, 0) {
		return nil
	}
	n, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return n
}

// Subject is one call to be rated.
type Subject struct {
	Action    string            // the operator's word for what the operation does; "" none
	Floor     Risk              // the operator's risk: it only raises; "" none; a word that is no tier counts as CRITICAL
	Roles     map[string]string // path of an argument ("amount", "payments.amount") -> its role
	Arguments []byte            // canonical JSON object; nil is none
	Acts      string            // of what is said to read: why this call does more, as a sentence; "" it doesn't
	Write     bool              // it changes something outside what only the person sees (level 2)
	// Unclassified: the call changes something, and nobody has said what: the operation has no action, no risk and no level.
	Unclassified bool
	Context      Context
}

// Context is what raises the risk of writes, to HIGH at most.
type Context struct {
	Untrusted        bool     // the session has read content from an unconfirmed source
	Contaminated     bool     // the session holds confidential data
	Labels           []string // the labels of that data, for the reason's text
	LeftPlan         bool     // the session has a plan and the call is not in it; counts only with Untrusted or Confirmed
	NewTool          bool     // the operation's definition is new or has changed
	FirstDestination bool     // nothing was sent to one of its destinations before
	Flagged          bool     // the session has read words that screening takes for orders to an agent
	Confirmed        bool     // the session is untrusted, and it is known where everything in the call came from
}

// Codes of reasons, in the order in which they come.
const (
	ReasonAction           = "risk.action"
	ReasonActs             = "risk.acts"
	ReasonAmount           = "risk.amount"
	ReasonUnreadableAmount = "risk.unreadable_amount"
	ReasonOperator         = "risk.operator"
	ReasonUntrusted        = "risk.untrusted"
	ReasonContaminated     = "risk.contaminated"
	ReasonLeftPlan         = "risk.left_plan"
	ReasonNewTool          = "risk.new_tool"
	ReasonFirstDestination = "risk.first_destination"
	ReasonUnclassified     = "risk.unclassified"
	ReasonDataLeaves       = "risk.data_leaves"
	ReasonUnconfirmed      = "risk.unconfirmed"
	ReasonFlagged          = "risk.flagged"
)

// Reason is one rule that gave the risk or raised it. Text is for the person who approves: a sentence or two in our own words, with
// nothing of the agent's but amounts that were read, written by us, and currency codes.
type Reason struct{ Code, Text string }

// Rating is what a call's risk is and why.
type Rating struct {
	Risk        Risk
	Amount      string // "1250.50 EUR": the sum in the call's currency, or in the base currency if it has several; "unreadable"; "" none
	Reasons     []Reason
	Consequence string // what could go wrong (HI-3)
}

// action is what the rules know about one.
type action struct {
	risk        Risk
	large       bool // CRITICAL from the critical amount, and so without an amount that can be read
	is          string
	consequence string
}

var actions = map[string]action{
	"transfer_money": {High, true, "It moves money",
		"Money rarely comes back."},
	"delete_data": {High, true, "It deletes data",
		"Deleted data may be gone for good."},
	"grant_access": {High, false, "It gives access",
		"Somebody may see or change what they should not."},
	"publish_content": {High, false, "It publishes something",
		"What is published can be copied before it is taken down."},
	"send_email": {Medium, false, "It sends an e-mail",
		"A mail can’t be called back."},
	"schedule_meeting": {Medium, false, "It schedules a meeting",
		"The wrong people may be invited."},
	"book_appointment": {Medium, false, "It books an appointment",
		"Cancelling may cost money."},
}

// KnownAction tells whether the rules have a risk for the action. Any other is LOW.
func KnownAction(action string) bool { _, ok := actions[action]; return ok }

// NeedsAmount tells whether an action is CRITICAL from some amount on, so that its calls should have one that can be read.
func NeedsAmount(action string) bool { return actions[action].large }

const (
	writeConsequence = "Others see the change, and it may not be possible to undo."
	readConsequence  = "What it returns may be wrong or misleading."
)

// tiers is what each one asks of people (HI-2), to end a reason's sentence.
var tiers = map[Risk]string{
	Medium:   "people can stop it before it runs",
	High:     "a person must approve it",
	Critical: "it takes two people",
}

// Rate rates one call (HI-1): by its action and amount, raised by the operator's word, then by context. It is pure, and never fails:
// what can't be judged is CRITICAL.
func (r Rules) Rate(s Subject) Rating {
	act, known := actions[s.Action]
	out := Rating{Risk: Low, Consequence: act.consequence}
	switch {
	case known:
		out.raise(act.risk, ReasonAction, act.is+", so "+tiers[act.risk]+".")
	case s.Write:
		out.Consequence = writeConsequence
	default:
		out.Consequence = readConsequence
	}
	if s.Acts != "" {
		out.Reasons = append(out.Reasons, Reason{ReasonActs, s.Acts})
	}
	r.rateAmount(&out, s, act)

	if floor := s.Floor; floor != "" && floor.Rank() > out.Risk.Rank() {
		text := "The operator rates this operation " + string(floor) + "."
		if !slices.Contains(Risks, floor) {
			floor, text = Critical, "The operator's rating of this operation is no known word, so it counts as CRITICAL."
		}
		if floor.Rank() > out.Risk.Rank() {
			out.raise(floor, ReasonOperator, text)
		}
	}
	if s.Write {
		out.rateContext(s.Context)
	}
	if s.Unclassified && out.Risk == Low {
		out.raise(Medium, ReasonUnclassified, "It changes something, and the operator has not said what kind of change it is (action, risk or level), so "+tiers[Medium]+".")
	}
	return out
}

const (
	leavesConsequence      = "Private data could leave, and can't be called back."
	unconfirmedConsequence = "A stranger may have chosen where it goes, or what it does."
)

// Asked returns the rating of a call about which the flow rules ask a person: it is at least MEDIUM, and HIGH where private data could leave. What
// could go wrong follows from why a person is asked.
func (out Rating) Asked(dataLeaves bool) Rating {
	to, code, harm := Medium, ReasonUnconfirmed, unconfirmedConsequence
	text := "Nobody the rules trust named where it goes or what it affects, so it is at least MEDIUM."
	if dataLeaves {
		to, code, harm = High, ReasonDataLeaves, leavesConsequence
		text = "Private data could leave with it, so a person must approve it."
	}
	if out.Risk.Rank() < to.Rank() {
		out.Reasons = slices.Clip(out.Reasons)
		out.raise(to, code, text)
	}
	if out.Consequence == readConsequence || out.Consequence == writeConsequence && dataLeaves {
		out.Consequence = harm
	}
	return out
}

// Raised reports whether the rule raised the risk.
func (out *Rating) Raised(code string) bool {
	return slices.ContainsFunc(out.Reasons, func(r Reason) bool { return r.Code == code })
}

// raise records a rule that gives at least the risk.
func (out *Rating) raise(to Risk, code, text string) {
	if to.Rank() > out.Risk.Rank() {
		out.Risk = to
	}
	out.Reasons = append(out.Reasons, Reason{code, text})
}

// rateAmount raises the risk by the amounts of the call: those that the operator's roles tell and, of a write, those that look like one by
// their names.
func (r Rules) rateAmount(out *Rating, s Subject, act action) {
	t := r.total(s.Roles, s.Arguments, act.large)
	if t.fault != "" {
		out.Amount = "unreadable"
		out.raise(Critical, ReasonUnreadableAmount, t.fault+", so "+tiers[Critical]+".")
		return
	}
	if s.Write {
		g := r.guess(s.Roles, s.Arguments)
		if g.fault != "" { // as if it were as large as can be
			to := High
			if act.large {
				to = Critical
			}
			out.Amount = "unreadable"
			out.raise(to, ReasonUnreadableAmount, g.fault+", so "+tiers[to]+"."+guessed)
			return
		}
		t = t.plus(g)
	}
	if !t.any {
		return
	}
	sum, unit := t.own, " "+t.currency
	if t.currency == "" {
		sum, unit = t.base, " "+r.base
	}
	if s.Action == "delete_data" && !t.written {
		unit = "" // a number of records, as far as anyone knows
	}
	out.Amount = decimal(sum) + unit

	to, from := Risk(""), r.critical
	switch {
	case act.large && reaches(t.base, r.critical):
		to = Critical
	case reaches(t.base, r.high):
		to, from = High, r.high
	default:
		return
	}
	text := "Its amount is "
	if s.Action == "transfer_money" {
		text = "It moves "
	}
	text += thousands(sum) + unit
	if unit != "" && unit != " "+r.base {
		text += " (" + thousands(t.base) + " " + r.base + ")"
	}
	if from != nil {
		text += "; from " + thousands(from)
		if unit != "" {
			text += " " + r.base
		}
	}
	text += " " + tiers[to] + "."
	if t.twoWays {
		text += " The amount is written so that it can be read in more than one way; the largest counts."
	}
	if t.unsure {
		text += " A currency that would make it less counts only in the argument for it, as three capital letters: this one counts as " + r.base + "."
	}
	if t.guessed {
		text += guessed
	}
	out.raise(to, ReasonAmount, text)
}

// guessed ends the reason of a risk that rests on a name.
const guessed = " An argument counts as an amount by its name: no role says what it is."

// reaches tells whether a sum is at a threshold or over it. No threshold is always reached.
func reaches(sum, threshold *big.Rat) bool { return threshold == nil || sum.Cmp(threshold) >= 0 }

// rateContext raises by one tier for each ground, to HIGH at most. A ground that finds it there already is no reason.
func (out *Rating) rateContext(c Context) {
	up := func(reasons ...Reason) {
		if at := out.Risk.Rank(); at < High.Rank() {
			out.Risk = Risks[at+1]
			out.Reasons = append(out.Reasons, reasons...)
		}
	}
	var read []Reason // together one ground
	if c.Untrusted {
		read = append(read, Reason{ReasonUntrusted, "The session has read content from an unconfirmed source."})
	}
	if c.Contaminated {
		text := "The session holds confidential data."
		if len(c.Labels) > 0 {
			text = "The session holds confidential data (" + display.Line(strings.Join(c.Labels, ", "), shownMost) + ")."
		}
		read = append(read, Reason{ReasonContaminated, text})
	}
	if read != nil {
		up(read...)
	}
	if c.LeftPlan && (c.Untrusted || c.Confirmed) {
		up(Reason{ReasonLeftPlan, "It is not in the session's approved plan."})
	}
	if c.NewTool {
		up(Reason{ReasonNewTool, "The tool is new, or its definition has changed."})
	}
	if c.Flagged {
		up(Reason{ReasonFlagged, "The session has read words that look like orders to an agent."})
	}
	if c.FirstDestination {
		up(Reason{ReasonFirstDestination, "It goes to a destination that was never used before."})
	}
}
