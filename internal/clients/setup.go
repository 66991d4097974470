package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sallyport.example/internal/display"
	"sallyport.example/internal/identity"
)

// The environment variables from which commands take the gateway's address and a token.
const (
	EnvURL   = "SALLYPORT_URL"
	EnvToken = identity.EnvToken
)

// buildCache matches a program that "go run" built: in a folder of its own for this run, or in the cache of builds. Both go away.
var buildCache = regexp.MustCompile(`(^|[/\\])(go-build\d+[/\\]|[0-9a-f]{2}[/\\][0-9a-f]{64}-d[/\\])`)

// Program is how a client's configuration names this program, given what os.Executable returned. note says what people have to do for that, if
// anything.
func Program(path string, err error) (program, note string) {
	if err == nil && !buildCache.MatchString(path) {
		return path, ""
	}
	return "sallyport", "The program that runs now is a temporary one: install sallyport to a folder on the PATH, where the client finds it."
}

// Setup holds what a client's configuration needs.
type Setup struct {
	Address   string // of the agents' side
	Token     string // "": a reference to the environment
	Program   string // this one
	Data      string
	Explicit  bool   // the address came from SALLYPORT_URL, so that the data directory may be elsewhere
	TokenFile string // of the agent local; "" if there is none
	Models    Models // that the agent may ask

	model, background string // chosen
}

// object is JSON with its members in order.
type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// entry is the gateway's entry in a file of a client's that is JSON.
func (s Setup) entry(kind string) object {
	url := s.Address + "/mcp"
	bearer := func(reference string) object {
		if s.Token != "" {
			reference = s.Token
		}
		return object{{"Authorization", "Bearer " + reference}}
	}
	switch kind {
	case "claude-code":
		return object{{"type", "http"}, {"url", url}, {"headers", bearer("${" + EnvToken + "}")}}
	case "cursor":
		return object{{"url", url}, {"headers", bearer("${env:" + EnvToken + "}")}}
	case "vscode":
		return object{{"type", "http"}, {"url", url}, {"headers", bearer("${input:sallyport-token}")}}
	}
	server := object{{"command", s.Program}, {"args", []string{"connect", "--data", s.Data}}}
	env := object{}
	if s.Explicit {
		env = append(env, member{EnvURL, s.Address})
	}
	if s.Token != "" {
		env = append(env, member{EnvToken, s.Token})
	}
	if len(env) > 0 {
		server = append(server, member{"env", env})
	}
	return server
}

// inputs are what VS Code asks its person for.
func (s Setup) inputs() []object {
	return []object{{{"type", "promptString"}, {"id", "sallyport-token"}, {"description", "Sallyport token of the agent"}, {"password", true}}}
}

// table is the gateway's entry in Codex's file.
func (s Setup) table() string {
	return fmt.Sprintf("[mcp_servers.sallyport]\nurl = %s\n%s\n", strconv.Quote(s.Address+"/mcp"), s.codexCredential("bearer_token_env_var"))
}

// codexCredential is the line of Codex's file by which it gets the token, where reference is the key that names an environment variable there.
func (s Setup) codexCredential(reference string) string {
	if s.Token != "" {
		return "http_headers = { Authorization = " + strconv.Quote("Bearer "+s.Token) + " }"
	}
	return fmt.Sprintf("%s = %q", reference, EnvToken)
}

// Snippet is a client's configuration in the client's own format, and where to put it.
func (s Setup) Snippet(kind string) (snippet, where string, err error) {
	var out strings.Builder
	servers := func(member string) object { return object{{member, object{{"sallyport", s.entry(kind)}}}} }
	var config object
	models := s.model != "" && len(s.Models.asks(kind)) > 0
	switch kind {
	case "claude-code":
		where = "Run the command, or put the JSON into .mcp.json of the project."
		config = servers("mcpServers")
		header := "Authorization: Bearer ${" + EnvToken + "}"
		if s.Token != "" {
			header = "Authorization: Bearer " + s.Token
		}
		// In single quotes, because in others the shell would put the token itself into the client's file.
		fmt.Fprintf(&out, "claude mcp add --transport http sallyport %s --header %s\n\n", Quote(s.Address+"/mcp"), Quote(header))
	case "claude-desktop":
		where = "Put it into claude_desktop_config.json (Settings, Developer, Edit Config). Claude Desktop starts the command itself."
		config = servers("mcpServers")
	case "cursor":
		where = "Put it into ~/.cursor/mcp.json, or .cursor/mcp.json of a project."
		config = servers("mcpServers")
	case "vscode":
		where = "Put it into .vscode/mcp.json of the workspace."
		config = servers("servers")
		if s.Token == "" {
			where += " VS Code asks for the token and keeps it."
			config = append(config, member{"inputs", s.inputs()})
		}
	case "codex":
		where = "Put it into ~/.codex/config.toml."
		first, provider := s.codexModels()
		if !models {
			first, provider = "", ""
		} else {
			where += " The lines in front stand before the first [table] of the file. They have Codex ask its model through the gateway, and turn its web search off, which the provider would run." + s.others(kind)
		}
		out.WriteString(first + s.table() + provider)
	case SDK:
		if !models {
			return "", "", errors.New("the agent may ask no model through the gateway: name one under models in sallyport.yaml, and in dataSources.models of the agent's declaration")
		}
		where = "Run it in the shell that starts the program. The agent may ask " + display.Line(strings.Join(s.Models.asks(kind), ", "), 500) + "."
		out.WriteString(s.exports())
	default:
		return "", "", fmt.Errorf("no client is called %q: there are %s", kind, strings.Join(Configured, ", "))
	}
	if s.Token != "" {
		where += "\nThe token stands there as it is, so keep it out of what others read."
	}
	if config != nil {
		text, err := indented(config)
		if err != nil {
			return "", "", err
		}
		out.WriteString(text)
	}
	if models && kind == "claude-code" {
		text, err := indented(s.claudeModels())
		if err != nil {
			return "", "", err
		}
		out.WriteString("\n" + text)
		where += "\nPut the members of the second JSON into ~/.claude/settings.json. They have Claude Code ask its models through the gateway, and turn its web search off, which the provider would run." + s.others(kind)
	}
	return out.String(), where + s.Credential(kind), nil
}

// Credential says how the client gets the token, if it does not have it.
func (s Setup) Credential(kind string) string {
	const create = "\"$(sallyport token create --agent ID)\""
	set := "\nSet " + EnvToken + " where the client starts: export " + EnvToken + "="
	switch {
	case s.Token != "", kind == "vscode", kind == "claude-desktop" && s.TokenFile != "":
		return ""
	case kind == "claude-desktop":
		return "\nIt needs a token there, because there is no agent \"local\": " + EnvToken + "=" + create + " sallyport client config --kind claude-desktop --show-token"
	case s.TokenFile != "":
		return set + "\"$(cat " + Quote(s.TokenFile) + ")\""
	}
	return set + create
}

// Quote quotes a word for a POSIX shell if it needs it.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
