package gateway

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
)

// The bounds of the schemas that are kept: how many, and how long one is. Compiled, one takes up to two megabytes.
const (
	maxSchemas    = 64
	maxKeptSchema = 64 << 10
)

// schemas keeps compiled the schemas that requests to models want answers to match: a program has few, and sends each over and over. Those that were not
// used for longest go first.
type schemas struct {
	mu   sync.Mutex // guards the rest
	all  map[[sha256.Size]byte]*list.Element
	used list.List // of keptSchema, the last used in front
}

// keptSchema is a schema as a check; nil: it can't be read here.
type keptSchema struct {
	hash  [sha256.Size]byte
	check func([]byte) error
}

// check returns the check that a schema is, which compile makes where none is kept.
func (s *schemas) check(schema json.RawMessage, compile func() func([]byte) error) func([]byte) error {
	if len(schema) > maxKeptSchema {
		return compile()
	}
	hash := sha256.Sum256(schema)
	if kept, ok := s.find(hash); ok {
		return kept
	}
	check := compile()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[hash]; ok { // another request was faster
		return check
	}
	if s.all == nil {
		s.all = map[[sha256.Size]byte]*list.Element{}
	}
	if len(s.all) == maxSchemas {
		delete(s.all, s.used.Remove(s.used.Back()).(keptSchema).hash)
	}
	s.all[hash] = s.used.PushFront(keptSchema{hash, check})
	return check
}

func (s *schemas) find(hash [sha256.Size]byte) (check func([]byte) error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.all[hash]
	if !ok {
		return nil, false
	}
	s.used.MoveToFront(e)
	return e.Value.(keptSchema).check, true
}

// checks has a structured answer checked in the agent's turn: the schema is the agent's and the answer the model's, and both can take seconds. An error says
// that the call was ended before its turn came.
func (c *crossing) checks(ctx context.Context, schema json.RawMessage, use func(check func([]byte) error)) (err error) {
	c.g.heavy.Do(ctx.Done(), c.agent, func() {
		if err = context.Cause(ctx); err != nil {
			return
		}
		use(c.g.schemas.check(schema, func() func([]byte) error {
			check, err := c.g.o.Schema(schema)
			if err != nil {
				return nil
			}
			return check
		}))
	})
	return err
}
