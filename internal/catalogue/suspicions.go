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
	"sallyport.example/internal/threat"
)

// maxOffer is how many bytes of definitions of one server are read: no honest one has so many, and other servers wait for it.
const maxOffer = 2 << 20

// read is what looks like an order, or is hidden, in a definition. It holds c.mu.
func (c *Catalogue) read(id, hash string, definition []byte, names func() threat.ToolNames) []threat.Suspicion {
	key := id + "\x00" + hash
	found, known := c.doubts[key]
	if !known {
		_, tool, _ := strings.Cut(id, ".")
		found = threat.SuspicionsIn(definition, tool, names())
		c.doubt(key, found)
	}
	return found
}

func (c *Catalogue) doubt(key string, found []threat.Suspicion) {
	if len(c.doubts) > 2*maxPins { // a server that keeps changing its mind
		clear(c.doubts)
	}
	c.doubts[key] = found
}

// steers tells whether the names in the list entry of a resource or a prompt look like an order to the model: they are read without a label
// rising. It holds c.mu.
func (c *Catalogue) steers(server string, d call.Definition, members map[string]any) bool {
	key := server + "." + string(d.Kind) + "\x00" + d.Name + "\x00" + d.Hash
	found, known := c.doubts[key]
	if !known {
		listed, _ := json.Marshal(members) // of texts: can't fail
		names := map[string]bool{}         // as names of members they are read word by word
		call.Strings(listed, func(_, s string) bool { names[s] = true; return true })
		listed, _ = json.Marshal(names)
		found = threat.SuspicionsIn(listed, "", nil)
		c.doubt(key, found)
	}
	return slices.ContainsFunc(found, func(s threat.Suspicion) bool { return s.Kind == "order" })
}

// measure finds an offer too long to be read. It holds c.mu.
func (c *Catalogue) measure(server string, defs []call.Definition) {
	size := 0
	for _, d := range defs {
		size += len(d.JSON)
	}
	if size <= maxOffer {
		return
	}
	long := []threat.Suspicion{{Kind: "long", Where: "definition", Quote: fmt.Sprintf("the server's definitions have over %d bytes", maxOffer)}}
	for _, d := range defs {
		c.doubt(server+"."+d.Name+"\x00"+d.Hash, long)
	}
}

// namesFor are the names of tools that a definition of the server could be about: its own, also those that it offers now, and those of all
// others and of the gateway, by which the servers or the agent know them. It holds c.mu.
func (c *Catalogue) namesFor(server string, offered []call.Definition) threat.ToolNames {
	names := threat.ToolNames{}
	add := func(name string, own bool) {
		name = strings.ToLower(name)
		names[name] = names[name] || own
	}
	if s := c.snap.Load(); s != nil {
		for id, op := range s.byID {
			if op.Kind == call.Tool && !strings.HasSuffix(id, seen) {
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

// reread reads again what nobody has accepted, where tools have names now that they hadn't before: a server that is up before the others could
// speak of their tools unnoticed. What a rule accepted and looks like an order now is withheld as it would have been. It holds c.mu.
func (c *Catalogue) reread(ctx context.Context, before threat.ToolNames) (withheld []Pin, err error) {
	fresh := map[string]bool{}
	for name := range c.namesFor("", nil) {
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
		hash, definition := pin.Pending, pin.PendingDef
		if unread {
			hash, definition = pin.Hash, pin.Definition
		}
		if hash == "" || !speaksOf(definition, fresh) {
			continue
		}
		server, _, _ := strings.Cut(id, ".")
		if names[server] == nil {
			names[server] = sync.OnceValue(func() threat.ToolNames { return c.namesFor(server, nil) })
		}
		if found := c.doubts[id+"\x00"+hash]; len(found) == 0 {
			delete(c.doubts, id+"\x00"+hash)
		}
		if found := c.read(id, hash, definition, names[server]); unread && len(found) > 0 {
			withheld = append(withheld, Pin{Operation: id, Pending: hash, PendingDef: definition, AcceptedAt: c.o.Now()})
			entries = append(entries, quarantined(id, hash, found))
		}
	}
	if len(withheld) == 0 {
		return nil, nil
	}
	err = c.o.Store.SavePins(ctx, withheld, entries...)
	for _, pin := range withheld { // whether that is written down or not
		c.pins[pin.Operation] = pin
	}
	c.publish()
	return withheld, err
}

// speaksOf tells whether one of the names may stand in a definition: as a word, or in letters that only pass for others. It takes time for the
// definition's length and not for the number of names, which servers choose.
func speaksOf(definition []byte, names map[string]bool) (found bool) {
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
