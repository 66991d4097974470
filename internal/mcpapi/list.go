package mcpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
)

const pageSize = 200

// item is one entry of a list. Lists are sorted and paged by name.
type item struct {
	name       string
	definition json.RawMessage
}

// list answers one page of a list that the principal may see. A page begins after a name, so that it stays right when the list changes between
// two pages.
func (f *Face) list(ctx context.Context, p identity.Principal, req *request, modern bool) (json.RawMessage, *rpcError) {
	var items []item
	var member string
	switch req.Method {
	case "tools/list":
		member = "tools"
		ops, err := f.g.Listing(ctx, p)
		if err != nil {
			return nil, f.faultError(ctx, err)
		}
		declares := false
		for _, op := range ops {
			declares = declares || op.Command != nil && !op.Command.Inside || op.Class.NeedsReasons
			if _, own := ownTools[op.Name]; !own {
				items = append(items, item{op.Name, op.Definition})
			}
		}
		for name, t := range ownTools {
			if t.definition != nil && (declares || !t.declares) {
				items = append(items, item{name, t.definition})
			}
		}
		if f.o.Recommends != nil {
			if schema, ok := f.o.Recommends(p); ok {
				items = append(items, item{recommendTool, recommendDefinition(schema)})
			}
		}
	case "prompts/list":
		member = "prompts"
		items = f.offers(ctx, p, call.Prompt, false)
	case "resources/list":
		member = "resources"
		items = f.offers(ctx, p, call.Resource, false)
	case "resources/templates/list":
		member = "resourceTemplates"
		items = f.offers(ctx, p, call.Resource, true)
	default:
		return nil, noMethod(req.Method)
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.name, b.name) })
	items = slices.CompactFunc(items, func(a, b item) bool { return a.name == b.name })

	if req.cursor != nil && string(req.cursor) != "null" {
		after, ok := readCursor(req.cursor, member)
		if !ok {
			return nil, invalidParams("params.cursor is not one of ours for this list.")
		}
		i, found := slices.BinarySearchFunc(items, after, func(it item, name string) int { return cmp.Compare(it.name, name) })
		if found {
			i++
		}
		items = items[i:]
	}
	more := len(items) > pageSize
	if more {
		items = items[:pageSize]
	}
	if member == "tools" {
		definitions := make([]json.RawMessage, len(items))
		for i, it := range items {
			definitions[i] = it.definition
		}
		f.g.Gave(ctx, p, definitions)
	}
	b := append([]byte(`{"`), member...)
	b = append(b, `":[`...)
	for i, it := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, it.definition...)
	}
	b = append(b, ']')
	if more {
		b = append(append(b, `,"nextCursor":`...), writeCursor(member, items[pageSize-1].name)...)
	}
	if modern {
		b = append(b, `,"resultType":"complete","ttlMs":`...)
		b = strconv.AppendInt(b, listTTL, 10)
		b = append(b, `,"cacheScope":"private","_meta":{"`+mcpwire.MetaServerInfo+`":`...)
		b = append(append(b, f.sdk.info...), '}')
	}
	return append(b, '}'), nil
}

func (f *Face) offers(ctx context.Context, p identity.Principal, kind call.Kind, templates bool) []item {
	var items []item
	for _, o := range f.g.Offers(ctx, p, kind) {
		if o.Template == templates {
			items = append(items, item{o.Name, o.Definition})
		}
	}
	return items
}

// writeCursor makes a cursor of the list and the last name of a page. The client knows both, so it needs no protection.
func writeCursor(list, last string) json.RawMessage {
	return mcpwire.AppendJSON(nil, base64.RawURLEncoding.EncodeToString([]byte(list+"\x00"+last)))
}

func readCursor(cursor json.RawMessage, list string) (last string, ok bool) {
	s, ok := call.Text(cursor)
	if !ok {
		return "", false
	}
	raw, err := decode64(s)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(raw), list+"\x00")
}
