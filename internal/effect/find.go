package effect

import (
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
)

// MaxName bounds URIs and names of prompts, in bytes: they stand in records and attributions.
const MaxName = 8 << 10

// offered lists the kinds of offers that each method is for, in the order in which a name is looked up.
var offered = map[call.Method][]call.Kind{
	call.ReadResource: {call.Resource},
	call.Subscribe:    {call.Resource},
	call.Unsubscribe:  {call.Resource},
	call.GetPrompt:    {call.Prompt},
	call.Complete:     {call.Prompt, call.Resource},
}

// Of is the effect of calling an operation by its tool's name.
func Of(op *catalogue.Operation) Effect {
	if op.Command != nil {
		return command{op}
	}
	return tool{served{op}}
}

// Find is the effect of a method on what has the name; nil if the catalogue knows nothing of the name that the method is for.
func Find(snap *catalogue.Snapshot, m call.Method, name string) (Effect, error) {
	if m == call.CallTool {
		if op := snap.Lookup(name); op != nil {
			return Of(op), nil
		}
		return nil, nil
	}
	if m == call.AskModel {
		return askable(snap, name)
	}
	var e Effect
	for _, kind := range offered[m] {
		if o := snap.Offer(kind, name); o != nil {
			e = on(m, o, name)
			break
		}
	}
	if len(name) > MaxName {
		return e, fault.New(fault.RequestMalformed, "at most %d bytes", MaxName).At("uri")
	}
	return e, nil
}

// Again is the effect that Find found, by the catalogue as it is now: the same operation in the class that it has by now. It is nil where the operation is
// gone or has another definition, or where the name means another one.
func Again(snap *catalogue.Snapshot, before Effect, m call.Method, name string) Effect {
	was := before.Operation()
	op := snap.ByID(was.ID)
	if op == nil || op.Hash != was.Hash {
		return nil
	}
	if op.Kind == call.Tool {
		return Of(op)
	}
	now, err := Find(snap, m, name)
	if err != nil || now == nil || now.Operation() != op || now.Definition() != before.Definition() {
		return nil
	}
	if asked, ok := before.(model); ok {
		return OnTerms(now, asked.terms)
	}
	return now
}

func on(m call.Method, o *catalogue.Offer, name string) Effect {
	switch m {
	case call.GetPrompt:
		return &prompt{served: served{o.Operation}, name: o.Upstream}
	case call.Complete:
		return completion{served{o.Operation}}
	}
	return &resource{served: served{o.Operation}, method: m, uri: name}
}

// Withheld is the operation that Find would have found if agents could call it; nil if there is none.
func Withheld(snap *catalogue.Snapshot, m call.Method, name string) *catalogue.Operation {
	if m == call.CallTool {
		return snap.Withheld(call.Tool, name)
	}
	for _, kind := range offered[m] {
		if op := snap.Withheld(kind, name); op != nil {
			return op
		}
	}
	return nil
}

// Action is the name of a method in records.
func Action(m call.Method) string {
	if m == call.CallTool {
		return "call"
	}
	return string(m)
}
