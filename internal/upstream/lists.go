package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/schema"
)

const (
	maxPages       = 1000
	maxDefinitions = 5000
	maxListBytes   = 8 << 20
	maxDefinition  = 256 << 10
	listTime       = 30 * time.Second // for all lists of a server together
)

// list is one of the lists that servers of a capability have.
type list struct {
	capability, method, member, name string // name: the member of a definition that names it
	kind                             call.Kind
}

// lists are what a server can offer. Resource templates are resources to everybody but the server.
var lists = [...]list{
	{"tools", "tools/list", "tools", "name", call.Tool},
	{"resources", "resources/list", "resources", "uri", call.Resource},
	{"resources", "resources/templates/list", "resourceTemplates", "uriTemplate", call.Resource},
	{"prompts", "prompts/list", "prompts", "name", call.Prompt},
}

// refresh lists everything that the server offers and delivers it. It delivers nothing when a list breaks a bound or fails: the list that was
// checked is the list that is served, whatever the server would list for another caller.
func (s *server) refresh(ctx context.Context, c *conversation) error {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	all := []call.Definition{}
	headers := map[string][]mcpwire.ParamHeader{}
	left := budget{definitions: maxDefinitions, bytes: maxListBytes}
	for _, l := range lists {
		if !declares(c.info.Capabilities, l.capability) {
			continue
		}
		defs, err := s.list(ctx, c, l, &left)
		if err != nil {
			return fmt.Errorf("%s: %w", l.method, err)
		}
		judgeNames(defs, l.kind != call.Resource)
		for i := range defs {
			if d := &defs[i]; d.Kind == call.Tool && d.Fault == "" {
				judgeTool(d, headers)
			}
		}
		all = append(all, defs...)
	}
	s.headers.Store(&headers)
	s.mu.Lock()
	s.now.Definitions = len(all)
	s.now.LastError = ""
	s.mu.Unlock()
	if s.o.Definitions != nil {
		s.guard("Definitions", func() { s.o.Definitions(s.cfg.ID, all) })
	}
	return nil
}

// budget counts down the bounds over all lists of a server.
type budget struct{ definitions, bytes int }

// list pages through one list.
func (s *server) list(ctx context.Context, c *conversation, l list, left *budget) ([]call.Definition, error) {
	var defs []call.Definition
	seen := map[string]bool{}
	params := emptyObject
	for range maxPages {
		result, err := c.request(ctx, l.method, params)
		if err != nil {
			var rpc *call.RPCError
			if errors.As(err, &rpc) {
				// Many servers declare what they have nothing of.
				if code, _ := call.Get(rpc.JSON, "code"); string(code) == "-32601" {
					return nil, nil
				}
			}
			return nil, err
		}
		if left.bytes -= len(result); left.bytes < 0 {
			return nil, fmt.Errorf("the lists are over %d bytes", maxListBytes)
		}
		items, ok := call.Get(result, l.member)
		if !ok {
			return nil, fmt.Errorf("a page has no %s", l.member)
		}
		if items[0] != '[' {
			return nil, fmt.Errorf("a page's %s are no list", l.member)
		}
		for raw := range call.Elements(items) {
			if left.definitions--; left.definitions >= 0 {
				defs = append(defs, s.definition(l.kind, l.name, raw))
			}
		}
		if left.definitions < 0 {
			return nil, fmt.Errorf("the lists have over %d definitions", maxDefinitions)
		}
		raw, ok := call.Get(result, "nextCursor")
		if !ok || string(raw) == "null" || string(raw) == `""` {
			return defs, nil
		}
		if raw[0] != '"' || len(raw) > 4<<10 {
			return nil, errors.New("a cursor is no text of usual length")
		}
		if seen[string(raw)] {
			return nil, errors.New("a cursor repeats")
		}
		seen[string(raw)] = true
		params = append(append([]byte(`{"cursor":`), raw...), '}')
	}
	return nil, fmt.Errorf("the list has over %d pages", maxPages)
}

// definition makes a definition of the bytes that the server sent, unknown members included.
func (s *server) definition(kind call.Kind, nameMember string, raw []byte) call.Definition {
	d := call.Definition{Server: s.cfg.ID, Kind: kind}
	canonical, err := call.Canonical(raw, s.limits())
	if err != nil {
		canonical = bytes.Clone(raw) // can't be: the page it is in was checked
		d.Fault = "its definition is not strict JSON"
	}
	d.JSON, d.Hash = canonical, call.HashBytes(canonical)
	name, _ := call.Get(canonical, nameMember)
	switch {
	case len(name) == 0 || name[0] != '"' || json.Unmarshal(name, &d.Name) != nil || d.Name == "":
		d.Fault = "it has no name"
	case len(canonical) > maxDefinition:
		d.Fault = fmt.Sprintf("its definition is over %d bytes", maxDefinition)
	case kind == call.Resource && (len(d.Name) > 2048 || display.Line(d.Name, 1<<20) != d.Name):
		d.Fault = "its URI is over 2048 bytes or has characters that can't be shown"
	}
	return d
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// judgeNames finds faults with names of one list: twice on the server and, of tools and prompts, outside the policy, such as look-alike letters and
// globs, or so alike that a person could take one for another. Of those alike none is exposed: which is the true one is not ours to guess.
func judgeNames(defs []call.Definition, strict bool) {
	count, alike := map[string]int{}, map[string]int{}
	for _, d := range defs {
		count[d.Name]++
		alike[skeleton(d.Name)]++
	}
	for i := range defs {
		d := &defs[i]
		switch {
		case d.Fault != "":
		case count[d.Name] > 1:
			d.Fault = "its name is there twice on the same server"
		case strict && !namePattern.MatchString(d.Name):
			d.Fault = "its name is outside [A-Za-z0-9_.-]{1,128}"
		case strict && alike[skeleton(d.Name)] > 1:
			d.Fault = "its name looks like another one's of the same server"
		}
	}
}

// skeleton is equal for names that look alike.
func skeleton(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case r == '-' || r == '.':
			return '_'
		}
		return r
	}, name)
}

// judgeTool finds faults with a tool's schemas, and adds to headers which of its arguments requests repeat there.
func judgeTool(d *call.Definition, headers map[string][]mcpwire.ParamHeader) {
	input, ok := call.Get(d.JSON, "inputSchema")
	if !ok {
		d.Fault = "it has no inputSchema"
		return
	}
	if kind, ok := call.Get(input, "type"); !ok || string(kind) != `"object"` {
		d.Fault = `its inputSchema is not of the type "object"`
		return
	}
	if _, err := schema.Compile(input); err != nil {
		d.Fault = "its inputSchema " + fault.Of(err).Message
		return
	}
	if output, ok := call.Get(d.JSON, "outputSchema"); ok && string(output) != "null" {
		if _, err := schema.Compile(output); err != nil {
			d.Fault = "its outputSchema " + fault.Of(err).Message
			return
		}
	}
	if bound, err := mcpwire.ParamHeaders(input); err != nil {
		d.Fault = "it " + err.Error()
	} else if len(bound) > 0 {
		headers[d.Name] = bound
	}
}

// paramHeaders are the arguments of a tool that requests of modern revisions repeat in headers.
func (s *server) paramHeaders(tool string) []mcpwire.ParamHeader {
	if all := s.headers.Load(); all != nil {
		return (*all)[tool]
	}
	return nil
}
