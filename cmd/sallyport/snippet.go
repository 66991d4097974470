package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

var clientKinds = []string{"claude-code", "claude-desktop", "cursor", "vscode", "codex"}

// setup is what a client has to know.
type setup struct {
	address  string // of the agents' side
	token    string // "": a reference to the environment
	program  string // this one
	data     string
	explicit bool // the address came from SALLYPORT_URL, so that the data directory may be elsewhere

	tokenFile string // of the agent local; "" if there is none
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

// snippet prints a client's configuration in the client's own format.
func (c *cli) snippet(kind string, s setup) error {
	url := s.address + "/mcp"
	bearer := func(reference string) object {
		if s.token != "" {
			reference = s.token
		}
		return object{{"Authorization", "Bearer " + reference}}
	}
	servers := func(server object) object { return object{{"mcpServers", object{{"sallyport", server}}}} }
	var where string
	var config any
	switch kind {
	case "claude-code":
		where = "Run the command, or put the JSON into .mcp.json of the project."
		header := `"Authorization: Bearer ${` + envToken + `}"`
		if s.token != "" {
			header = quoteShell("Authorization: Bearer " + s.token)
		}
		fmt.Fprintf(c.out, "claude mcp add --transport http sallyport %s --header %s\n\n", quoteShell(url), header)
		config = servers(object{{"type", "http"}, {"url", url}, {"headers", bearer("${" + envToken + "}")}})
	case "claude-desktop":
		where = "Put it into claude_desktop_config.json (Settings, Developer, Edit Config). Claude Desktop starts the command itself."
		server := object{{"command", s.program}, {"args", []string{"connect", "--data", s.data}}}
		env := object{}
		if s.explicit {
			env = append(env, member{envURL, s.address})
		}
		if s.token != "" {
			env = append(env, member{envToken, s.token})
		}
		if len(env) > 0 {
			server = append(server, member{"env", env})
		}
		config = servers(server)
	case "cursor":
		where = "Put it into ~/.cursor/mcp.json, or .cursor/mcp.json of a project."
		config = servers(object{{"url", url}, {"headers", bearer("${env:" + envToken + "}")}})
	case "vscode":
		where = "Put it into .vscode/mcp.json of the workspace."
		server := object{{"type", "http"}, {"url", url}, {"headers", bearer("${input:sallyport-token}")}}
		all := object{{"servers", object{{"sallyport", server}}}}
		if s.token == "" {
			where += " VS Code asks for the token and keeps it."
			all = append(all, member{"inputs", []object{{{"type", "promptString"}, {"id", "sallyport-token"}, {"description", "Sallyport token of the agent"}, {"password", true}}}})
		}
		config = all
	case "codex":
		where = "Put it into ~/.codex/config.toml."
		fmt.Fprintf(c.out, "[mcp_servers.sallyport]\nurl = %s\n", strconv.Quote(url))
		if s.token == "" {
			fmt.Fprintf(c.out, "bearer_token_env_var = %q\n", envToken)
		} else {
			fmt.Fprintf(c.out, "http_headers = { Authorization = %s }\n", strconv.Quote("Bearer "+s.token))
		}
	default:
		return usagef("--kind is one of %s, not %q", strings.Join(clientKinds, ", "), kind)
	}
	if config != nil {
		b, err := json.MarshalIndent(config, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s\n", b)
	}
	fmt.Fprintln(c.err, where)
	switch {
	case s.token != "", kind == "vscode":
	case kind == "claude-desktop":
		if s.tokenFile == "" {
			fmt.Fprintf(c.err, "It needs a token there, because there is no agent \"local\": %s=\"$(sallyport token create --agent ID)\" sallyport client config --kind claude-desktop --show-token\n", envToken)
		}
	case s.tokenFile != "":
		fmt.Fprintf(c.err, "Set %s where the client starts: export %s=\"$(cat %s)\"\n", envToken, envToken, quoteShell(s.tokenFile))
	default:
		fmt.Fprintf(c.err, "Set %s where the client starts: export %s=\"$(sallyport token create --agent ID)\"\n", envToken, envToken)
	}
	return nil
}

// quoteShell quotes a word for a POSIX shell if it needs it.
func quoteShell(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
