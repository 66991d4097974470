package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
	_ "modernc.org/sqlite"

	"sallyport.example/client"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/confirm"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge/extract"
	"sallyport.example/internal/sandbox"
	"sallyport.example/internal/store"
)

func TestMain(m *testing.M) {
	sandbox.Init() // servers are started through this binary
	extract.Init()
	testscript.Main(m, programs)
}

// programs are those that the scripts run.
var programs = map[string]func(){"sallyport": main, "mcpserver": mcpserver, "ask": ask}

// ask METHOD URL TOKEN [BODY] prints the status and the answer of a request, as any program that speaks HTTP could make it. A BODY that is no JSON is a form;
// CONFIRM in the environment is the number of a confirmation.
func ask() {
	body, form := "", false
	if len(os.Args) > 4 {
		body = os.Args[4]
		form = !strings.HasPrefix(body, "{")
	}
	r, err := http.NewRequest(os.Args[1], os.Args[2], strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", map[bool]string{true: "application/x-www-form-urlencoded", false: "application/json"}[form])
	r.Header.Set("Accept", "application/json, text/event-stream")
	if form {
		r.Header.Set("Origin", "http://"+r.Host)
	}
	if os.Args[3] != "" {
		r.Header.Set("Authorization", "Bearer "+os.Args[3])
	}
	if number := os.Getenv("CONFIRM"); number != "" {
		r.Header.Set(confirm.Header, number)
	}
	noRedirects := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := noRedirects.Do(r)
	if err != nil {
		panic(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.StatusCode, string(answer))
}

// mcpserver is a stdio MCP server for the scripts. DEFINITION changes what its tool says about itself.
func mcpserver() {
	s := mcp.NewServer(&mcp.Implementation{Name: "scripted", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "note", Description: "A note \x1b[31mof\x1b[0m the script" + os.Getenv("DEFINITION")}, func(context.Context, *mcp.CallToolRequest, struct {
		Text string `json:"text,omitempty"`
	}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "noted"}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "hold", Description: "Answers when it is let go."}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		if err := os.WriteFile(os.Getenv("HOLD")+".held", nil, 0o600); err != nil {
			return nil, nil, err
		}
		for ctx.Err() == nil {
			if _, err := os.Lstat(os.Getenv("HOLD")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "let go"}}}, nil, ctx.Err()
	})
	if os.Getenv("CUSTOMERS") != "" {
		said := func(context.Context, *mcp.CallToolRequest, struct {
			ID   string `json:"customer_id,omitempty"`
			Text string `json:"text,omitempty"`
		}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		}
		mcp.AddTool(s, &mcp.Tool{Name: "get_customer", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, said)
		mcp.AddTool(s, &mcp.Tool{Name: "list_customers", Description: "Lists\x1b[2J them.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, said)
		mcp.AddTool(s, &mcp.Tool{Name: "update_customer"}, said)
		mcp.AddTool(s, &mcp.Tool{Name: "delete_customer"}, said)
	}
	if os.Getenv("FILES") != "" {
		mcp.AddTool(s, &mcp.Tool{Name: "write", Description: "Writes a file."}, func(_ context.Context, _ *mcp.CallToolRequest, a struct {
			Path    string `json:"path"`
			Content string `json:"content"`
		}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "written"}}}, nil, os.WriteFile(a.Path, []byte(a.Content), 0o600)
		})
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil && !errors.Is(err, io.EOF) {
		os.Exit(1)
	}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": code, "await": await, "http": request, "mode": mode, "newer": newer, "flip": flip, "edit": edit, "capture": capture, "occupy": occupy, "example": example,
			"entries": entries, "segments": segmentsOf,
		},
	})
}

// code N PROGRAM ARGS… runs a program that must exit with N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program args")
	}
	got, err := 0, ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("%s exited with %d, not %s", strings.Join(args[1:], " "), got, want)
	}
}

// await DIR waits until the gateway of a data directory answers.
func await(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.Now().Add(20 * time.Second)
	for {
		var addresses map[string]string
		b, err := os.ReadFile(filepath.Join(ts.MkAbs(args[0]), "addresses.json"))
		if err == nil {
			err = json.Unmarshal(b, &addresses)
		}
		if err == nil {
			var resp *http.Response
			if resp, err = http.Get(addresses["admin"] + "/readyz"); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					ts.Setenv("AGENT", addresses["agent"])
					ts.Setenv("ADMIN", addresses["admin"])
					return
				}
			}
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no gateway: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// http STATUS METHOD URL TOKEN [BODY] makes a request that must be answered with the status; the answer is written to the file "answer".
func request(ts *testscript.TestScript, _ bool, args []string) {
	body := ""
	if len(args) > 4 {
		body = args[4]
	}
	r, err := http.NewRequest(args[1], args[2], strings.NewReader(body))
	ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if args[3] != "" {
		r.Header.Set("Authorization", "Bearer "+args[3])
	}
	resp, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), b, 0o600))
	if strconv.Itoa(resp.StatusCode) != args[0] {
		ts.Fatalf("%s %s: %s\n%s", args[1], args[2], resp.Status, b)
	}
}

// mode OCTAL FILE… checks permissions.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args[1:] {
		st, err := os.Lstat(ts.MkAbs(name))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", st.Mode().Perm()); got != args[0] {
			ts.Fatalf("%s has mode %s", name, got)
		}
	}
}

// newer DIR makes a data directory look as if a newer program had written it.
func newer(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", filepath.Join(ts.MkAbs(args[0]), "sallyport.db"))
	ts.Check(err)
	_, err = db.Exec("UPDATE schema_version SET version = version + 1000")
	ts.Check(errors.Join(err, db.Close()))
}

// edit DIR QUERY changes the database of a data directory, as somebody with the file can, beside a gateway or without.
func edit(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(ts.MkAbs(args[0]), "sallyport.db")+"?_pragma=busy_timeout(5000)")
	ts.Check(err)
	done, err := db.Exec(args[1])
	if err == nil {
		if n, _ := done.RowsAffected(); n == 0 { // an engine that can't count has changed nothing that matters
			ts.Fatalf("nothing was changed: %s", args[1])
		}
	}
	ts.Check(errors.Join(err, db.Close()))
}

// entries DIR N makes the log of a data directory N entries long, while no gateway runs on it.
func entries(ts *testscript.TestScript, _ bool, args []string) {
	db, err := store.Open(ts.MkAbs(args[0]), store.Options{})
	ts.Check(err)
	want, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	size, err := db.Size(context.Background())
	ts.Check(err)
	var all []audit.Entry
	for i := size; i < want; i++ {
		all = append(all, audit.Entry{Kind: audit.Change, Action: "test", Reason: fmt.Sprint("test ", i)})
	}
	ts.Check(errors.Join(db.Record(context.Background(), all...), db.Close()))
}

// segments DIR N waits until the log of a data directory is in N files, all of which but the newest are sealed.
func segmentsOf(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.Now().Add(20 * time.Second)
	for {
		r, err := store.OpenReadOnly(ts.MkAbs(args[0]))
		ts.Check(err)
		sealed, _ := r.Segments()
		ts.Check(r.Close())
		open := slices.ContainsFunc(sealed, func(s store.Segment) bool { return s.SHA256 == "" })
		if strconv.Itoa(len(sealed)+1) == args[1] && !open {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%+v", sealed)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// flip FILE TEXT changes one byte of a text in a file.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	i := bytes.Index(b, []byte(args[1]))
	if i < 0 {
		ts.Fatalf("%s is not in %s", args[1], args[0])
	}
	b[i] ^= 1
	ts.Check(os.WriteFile(path, b, 0o600))
}

// capture NAME puts what the last command printed into a variable.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// occupy takes a port until the script ends: $BUSY.
func occupy(ts *testscript.TestScript, _ bool, _ []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { ln.Close() })
	ts.Setenv("BUSY", ln.Addr().String())
}

// example checks that the output is one line of text, without anything that a terminal would obey.
func example(ts *testscript.TestScript, _ bool, _ []string) {
	if out := ts.ReadFile("stdout"); strings.ContainsAny(out, "\x1b\r\b") {
		ts.Fatalf("the output has control characters: %q", out)
	}
}

// all visits every command that people see.
func all(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" {
			all(sub, visit)
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	count := 0
	all((&cli{out: io.Discard, err: io.Discard}).root(), func(cmd *cobra.Command) {
		count++
		path := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || !strings.Contains(cmd.Example, "sallyport") {
			t.Errorf("%s: short %q, example %q", path, cmd.Short, cmd.Example)
		}
		var out, errOut bytes.Buffer
		args := append(strings.Fields(path)[1:], "--help")
		if got := run(t.Context(), args, strings.NewReader(""), &out, &errOut); got != exitDone || !strings.Contains(out.String(), "Examples:") || errOut.Len() > 0 {
			t.Errorf("%s --help: %d, %q, %q", path, got, out.String(), errOut.String())
		}
		// An unknown flag, and an argument too many, are usage on every command.
		if got := run(t.Context(), append(strings.Fields(path)[1:], "--no-such-flag"), strings.NewReader(""), io.Discard, &errOut); got != exitUsage {
			t.Errorf("%s --no-such-flag exits with %d", path, got)
		}
		if n := strings.Count(errOut.String(), "\n"); n > 3 || strings.Contains(errOut.String(), "Usage:") {
			t.Errorf("%s --no-such-flag says %q", path, errOut.String())
		}
		if cmd.Flags().Lookup("output") == nil && cmd.HasParent() && !cmd.HasSubCommands() {
			switch cmd.CommandPath() {
			case "sallyport serve", "sallyport run", "sallyport init", "sallyport demo", "sallyport connect", "sallyport client config", "sallyport audit export", "sallyport recommendations export",
				"sallyport token create", "sallyport token revoke", "sallyport hook words": // print no data, or data that has one form
			default:
				if cmd.Parent().Name() != "completion" {
					t.Errorf("%s prints data without --output", path)
				}
			}
		}
	})
	if count < 40 {
		t.Errorf("only %d commands were looked at", count)
	}
}

// Every command that prints data prints one object under --output json, and nothing else: what it has on standard output, or {"error": …} on standard error.
func TestEveryCommandPrintsOneObject(t *testing.T) {
	t.Chdir(t.TempDir())
	count := 0
	all((&cli{out: io.Discard, err: io.Discard}).root(), func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("output") == nil || cmd.HasSubCommands() {
			return
		}
		count++
		var out, errOut bytes.Buffer
		args := append(strings.Fields(cmd.CommandPath())[1:], "--output", "json")
		exit := run(t.Context(), args, strings.NewReader(""), &out, &errOut)
		var object map[string]any
		if out.Len() > 0 {
			if err := json.Unmarshal(out.Bytes(), &object); err != nil {
				t.Errorf("%s: %v: %s", cmd.CommandPath(), err, out.String())
			}
			return
		}
		if err := json.Unmarshal(errOut.Bytes(), &object); err != nil {
			t.Errorf("%s: %v: %s", cmd.CommandPath(), err, errOut.String())
			return
		}
		if e, _ := object["error"].(map[string]any); len(object) != 1 || e["message"] == "" || e["exit"] != float64(exit) {
			t.Errorf("%s: exit %d, %v", cmd.CommandPath(), exit, object)
		}
	})
	if count < 40 {
		t.Errorf("only %d commands were looked at", count)
	}
	for _, list := range []any{[]int{}, []int(nil), []string{"a", "b"}, []map[string]int{{"n": 1}}} {
		for _, format := range []string{"json", "yaml"} {
			var out bytes.Buffer
			if err := (&cli{out: &out, output: format}).print(list, nil); err != nil {
				t.Fatal(err)
			}
			var object map[string][]any
			if format == "yaml" {
				if err := yaml.Load(out.Bytes(), &object); err != nil {
					t.Fatal(err)
				}
			} else if err := json.Unmarshal(out.Bytes(), &object); err != nil {
				t.Fatal(err)
			}
			if n := reflect.ValueOf(list).Len(); object["items"] == nil || len(object["items"]) != n {
				t.Errorf("%v is printed as %s", list, out.String())
			}
		}
	}
}

func TestUnreachableIs3(t *testing.T) {
	t.Chdir(t.TempDir())
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + dead.Addr().String()
	dead.Close()
	commands := [][]string{
		{"status"}, {"reload"}, {"manifest"}, {"plan", "validate", "x"}, {"sessions", "list"}, {"sessions", "show", "x"}, {"sessions", "open", "--agent", "a", "--request", "r"},
		{"sessions", "phase", "x", "planning", "--reason", "r"}, {"sessions", "approve-plan", "x", "d"}, {"sessions", "reject-plan", "x", "d", "--reason", "r"},
		{"sessions", "release", "x", "--label", "l", "--reason", "r"}, {"sessions", "close", "x", "--reason", "r"}, {"agents", "list"}, {"agents", "show", "x"},
		{"tools", "list"}, {"tools", "accept", "a.b", "h"}, {"kill", "--reason", "r"}, {"unkill", "--reason", "r"}, {"audit", "query"}, {"audit", "show", "1"}, {"audit", "export"},
		{"approvals", "list"}, {"approvals", "show", "x"}, {"approvals", "approve", "x"}, {"approvals", "approve", "x", "--yes", "--digest", "d"}, {"approvals", "reject", "x", "--reason", "r"},
		{"approvals", "defer", "x"}, {"approvals", "watch"}, {"approvals", "watch", "-o", "json"}, {"approvals", "modify", "x", "--arguments", "{}", "--reason", "r"},
		{"agents", "quarantine", "x", "--reason", "r"}, {"agents", "restore", "x", "--reason", "r"}, {"token", "link"}, {"approvals", "batch", "approve", "x", "y"}, {"approvals", "batch", "approve", "x=d", "y=d", "--yes"},
		{"token", "list"}, {"token", "revoke", "x"}, {"token", "create", "--agent", "x"},
	}
	for _, args := range commands {
		var errOut bytes.Buffer
		if got := run(t.Context(), args, strings.NewReader(""), io.Discard, &errOut); got != exitUnreachable || !strings.Contains(errOut.String(), "sallyport serve") {
			t.Errorf("without a data directory, %v: %d, %s", args, got, errOut.String())
		}
	}
	t.Setenv(envURL, address)
	t.Setenv(envToken, "spt_person_x")
	for _, args := range commands {
		var errOut bytes.Buffer
		if got := run(t.Context(), args, strings.NewReader(""), io.Discard, &errOut); got != exitUnreachable || !strings.Contains(errOut.String(), address) {
			t.Errorf("with a dead address, %v: %d, %s", args, got, errOut.String())
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("x"), exitRefused}, {&found{what: "x"}, exitRefused}, {&client.Problem{Status: 403}, exitRefused},
		{context.Canceled, exitRefused}, {fault.New(fault.StoreUnavailable, "x"), exitRefused},
		{usagef("x"), exitUsage}, {unusable(errors.New("x")), exitUsage}, {&daemon.ConfigError{}, exitUsage}, {fault.New(fault.ConfigurationInvalid, "x"), exitUsage},
		{unreachable("x"), exitUnreachable}, {&client.Unreachable{Err: errors.New("x")}, exitUnreachable},
	} {
		if got := exitCode(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("%T %v exits with %d, not %d", c.err, c.err, got, c.want)
		}
	}
}

// Whatever an agent or a server calls itself, no form of output carries it to the terminal as it is, and JSON and YAML lose nothing.
func TestOutputIsHarmless(t *testing.T) {
	hostile := "a\x1b]0;owned\x07b\u202ec\u2066\u200bd\U000e0041e\u009bf\r\n\tg\u00a0é中 \"quoted\" 'single' ${x} true"
	type thing struct {
		Name  string            `json:"name"`
		Words []string          `json:"words"`
		Map   map[string]string `json:"map"`
		N     int64             `json:"n"`
		Yes   string            `json:"yes"`
	}
	v := thing{hostile, []string{hostile, "no", "12", "~", "- x", ""}, map[string]string{hostile: hostile}, 1 << 60, "true"}
	for _, format := range formats {
		var out bytes.Buffer
		c := &cli{out: &out, output: format}
		if err := c.print(v, func(tab *table) {
			tab.row(v.Name, v.Words)
			tab.field("x", v.Name)
			tab.line("y %s", v.Name)
		}); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && (r < ' ' || display.Hidden(r)) || r == 0x7f {
				t.Errorf("%s: %U in %q", format, r, out.String())
				break
			}
		}
		var back thing
		switch format {
		case "json":
			if err := json.Unmarshal(out.Bytes(), &back); err != nil {
				t.Fatal(err)
			}
		case "yaml":
			var m map[string]any
			if err := yaml.Load(out.Bytes(), &m); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			b, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
		default:
			if n := strings.Count(out.String(), "\n"); n != 3 {
				t.Errorf("a line break of the text's own got through: %q", out.String())
			}
			continue
		}
		if fmt.Sprint(back) != fmt.Sprint(v) {
			t.Errorf("%s lost something:\n%q\n%q", format, fmt.Sprint(back), fmt.Sprint(v))
		}
	}
}

func TestTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if terminal(null) || terminal(file) || terminal(&bytes.Buffer{}) {
		t.Error("something is taken for a terminal")
	}
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal can be made here")
	}
	defer tty.Close()
	t.Setenv(envURL, "http://127.0.0.1:1")
	t.Setenv(envToken, "spt_person_x")
	var errOut bytes.Buffer
	if got := run(t.Context(), []string{"audit", "export"}, nil, tty, &errOut); !terminal(tty) || got != exitUsage || !strings.Contains(errOut.String(), "> audit.tar") {
		t.Errorf("export to a terminal: %d, %s", got, errOut.String())
	}
}

func TestLifetime(t *testing.T) {
	for s, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "12h": 12 * time.Hour, "1m": time.Minute,
		"": 0, "0d": 0, "-1d": 0, "90": 0, "d": 0, "9999999d": 0, "1.5d": 0, "-5h": 0} {
		got, err := lifetime(s)
		if (err == nil) != (want > 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

// What is wrong with a command line is said in words for people, with what the command takes.
func TestCommandLineErrors(t *testing.T) {
	for line, want := range map[string][]string{
		"run -- claude":                   {"sallyport: --agent is missing", "  sallyport run --agent ID [--request TEXT] -- COMMAND…", "  sallyport run --help explains it."},
		"run --agent dev":                 {"sallyport: COMMAND… is missing"},
		"sessions show":                   {"sallyport: SESSION is missing", "  sallyport sessions show SESSION"},
		"sessions show a b":               {"takes SESSION, and here: 2 arguments"},
		"sessions say a":                  {"takes SESSION TEXT, and here: 1 argument (put a text with spaces in quotes)"},
		"status now":                      {`sallyport status takes no arguments, and here is "now"`},
		"sessions":                        {"sallyport sessions needs a command: ", "sallyport sessions --help lists the commands."},
		"kill -o json":                    {`"message": "--reason is missing"`},
		"token create --person":           {"flag needs an argument: --person"},
		"token create":                    {"one of these is missing: --agent, --person, --host"},
		"token create --agent a --host b": {"only one of these can be given: --agent, --host"},
		"agents quarantine a":             {"sallyport: --reason is missing"},
		"frobnicate":                      {"unknown command", "sallyport --help lists the commands."},
		"init --for developer":            {"--for, --model, --apply, --undo and --yes belong to --from"},
	} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), strings.Fields(line), strings.NewReader(""), &out, &errOut); code != exitUsage {
			t.Errorf("%s: exit code %d", line, code)
		}
		for _, w := range want {
			if !strings.Contains(errOut.String(), w) {
				t.Errorf("%s: no %q in %s", line, w, errOut.String())
			}
		}
		for _, raw := range []string{"arg(s)", "flag(s)", "group"} {
			if strings.Contains(errOut.String(), raw) {
				t.Errorf("%s: %s", line, errOut.String())
			}
		}
	}
}
