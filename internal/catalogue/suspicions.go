package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/threat"
)

// maxOffer bounds the bytes of one server's definitions that are searched. No honest server has so many, and other servers wait meanwhile.
const maxOffer = 2 << 20

// suspicionsIn finds text in a definition that looks like an order to the model, or is hidden. c.mu is held.
func (c *Catalogue) suspicionsIn(id, hash string, definition []byte, names func() threat.ToolNames) []threat.Suspicion {
	key := id + "\x00" + hash
	found, known := c.suspicions[key]
	if !known {
		_, tool, _ := strings.Cut(id, ".")
		found = append(threat.SuspicionsIn(definition, tool, names()), c.ordersIn(id, definition)...)
		c.remember(key, found)
	}
	return found
}

// screened is what screening finds in a definition: in the definition as it stands, names with it, or in its texts, which may be orders only together.
func (c *Catalogue) screened(id string, definition []byte) *screen.Found {
	found := c.o.Screen.Find(screen.Definition, id, definition)
	if found.Hit() || c.o.Screen == nil {
		return found
	}
	var texts []byte
	call.Strings(definition, func(path, text string) bool {
		if !strings.HasSuffix(path, "{}") { // the name of a member
			texts = append(append(texts, text...), ' ')
		}
		return true
	})
	if together := c.o.Screen.Find(screen.Definition, id, texts); together != nil {
		return together
	}
	return found
}

// ordersIn says in which texts of a definition screening finds orders to an agent, or that it could not screen the definition whole.
func (c *Catalogue) ordersIn(id string, definition []byte) (found []threat.Suspicion) {
	whole := c.screened(id, definition)
	if whole == nil {
		return nil
	}
	if !whole.Hit() {
		return []threat.Suspicion{{Kind: "encoded", Where: "definition", Quote: "encoded too deeply, or too long, to be screened whole"}}
	}
	call.Strings(definition, func(path, text string) bool {
		if c.o.Screen.Find(screen.Definition, id, []byte(text)).Hit() {
			found = append(found, threat.Suspicion{Kind: threat.ScreenedKind, Where: display.Line(path, quoteMax), Quote: display.Line(text, quoteMax)})
		}
		return len(found) < placesMost
	})
	if len(found) == 0 {
		found = []threat.Suspicion{{Kind: threat.ScreenedKind, Where: "definition", Quote: "its texts together"}}
	}
	return found
}

// Bounds of what ordersIn returns.
const (
	placesMost = 4
	quoteMax   = 160
)

func (c *Catalogue) remember(key string, found []threat.Suspicion) {
	if len(c.suspicions) > 2*maxPins { // a server that keeps changing its definitions
		clear(c.suspicions)
	}
	c.suspicions[key] = found
}

// looksLikeOrder tells whether the names in the list entry of a resource or a prompt look like an order to the model, which reads them without a
// label rising. c.mu is held.
func (c *Catalogue) looksLikeOrder(server string, d call.Definition, members map[string]any) bool {
	key := server + "." + string(d.Kind) + "\x00" + d.Name + "\x00" + d.Hash
	found, known := c.suspicions[key]
	if !known {
		listed, _ := json.Marshal(members) // of texts: can't fail
		names := map[string]bool{}         // names of members are searched word by word
		call.Strings(listed, func(_, s string) bool { names[s] = true; return true })
		listed, _ = json.Marshal(names)
		found = append(threat.SuspicionsIn(listed, "", nil), c.ordersIn(server+"."+d.Name, listed)...)
		c.remember(key, found)
	}
	return slices.ContainsFunc(found, func(s threat.Suspicion) bool {
		return s.Kind == "order" || s.Kind == threat.ScreenedKind || s.Kind == "encoded" && s.Where == "definition"
	})
}

// markTooLong makes every definition of an offer suspicious that is too long to be searched. c.mu is held.
func (c *Catalogue) markTooLong(server string, defs []call.Definition) {
	size := 0
	for _, d := range defs {
		size += len(d.JSON)
	}
	if size <= maxOffer {
		return
	}
	long := []threat.Suspicion{{Kind: "long", Where: "definition", Quote: fmt.Sprintf("the server's definitions have over %d bytes", maxOffer)}}
	for _, d := range defs {
		c.remember(server+"."+d.Name+"\x00"+d.Hash, long)
	}
}

// toolNames are the names that a definition of the server could mention: those of its own tools, with the ones it offers now, and those of all
// other tools, as the servers and as the agent know them. c.mu is held.
func (c *Catalogue) toolNames(server string, offered []call.Definition) threat.ToolNames {
	names := threat.ToolNames{}
	add := func(name string, own bool) {
		name = strings.ToLower(name)
		names[name] = names[name] || own
	}
	if s := c.snap.Load(); s != nil {
		for id, op := range s.byID {
			if op.Kind == call.Tool && !strings.HasSuffix(id, serverSeen) {
				add(op.Tool, op.Server == server)
				add(op.Name, op.Server == server)
			}
		}
	}
	for _, d := range offered {
		if d.Kind == call.Tool {
			add(d.Name, true)
		}
	}
	return names
}

// recheck searches definitions that no person has accepted once more for tool names that are new since before: a server that is up before the
// others could mention their tools unnoticed. A definition that a rule accepted and that now looks like an order is withheld. c.mu is held.
func (c *Catalogue) recheck(ctx context.Context, before threat.ToolNames) (withheld []Pin, err error) {
	fresh := map[string]bool{}
	for name := range c.toolNames("", nil) {
		if _, known := before[name]; !known {
			fresh[name] = true
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	names := map[string]func() threat.ToolNames{} // by server
	var entries []audit.Entry
	for _, id := range slices.Sorted(maps.Keys(c.pins)) {
		pin := c.pins[id]
		unread := pin.Unread() && pin.Pending == ""
		hash, definition, launch := pin.Pending, pin.PendingDef, pin.PendingLaunch
		if unread {
			hash, definition, launch = pin.Hash, pin.Definition, pin.Launch
		}
		if hash == "" || !mayMention(definition, fresh) {
			continue
		}
		server, _, _ := strings.Cut(id, ".")
		if names[server] == nil {
			names[server] = sync.OnceValue(func() threat.ToolNames { return c.toolNames(server, nil) })
		}
		if found := c.suspicions[id+"\x00"+hash]; len(found) == 0 {
			delete(c.suspicions, id+"\x00"+hash)
		}
		if found := c.suspicionsIn(id, hash, definition, names[server]); unread && len(found) > 0 {
			next := Pin{Operation: id, Pending: hash, PendingDef: definition, PendingLaunch: launch, AcceptedAt: c.o.Now()}
			withheld, entries = append(withheld, next), append(entries, c.quarantined(next, found))
		}
	}
	if len(withheld) == 0 {
		return nil, nil
	}
	err = c.o.Store.SavePins(ctx, withheld, entries...)
	for _, pin := range withheld { // even if they could not be written
		c.pins[pin.Operation] = pin
	}
	c.publish()
	return withheld, err
}

// mayMention tells whether a definition may contain one of the names: as a word, or in letters that look like its letters. Its time grows with the
// length of the definition and not with the number of names, which servers choose.
func mayMention(definition []byte, names map[string]bool) (found bool) {
	call.Strings(definition, func(_, text string) bool {
		for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool {
			return r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
		}) {
			if names[strings.Trim(word, "._-")] || strings.ContainsFunc(word, func(r rune) bool { return r >= utf8.RuneSelf }) {
				found = true
			}
		}
		return !found
	})
	return found
}
