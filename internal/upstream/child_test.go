package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/mcpwire"
)

// legacyOnly makes the SDK's stdio server refuse what only 2026-07-28 has.
type legacyOnly struct{ mcp.StdioTransport }

func (*legacyOnly) SupportsProtocolVersion(v string) bool { return !mcpwire.Modern(v) }

// runChild is a server on stdio, in a process of its own.
func runChild(mode string) {
	out := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	switch mode {
	case "sdk":
		sdkServer().Run(context.Background(), &mcp.StdioTransport{})
		return
	case "sdk-legacy":
		sdkServer().Run(context.Background(), &legacyOnly{})
		return
	case "exits":
		fmt.Fprintln(os.Stderr, "can't \x1b[2J start")
		os.Exit(3)
	case "silent":
		io.Copy(io.Discard, os.Stdin)
		return
	case "stubborn": // ignores SIGTERM and the end of its input, and leaves a grandchild behind
		signal.Ignore(syscall.SIGTERM)
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.Stdout = os.Stdout
		cmd.Start()
		os.WriteFile(os.Getenv("PIDS"), []byte(fmt.Sprint(os.Getpid(), " ", cmd.Process.Pid)), 0o600)
	}
	// A scripted legacy server. Modes change what it does on tools/call.
	fmt.Fprintln(os.Stderr, "hello \x1b[31mred\x1b[0m")
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			for mode == "stubborn" {
				time.Sleep(time.Hour)
			}
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Do string }
				Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		json.Unmarshal(line, &m)
		switch m.Method {
		case "initialize":
			out(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"0"}}}`, m.ID)
		case "tools/list":
			out(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"run","inputSchema":{"type":"object"}}]}}`, m.ID)
		case "tools/call":
			ok := func() { out(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID) }
			switch m.Params.Arguments.Do {
			case "ok":
				ok()
			case "huge": // 100 MB on one line, the id first
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":"`, m.ID)
				for range 100 {
					os.Stdout.WriteString(strings.Repeat("y", 1<<20))
				}
				out(`"}}`)
			case "huge-last": // the id last
				fmt.Print(`{"jsonrpc":"2.0","result":{"content":"`)
				for range 20 {
					os.Stdout.WriteString(strings.Repeat("y", 1<<20))
				}
				out(`"},"id":%s}`, m.ID)
			case "huge-nameless":
				out(`{"jsonrpc":"2.0","result":"%s"}`, strings.Repeat("z", 20<<20))
			case "garbage":
				out("Listening on port 80\n\n[]\n{\"half\":")
				ok()
			case "wrong-id":
				out(`{"jsonrpc":"2.0","id":"sp-999999","result":{}}`)
				out(`{"jsonrpc":"2.0","id":77,"result":{}}`)
				out(`{"jsonrpc":"2.0","id":null,"result":{}}`)
				ok()
			case "twice":
				ok()
				ok()
			case "loose": // a duplicate key
				out(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"Content":[1]}}`, m.ID)
			case "two":
				out(`{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"x"}}`, m.ID)
			case "array":
				out(`{"jsonrpc":"2.0","id":%s,"result":[1]}`, m.ID)
			case "maybe":
				out(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"maybe"}}`, m.ID)
			case "legacy-mrtr":
				out(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required"}}`, m.ID)
			case "bad-error":
				out(`{"jsonrpc":"2.0","id":%s,"error":"no"}`, m.ID)
			case "long-error":
				out(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"%s"}}`, m.ID, strings.Repeat("e", 100<<10))
			case "error":
				out(`{"jsonrpc":"2.0","id":%s,"error":{"code":-5,"message":"mine","data":{"k":1}}}`, m.ID)
			case "die": // the process ends itself
				os.Exit(9)
			case "hang":
				fmt.Fprintln(os.Stderr, "the call hangs")
			case "stop-reading":
				ok()
				time.Sleep(time.Hour)
			case "flood":
				for i := range 200000 {
					out(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"i":%d}}`, i)
				}
				ok()
			case "flood-progress":
				for i := range 3000 {
					out(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Params.Meta.ProgressToken, i)
				}
				ok()
			case "foreign-progress":
				out(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"sp-1","progress":1}}`)
				ok()
			case "sample":
				out(`{"jsonrpc":"2.0","id":"s-%d","method":"sampling/createMessage","params":{"includeContext":"allServers","messages":[]}}`, time.Now().UnixNano())
				answer, _ := in.ReadBytes('\n')
				out(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, m.ID, strconv.Quote(strings.TrimSpace(string(answer))))
			case "env":
				out(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, m.ID, strings.Join(os.Environ(), " "))
			default:
				out(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"?"}}`, m.ID)
			}
		default:
			if m.ID != nil && m.Method != "" {
				out(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
			}
		}
	}
}
