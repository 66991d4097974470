package runner

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/fingerprint"
	"sallyport.example/internal/run"
)

const (
	// remembered bounds the outputs that are recognised when they come back: the newest.
	remembered = 4000
	// tagged is what a text is from that carries the tag of an output, without being like one that is known.
	tagged = "synthetic"
)

// ErrReturned is the cause of the refusal of an input that is an agent's output. A person can say that it is theirs.
var ErrReturned = errors.New("an agent's output came back")

// textsOf are the texts of checked JSON, without the names of members.
func textsOf(data json.RawMessage) (texts []string) {
	call.Strings(data, func(path, text string) bool {
		if len(path) < 2 || path[len(path)-2:] != "{}" {
			texts = append(texts, text)
		}
		return true
	})
	return texts
}

// textsAndNames are the texts of checked JSON and the names of its members.
func textsAndNames(data json.RawMessage) (texts []string) {
	call.Strings(data, func(_, text string) bool {
		texts = append(texts, text)
		return true
	})
	return texts
}

// said is what is known of an output.
type said struct {
	id    string
	at    time.Time
	print fingerprint.Print
}

// remember loads the outputs of runs, and what sessions recommended, that are recognised: the oldest first.
func (r *Runner) remember(ctx context.Context) error {
	r.known = fingerprint.New(remembered)
	all, err := pages(func(after string) (page []said, last string, err error) {
		runs, err := r.o.Store.Runs(ctx, run.Filter{After: after, Limit: 100})
		for _, one := range runs {
			page, last = append(page, said{one.ID, one.Started, one.Print}), one.ID
		}
		return page, last, err
	})
	if err != nil {
		return err
	}
	recommended, err := pages(func(after string) (page []said, last string, err error) {
		recs, err := r.o.Store.Recommendations(ctx, run.RecommendationFilter{After: after, Limit: 100})
		for _, one := range recs {
			page, last = append(page, said{one.ID, one.At, one.Print}), one.ID
		}
		return page, last, err
	})
	if err != nil {
		return err
	}
	all = append(all, recommended...)
	slices.SortStableFunc(all, func(a, b said) int { return a.at.Compare(b.at) })
	for _, one := range all {
		r.known.Add(one.id, one.print)
	}
	return nil
}

// pages reads the newest outputs, page by page, as many as are recognised.
func pages(read func(after string) (page []said, last string, err error)) (all []said, err error) {
	for after := ""; len(all) < remembered; {
		page, last, err := read(after)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < 100 {
			break
		}
		after = last
	}
	return all, nil
}

// printOf is the fingerprint of what an output does not have from what was read or from its input: whoever quotes a source, or the question, does not make
// it an agent's words. What the agent itself had given to this call or one before comes back as its own words, and not as a source's, also in other pieces than it gave it in; and so does
// everything from a call on whose arguments are not kept, or with which there is more than is looked at.
func printOf(output json.RawMessage, reads []run.Read, input json.RawMessage) fingerprint.Print {
	p := fingerprint.Of(textsOf(output)...)
	if input != nil {
		p = p.Without(fingerprint.Of(textsOf(input)...))
	}
	reads = slices.SortedStableFunc(slices.Values(reads), func(a, b run.Read) int { return a.At.Compare(b.At) })
	var values, named fingerprint.Running // what was given as values, and with the names of members between them
	for _, one := range reads {
		if one.Arguments == nil || !values.Add(textsOf(one.Arguments)...) || !named.Add(textsAndNames(one.Arguments)...) {
			break
		}
		var texts []string
		if one.Result != nil {
			texts = textsOf(one.Result)
		}
		for _, d := range one.Documents {
			if !d.Synthetic {
				texts = append(texts, d.Text)
			}
		}
		if len(texts) > 0 && !one.Synthetic {
			quoted := slices.DeleteFunc(fingerprint.Of(texts...), func(h uint64) bool { return values.Has(h) || named.Has(h) })
			p = p.Without(quoted)
		}
	}
	return p
}

// Returned tells whether texts that belong together are, or have in them, what an agent said in a run or recommended, and in which. It knows the newest
// outputs.
func (r *Runner) Returned(texts ...string) (id string, found bool) {
	match, found := r.known.Similar(texts...)
	return match.ID, found
}

// Holds tells whether half of a part of a text stands in what agents said in runs or recommended, and not in what these had read; and in which.
func (r *Runner) Holds(part string) (id string, found bool) {
	match, found := r.known.Holds(fingerprint.Of(part))
	return match.ID, found
}

// returned tells whether checked JSON is, or has in it, what an agent said: by its tag, or by its words.
func (r *Runner) returned(data json.RawMessage) (id string, found bool) {
	texts := textsOf(data)
	if id, found := r.Returned(texts...); found {
		return id, true
	}
	if isTagged(data) {
		return tagged, true
	}
	for _, text := range texts { // a result has its content as a text, and in that there may be JSON
		if inner, err := call.Canonical(json.RawMessage(text), call.DefaultLimits()); err == nil && isTagged(inner) {
			return tagged, true
		}
	}
	return "", false
}

// isTagged tells whether an object in checked JSON has the tag of an output.
func isTagged(data json.RawMessage) bool {
	if call.IsObject(data) {
		if tag, ok := call.Get(data, "synthetic"); ok && string(tag) == "true" {
			return true
		}
		for _, member := range call.Members(data) {
			if isTagged(member) {
				return true
			}
		}
		return false
	}
	if len(data) > 0 && data[0] == '[' {
		for element := range call.Elements(data) {
			if isTagged(element) {
				return true
			}
		}
	}
	return false
}

// refuseReturned refuses an input that is an agent's output, unless a person says that it is theirs. It returns where it is from.
func (r *Runner) refuseReturned(input json.RawMessage, own bool) (from string, err error) {
	from, found := r.returned(input)
	if !found || own {
		return from, nil
	}
	return from, fault.Wrap(ErrReturned, fault.Conflict, "The input is, or has in it, what an agent said: %s. Agents that learn from agents drift from what is so.", from).At("input").
		Try("Is this yours? Then say so: own in the request, --own on the command line, or the box in the console. Only a person can.")
}
