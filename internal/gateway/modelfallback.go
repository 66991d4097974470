package gateway

import (
	"sallyport.example/internal/effect"
)

// askInstead notes in the answer to a request to a model that failed before anything of it left which model can be asked in its place (TH-8). failure is ""
// for a request that did not fail. One for which the provider may have run a tool is not made twice: it falls back where it was never begun. Nor is one for
// embeddings, which are compared with others: those of two models can't be.
func (c *crossing) askInstead(a Answer, failure string) Answer {
	if c.ran.left.bytes > 0 {
		return a
	}
	a.failure = failure
	twice := len(c.hosted) > 0 && c.ran.intended
	if id := c.op.Model.Fallback; id != "" && !twice && !effect.Embeds(c.r.Arguments) && c.decl.UsesModel(id) {
		arguments, err := effect.AskInstead(c.r.Arguments, id)
		if err != nil {
			c.g.log.Error("a request can't be made for another model", "error", err)
			return a
		}
		a.fallback, a.arguments = id, arguments
	}
	return a
}
