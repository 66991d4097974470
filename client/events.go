package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Event says that something has changed. Ask for its new state.
type Event struct {
	Topic string // approval, plan, session, tool, kill, agent; "all": anything may have changed
	ID    string // of what changed; of an agent for agent and kill, of a session for plan; "" for "all" and for the global kill switch
}

const (
	// silence is the time without data after which a stream counts as broken. The server sends something every 15 seconds.
	silence = 45 * time.Second
	maxLine = 64 << 10
)

// Events yields the changes from now on, until the context ends or the loop is left. The first event has the topic "all". It ends with an
// error, once: a *Problem where the server refuses, now or later, an *Unreachable where it does not answer or goes away, or the context's.
// Call Events again to go on. For any person.
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := c.events(ctx, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, err)
		}
	}
}

// events returns nil when tell returns false.
func (c *Client) events(whole context.Context, tell func(Event) bool) error {
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	alive := time.AfterFunc(silence, cancel)
	defer alive.Stop()
	broken := func(err error) error {
		if whole.Err() != nil {
			return whole.Err()
		}
		var p *Problem
		if errors.As(err, &p) {
			return p
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("nothing was heard for %v", silence)
		}
		return &Unreachable{Address: c.base, Err: err}
	}
	resp, err := c.send(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		var gone *Unreachable
		if errors.As(err, &gone) {
			return err
		}
		return broken(err)
	}
	defer resp.Body.Close()
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != "text/event-stream" {
		return fmt.Errorf("what answers GET /v1/events is not this version of Sallyport: it sends %.80q", resp.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	var topic, data string
	for lines.Scan() {
		alive.Reset(silence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "": // an event is whole
			if topic != "" {
				var of struct {
					ID string `json:"id"`
				}
				if err := json.Unmarshal([]byte(data), &of); err != nil {
					return fmt.Errorf("what answers GET /v1/events is not this version of Sallyport: %w", err)
				}
				alive.Stop() // however long the loop takes over it
				if !tell(Event{Topic: topic, ID: of.ID}) {
					return nil
				}
				alive.Reset(silence)
			}
			topic, data = "", ""
		case name == "event":
			topic = value
		case name == "data":
			data = value
		}
	}
	if err := lines.Err(); err != nil {
		return broken(err)
	}
	return broken(errors.New("it ended the stream of events"))
}
