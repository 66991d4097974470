package planned

import (
	"sallyport.example/flow"
	"sallyport.example/internal/fault"
)

// Report is the answer to a question about planned calls: whether they would run, and what people would be asked on the way (FL-6, DE-4).
type Report struct {
	flow.Report
	// Asks are there for steps that nothing refuses, in the planned order. Never nil.
	Asks []Ask `json:"asks"`
}

// Ask is a step that would wait for people when it is called, by what is known before.
type Ask struct {
	AtStep int    `json:"at_step"`
	Tool   string `json:"tool"`
	Risk   string `json:"risk"`
	Needed int    `json:"needed" doc:"How many people have to approve it. 0: it runs by itself unless one of them stops it."`
	Reason string `json:"reason"`
}

// Said is the judgement of one step of a plan, before the step is called.
type Said struct {
	Verdict fault.Verdict // as part of the plan
	Risk    fault.Verdict // of its risk when it is called
	Ask     *Ask          // what people would be asked, with the labels by then; nil: nothing, or nobody wanted to know
}

// ahead are the labels that a step brings in, for those after it.
func ahead(op flow.Operation) (held []flow.Held) {
	for _, l := range op.Emits {
		held = append(held, flow.Held{Label: l, Operation: op.ID})
	}
	return held
}
