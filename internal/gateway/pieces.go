package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// errUntaken is the cause of a call that ended because its client took no more of the answer: it says nothing of the provider.
var errUntaken = errors.New("the client took no more")

// left is what of a result left before the outcome was on record.
type left struct {
	bytes int64
	sum   hash.Hash
	first time.Duration // from the beginning of the effect to the first piece
}

func (l *left) add(piece []byte) {
	if l.sum == nil {
		l.sum = sha256.New()
	}
	l.sum.Write(piece)
	l.bytes += int64(len(piece))
}

// record is how the outcome has it.
func (l *left) record() map[string]any {
	return map[string]any{"bytes": l.bytes, "sha256": hex.EncodeToString(l.sum.Sum(nil))}
}

// releasePiece lets a piece of a result leave while the call runs (docs/design.md, rule 1). text is what is looked at: known
// bytes from the end of what left before, and the text of the piece. What is found raises the session's labels in the store first.
func (c *crossing) releasePiece(ctx context.Context, piece, text []byte, known int) error {
	if c.stops.caught.Load() || c.g.standing.Killed(c.agent) {
		return standing.ErrKilled
	}
	if c.live.current.Load().State != session.Open {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if fresh := c.fresh(c.g.o.Detector.LabelsSince(text, known)); len(fresh) > 0 {
		held := flow.Raise(nil, flow.Operation{ID: c.op.ID}, c.id, fresh...)
		e := audit.Entry{Action: "session.taint", Actor: c.r.Principal.String(), RequestID: c.request, Reason: "a piece of a result carried labelled text"}
		for _, h := range held {
			e.Labels = append(e.Labels, string(h.Label))
		}
		if _, err := c.g.change(context.WithoutCancel(ctx), c.session.ID, e, func(s session.Session) (session.Session, error) { return s.Raise(held...), nil }); err != nil {
			return audited(err)
		}
	}
	if c.ran.left.bytes == 0 {
		c.ran.left.first = time.Since(c.ran.at)
	}
	c.ran.left.add(piece) // before it is written: of a piece that is cut in the middle some has left
	if err := c.r.Stream(piece); err != nil {
		return fault.Wrap(fmt.Errorf("%w: %w", errUntaken, err), fault.TimeExceeded, "The client took no more of the answer.")
	}
	return nil
}
