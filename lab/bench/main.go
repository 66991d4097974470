// Command bench measures what Sallyport costs: the same echo tool called directly, through a bare reverse proxy, through one that
// commits two fsynced records per call, through a bare MCP proxy made of the Go SDK, and through Sallyport with everything on.
// All of them run in one go on one machine, each in a process of its own, and what counts is the ratio to direct.
//
//	go run ./lab/bench -sallyport bin/sallyport
//
// With -models it measures requests to models, beside a reverse proxy that commits two fsynced records and hands streams on as they come.
// With -floods it measures one agent's calls while another agent floods; with -soak, level memory, descriptors and latency over a long time.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/lab/sample"
)

func main() {
	role := flag.String("role", "", "what this process is (used by the program itself)")
	target := flag.String("target", "", "where a proxy sends its calls")
	binary := flag.String("sallyport", "bin/sallyport", "the sallyport binary to measure")
	span := flag.Duration("span", 2*time.Second, "how long each measurement runs")
	rounds := flag.Int("rounds", 3, "how often each measurement is repeated; the median counts")
	only := flag.String("only", "", "comma-separated subjects to measure, besides direct")
	rows := flag.String("rows", "", "a text that the labels of the rows, or the floods, to measure have")
	token := flag.String("token", "", "what a flood is authorised with (used by the program itself)")
	beside := flag.Bool("floods", false, "measure one agent's small calls while another agent floods")
	asks := flag.Bool("models", false, "measure requests to models")
	long := flag.Duration("soak", 0, "make mixed calls for so long")
	flag.Parse()
	var err error
	switch *role {
	case "":
		switch {
		case *asks:
			err = runModels(*binary, *span, *rounds)
		case *beside:
			err = runFloods(*binary, *span, *rows)
		case *long > 0:
			err = soak(*binary, *long)
		default:
			err = run(*binary, *span, *rounds, *only, *rows)
		}
	case "flood":
		err = flood(*target, *token, *rows)
	case "echo":
		err = serve(echo())
	case "provider":
		err = serve(http.HandlerFunc(provider))
	case "proxy":
		err = serve(reverseProxy(*target, nil, false))
	case "proxy+fsync", "proxy+fsync, streams":
		var log *os.File
		if log, err = os.CreateTemp("", "bench-fsync-*"); err == nil {
			defer os.Remove(log.Name())
			err = serve(reverseProxy(*target, log, *role != "proxy+fsync"))
		}
	case "sdk-proxy":
		var h http.Handler
		if h, err = sdkProxy(*target); err == nil {
			err = serve(h)
		}
	default:
		err = fmt.Errorf("unknown role %q", *role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// agents share the callers. One agent may have 512 calls under way.
var agents = []string{"a1", "a2", "a3", "a4"}

// declaration is that of an agent, which may call the tools there are.
const declaration = `agentId: %s
agentName: Bench
version: 1.0.0
purpose: Calls the echo tool.
capabilities: [echo]
dataSources: {tables: [], apis: [bench], models: [` + benchModel + `]}
permissions: {read: [bench.echo, bench.trusted, loud.echo], write: []}
outputSchemaVersion: 1.0.0
outputSchema:
  type: object
  additionalProperties: false
  required: [citations]
  properties:
    citations:
      type: array
      items:
        type: object
        additionalProperties: false
        required: [source, timestamp, confidence]
        properties: {source: {enum: [bench]}, timestamp: {type: string, format: date-time}, confidence: {type: number}}
maxExecutionTime: 30000
maxTokens: 20000
killSwitchEnabled: true
humanApprovalRequired: true
mode: operator
`

// serve prints the address and serves until standard input ends, so that no process outlives the one that started it.
func serve(h http.Handler) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", ln.Addr())
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	return http.Serve(ln, h)
}

type echoArgs struct {
	Text string `json:"text,omitempty"`
	Kind string `json:"kind,omitempty"` // of sample.Kinds, in place of Text; or hugeKind
	Size int    `json:"size,omitempty"` // of it, in bytes
}

func echo() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	made := map[echoArgs]*mcp.CallToolResult{}
	var mu sync.Mutex
	answer := func(_ context.Context, _ *mcp.CallToolRequest, a echoArgs) (*mcp.CallToolResult, any, error) {
		mu.Lock()
		defer mu.Unlock()
		if r := made[a]; r != nil {
			return r, nil, nil
		}
		text := a.Text
		if a.Kind != "" {
			text = sample.Text(a.Kind, a.Size)
		}
		r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
		if a.Kind == sample.Structured {
			r.StructuredContent = json.RawMessage(`{"records":` + text + `}`)
			r.Content = []mcp.Content{&mcp.TextContent{Text: `{"records":` + text + `}`}}
		}
		if len(made) < 100 {
			made[a] = r
		}
		return r, nil, nil
	}
	for _, name := range []string{"echo", "trusted"} {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "Returns a text."}, answer)
	}
	return huge(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

// hugeKind is the kind of a text that is written as it is made: a server that sends endless answers needs no memory for them.
const hugeKind = "huge"

// huge answers calls that ask for a text of hugeKind, and hands on everything else.
func huge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var asked struct {
			ID     json.RawMessage
			Params struct{ Arguments echoArgs }
		}
		if !bytes.Contains(body, []byte(hugeKind)) || json.Unmarshal(body, &asked) != nil || asked.Params.Arguments.Kind != hugeKind {
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, asked.ID)
		piece := bytes.Repeat([]byte("lorem ipsum "), 4096)
		for left := asked.Params.Arguments.Size; left > 0; left -= len(piece) {
			if _, err := w.Write(piece[:min(left, len(piece))]); err != nil {
				return // the gateway has read enough
			}
		}
		io.WriteString(w, `"}]}}`)
	})
}

// reverseProxy forwards everything; with a log it commits one record before and one after each POST, as an audit would. Unless it streams, an answer leaves only after that.
func reverseProxy(target string, log *os.File, streams bool) http.Handler {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 128
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	record := bytes.Repeat([]byte("x"), 300)
	var mu sync.Mutex
	commit := func() {
		mu.Lock()
		defer mu.Unlock()
		if _, err := log.Write(record); err != nil {
			panic(err)
		}
		if err := log.Sync(); err != nil {
			panic(err)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // a body that was read first is never cut (golang/go#40747)
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		if log == nil || r.Method != http.MethodPost {
			proxy.ServeHTTP(w, r)
			return
		}
		commit()
		if streams {
			proxy.ServeHTTP(w, r)
			commit()
			return
		}
		held := &holder{header: http.Header{}}
		proxy.ServeHTTP(held, r)
		commit() // the answer leaves only after its record is durable
		for k, v := range held.header {
			w.Header()[k] = v
		}
		w.WriteHeader(held.status)
		w.Write(held.body.Bytes())
	})
}

type holder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *holder) Header() http.Header         { return h.header }
func (h *holder) WriteHeader(s int)           { h.status = s }
func (h *holder) Write(b []byte) (int, error) { return h.body.Write(b) }

func sdkProxy(target string) (http.Handler, error) {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "proxy", Version: "1"}, nil)
	up, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: target, HTTPClient: pooled()}, nil)
	if err != nil {
		return nil, err
	}
	tools, err := up.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk-proxy", Version: "1"}, nil)
	for _, t := range tools.Tools {
		s.AddTool(t, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return up.CallTool(ctx, &mcp.CallToolParams{Name: r.Params.Name, Arguments: r.Params.Arguments})
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil), nil
}

func pooled() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = 256, 512
	return &http.Client{Transport: t}
}

// process is a subject under load.
type process struct {
	name, url string
	session   func(ctx context.Context) (token string, err error) // opens one for a caller; nil: it takes no token
	cmd       *exec.Cmd
	stdin     io.Closer
}

func start(name string, cmd *exec.Cmd) (*process, *bufio.Scanner, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return &process{name: name, cmd: cmd, stdin: in}, bufio.NewScanner(out), nil
}

func self(name, role, target string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, out, err := start(name, exec.Command(exe, "-role", role, "-target", target))
	if err != nil {
		return nil, err
	}
	if !out.Scan() {
		return nil, fmt.Errorf("%s did not start", name)
	}
	p.url = out.Text()
	return p, nil
}

// gatewayOf is a gateway to be started.
type gatewayOf struct {
	binary, target, dir string
	loud                string // address of the server that a flood uses; "": there is none
	limits              string // more limits of the configuration
	model               string // address of a model's provider; "": there is none
	unindexed           bool   // without the index for searching the log
}

func sallyport(o gatewayOf) (*process, error) {
	binary, dir := o.binary, o.dir
	more, labels := "", ""
	if o.loud != "" {
		more, labels = fmt.Sprintf("  loud: {url: %q}\n", o.loud), "  loud.*: {sensitivity: internal_source, effect: read, external_io: false}\n"
	}
	config := fmt.Sprintf(`listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
agents: agents
audit: {search: %t}
upstreams:
  bench: {url: %q}
%soperations:
  bench.echo: {expose_as: echo, sensitivity: internal_source, effect: read, external_io: false}
  bench.trusted: {expose_as: trusted, sensitivity: internal_source, effect: read, output: trusted, external_io: false}
%slimits: {calls_per_minute: 100000000, execution_budget: 100h%s}
`, !o.unindexed, o.target, more, labels, o.limits)
	if o.model != "" {
		config += fmt.Sprintf("models: [{id: %s, provider: openai, base_url: %q, labels: [internal, pii]}]\n", benchModel, o.model)
	}
	path := filepath.Join(dir, "sallyport.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	data, folder := filepath.Join(dir, "data"), filepath.Join(dir, "agents")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	for _, id := range agents {
		if err := os.WriteFile(filepath.Join(folder, id+".yaml"), fmt.Appendf(nil, declaration, id), 0o600); err != nil {
			return nil, err
		}
	}
	p, out, err := start("sallyport", exec.Command(binary, "serve", "--config", path, "--data", data, "--log-level", "error"))
	if err != nil {
		return nil, err
	}
	go func() {
		for out.Scan() {
		}
	}()
	for range 200 {
		if b, err := os.ReadFile(filepath.Join(data, "addresses.json")); err == nil {
			var a struct{ Agent string }
			if err := json.Unmarshal(b, &a); err != nil {
				return nil, err
			}
			token, err := exec.Command(binary, "token", "create", "--host", "bench", "--config", path, "--data", data).Output()
			if err != nil {
				return nil, fmt.Errorf("%s token create: %w", binary, err)
			}
			if said, err := exec.Command(binary, "agents", "approve", "--all", "--reason", "measuring", "--data", data).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%s agents approve: %w\n%s", binary, err, said)
			}
			p.url = a.Agent + "/mcp"
			opened := 0
			p.session = func(ctx context.Context) (string, error) {
				opened++
				return open(ctx, a.Agent, strings.TrimSpace(string(token)), agents[opened%len(agents)])
			}
			return p, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s serve did not write addresses.json", binary)
}

// open opens a session of the agent. Each caller has one of its own, since a session keeps only so much of what it has seen.
func open(ctx context.Context, gateway, host, agent string) (token string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+"/v1/session", strings.NewReader(`{"agent_id":"`+agent+`","user_request":"Read what there is."}`))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := auth{host, http.DefaultTransport}.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var opened struct {
		Token string `json:"session_token"`
	}
	if err := json.NewDecoder(res.Body).Decode(&opened); err != nil || opened.Token == "" {
		return "", fmt.Errorf("no session was opened: status %d, %w", res.StatusCode, err)
	}
	return opened.Token, nil
}

func (p *process) stop() {
	p.stdin.Close()
	p.cmd.Process.Signal(os.Interrupt)
	done := make(chan struct{})
	go func() { p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		p.cmd.Process.Kill()
		<-done
	}
}

// cpu is the user and system time the process has used.
func (p *process) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
}

// peak is the largest resident size so far, in MiB.
func (p *process) peak() float64 { return p.memory("VmHWM") }

// memory is a size that the kernel tells of the process, in MiB.
func (p *process) memory(what string) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, what+":"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024
		}
	}
	return 0
}

type auth struct {
	token string
	next  http.RoundTripper
}

func (a auth) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.next.RoundTrip(r)
}

// caller makes one call and returns when it is answered. took is what counts of the time that it needed; 0: all of it.
type caller func(ctx context.Context) (took time.Duration, err error)

func sdkCaller(ctx context.Context, p *process, hc *http.Client, st setting) (caller, func(), error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "load", Version: "1"}, nil)
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: hc, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (time.Duration, error) {
		r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: st.tool(), Arguments: st.args})
		if err != nil {
			return 0, err
		}
		if r.IsError || len(r.Content) != 1 {
			b, _ := json.Marshal(r)
			return 0, fmt.Errorf("the call was refused: %s", b)
		}
		return 0, nil
	}, func() { s.Close() }, nil
}

func rawCaller(ctx context.Context, p *process, hc *http.Client, st setting) (caller, func(), error) {
	var session string
	post := func(ctx context.Context, body string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
			r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		res, err := hc.Do(r)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if session == "" {
			session = res.Header.Get("Mcp-Session-Id")
		}
		if res.StatusCode > 299 {
			return "", fmt.Errorf("status %d: %s", res.StatusCode, b)
		}
		return string(b), err
	}
	if _, err := post(ctx, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`); err != nil {
		return nil, nil, err
	}
	if _, err := post(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		return nil, nil, err
	}
	a, err := json.Marshal(st.args)
	if err != nil {
		return nil, nil, err
	}
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, st.tool(), a)
	return func(ctx context.Context) (time.Duration, error) {
		answer, err := post(ctx, call)
		if err == nil && (!strings.Contains(answer, `"content"`) || strings.Contains(answer, `"isError":true`)) {
			err = fmt.Errorf("the call was refused: %s", answer)
		}
		return 0, err
	}, func() {}, nil
}

type sampled struct {
	perSecond, p50us, p99us, cpuUS float64
}

// measure runs callers against the subject for the span.
func measure(p *process, st setting, span time.Duration) (sampled, error) {
	ctx := context.Background()
	shared := pooled()
	defer shared.CloseIdleConnections()
	calls := make([]caller, st.callers)
	for i := range calls {
		hc := &http.Client{Transport: shared.Transport}
		if p.session != nil {
			token, err := p.session(ctx)
			if err != nil {
				return sampled{}, fmt.Errorf("%s: %w", p.name, err)
			}
			hc.Transport = auth{token, shared.Transport}
		}
		make := sdkCaller
		switch st.client {
		case "raw":
			make = rawCaller
		case "model":
			make = modelCaller
		}
		c, done, err := make(ctx, p, hc, st)
		if err != nil {
			return sampled{}, fmt.Errorf("%s: %w", p.name, err)
		}
		defer done()
		calls[i] = c
	}
	for _, c := range calls { // warm up connections
		if _, err := c(ctx); err != nil {
			return sampled{}, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	var n atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wg sync.WaitGroup
	cpu, began := p.cpu(), time.Now()
	for _, c := range calls {
		wg.Go(func() {
			var mine []time.Duration
			for time.Since(began) < span {
				t := time.Now()
				took, err := c(ctx)
				if err != nil {
					mu.Lock()
					failed = fmt.Errorf("%s: %w", p.name, err)
					mu.Unlock()
					return
				}
				if took == 0 {
					took = time.Since(t)
				}
				mine = append(mine, took)
				n.Add(1)
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	if failed != nil {
		return sampled{}, failed
	}
	slices.Sort(all)
	at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Nanoseconds()) / 1e3 }
	return sampled{
		perSecond: float64(n.Load()) / elapsed.Seconds(), p50us: at(.5), p99us: at(.99),
		cpuUS: float64((p.cpu() - cpu).Microseconds()) / float64(n.Load()),
	}, nil
}

type setting struct {
	label, client string
	callers       int
	args          echoArgs
	trusted       bool   // by the operator's word, so that results need no fence
	name          string // of another tool than those two
	events        int    // of a model's answer; 0: it comes whole
}

func (s setting) tool() string {
	switch {
	case s.name != "":
		return s.name
	case s.trusted:
		return "trusted"
	}
	return "echo"
}

// settings are the rows that are measured.
func settings() []setting {
	small := echoArgs{Text: strings.Repeat("hello world ", 11)[:128]}
	all := []setting{
		{label: "1 caller, Go SDK, 128 bytes", client: "sdk", callers: 1, args: small}, {label: "64 callers, Go SDK, 128 bytes", client: "sdk", callers: 64, args: small},
		{label: "1 caller, raw HTTP, 128 bytes", client: "raw", callers: 1, args: small}, {label: "64 callers, raw HTTP, 128 bytes", client: "raw", callers: 64, args: small},
		{label: "64 callers, raw HTTP, 128 bytes, trusted", client: "raw", callers: 64, args: small, trusted: true},
		{label: "500 callers, raw HTTP, 128 bytes", client: "raw", callers: 500, args: small}, {label: "1000 callers, raw HTTP, 128 bytes", client: "raw", callers: 1000, args: small},
		{label: "64 callers again, raw HTTP, 128 bytes", client: "raw", callers: 64, args: small},
	}
	for _, kind := range sample.Kinds {
		all = append(all, setting{label: "8 callers, 64 KiB of " + kind, client: "raw", callers: 8, args: echoArgs{Kind: kind, Size: 64 << 10}})
	}
	return append(all, setting{label: "8 callers, 64 KiB of structured, trusted", client: "raw", callers: 8, args: echoArgs{Kind: sample.Structured, Size: 64 << 10}, trusted: true},
		setting{label: "8 callers, 1 MiB of words", client: "raw", callers: 8, args: echoArgs{Kind: "words", Size: 1 << 20}},
		setting{label: "8 callers, 1 MiB of records", client: "raw", callers: 8, args: echoArgs{Kind: "records", Size: 1 << 20}})
}

// unindexed is a gateway without the index for searching the log. It is measured where -only names it.
const unindexed = "unindexed"

func run(binary string, span time.Duration, rounds int, only, rows string) error {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	direct, err := self("direct", "echo", "")
	if err != nil {
		return err
	}
	defer direct.stop()
	subjects := []*process{direct}
	for _, name := range []string{"proxy", "proxy+fsync", "sdk-proxy", "sallyport", unindexed} {
		if named := slices.Contains(strings.Split(only, ","), name); !named && (only != "" || name == unindexed) {
			continue
		}
		var p *process
		if name == "sallyport" || name == unindexed {
			place := filepath.Join(dir, name)
			if err := os.Mkdir(place, 0o700); err != nil {
				return err
			}
			p, err = sallyport(gatewayOf{binary: binary, target: direct.url, dir: place, unindexed: name == unindexed})
		} else {
			p, err = self(name, name, direct.url)
		}
		if err != nil {
			return err
		}
		p.name = name
		defer p.stop()
		subjects = append(subjects, p)
	}
	fmt.Printf("%d cores, %s, %s, %d rounds of %s each; medians, spread as (min–max) of the ratio to direct\n", runtime.NumCPU(), runtime.GOARCH, runtime.Version(), rounds, span)
	p50 := map[string]float64{}
	for _, st := range settings() {
		if !strings.Contains(st.label, rows) {
			continue
		}
		samples := map[string][]sampled{}
		for range rounds { // in turn, so that a drift of the machine hits all alike
			for _, p := range subjects {
				s, err := measure(p, st, span)
				if err != nil {
					return err
				}
				samples[p.name] = append(samples[p.name], s)
			}
		}
		fmt.Printf("\n%s\n  %-12s %10s %22s %10s %10s %12s\n", st.label, "", "calls/s", "throughput / direct", "p50 µs", "p99 µs", "CPU µs/call")
		for _, p := range subjects {
			ss := samples[p.name]
			var ratios []float64
			for i, s := range ss {
				ratios = append(ratios, s.perSecond/samples["direct"][i].perSecond)
			}
			m := func(f func(sampled) float64) float64 { return median(ss, f) }
			half := m(func(s sampled) float64 { return s.p50us })
			p50[p.name+"/"+st.label] = half
			fmt.Printf("  %-12s %10.0f %8.2f (%.2f–%.2f) %14.0f %10.0f %12.0f\n", p.name, m(func(s sampled) float64 { return s.perSecond }),
				medianOf(ratios), slices.Min(ratios), slices.Max(ratios), half, m(func(s sampled) float64 { return s.p99us }), m(func(s sampled) float64 { return s.cpuUS }))
		}
		of := func(name string, f func(sampled) float64) float64 { return median(samples[name], f) }
		if len(samples["sallyport"]) > 0 && len(samples["proxy"]) > 0 {
			cpu, rate := func(s sampled) float64 { return s.cpuUS }, func(s sampled) float64 { return s.perSecond }
			fmt.Printf("  sallyport / proxy: CPU %.2f, throughput %.2f\n", of("sallyport", cpu)/of("proxy", cpu), of("sallyport", rate)/of("proxy", rate))
		}
		if len(samples["sallyport"]) > 0 && len(samples[unindexed]) > 0 {
			cpu, rate := func(s sampled) float64 { return s.cpuUS }, func(s sampled) float64 { return s.perSecond }
			fmt.Printf("  sallyport / unindexed: CPU %.3f, throughput %.3f\n", of("sallyport", cpu)/of(unindexed, cpu), of("sallyport", rate)/of(unindexed, rate))
		}
		if a, b := p50["sallyport/"+st.label], p50["proxy+fsync/"+st.label]; a > 0 && b > 0 && st.callers == 1 {
			fmt.Printf("  p50 of sallyport / p50 of proxy+fsync: %.2f\n", a/b)
		}
	}
	fmt.Printf("\npeak memory, MiB:")
	for _, p := range subjects {
		fmt.Printf("  %s %.0f", p.name, p.peak())
	}
	fmt.Println()
	return nil
}

func median(ss []sampled, f func(sampled) float64) float64 {
	var v []float64
	for _, s := range ss {
		v = append(v, f(s))
	}
	return medianOf(v)
}

func medianOf(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
