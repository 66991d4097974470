package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/models/wire"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/session"
)

// maxSaid bounds what is remembered of one session's conversation: beyond it, parts are read again in every turn, and bring their labels again.
const maxSaid = 1 << 16

// maxNamed bounds how many of the texts that results delivered a release names: the newest.
const maxNamed = 512

// said is what this process remembers of the conversation of a session with its models, by hashes: the parts of requests whose labels the session got,
// the texts that results delivered to it, and the tools that it was given. After a restart everything is read anew, and no tool was given until a list is read again.
type said struct {
	mu        sync.Mutex // guards the rest
	under     *settings  // those that the parts were read by
	parts     map[[sha256.Size]byte]struct{}
	delivered map[[sha256.Size]byte]struct{}
	newest    [][sha256.Size]byte // of those delivered
	found     session.Found       // in refused requests that brought no new label: the session's row does not have it
	given     map[[sha256.Size]byte]struct{}
}

// gives remembers a tool that was given to the session.
func (s *said) gives(tool effect.Function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given == nil {
		s.given = map[[sha256.Size]byte]struct{}{}
	}
	if len(s.given) < maxSaid {
		s.given[tool.Hash()] = struct{}{}
	}
}

// gave tells whether the tool was given to the session.
func (s *said) gave(tool effect.Function) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.given[tool.Hash()]
	return ok
}

// has tells whether a part was read before, under the same settings.
func (s *said) has(under *settings, part [sha256.Size]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.parts[part]
	return ok && s.under == under
}

// read remembers a part whose labels the session has got.
func (s *said) read(under *settings, part [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts == nil || s.under != under {
		s.parts, s.under = map[[sha256.Size]byte]struct{}{}, under
	}
	if len(s.parts) < maxSaid {
		s.parts[part] = struct{}{}
	}
}

// deliveredAs is the hash of a text that was delivered as the result of the call with the id use; "": the client said no id.
func deliveredAs(use, text string) [sha256.Size]byte {
	of := sha256.Sum256([]byte(use))
	return sha256.Sum256(slices.Concat([]byte("delivered"), of[:], []byte(text)))
}

// brought remembers a text that was delivered, whose labels the session got with it.
func (s *said) brought(use, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivered == nil {
		s.delivered = map[[sha256.Size]byte]struct{}{}
	}
	hash := deliveredAs(use, text)
	if _, there := s.delivered[hash]; there || len(s.delivered) >= maxSaid {
		return
	}
	s.delivered[hash] = struct{}{}
	if s.newest = append(s.newest, hash); len(s.newest) > maxNamed {
		s.newest = slices.Clone(s.newest[1:])
	}
}

// noteFound remembers what a refused request brought, so that a release can name it.
func (s *said) noteFound(found session.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found, _ = s.found.With(found)
}

// forRelease is what a release can name that the session's row does not have.
func (s *said) forRelease() (delivered [][sha256.Size]byte, found session.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.newest), s.found
}

// knows tells whether all of these texts were delivered to the session: for the call with this id, or for one of which the client said no id.
func (s *said) knows(use string, texts []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range texts {
		_, ofThis := s.delivered[deliveredAs(use, t)]
		_, ofAny := s.delivered[deliveredAs("", t)]
		if !ofThis && !ofAny {
			return false
		}
	}
	return len(texts) > 0
}

// listen reads what a request to a model brings that the session has not sent to one before: delivered text with its labels, sensitive data, results that
// the corridor never saw, and what nobody here can read. The session gets those labels before the request leaves, and if it is refused. What is new is screened
// (TH-2), each part once in a session: a hit is on record, and in a result that the corridor never saw it marks the session. It asks nobody: system messages
// and conversations about attacks have such words, too, and what follows from them is a call, which is screened.
func (c *crossing) listen() {
	c.carries, c.carried, c.unheard, c.messages, c.said, c.found = nil, nil, nil, nil, nil, nil
	for _, part := range effect.Conversation(c.effect, c.args) {
		if c.live.said.has(c.set, part.Hash) {
			continue
		}
		c.unheard = append(c.unheard, part)
		read := part.JSON
		known := part.Result && !part.Opaque && c.live.said.knows(part.Use, part.Texts)
		if known { // it was screened, and the session got its labels, when it was delivered; what stands around it is the agent's
			read = part.Frame()
		}
		s := c.set.Screens.Find(screen.Model, c.op.ID, read)
		c.messages = c.messages.Worse(s)
		texts, held := c.broughtIn(read)
		if s.Hit() && !c.r.composed && wrote(&part) && len(texts) == 0 {
			c.said = c.said.Worse(s)
		}
		c.carries = append(c.carries, texts...)
		if (part.Result || part.Opaque) && !known {
			held = append(held, c.fromRequest(flow.Untrusted))
			if s.Hit() && c.screensResults() != judge.ScreenObserve {
				held = append(held, c.fromRequest(flow.Flagged))
			}
		}
		c.carried = addHeld(c.carried, c.unreleased(&part, held))
	}
	c.carries = c.carries[:min(len(c.carries), maxCarried)]
}

// broughtIn is delivered text in a part of a request, and the labels of that and of the sensitive data there.
func (c *crossing) broughtIn(read []byte) (texts []judge.Carried, held []flow.Held) {
	texts, held = c.g.carriedIn(c.set, read)
	for _, l := range c.known(c.g.o.Detector.Labels(read)) {
		held = append(held, c.fromRequest(l))
	}
	return texts, held
}

func (c *crossing) fromRequest(l flow.Label) flow.Held {
	return flow.Held{Label: l, Operation: c.op.ID, CallID: c.id, Cause: "the request to the model"}
}

// unreleased returns the labels of a part that no person has released for it, and notes in c.found that the part brought them, so that a release can name it. A result that was
// delivered before the release is known by its texts, and its call's id if the client said that; what the agent wrote around it brings its labels all the same.
func (c *crossing) unreleased(part *wire.Block, held []flow.Held) (left []flow.Held) {
	if len(held) == 0 {
		return nil
	}
	hash := c.g.hashFound(c.session.ID, part.Hash)
	var texts [][2]string
	var around []flow.Held
	if part.Result && !part.Opaque && len(c.session.Released) > 0 {
		for _, t := range part.Texts {
			texts = append(texts, [2]string{c.g.hashFound(c.session.ID, deliveredAs(part.Use, t)), c.g.hashFound(c.session.ID, deliveredAs("", t))})
		}
		_, around = c.broughtIn(part.Frame())
	}
	for _, h := range held {
		lets := func(hash string) bool { return c.session.IsReleased(h.Label, hash) }
		isDelivered := len(texts) > 0 && !slices.ContainsFunc(texts, func(t [2]string) bool { return !lets(t[0]) && !lets(t[1]) })
		if lets(hash) || isDelivered && !slices.ContainsFunc(around, func(o flow.Held) bool { return o.Label == h.Label }) {
			continue
		}
		left = append(left, h)
		if c.found == nil {
			c.found = session.Found{}
		}
		c.found[h.Label] = append(c.found[h.Label], hash)
	}
	return left
}

// hashFound names a part or a text in the session's row and in the log: under a key, because what is found can be guessed.
func (g *Gateway) hashFound(sessionID string, hash [sha256.Size]byte) string {
	return g.store.KeyedHash("found in a request to a model", sessionID+" "+hex.EncodeToString(hash[:]))
}

// wrote tells whether a part of a request is what the agent says: not what a tool answered, a definition, or what nobody here can read.
func wrote(part *wire.Block) bool {
	return !part.Result && !part.Opaque && part.Place != "tools" && part.Place != "rest"
}

// heard notes that the session has the labels of the request.
func (c *crossing) heard() {
	for _, part := range c.unheard {
		c.live.said.read(c.set, part.Hash)
	}
	c.unheard = nil
}

// delivers notes the texts of a result that is about to be delivered, for requests to a model that have them in them.
func (c *crossing) delivers(result json.RawMessage) {
	if c.effect.Traits().Converses || len(c.set.Models) == 0 || len(result) == 0 {
		return
	}
	content, _ := call.Get(result, "content")
	for block := range call.Elements(content) {
		if text, ok := call.GetText(block, "text"); ok {
			c.live.said.brought(c.r.ToolUse, text)
		}
	}
}

// maxOutside bounds how many functions of one answer are named on record.
const maxOutside = 16

// Gave notes the definitions of tools that the principal's agent is given: what a model then calls by these names, described like this, are tools of this gateway.
// Where the credential has no session, nothing is noted.
func (g *Gateway) Gave(ctx context.Context, p identity.Principal, definitions []json.RawMessage) {
	if len(g.settings.Load().Models) == 0 || len(definitions) == 0 {
		return
	}
	l, err := g.sessionOf(ctx, p, "")
	if err != nil {
		return
	}
	for _, d := range definitions {
		name, _ := call.GetText(d, "name")
		description, _ := call.GetText(d, "description")
		l.said.gives(effect.Function{Name: name, Description: description})
	}
}

// ownPrefix stands before the names of this gateway's tools in clients that have it by the name that `client config` writes.
const ownPrefix = "mcp__sallyport__"

// ungoverned are those of the functions that a model's answer asks its client to call which are nothing of this gateway, each with how often: what the client
// does there, nobody here sees. A tool of this gateway is one that the session was given, by its name and with its description, which another server's or the
// client's own of that name does not have; a tool without a description can't be told from those.
func (c *crossing) ungoverned(calls []effect.Function) (outside map[string]int) {
	for _, f := range calls {
		own := effect.Function{Name: strings.TrimPrefix(f.Name, ownPrefix), Description: f.Description}
		if f.Description != "" && c.live.said.gave(own) {
			continue
		}
		if outside == nil {
			outside = map[string]int{}
		}
		name := plainName(f.Name)
		if outside[name] == 0 && len(outside) >= maxOutside {
			name = "(others)"
		}
		outside[name]++
	}
	return outside
}

var functionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// plainName is the name of a function as the log has it: a model can put anything there, and what is in the log stays.
func plainName(name string) string {
	if name == "" {
		return "(unnamed)"
	}
	if !functionName.MatchString(name) {
		return "(others)"
	}
	return name
}

// Models returns the models that the principal's agent may ask, by id.
func (g *Gateway) Models(ctx context.Context, p identity.Principal) ([]*catalogue.Operation, error) {
	s, err := g.SessionFor(ctx, p)
	if err != nil {
		return nil, err
	}
	set, snap := g.view()
	d, err := set.declared(s.Agent)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(snap.Models(), func(op *catalogue.Operation) bool { return !d.UsesModel(op.Model.ID) }), nil
}
