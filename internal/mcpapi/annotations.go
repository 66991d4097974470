package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"sallyport.example/internal/call"
	"sallyport.example/internal/identity"
)

// paramHeader binds one argument of a tool to the header Mcp-Param-<header> (x-mcp-header in the tool's schema, revision 2026-07-28).
type paramHeader struct {
	path   []string
	header string // canonical
}

// annotations remembers, for each credential, which of its tools bind headers. Nearly none does, and looking at every schema on every
// call would cost more than the call.
type annotations struct {
	mu      sync.Mutex // guards the fields below
	byToken map[string]map[string][]paramHeader
	changes int
}

func (a *annotations) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byToken = nil
	a.changes++
}

func (f *Face) paramHeaders(ctx context.Context, p identity.Principal, tool string) []paramHeader {
	a := &f.heads
	a.mu.Lock()
	known, changes := a.byToken[p.TokenID], a.changes
	a.mu.Unlock()
	if known == nil {
		known = map[string][]paramHeader{}
		for _, op := range f.g.Operations(ctx, p) {
			if !bytes.Contains(op.Definition, []byte("x-mcp-header")) {
				continue
			}
			if schema, ok := call.Get(op.Definition, "inputSchema"); ok {
				if found := bindings(schema, nil, nil); len(found) > 0 {
					known[op.Name] = found
				}
			}
		}
		a.mu.Lock()
		if a.byToken == nil {
			a.byToken = map[string]map[string][]paramHeader{}
		}
		if changes == a.changes {
			a.byToken[p.TokenID] = known
		}
		a.mu.Unlock()
	}
	return known[tool]
}

// bindings walks the properties of a checked schema, whose depth is bounded.
func bindings(schema json.RawMessage, path []string, found []paramHeader) []paramHeader {
	properties, _ := call.Get(schema, "properties")
	for name, property := range call.Members(properties) {
		at := append(path[:len(path):len(path)], name)
		raw, _ := call.Get(property, "x-mcp-header")
		if header, _ := text(raw); header != "" {
			found = append(found, paramHeader{at, http.CanonicalHeaderKey("Mcp-Param-" + header)})
		}
		found = bindings(property, at, found)
	}
	return found
}

// checkParamHeaders refuses a call whose Mcp-Param headers are not the arguments in its body: something between could have judged
// the one and we would send the other.
func (f *Face) checkParamHeaders(ctx context.Context, h http.Header, p identity.Principal, req *request) *rpcError {
	name, _ := req.target()
	for _, b := range f.paramHeaders(ctx, p, name) {
		value := req.arguments
		for _, step := range b.path {
			value, _ = call.Get(value, step)
		}
		argument := strings.Join(b.path, ".")
		headers := h[b.header]
		absent := value == nil || string(value) == "null"
		if absent && len(headers) == 0 {
			continue
		}
		if absent || len(headers) != 1 || !sameParam(headers[0], value) {
			return badRequest(codeHeaderMismatch, "The header "+clip(b.header)+" is not the argument "+quoted(argument)+" in the body.")
		}
	}
	return nil
}

const maxSafeInteger = 1<<53 - 1

// sameParam compares a header with a string, boolean or integer argument.
func sameParam(header string, value json.RawMessage) bool {
	decoded, ok := decodeHeader(header)
	if !ok {
		return false
	}
	if s, ok := text(value); ok {
		return decoded == s
	}
	if w := string(value); w == "true" || w == "false" {
		return decoded == w
	}
	a, err := strconv.ParseFloat(string(value), 64)
	if err != nil || a != math.Trunc(a) || math.Abs(a) > maxSafeInteger {
		return false
	}
	b, err := strconv.ParseFloat(decoded, 64)
	return err == nil && a == b
}
