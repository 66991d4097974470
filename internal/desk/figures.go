package desk

import "context"

// countedRequests is how many requests the figures are about, at most: they are read from the requests themselves.
const countedRequests = 500

// VoteCounts are figures on how people answer: of the newest requests that were answered, at most 500.
type VoteCounts struct {
	Requests int64 `json:"requests" doc:"How many requests these figures are about: the newest that people approved or rejected, at most 500."`
	Approved int64 `json:"approved" doc:"Answers that said yes."`
	Rejected int64 `json:"rejected" doc:"Answers that said no."`
	Own      int64 `json:"own" doc:"Answers of people who had asked for the call themselves, opened its session or own the agent. HI-2."`
}

// VoteCounts counts the answers that people gave.
func (d *Desk) VoteCounts(ctx context.Context) (VoteCounts, error) {
	return d.o.Store.VoteCounts(ctx, countedRequests)
}
