package flow

import (
	"slices"

	"sallyport.example/internal/sentence"
)

// ShownName is the operation's name, safe for a sentence.
func (op Operation) ShownName() string {
	if op.Name == "" {
		return sentence.Name(op.ID)
	}
	return sentence.Name(op.Name)
}

// Origins says which call brought which labels: "mail.search_email (call_1) loaded internal, pii data".
func Origins(because []Held) string {
	var clauses []string
	for i, h := range because {
		same := func(o Held) bool { return o.Operation == h.Operation && o.CallID == h.CallID && o.Cause == h.Cause }
		if slices.ContainsFunc(because[:i], same) {
			continue
		}
		var labels []Label
		for _, o := range because[i:] {
			if same(o) {
				labels = append(labels, o.Label)
			}
		}
		data := sentence.Names(labels)
		switch {
		case h.Cause != "":
			clauses = append(clauses, "this session holds "+data+" because of "+sentence.Name(h.Cause))
		case h.Operation == "":
			clauses = append(clauses, "this session holds "+data+" data from the start")
		case h.CallID == "":
			clauses = append(clauses, sentence.Name(h.Operation)+" loaded "+data+" data")
		default:
			clauses = append(clauses, sentence.Name(h.Operation)+" ("+sentence.Name(h.CallID)+") loaded "+data+" data")
		}
	}
	return sentence.Chain(clauses, "; ")
}
