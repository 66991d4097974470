package upstream

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
)

// subscribers are the clients that subscribed to resources, by URI and their keys.
type subscribers map[string]map[string]struct{}

// add notes a subscription, and tells whether it is the first to that resource. There are at most maxSubscriptions resources.
func (s subscribers) add(uri, key string) (first, ok bool) {
	if s[uri] == nil {
		if len(s) >= maxSubscriptions {
			return false, false
		}
		s[uri] = map[string]struct{}{}
	}
	first = len(s[uri]) == 0
	s[uri][key] = struct{}{}
	return first, true
}

// remove ends a subscription, and tells whether it was the last to that resource.
func (s subscribers) remove(uri, key string) (last bool) {
	if _, ok := s[uri][key]; !ok {
		return false
	}
	delete(s[uri], key)
	if last = len(s[uri]) == 0; last {
		delete(s, uri)
	}
	return last
}

func uriParams(uri string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"uri": uri}) // a map of strings always marshals
	return raw
}

// resourceURI is the URI that params name, "" where they name none.
func resourceURI(params json.RawMessage) string {
	var p struct {
		URI string `json:"uri"`
	}
	if json.Unmarshal(params, &p) != nil {
		return ""
	}
	return p.URI
}

// subscription keeps the subscribers of each resource. A server gets a request for the first subscriber and for the last, not for those between,
// and again after a reconnection.
func (s *server) subscription(ctx context.Context, method string, params json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
	uri := resourceURI(params)
	if uri == "" {
		return nil, s.undispatched(nil, "needs the uri of a resource")
	}
	c, tell, err := s.noteSubscription(method, uri, x.ClientKey)
	switch {
	case err != nil:
		return nil, err
	case !tell:
		return emptyObject, nil
	case c.modern():
		c.restartListening()
		return emptyObject, nil
	}
	result, err := c.do(ctx, method, uriParams(uri), &call.Exchange{Agent: x.Agent})
	if err != nil && method == string(call.Subscribe) {
		s.mu.Lock()
		s.subscribed.remove(uri, x.ClientKey)
		s.mu.Unlock()
	}
	return result, err
}

// noteSubscription returns the conversation in which to send the change to the server, if it has to be sent.
func (s *server) noteSubscription(method, uri, key string) (c *conversation, tell bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil || s.stopped {
		return nil, false, s.down()
	}
	if method == string(call.Unsubscribe) {
		return s.shared, s.subscribed.remove(uri, key), nil
	}
	first, ok := s.subscribed.add(uri, key)
	if !ok {
		return nil, false, s.undispatched(nil, "has %d subscriptions already", maxSubscriptions)
	}
	return s.shared, first, nil
}

// release ends what a client holds at the server: its conversation and its subscriptions.
func (s *server) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	if d := s.dedicated[key]; d != nil {
		s.end(key, d)
	}
	c := s.shared
	for uri := range s.subscribed {
		if !s.subscribed.remove(uri, key) || c == nil {
			continue
		}
		s.closers.Go(func() { // bounded by c's end and a short time
			ctx, cancel := context.WithTimeout(c.ctx, notifyTime)
			defer cancel()
			if c.modern() {
				c.restartListening()
			} else if _, err := c.request(ctx, "resources/unsubscribe", uriParams(uri)); err != nil {
				s.log.Debug("unsubscribing failed", "error", plain(err))
			}
		})
	}
}

// subscriptions are the URIs of which the server is to announce changes.
func (s *server) subscriptions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.subscribed))
}

// resubscribe subscribes anew in a new conversation with a legacy server. For modern servers listen does so.
func (s *server) resubscribe(c *conversation) {
	if c.modern() {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, s.cfg.Timeout)
	defer cancel()
	for _, uri := range s.subscriptions() {
		if _, err := c.request(ctx, string(call.Subscribe), uriParams(uri)); err != nil {
			s.log.Warn("subscribing again failed", "uri", display.Line(uri, 200), "error", plain(err))
		}
	}
}

// resourceUpdated passes on what somebody subscribed to, and nothing else.
func (s *server) resourceUpdated(params []byte) {
	uri := resourceURI(params)
	s.mu.Lock()
	_, ok := s.subscribed[uri]
	s.mu.Unlock()
	if ok && s.o.ResourceUpdated != nil {
		s.guard("ResourceUpdated", func() { s.o.ResourceUpdated(s.cfg.ID, uri) })
	}
}
