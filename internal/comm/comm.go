// Package comm holds the built-in external operations (EX-1): comm.fetch, comm.search, comm.query, comm.read_file, comm.write_file,
// comm.list_files and comm.exec, each in the one form that the gateway takes (catalogue.Command). The work is done by the packages
// below; this package says what each operation takes, how it is classified, and where its result is from.
//
// Promises: nothing here runs but through the corridor, which alone holds the guards; parameters are checked strictly, and what they name
// (an address, a method, a program, a database) is judged before anybody is asked about it; an error of an operation that
// did nothing says so; a session's files stay in DATA/workspace/<session>, and what is fetched is kept for all in DATA/cache.
package comm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm/exec"
	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/comm/files"
	"sallyport.example/internal/comm/query"
	"sallyport.example/internal/comm/search"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/sentence"
)

// Options says what the operations may reach.
type Options struct {
	Data           string // folder for workspace/ and cache/
	Egress         egress.Policy
	Listeners      egress.Options // what Egress stands on
	Methods        []string       // of comm.fetch besides GET and HEAD; what uses one is a write
	Search         search.Config
	Databases      map[string]string // id -> DSN
	Exec           exec.Options
	NetworkTimeout time.Duration // of one fetch, search or query (EX-6)
	FileTimeout    time.Duration // of one file operation
	ExecTimeout    time.Duration // of one program
	// Knowledge answers a question from the knowledge store, for whoever calls and by the rights of knowledge.search: what comm.search with scope internal finds there. found is nil
	// where the caller reads none of it. Of b, what it says of the reading counts, not its text.
	Knowledge func(ctx context.Context, r catalogue.CommandRun, query string, most int) (found any, b catalogue.Brought, err error)
}

// Names are the operations, without the prefix, in order.
var Names = []string{"exec", "fetch", "list_files", "query", "read_file", "search", "write_file"}

// Places are the parameters that say where an operation reads, by its name: those of catalogue.Command.
var Places = map[string]map[string]string{"list_files": {"path": "path"}, "read_file": {"path": "path"}}

// Comm holds the operations and their open connections and files.
type Comm struct {
	fetcher   *fetch.Fetcher
	searcher  *search.Searcher
	databases *query.Databases
	files     *files.Store
	provider  string // of searches
	knowledge func(ctx context.Context, r catalogue.CommandRun, query string, most int) (any, catalogue.Brought, error)
	programs  *exec.Runner // nil: none is allowed
	commands  []catalogue.Command
}

// New makes the operations ready. Nothing is reached yet: a database that is away does not stop the gateway.
func New(o Options) (c *Comm, err error) {
	c = &Comm{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	if c.files, err = files.Open(files.Options{Root: o.Data}); err != nil {
		return c, err
	}
	o.Egress.Timeout = o.NetworkTimeout
	web, err := egress.New(o.Egress, o.Listeners)
	if err != nil {
		return c, err
	}
	if c.fetcher, err = fetch.New(fetch.Options{Web: web, Cache: c.files.CacheDir(), Methods: o.Methods}); err != nil {
		return c, err
	}
	o.Search.Timeout = min(o.NetworkTimeout, 30*time.Second) // a service that takes longer is not searched
	c.provider, c.knowledge = o.Search.Provider, o.Knowledge
	if c.searcher, err = search.New(o.Search, nil); err != nil {
		return c, err
	}
	if c.databases, err = query.New(query.Options{Databases: o.Databases, Timeout: o.NetworkTimeout}); err != nil {
		return c, err
	}
	if len(o.Exec.Allow) > 0 {
		if c.programs, err = exec.New(o.Exec); err != nil {
			f := *fault.Of(err)
			return c, f.At("comm.exec." + f.Field)
		}
	}
	c.commands = []catalogue.Command{
		c.fetch(o.NetworkTimeout, len(o.Methods) > 0), c.search(o.NetworkTimeout), c.query(o.NetworkTimeout),
		c.readFile(o.FileTimeout), c.writeFile(o.FileTimeout), c.listFiles(o.FileTimeout), c.exec(o.ExecTimeout, o.Exec.Network),
	}
	return c, nil
}

// Commands are the operations, for gateway.Options.
func (c *Comm) Commands() []catalogue.Command { return slices.Clone(c.commands) }

// CheckFile says what is wrong with the address of a file before anything leaves the machine.
func (c *Comm) CheckFile(address string) error { return c.fetcher.Check(fetch.Request{URL: address}) }

// File fetches a whole file for a person, by the rules of comm.fetch.
func (c *Comm) File(ctx context.Context, address string) (*fetch.File, error) {
	return c.fetcher.File(ctx, address)
}

// RemoveFiles removes a closed session's workspace.
func (c *Comm) RemoveFiles(session string) error { return c.files.Remove(session) }

// Close closes what is open. Runs must have ended.
func (c *Comm) Close() error {
	var errs []error
	if c.fetcher != nil {
		errs = append(errs, c.fetcher.Close())
	}
	if c.databases != nil {
		errs = append(errs, c.databases.Close())
	}
	if c.files != nil {
		errs = append(errs, c.files.Close())
	}
	return errors.Join(errs...)
}

// operation puts an operation together: the parameters' table is at once what the model reads and what is checked, and what is run has
// been parsed by it.
func operation(c catalogue.Command, ps params, check func(values) error, run func(context.Context, catalogue.CommandRun, values) (catalogue.Brought, error)) catalogue.Command {
	c.Parameters = ps.schema()
	c.Check = func(raw json.RawMessage) error {
		v, err := ps.parse(raw)
		if err == nil && check != nil {
			err = check(v)
		}
		return err
	}
	c.Run = func(ctx context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
		v, err := ps.parse(r.Parameters)
		if err != nil {
			return catalogue.Brought{}, &fault.NotDispatched{Err: err}
		}
		b, err := run(ctx, r, v)
		return b, settled(err)
	}
	return c
}

// settled marks the errors of operations that certainly had no effect: they were refused before they did anything.
func settled(err error) error {
	if err == nil {
		return nil
	}
	switch fault.Of(err).Code {
	case fault.RequestMalformed, fault.PermissionDenied, fault.PathBlocked, fault.NotFound, fault.Conflict:
		return &fault.NotDispatched{Err: err}
	}
	return err
}

func scope(words ...string) param {
	return param{name: "scope", kind: "text", doc: "Where to look: " + strings.Join(words, " or ") + ".", words: words, most: 16}
}

func (c *Comm) fetch(timeout time.Duration, writes bool) catalogue.Command {
	write := func(v values) bool { return c.fetcher.Writes(cmp.Or(v.text("method"), "GET")) }
	ps := params{
		{name: "url", kind: "text", doc: "The https address of the page.", required: true, most: 8 << 10},
		{name: "format", kind: "text", doc: "markdown (default: the readable text with its links), text, or raw (the source).", words: []string{"markdown", "text", "raw"}, most: 16, quiet: true},
		{name: "method", kind: "text", doc: "GET (default), HEAD, or a method that the operator has allowed; then the call is a write.", most: 16, quiet: !writes},
		{name: "body", kind: "text", doc: "What to send, with a method that sends something.", most: 256 << 10, quiet: !writes},
		{name: "content_type", kind: "text", doc: "The media type of body.", most: 200, quiet: true},
		scope("web"),
	}
	command := operation(catalogue.Command{
		Name:        "fetch",
		Description: "Fetch a public https page (as Markdown), image or PDF; kept in fetched/.",
		Sensitivity: flow.External, Effect: flow.Read, Timeout: timeout, Requests: true, From: "http",
	}, ps, func(v values) error {
		return c.fetcher.Check(c.request(v))
	}, func(ctx context.Context, r catalogue.CommandRun, v values) (catalogue.Brought, error) {
		page, err := c.fetcher.Fetch(ctx, c.request(v))
		if err != nil {
			return catalogue.Brought{}, err
		}
		return c.deliver(ctx, r.Session, page), nil
	})
	if writes { // else every method that writes is refused, and there is nothing to tell apart
		command.Writes = func(raw json.RawMessage) bool {
			v, err := ps.parse(raw)
			return err != nil || write(v) // what can't be read isn't called a read
		}
	}
	return command
}

func (c *Comm) request(v values) fetch.Request {
	return fetch.Request{URL: v.text("url"), Method: v.text("method"), Body: v.text("body"), ContentType: v.text("content_type"), Format: v.text("format")}
}

// copyTime bounds how long a page waits for its copy to be kept.
const copyTime = 2 * time.Second

// deliver makes a result of a page, and keeps its text in the session's workspace, where comm.search and programs find it again.
func (c *Comm) deliver(ctx context.Context, session string, p *fetch.Page) catalogue.Brought {
	var head strings.Builder
	if p.Title != "" { // first, so that a search of the workspace calls the page by it
		fmt.Fprintf(&head, "Title: %s\n", strings.Join(strings.Fields(p.Title), " "))
	}
	fmt.Fprintf(&head, "URL: %s\nStatus: %d\nType: %s\n", p.URL, p.Status, p.MediaType)
	if len(p.Hops) > 1 {
		fmt.Fprintf(&head, "Redirected from: %s\n", strings.Join(p.Hops[:len(p.Hops)-1], " "))
	}
	if p.FromCache {
		fmt.Fprintf(&head, "Cached: %s\n", p.FetchedAt.UTC().Format(time.RFC3339))
	}
	if p.Truncated {
		head.WriteString("Truncated: the page is longer\n")
	}
	b := catalogue.Brought{Source: p.URL, At: p.FetchedAt, Blocks: []catalogue.Block{{Text: head.String() + "\n" + p.Text}}}
	if p.Data != nil {
		b.Blocks = append(b.Blocks, catalogue.Block{Data: p.Data, MediaType: p.MediaType})
	} else if p.Text != "" {
		// A full workspace costs the copy, not the page; so does one that a program has to itself.
		ctx, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		if w, err := c.files.Workspace(session); err == nil {
			_, _ = w.Write(ctx, search.Fetched+call.HashBytes([]byte(p.URL))[:16]+".md", []byte(head.String()+"\n"+p.Text), files.WriteOptions{Again: true})
		}
	}
	return b
}

func (c *Comm) search(timeout time.Duration) catalogue.Command {
	const inside = "what this session has fetched and the files in its workspace"
	const internal = "internal"
	where := scope("web", internal)
	what, sensitivity := "Search the web; scope internal: knowledge, and what you fetched and wrote.", flow.External
	where.doc = "Where to look: web (default), or internal: " + inside + ", and the knowledge store."
	if c.searcher.Local() {
		what, sensitivity = "Search what you fetched and wrote.", flow.None
		where.quiet, where.doc = true, "Where to look: web or internal. There is no search service here, so both are "+inside+"; internal is the knowledge store, too."
	}
	ps := params{
		{name: "query", kind: "text", doc: "What to search for, specifically.", required: true, most: 400},
		{name: "count", kind: "integer", doc: "How many results; 10 if left out.", least: 1, most: 20, quiet: true},
		where,
	}
	return operation(catalogue.Command{
		Name:        "search",
		Description: what,
		Sensitivity: sensitivity, Effect: flow.Read, Timeout: timeout, Requests: true, From: "search:",
		Of: func(raw json.RawMessage) string {
			if v, err := ps.parse(raw); err == nil && v.text("scope") == internal {
				return knowledge.Search
			}
			return ""
		},
	}, ps, nil, func(ctx context.Context, r catalogue.CommandRun, v values) (catalogue.Brought, error) {
		provider := c.provider
		var local []fs.FS
		if c.searcher.Local() || v.text("scope") == internal {
			w, err := c.files.Workspace(r.Session)
			if err != nil {
				return catalogue.Brought{}, err
			}
			provider, local = "local", []fs.FS{w.FS()}
		}
		hits, err := c.searcher.Search(ctx, v.text("query"), int(v.integer("count")), local)
		if f := fault.Of(err); err != nil && f.Code == fault.UpstreamFailed {
			return catalogue.Brought{}, f.Try("Try again later. With scope internal, %s is searched without the service.", inside)
		}
		if err != nil {
			return catalogue.Brought{}, err
		}
		answer := map[string]any{"query": v.text("query"), "results": hits}
		if provider == "local" && v.text("scope") == "web" {
			answer["note"] = "There is no search service here: this is from " + inside + "."
		}
		if v.text("scope") != internal || c.knowledge == nil {
			return asJSON("search:"+provider, answer)
		}
		found, read, err := c.knowledge(ctx, r, v.text("query"), int(v.integer("count")))
		if err != nil {
			return catalogue.Brought{}, err
		}
		if found == nil {
			return asJSON("search:"+provider, answer)
		}
		answer["knowledge"] = found
		b, err := asJSON("search:"+provider, answer)
		b.Labels, b.Sealed, b.Confirms = read.Labels, read.Sealed, read.Confirms
		if err != nil {
			return b, err
		}
		others, err := json.Marshal(hits)
		if err != nil {
			return b, err
		}
		// The log has the text of none of it, so it has the hash of what does not come from the knowledge store.
		b.Record = call.SetMember(read.Record, "results", json.RawMessage(fmt.Sprintf(`{"count":%d,"sha256":%q}`, len(hits), call.HashBytes(others))))
		return b, nil
	})
}

func (c *Comm) query(timeout time.Duration) catalogue.Command {
	const none = "No database is configured here."
	known, missing := "Databases: "+sentence.List(c.databases.IDs())+".", ""
	if len(c.databases.IDs()) == 0 {
		known, missing = none, none
	}
	ps := params{
		{name: "database", kind: "text", doc: "The database's name.", required: true, most: 64},
		{name: "sql", kind: "text", doc: "One statement that only reads. Left out, the answer is the database's tables and columns.", most: 64 << 10},
		{name: "parameters", kind: "scalars", doc: "Values for $1, $2 … in the statement (? in SQLite).", most: 100},
		scope("database"),
	}
	return operation(catalogue.Command{
		Name:        "query",
		Description: "Read a database with one SQL statement; without sql, its tables. parameters fill $1 (SQLite: ?). " + known,
		Sensitivity: flow.InternalSource, Effect: flow.Read, Timeout: timeout, Requests: true, Missing: missing, From: "database:",
	}, ps, func(v values) error {
		if !slices.Contains(c.databases.IDs(), v.text("database")) {
			return fault.New(fault.RequestMalformed, "There is no such database. %s", known).At("database").
				Try("An operator can add one under comm.databases in sallyport.yaml.")
		}
		return nil
	}, func(ctx context.Context, _ catalogue.CommandRun, v values) (catalogue.Brought, error) {
		source := "database:" + v.text("database")
		if v.text("sql") == "" {
			schema, err := c.databases.Schema(ctx, v.text("database"))
			if err != nil {
				return catalogue.Brought{}, err
			}
			return asJSON(source, schema)
		}
		rows, err := c.databases.Query(ctx, v.text("database"), v.text("sql"), v.scalars("parameters"))
		if f := fault.Of(err); err != nil && f.Code == fault.RequestMalformed && f.Field == "sql" {
			// The database's own message, which can quote its data.
			return catalogue.Brought{Source: source, Blocks: []catalogue.Block{{Text: f.Public()}}, Failed: true}, nil
		}
		if err != nil {
			return catalogue.Brought{}, err
		}
		return asJSON(source, rows)
	})
}

// cached tells whether the path in parameters names a page of comm.fetch in the shared cache.
func cached(ps params) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		if v, err := ps.parse(raw); err == nil && files.Cached(v.text("path")) {
			return "comm.fetch"
		}
		return ""
	}
}

func (c *Comm) readFile(timeout time.Duration) catalogue.Command {
	ps := params{
		{name: "path", kind: "text", doc: "The path in the workspace, such as notes/summary.md.", required: true, most: 4096},
		{name: "offset", kind: "integer", doc: "The byte to begin at; 0 if left out.", most: 1 << 40},
		{name: "limit", kind: "integer", doc: "How many bytes at most; 1 MiB if left out.", least: 1, most: 4 << 20, quiet: true},
	}
	return operation(catalogue.Command{
		Name:        "read_file",
		Description: "Read a file of your workspace or cache/.",
		Sensitivity: flow.None, Effect: flow.Read, Timeout: timeout, Of: cached(ps), Places: Places["read_file"], From: "workspace:",
	}, ps, nil, func(ctx context.Context, r catalogue.CommandRun, v values) (catalogue.Brought, error) {
		w, err := c.files.Workspace(r.Session)
		if err != nil {
			return catalogue.Brought{}, err
		}
		f, err := w.Read(ctx, v.text("path"), v.integer("offset"), cmp.Or(v.integer("limit"), 1<<20))
		if err != nil {
			return catalogue.Brought{}, err
		}
		b := catalogue.Brought{Source: "workspace:" + f.Path}
		if name, ok := strings.CutPrefix(f.Path, "cache/"); ok {
			if url, at := c.fetcher.Origin(name); url != "" {
				b.Source, b.At = url, at
			}
		}
		if f.Text {
			b.Blocks = append(b.Blocks, catalogue.Block{Text: strings.ToValidUTF8(string(f.Bytes), "\uFFFD")})
		} else {
			b.Blocks = append(b.Blocks, catalogue.Block{Data: f.Bytes, MediaType: "application/octet-stream"})
		}
		if f.Truncated {
			b.Blocks = append(b.Blocks, catalogue.Block{Text: fmt.Sprintf("The file goes on: it has %d bytes. Read on with offset %d.", f.Size, f.Next)})
		}
		return b, nil
	})
}

func (c *Comm) writeFile(timeout time.Duration) catalogue.Command {
	return operation(catalogue.Command{
		Name:        "write_file",
		Description: "Write a text file in your workspace.",
		Sensitivity: flow.None, Effect: flow.Write, Level: 1, Timeout: timeout, Own: true, AllowInvisible: []string{"content"},
	}, params{
		{name: "path", kind: "text", doc: "The path in the workspace, such as notes/summary.md.", required: true, most: 4096},
		{name: "content", kind: "text", doc: "The text; may be empty.", most: 4 << 20},
		{name: "append", kind: "flag", doc: "Add to the end of the file instead of replacing it."},
		{name: "expected_sha256", kind: "text", doc: "The SHA-256 that the file has now, or absent: write only then.", most: 64, quiet: true},
	}, func(v values) error {
		if v["content"] == nil {
			return fault.New(fault.RequestMalformed, "content is missing.").At("content").Try("Give an empty text to empty the file.")
		}
		return nil
	}, func(ctx context.Context, r catalogue.CommandRun, v values) (catalogue.Brought, error) {
		w, err := c.files.Workspace(r.Session)
		if err != nil {
			return catalogue.Brought{}, err
		}
		f, err := w.Write(ctx, v.text("path"), []byte(v.text("content")), files.WriteOptions{Append: v.flag("append"), Expected: v.text("expected_sha256")})
		if err != nil {
			return catalogue.Brought{}, err
		}
		return asJSON("workspace:"+f.Path, map[string]any{"path": f.Path, "size": f.Size, "sha256": f.SHA256})
	})
}

func (c *Comm) listFiles(timeout time.Duration) catalogue.Command {
	ps := params{
		{name: "path", kind: "text", doc: "The folder; the whole workspace if left out.", most: 4096},
		{name: "depth", kind: "integer", doc: "How many levels deep; 3 if left out.", least: 1, most: 16, quiet: true},
		{name: "limit", kind: "integer", doc: "How many entries at most; 200 if left out.", least: 1, most: 1000, quiet: true},
	}
	return operation(catalogue.Command{
		Name:        "list_files",
		Description: "List your workspace or cache/.",
		Sensitivity: flow.None, Effect: flow.Read, Timeout: timeout, Of: cached(ps), Places: Places["list_files"],
	}, ps, nil, func(ctx context.Context, r catalogue.CommandRun, v values) (catalogue.Brought, error) {
		w, err := c.files.Workspace(r.Session)
		if err != nil {
			return catalogue.Brought{}, err
		}
		path := cmp.Or(v.text("path"), ".")
		listing, err := w.List(ctx, path, int(cmp.Or(v.integer("depth"), 3)), int(cmp.Or(v.integer("limit"), 200)))
		if err != nil {
			return catalogue.Brought{}, err
		}
		return asJSON("workspace:"+path, listing)
	})
}

func (c *Comm) exec(timeout time.Duration, network bool) catalogue.Command {
	const none = "No program is allowed here."
	known, missing, sensitivity := none, none, flow.None
	if c.programs != nil {
		known, missing = "Programs: "+sentence.List(c.programs.Programs())+".", c.programs.Missing()
	}
	if network { // what has the network can carry out what the session has read
		sensitivity = flow.External
	}
	ps := params{
		{name: "argv", kind: "texts", doc: "The program's name and its arguments.", required: true, most: 64},
		{name: "stdin", kind: "text", doc: "What the program reads.", most: 1 << 20},
	}
	command := operation(catalogue.Command{
		Name:        "exec",
		Description: "Run one program (no shell) in your workspace. " + known,
		Sensitivity: sensitivity, Effect: flow.Write, Level: 2, Timeout: timeout, Missing: missing, From: "program:",
	}, ps, func(v values) error {
		switch argv := v.texts("argv"); {
		case len(argv) == 0:
			return fault.New(fault.RequestMalformed, "argv is empty.").At("argv").Try("Name a program, and its arguments after it. %s", known)
		case c.programs == nil || !slices.Contains(c.programs.Programs(), argv[0]):
			return fault.New(fault.PermissionDenied, "The program is not allowed. %s", known).At("argv[0]").
				Try("An operator can allow programs under comm.exec.allow in sallyport.yaml.")
		}
		return nil
	}, c.runProgram)
	command.Inputs = func(ctx context.Context, session string, raw json.RawMessage) (*call.Inputs, error) {
		v, err := ps.parse(raw)
		if err != nil {
			return nil, err
		}
		return c.inputs(ctx, session, v)
	}
	return command
}

// inputs describes what a program could read of the session's workspace.
func (c *Comm) inputs(ctx context.Context, session string, v values) (*call.Inputs, error) {
	argv := v.texts("argv")
	return c.files.Inputs(ctx, session, exec.Words(argv), !c.programs.Plain(argv))
}

// runProgram runs a program in the session's workspace. One that a person answered for has the workspace to itself, from the comparison with what
// the person was shown to its end; others share it.
func (c *Comm) runProgram(ctx context.Context, r catalogue.CommandRun, v values) (catalogue.Brought, error) {
	dir, err := c.files.Dir(r.Session)
	if err != nil {
		return catalogue.Brought{}, err
	}
	enter := c.files.Share
	if r.Inputs != nil {
		enter = c.files.Hold
	}
	release, err := enter(ctx, r.Session)
	if err != nil {
		return catalogue.Brought{}, err
	}
	defer release()
	afford := func() error { return c.files.Afford(ctx, r.Session) }
	if err := afford(); err != nil {
		return catalogue.Brought{}, &fault.NotDispatched{Err: err}
	}
	if r.Inputs != nil {
		now, err := c.inputs(ctx, r.Session, v)
		if err == nil && !now.Same(r.Inputs) {
			err = fault.New(fault.ApprovalMismatch, "The files that the program reads are not those that the person was shown: they changed after the answer.").
				Try("Make the call again to ask again.")
		}
		if err != nil {
			return catalogue.Brought{}, &fault.NotDispatched{Err: err}
		}
	}
	out, err := c.programs.Run(ctx, dir, v.texts("argv"), v.text("stdin"), afford)
	if fault.Is(err, fault.SandboxUnavailable) || fault.Is(err, fault.LimitRate) { // it was not started
		return catalogue.Brought{}, &fault.NotDispatched{Err: err}
	}
	if left := c.files.Trim(r.Session); err == nil {
		err = left
	}
	if err != nil {
		return catalogue.Brought{}, err
	}
	return asJSON("program:"+v.texts("argv")[0], map[string]any{
		"exit_code": out.ExitCode, "signal": out.Signal, "stdout": strings.ToValidUTF8(string(out.Stdout), "\uFFFD"), "stderr": strings.ToValidUTF8(string(out.Stderr), "\uFFFD"),
		"stdout_truncated": out.StdoutTruncated, "stderr_truncated": out.StderrTruncated, "contained": out.Contained, "cpu_ms": out.CPU.Milliseconds(),
	})
}

// asJSON is a result that is a value.
func asJSON(source string, v any) (catalogue.Brought, error) {
	b, err := call.Encode(v)
	if err != nil {
		return catalogue.Brought{}, fault.Wrap(err, fault.ResultInvalid, "The result could not be written down.")
	}
	return catalogue.Brought{Source: source, Blocks: []catalogue.Block{{Text: string(b)}}}, nil
}
