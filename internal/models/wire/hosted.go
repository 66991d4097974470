package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Hostable are the tools of providers that a declaration can allow (hostedTools). Nothing allows the others: they read files, containers or servers that a
// provider keeps, which nobody here can inspect.
var Hostable = []string{"web_search", "web_fetch", "code_execution"}

// byProvider are the beginnings of types of tools that providers run. A dated type is the same tool.
var byProvider = append(slices.Clone(Hostable), "code_interpreter", "file_search", "tool_search", "mcp", "image_generation", "advisor", "container", "connector")

func isHosted(kind string) bool {
	return slices.ContainsFunc(byProvider, func(prefix string) bool { return strings.HasPrefix(kind, prefix) })
}

// isHostedContent tells content that only a tool of the provider's makes.
func isHostedContent(kind string) bool {
	return kind == "server_tool_use" || kind == "mcp_tool_use" || isHosted(parent(kind))
}

// parent is the name of the tool that a part of one belongs to: code is executed by two tools of one name.
func parent(kind string) string {
	for _, part := range []string{"bash_", "text_editor_"} {
		if whole, is := strings.CutPrefix(kind, part); is && strings.HasPrefix(whole, "code_execution") {
			return whole
		}
	}
	return kind
}

// hostable is the tool of Hostable whose type, or whose content's type, this is; "" if it is of none.
func hostable(kind string) string {
	for _, tool := range Hostable {
		if kind = parent(kind); kind == tool || strings.HasPrefix(kind, tool+"_") {
			return tool
		}
	}
	return ""
}

// refuseHosted refuses what the provider would run.
func refuseHosted(p *parser, at, kind string) {
	remedy := "Use comm_search and comm_fetch of the gateway over MCP, and switch the client's hosted tools off."
	if tool := hostable(kind); tool != "" {
		remedy += " An operator can add " + tool + " to hostedTools of the agent's declaration."
	}
	p.refuse(fault.ModelHostedTool, at, display.Quote(kind, 80)+" is run by the provider, where no rule of this gateway holds.", remedy)
}

// hostedTool checks the description of a tool that the provider would run.
func hostedTool(p *parser, at, kind string, v json.RawMessage) {
	if tool := hostable(kind); tool == "" || !slices.Contains(p.hosted, tool) {
		refuseHosted(p, at, kind)
		return
	}
	p.object(at, v, hostedToolFields, "type")
}

var hostedToolFields = fields{
	"type": name, "name": name, "cache_control": cacheControl, "max_uses": count, "allowed_domains": orNull(list(name)), "blocked_domains": orNull(list(name)), "user_location": orNull(plain),
	"citations": orNull(of(fields{"enabled": boolean})), "max_content_tokens": count, "search_context_size": name, "filters": orNull(plain),
}

// hostedContent checks a call or a result of a tool that the provider has run.
func hostedContent(p *parser, at, kind string, v json.RawMessage) {
	tool := hostable(kind)
	if kind == "server_tool_use" {
		called, _ := call.GetText(v, "name")
		tool = hostable(called)
	}
	if tool == "" || !slices.Contains(p.hosted, tool) {
		refuseHosted(p, at, kind)
		return
	}
	p.object(at, v, fields{
		"type": name, "id": name, "name": name, "tool_use_id": name, "input": plain, "content": plain, "action": plain, "status": name, "cache_control": cacheControl,
		"caller": orNull(of(fields{"type": word("direct")})),
	}, "type")
}

// unreadable are kinds of content that nobody here can read, or that the provider would fetch, wherever they stand.
var unreadable = []string{"image", "file", "container_upload", "input_image", "input_file", "input_audio", "image_url"}

// plain accepts anything in which nothing refers to what the provider keeps, or is content that does not pass elsewhere.
func plain(p *parser, at string, v json.RawMessage) {
	kind, _ := call.GetText(v, "type")
	source, _ := call.Get(v, "source")
	form, sourced := call.GetText(source, "type")
	if slices.Contains(unreadable, kind) || kind == "document" && form != "text" || sourced && form != "text" {
		p.fail(at, "Content of the kind "+display.Quote(kind, 80)+" does not pass: nothing here reads what is in it.", "Leave it out, or send its text.")
		return
	}
	for name, member := range call.Members(v) {
		if slices.Contains(byReference, name) {
			kept(display.Quote(join(at, name), 120))(p, clip(join(at, name)), member)
		} else if p.err == nil {
			plain(p, join(at, name), member)
		}
	}
	if len(v) > 0 && v[0] == '[' {
		for e := range call.Elements(v) {
			if p.err == nil {
				plain(p, at, e)
			}
		}
	}
}

// choice accepts an object that chooses among the tools of a request.
func choice(p *parser, at string, v json.RawMessage) {
	object(p, at, v)
	unkept(p, at, v)
}

// schemas are members whose names are an agent's own: what stands in them means nothing to a provider.
var schemas = []string{"parameters", "input_schema", "schema", "input", "arguments"}

// unkept looks at what is on no list, since its operator allows it, for what nothing allows: what refers to something at the provider, what the provider runs, and
// content by address.
func unkept(p *parser, at string, v json.RawMessage) {
	if p.err != nil {
		return
	}
	kind, _ := call.GetText(v, "type")
	source, _ := call.Get(v, "source")
	form, _ := call.GetText(source, "type")
	switch {
	case isHosted(kind) && !slices.Contains(p.hosted, hostable(kind)):
		refuseHosted(p, at, kind)
	case form == "url" || form == "file":
		p.fail(join(at, "source"), "Content by address or by a file's id does not pass: nothing here reads what is in it.", "Send the content itself. No setting allows this.")
	}
	for name, member := range call.Members(v) {
		path := join(at, name)
		switch address, _ := call.GetText(v, name); {
		case slices.Contains(byReference, name):
			kept(display.Quote(path, 120))(p, clip(path), member)
		case (name == "image_url" || name == "file_url" || name == "video_url" || name == "audio_url") && address != "" && !strings.HasPrefix(address, "data:"):
			p.fail(clip(path), "Content by address would be fetched by the provider, unjudged.", "Send the content itself. No setting allows this.")
		case !slices.Contains(schemas, name):
			unkept(p, path, member)
		}
	}
	if len(v) > 0 && v[0] == '[' {
		for e := range call.Elements(v) {
			unkept(p, at, e)
		}
	}
}

// HostedIn are the tools of a request that its provider would run, each once.
func HostedIn(body []byte) (all []string) {
	tools, _ := call.Get(body, "tools")
	for tool := range call.Elements(tools) {
		if kind, _ := call.GetText(tool, "type"); isHosted(kind) {
			all = append(all, hostable(kind))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
