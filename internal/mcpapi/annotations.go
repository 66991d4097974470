package mcpapi

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"sallyport.example/internal/call"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
)

// annotations remembers, for each credential, which of its tools bind headers. Nearly none does, and parsing every schema at every call would
// cost more than the call.
type annotations struct {
	mu      sync.Mutex // guards the fields below
	byToken map[string]map[string][]mcpwire.ParamHeader
	changes int
}

func (a *annotations) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byToken = nil
	a.changes++
}

func (f *Face) paramHeaders(ctx context.Context, p identity.Principal, tool string) []mcpwire.ParamHeader {
	a := &f.annotations
	a.mu.Lock()
	known, changes := a.byToken[p.TokenID], a.changes
	a.mu.Unlock()
	if known == nil {
		known = map[string][]mcpwire.ParamHeader{}
		for _, op := range f.g.Operations(ctx, p) {
			if !bytes.Contains(op.Definition, []byte("x-mcp-header")) {
				continue
			}
			schema, _ := call.Get(op.Definition, "inputSchema")
			if bound, _ := mcpwire.ParamHeaders(schema); len(bound) > 0 { // a tool with a wrong annotation is not offered
				known[op.Name] = bound
			}
		}
		a.mu.Lock()
		if a.byToken == nil {
			a.byToken = map[string]map[string][]mcpwire.ParamHeader{}
		}
		if changes == a.changes {
			a.byToken[p.TokenID] = known
		}
		a.mu.Unlock()
	}
	return known[tool]
}

// checkParamHeaders refuses a call whose Mcp-Param headers are not the arguments in its body.
func (f *Face) checkParamHeaders(ctx context.Context, h http.Header, p identity.Principal, req *request) *rpcError {
	name, _ := call.Text(req.name)
	return badMessage(mcpwire.CheckParamHeaders(h, f.paramHeaders(ctx, p, name), req.arguments))
}
