package client

import (
	"context"
	"net/http"
	"time"
)

// Breaker is a circuit breaker that is open or counts failures.
type Breaker struct {
	Name       string     `json:"name"` // the server's id; AGENT@SERVER; agent:AGENT
	Kind       string     `json:"kind"` // server, agent_at_server or agent
	Agent      string     `json:"agent,omitempty"`
	Server     string     `json:"server,omitempty"`
	State      string     `json:"state"` // closed, open, or half_open: one call may try
	Failures   int        `json:"failures"`
	Since      *time.Time `json:"since,omitempty"`
	RetryAfter *time.Time `json:"retry_after,omitempty"`
	Cause      string     `json:"cause,omitempty"`
	Opened     int        `json:"opened_last_hour"`
}

// BreakerTest is what a test of an agent's circuit breaker showed.
type BreakerTest struct {
	Agent     string `json:"agent_id"`
	Refused   bool   `json:"refused"`             // its calls were refused while it was open
	Operation string `json:"operation,omitempty"` // whose call was judged; "": the agent can call nothing just now, and only the breaker was asked
}

// Breakers returns the circuit breakers that are open or count failures. For everybody on the people's side.
func (c *Client) Breakers(ctx context.Context) ([]Breaker, error) {
	out, err := do[struct {
		Breakers []Breaker `json:"breakers"`
	}](ctx, c, http.MethodGet, "/v1/breakers", nil)
	if err != nil {
		return nil, err
	}
	return out.Breakers, nil
}

// ResetBreaker closes a circuit breaker, and returns those that still count something. For people who operate.
func (c *Client) ResetBreaker(ctx context.Context, name, reason string) ([]Breaker, error) {
	out, err := do[struct {
		Breakers []Breaker `json:"breakers"`
	}](ctx, c, http.MethodPost, "/v1/breakers/"+seg(name)+"/reset", reasonBody{reason})
	if err != nil {
		return nil, err
	}
	return out.Breakers, nil
}

// TestBreaker proves that an agent's circuit breaker refuses its calls: it opens it for a moment. For people who operate.
func (c *Client) TestBreaker(ctx context.Context, agent string) (*BreakerTest, error) {
	return do[BreakerTest](ctx, c, http.MethodPost, "/v1/agents/"+seg(agent)+"/breaker-test", nil)
}
