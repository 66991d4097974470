// Command mortal is an MCP server on standard input and output that exits when a call has the word "die" in it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"mortal","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"get","description":"Does it.","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			if strings.Contains(string(m.Params), "die") {
				os.Exit(1)
			}
			result = `{"content":[{"type":"text","text":"fine"}]}`
		}
		if m.Method == "server/discover" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
			continue
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
}
