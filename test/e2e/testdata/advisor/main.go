// Advisor is an agent of the tests: its runs are of the kind command. It reads an incident over MCP on its descriptor 3, and recommends what its input
// tells it to, well or badly.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

type task struct {
	RunID    string `json:"run_id"`
	AgentURL string `json:"agent_url"`
	Input    struct {
		Incident string `json:"incidentId"`
		Mode     string `json:"mode"`
		Action   string `json:"action"`
	} `json:"input"`
}

// gateway speaks MCP over the descriptor 3, one message in a line.
type gateway struct {
	socket *os.File
	lines  *bufio.Reader
	id     int
}

func (g *gateway) ask(method string, params any) json.RawMessage {
	g.id++
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": g.id, "method": method, "params": params})
	fail(err)
	_, err = g.socket.Write(append(message, '\n'))
	fail(err)
	for {
		line, err := g.lines.ReadBytes('\n')
		fail(err)
		var answer struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		fail(json.Unmarshal(line, &answer))
		if answer.ID != g.id {
			continue
		}
		if answer.Error != nil {
			fail(fmt.Errorf("%s: %s", method, answer.Error))
		}
		return answer.Result
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var t task
	fail(json.NewDecoder(os.Stdin).Decode(&t))
	switch t.Input.Mode {
	case "sleep":
		fmt.Print(`{"partial":`)
		time.Sleep(time.Hour)
	case "crash":
		fail(fmt.Errorf("no idea"))
	case "network":
		_, err := net.DialTimeout("tcp", strings.TrimPrefix(t.AgentURL, "http://"), time.Second)
		fail(err)
	case "huge":
		fmt.Printf(`{"a":"%s"}`, strings.Repeat("x", 1<<20))
		return
	case "text":
		fmt.Print("# What to do\n\n- page somebody\n- wait")
		return
	case "deep":
		fmt.Print(`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`)
		return
	case "twice":
		fmt.Print(`{"recommendationId":"r","recommendationId":"s"}`)
		return
	}
	began := time.Now()
	socket := os.NewFile(3, "gateway")
	g := &gateway{socket: socket, lines: bufio.NewReader(socket)}
	g.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "advisor", "version": "1"}})
	_, err := socket.Write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"))
	fail(err)
	if t.Input.Mode != "unread" {
		read := g.ask("tools/call", map[string]any{"name": "incidents_get", "arguments": map[string]string{"id": t.Input.Incident}})
		if strings.Contains(string(read), `"isError":true`) {
			fail(fmt.Errorf("incidents_get: %s", read))
		}
	}
	if t.Input.Mode == "obeys" { // it does whatever what it read tells it to
		for _, operation := range []string{"pager_page", "sallyport_recommend", "incidents_get"} {
			g.ask("tools/call", map[string]any{"name": operation, "arguments": map[string]string{"incident": "EVIL-1", "id": "EVIL-1"}})
		}
	}
	if t.Input.Mode == "linger" { // it has read, and takes its time
		time.Sleep(time.Hour)
	}
	reasoning, source, quote := "The disk of db-1 is full, and nothing frees it.", "incidents", "disk is full"
	switch t.Input.Mode {
	case "long":
		reasoning = "Move the nightly export of the billing team to another volume before it runs again, because since Tuesday it alone writes forty gigabytes each night that nobody removes"
	case "markdown":
		reasoning = "# Summary\nThe disk is full."
	case "undeclared":
		source = "wiki"
	case "misquoted":
		quote = "memory is full"
	}
	action := t.Input.Action
	if action == "" {
		action = "ESCALATE"
	}
	out := map[string]any{
		"recommendationId": t.RunID, "agentId": "incident-advisor", "timestamp": time.Now().UTC().Format(time.RFC3339), "incidentId": t.Input.Incident,
		"recommendation": map[string]any{"action": action, "confidence": 0.8, "reasoning": reasoning, "evidence": []string{"the note of the incident"}},
		"metadata":       map[string]any{"executionTime": time.Since(began).Milliseconds(), "tokensUsed": 0, "modelVersion": "none"},
		"citations":      []any{map[string]any{"source": source, "recordId": t.Input.Incident, "timestamp": time.Now().UTC().Format(time.RFC3339Nano), "confidence": 0.9, "quote": quote}},
	}
	fail(json.NewEncoder(os.Stdout).Encode(out))
}
