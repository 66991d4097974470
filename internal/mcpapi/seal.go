package mcpapi

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/mcpwire"
)

const (
	stateLife   = 10 * time.Minute
	maxRounds   = 10      // of one call: a server could ask back for ever
	maxRequests = 16      // questions in one round to a client before 2026-07-28
	maxSpent    = 100_000 // states remembered as used; above it none is accepted until some expire
)

// binding is the call that a request state was made for. The state is refused with any other call.
type binding struct {
	Principal string `json:"p"` // kind:id
	Session   string `json:"s"`
	Method    string `json:"m"`
	Name      string `json:"n"`
	Arguments string `json:"a"` // hash of the canonical arguments
}

// state is the content of a sealed requestState (MCP 2026-07-28, multi-round-trip requests).
type state struct {
	binding
	Expires int64  `json:"x"` // Unix milliseconds
	ID      string `json:"i"`
	Round   int    `json:"r"`
	Inner   string `json:"o"` // the upstream's own state

	// Of a round of the gateway's own (approvalKey): the approval that the client waits for, and its earlier answers to the upstream.
	Approval string          `json:"w,omitempty"`
	Answers  json.RawMessage `json:"q,omitempty"`
}

// sealer makes and opens request states. It uses AES-256-GCM with a key that never leaves the process, so that none is forged, and each state is
// good once. After a restart clients start their call again.
type sealer struct {
	aead  cipher.AEAD
	clock func() time.Time

	mu    sync.Mutex // guards spent
	spent map[string]int64
}

func newSealer(clock func() time.Time) *sealer {
	var key [32]byte
	rand.Read(key[:]) // never fails: crypto/rand aborts the program when it can't
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("mcpapi: AES refuses a key of 32 bytes: " + err.Error())
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic("mcpapi: GCM refuses AES: " + err.Error())
	}
	return &sealer{aead: aead, clock: clock, spent: map[string]int64{}}
}

// bind returns the binding of a call. Arguments that are no object are hashed as none: the corridor refuses them anyway.
func bind(principal, session string, method call.Method, name string, arguments json.RawMessage) binding {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	canonical, err := call.Canonical(arguments, limits)
	if err != nil {
		canonical = nil
	}
	return binding{Principal: principal, Session: session, Method: string(method), Name: name, Arguments: call.HashBytes(canonical)}
}

// seal seals a state, which is then good once and for stateLife.
func (s *sealer) seal(st state) string {
	now := s.clock()
	st.Expires, st.ID = now.Add(stateLife).UnixMilli(), call.NewID("", now)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, mcpwire.AppendJSON(nil, st), nil))
}

// open returns a sealed state, once. The error is for the log: the client learns only that the state is not good.
func (s *sealer) open(sealed string, b binding) (state, error) {
	raw, err := decode64(sealed)
	if err != nil {
		return state{}, errors.New("not a state of ours")
	}
	plain, err := s.aead.Open(nil, nil, raw, nil)
	if err != nil {
		return state{}, errors.New("changed, or sealed by another process")
	}
	var st state
	if err := json.Unmarshal(plain, &st); err != nil {
		return state{}, err
	}
	now := s.clock().UnixMilli()
	switch {
	case st.binding != b:
		return state{}, errors.New("sealed for another call")
	case now >= st.Expires:
		return state{}, errors.New("expired")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.spent[st.ID]; used {
		return state{}, errors.New("used before")
	}
	if len(s.spent) >= maxSpent { // until the next forget
		return state{}, errors.New("too many states in use")
	}
	s.spent[st.ID] = st.Expires
	return st, nil
}

// forget drops what has expired.
func (s *sealer) forget(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, expires := range s.spent {
		if at.UnixMilli() >= expires {
			delete(s.spent, id)
		}
	}
}

// decode64 accepts one spelling of each value only; the standard decoder skips line breaks.
func decode64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, base64.CorruptInputError(0)
	}
	return base64.RawURLEncoding.Strict().DecodeString(s)
}
