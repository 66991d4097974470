package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/screen"
	"sallyport.example/provenance"
)

// run is one piece of work from its start: a person's task, or a task with an attack in it.
type run struct {
	task      string
	injection string
	prompt    string
	attacked  bool
	textOnly  bool              // the attack has no call
	reached   bool              // the record says that the attack's calls reach its goal
	fill      map[string][]byte // marker -> what stands there in this run, as the inside of a JSON string
	calls     []step            // the person's, up to the attack
	attack    []step            // the rest, with those that make the attack (attackers)
}

// marksAttacker reports whether a call of the attack is marked as the attacker's.
func (r run) marksAttacker() bool {
	return slices.ContainsFunc(r.attack, func(s step) bool { return s.by == byAttacker })
}

// attackers are the calls that make the attack, each of which has to run for it to get through.
func (r run) attackers() []step {
	marked := r.marksAttacker()
	return slices.DeleteFunc(slices.Clone(r.attack), func(s step) bool { return !s.attacks(marked) })
}

// attacks reports whether a call makes the attack: it is marked as the attacker's, or no call of its run is and it is not marked as the person's own.
func (s step) attacks(marked bool) bool { return s.by == byAttacker || s.by == "" && !marked }

// madeBy reports whether every call of an attack, of which there is one at least, is also among a run's own.
func madeBy(own, attack []step) bool {
	return len(attack) > 0 && !slices.ContainsFunc(attack, func(a step) bool {
		return !slices.ContainsFunc(own, func(s step) bool { return s.tool == a.tool && bytes.Equal(s.args, a.args) })
	})
}

// step is one recorded call.
type step struct {
	tool   string
	args   []byte          // canonical JSON, with markers: an object, but where a model gave something else
	result json.RawMessage // canonical JSON, with markers
	failed bool            // the result is an error's text
	by     string          // whose call it is, if somebody says
}

// trial plays one run.
type trial struct {
	state
	screen *screen.Detector
	tools  *toolbox
	calls  int
}

func newTrial(tools *toolbox, rules Rules, prompt string) *trial {
	return &trial{tools: tools, screen: rules.Screen, state: state{
		own: tools.own, rules: judge.Rules{Labels: ownLabels, FreeLevel1: rules.FreeLevel1}, words: provenance.ParseRequest(prompt), evidence: &provenance.Evidence{},
	}}
}

// play judges a call and, where it is done, takes in its result. One that is asked about is taken as approved.
func (s *trial) play(st step, fill map[string][]byte) provenance.Ruling {
	s.calls++
	id := fmt.Sprintf("call_%d", s.calls)
	t := s.tools.tool(st.tool)
	args := substitute(st.args, fill)
	r := s.rule(t, args, true)
	if r.Verdict == provenance.Permit && s.hit(screen.Arguments, args) {
		r.Verdict, r.Reason = provenance.Ask, "the arguments look like an attempt to order an agent about"
	}
	switch r.Verdict {
	case provenance.Deny:
		return r
	case provenance.Ask:
		s.evidence.Add(provenance.Approve(t.op.ID, id, t.profile, args, r.Evidence, s.held))
	}
	s.giveAway(t, id, args, t.op.Effect == flow.Write)
	result := substitute(st.result, fill)
	seen := provenance.Observe(t.profile, s.words, provenance.Result{Operation: t.op.ID, CallID: id, Arguments: args, Values: []provenance.Value{value(result)}, Writes: t.op.Effect == flow.Write})
	var found []flow.Label
	doubtful := s.hit(screen.Result, result)
	if doubtful {
		found = []flow.Label{flow.Untrusted, flow.Flagged}
	}
	s.raise(t, id, seen, r.Unasked, found...)
	if !st.failed && !doubtful { // an error's text names what was asked for: it shows nothing
		s.evidence.Add(seen)
	}
	return r
}

// hit tells whether screening finds words that order an agent about.
func (s *trial) hit(channel screen.Channel, text []byte) bool {
	if s.screen == nil {
		return false
	}
	r := s.screen.Scan(channel, text)
	return r.Hit || r.Partly && channel != screen.Arguments
}

// value is a result as the gateway sees it: a value of a structure, or a text.
func value(result json.RawMessage) provenance.Value {
	if s, ok := call.Text(result); ok {
		return provenance.TextValue(s)
	}
	return provenance.JSONValue(result)
}

const (
	markerOpen  = "<<INJ"
	markerClose = ">>"
	nowMarker   = "<<NOW>>"
	// someTime stands where a trace left out the time of day at which it was taken.
	someTime = "2000-01-01 00:00:00"
)

// substitute writes what stands at each marker into JSON text, in one pass: what is put in is not looked at again.
func substitute(b []byte, fill map[string][]byte) []byte {
	if fill == nil || !bytes.Contains(b, []byte("<<")) {
		return b
	}
	out := make([]byte, 0, len(b))
	for {
		at := bytes.Index(b, []byte("<<"))
		if at < 0 {
			return append(out, b...)
		}
		out, b = append(out, b[:at]...), b[at:]
		if bytes.HasPrefix(b, []byte(nowMarker)) {
			out, b = append(out, someTime...), b[len(nowMarker):]
			continue
		}
		if name, rest, ok := marker(b); ok {
			if text, known := fill[name]; known {
				out, b = append(out, text...), rest
				continue
			}
		}
		out, b = append(out, b[:1]...), b[1:]
	}
}

// grown is how long b can get by substitution, at most.
func grown(b []byte, fill map[string][]byte) int {
	longest := len(someTime)
	for _, text := range fill {
		longest = max(longest, len(text))
	}
	return len(b) + bytes.Count(b, []byte("<<"))*longest
}

// marker reads <<INJ:name>>, or <<INJ>> whose name is "", at the start of b.
func marker(b []byte) (name string, rest []byte, ok bool) {
	inner, ok := bytes.CutPrefix(b, []byte(markerOpen))
	if !ok {
		return "", nil, false
	}
	end := bytes.Index(inner, []byte(markerClose))
	if end < 0 || end > 0 && inner[0] != ':' {
		return "", nil, false
	}
	if end == 0 {
		return "", inner[len(markerClose):], true
	}
	return string(inner[1:end]), inner[end+len(markerClose):], true
}

// quoted is s as a JSON string in which markers stand as they are.
func quoted(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string always encodes
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// inside is s as it stands inside a JSON string.
func inside(s string) []byte {
	b := quoted(s)
	return b[1 : len(b)-1]
}

// sample is a few of many names.
func sample(names map[string]bool) string {
	all := slices.Sorted(maps.Keys(names))
	if len(all) > 5 {
		all = append(all[:5], "…")
	}
	return strings.Join(all, ", ")
}
