package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/internal/clients"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/diff"
	"sallyport.example/internal/display"
	"sallyport.example/internal/sentence"
)

// anyFile is the value of --from without one: files are found by themselves.
const anyFile = " "

// withValue lets a flag of a command have a value or none, written as any flag's is: "--from FILE". The library alone takes only "--from=FILE" for such a flag.
func withValue(args []string, command, flag string) []string {
	if len(args) == 0 || args[0] != command {
		return args
	}
	at := slices.Index(args, flag)
	if at < 0 {
		return args
	}
	value, end := anyFile, at+1
	if end < len(args) && !strings.HasPrefix(args[end], "-") {
		value, end = args[end], end+1
	}
	return slices.Concat(args[:at], []string{flag + "=" + value}, args[end:])
}

func (c *cli) initialise() *cobra.Command {
	var t takeover
	cmd := c.command(about{
		use: "init [DIR]", short: "Write a configuration, its JSON Schema and an agent",
		long: `It writes sallyport.yaml, sallyport.schema.json and agents/research-assistant.yaml into DIR (default: here), and overwrites nothing.

With --from it takes over the servers of MCP clients: of a file (.mcp.json, .claude.json, claude_desktop_config.json, mcp.json of Cursor and VS Code,
config.toml of Codex), of the files in a folder, or without a value of those here and in your home. It shows each command and asks, since such a file
may be a stranger's; nothing in it is run. Values of env, headers and what looks like a credential go to sallyport.env, which others can't read; the
agent dev gets the tools. --apply then puts the gateway in the place of the servers in the clients' files, once you have seen the difference; what was
there is kept in your own configuration folder, and --undo puts it back.`,
		example: "sallyport init\nsallyport init ./gateway\nsallyport init --from .mcp.json --for developer --apply\nsallyport init --from .mcp.json --undo",
		args:    cobra.MaximumNArgs(1), local: true,
	}, func(ctx context.Context, args []string) error {
		dir := "."
		t.ctx = ctx
		if len(args) > 0 {
			dir = args[0]
		}
		if t.from != "" {
			return c.takeOver(dir, &t)
		}
		if t.developer != "" || t.model != "" || t.apply || t.undo || t.yes {
			return usagef("--for, --model, --apply, --undo and --yes belong to --from")
		}
		written, err := daemon.Init(dir)
		c.wrote(written)
		if err != nil {
			return unusable(err)
		}
		if err := c.approveWritten(ctx, dir); err != nil {
			return err
		}
		fmt.Fprintf(c.err, "Next%s: sallyport lint, sallyport serve, sallyport tools accept --all once servers are up, sallyport token create --agent research-assistant\n", in(dir))
		return nil
	})
	f := cmd.Flags()
	f.StringVar(&c.data, "data", "", "data directory of the new gateway (default: sallyport-data beside its configuration)")
	f.StringVar(&t.from, "from", "", "take servers over from a client's `FILE`, from those in a folder, or without a value from those here and in your home")
	f.StringVar(&t.developer, "for", "", "whom it is for: developer (free writes that only you see and can undo, sessions of 4 hours)")
	f.StringVar(&t.model, "model", "", "the agent's model, as `PROVIDER/NAME`: anthropic or openai, and a name with a date; it asks whether internal and personal data may go there")
	f.BoolVar(&t.yes, "yes", false, "ask nothing: take over and rewrite what is shown")
	f.BoolVar(&t.apply, "apply", false, "put the gateway into the clients' files")
	f.BoolVar(&t.undo, "undo", false, "put the clients' files back as they were")
	cmd.MarkFlagsMutuallyExclusive("apply", "undo")
	must(cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"developer"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// approveWritten approves the declarations that were just written, where the data directory is new.
func (c *cli) approveWritten(ctx context.Context, dir string) error {
	cfg, err := daemon.LoadConfig(filepath.Join(dir, "sallyport.yaml"))
	if err != nil {
		return unusable(err)
	}
	ids, err := daemon.ApproveWritten(ctx, cfg, cmp.Or(c.data, filepath.Join(dir, defaultData)))
	if err != nil {
		return unusable(err)
	}
	if len(ids) > 0 {
		fmt.Fprintf(c.out, "approved the declaration of %s, as it was written\n", printable(strings.Join(ids, ", ")))
	}
	return nil
}

func (c *cli) wrote(files []string) {
	for _, f := range files {
		fmt.Fprintf(c.out, "wrote %s\n", printable(f))
	}
}

func in(dir string) string {
	if dir == "." {
		return ""
	}
	return " (in " + printable(dir) + ")"
}

// takeover is what init --from is asked for.
type takeover struct {
	from, developer, model string
	yes, apply, undo       bool

	ctx     context.Context // ends with a signal
	answers *bufio.Reader
	no      string         // why the last answer was no
	there   *daemon.Config // nil: no configuration is there yet
	project string
	home    string
}

func (c *cli) takeOver(dir string, t *takeover) error {
	if t.developer != "" && t.developer != "developer" {
		return usagef("--for is developer, not %q", t.developer)
	}
	t.answers = bufio.NewReader(c.in)
	if home, err := os.UserHomeDir(); err == nil {
		t.home = home
	}
	paths, err := t.paths()
	if err != nil {
		return err
	}
	if t.undo {
		return c.putBack(paths, t)
	}
	var files []*clients.File
	for _, path := range paths {
		f, err := clients.Read(path, clients.Options{Folder: t.project, Home: t.home, Lookup: os.LookupEnv})
		if err != nil {
			return unusable(err)
		}
		files = append(files, f)
	}
	if _, err := os.Lstat(filepath.Join(dir, "sallyport.yaml")); err == nil {
		if t.there, err = daemon.LoadConfig(filepath.Join(dir, "sallyport.yaml")); err != nil {
			return unusable(err)
		}
	}
	if t.there != nil && !t.apply && t.missing(files) == 0 {
		return usagef("%s has all servers of %s already, and nothing is overwritten (--apply puts the gateway into the client's file)", filepath.Join(dir, "sallyport.yaml"), sentence.Names(paths))
	}
	if t.there != nil && t.model != "" {
		return usagef("%s is there already: add the model to it, under models, and to dataSources.models of the agent's declaration", filepath.Join(dir, "sallyport.yaml"))
	}
	if t.model != "" && !strings.Contains(t.model, "/") {
		return usagef("--model is PROVIDER/NAME, as anthropic/claude-sonnet-4-5-20250929 or openai/gpt-5-2025-08-07, not %q", t.model)
	}
	if t.there != nil {
		if err := c.showConfigured(dir); err != nil {
			return err
		}
		if !t.agrees(c, "Use this configuration?") {
			return &found{what: "nothing was written"}
		}
	}
	if t.there == nil || t.missing(files) > 0 {
		if err := c.writeFrom(dir, files, t); err != nil {
			return err
		}
	}
	if t.apply {
		return c.point(dir, files, t)
	}
	return nil
}

// paths are the files to take from, and sets the project that they are about.
func (t *takeover) paths() (paths []string, err error) {
	if t.project, err = os.Getwd(); err != nil {
		return nil, err
	}
	from := t.from
	if from == anyFile {
		paths = clients.Find(clients.Options{Folder: t.project, Home: t.home}, true)
	} else if from, err = filepath.Abs(from); err != nil {
		return nil, err
	} else if st, err := os.Stat(from); err == nil && st.IsDir() {
		t.project = from
		paths = clients.Find(clients.Options{Folder: from}, false)
	} else {
		if project := clients.ProjectOf(from, t.home); project != "" {
			t.project = project
		}
		return []string{from}, nil
	}
	if len(paths) == 0 {
		return nil, usagef("no file of an MCP client was found: name one with --from FILE")
	}
	return paths, nil
}

// writeFrom shows what the files have, asks, and writes the configuration.
func (c *cli) writeFrom(dir string, files []*clients.File, t *takeover) error {
	taken := daemon.TakeOver{Servers: map[string]clients.Server{}, Unlabelled: map[string]bool{}, Project: t.project, Developer: t.developer != ""}
	for _, f := range files {
		fmt.Fprintf(c.out, "%s (%s)\n", printable(f.Path), f.Client)
		for _, s := range f.Servers {
			id := daemon.ServerID(s.Name)
			c.showServer(&s, id)
			why := ""
			if t.has(id) {
				fmt.Fprintf(c.out, "    there     already, in sallyport.yaml\n")
				continue
			}
			switch other, twice := taken.Servers[id]; {
			case id == "":
				why = "no letter or digit is in its name"
			case twice && same(&other, &s):
				why = "it is the same as in another file"
			case twice:
				why = "another server has the id " + id + ": rename one of them"
			case !t.agrees(c, fmt.Sprintf("Take over %s?", id)):
				why = t.no
			default:
				taken.Servers[id] = s
				if !c.labelsHold(&s, t) {
					taken.Unlabelled[id] = true
				}
				continue
			}
			fmt.Fprintf(c.out, "    not taken over: %s\n", printable(why))
		}
		for _, s := range f.Skipped {
			fmt.Fprintf(c.out, "  %s\n    not taken over: %s\n", printable(s.Name), printable(s.Why))
		}
	}
	if t.ctx.Err() != nil {
		return &found{what: "stopped, and nothing was written"}
	}
	if len(taken.Servers) == 0 {
		return &found{what: "no server was taken over, and nothing was written"}
	}
	if t.there != nil {
		return c.addMore(dir, taken)
	}
	if t.model != "" {
		taken.Model = c.modelOf(t)
	}
	written, err := daemon.InitFrom(dir, taken)
	c.wrote(written)
	if err != nil {
		return unusable(err)
	}
	if err := c.approveWritten(t.ctx, dir); err != nil {
		return err
	}
	if ids := crowded(dir, &taken); ids != nil {
		fmt.Fprintf(c.err, "The folder that %s may write holds sallyport.yaml, so nothing new can be made right at its top. A folder apart for the gateway avoids that: sallyport init ../gateway --from …\n", strings.Join(ids, ", "))
	}
	c.next(dir, files, &taken)
	return nil
}

// modelOf is the model that --model names. Its provider gets internal and personal data only where a person says so: --yes says it for nobody.
func (c *cli) modelOf(t *takeover) *daemon.ModelConfig {
	provider, name, _ := strings.Cut(t.model, "/")
	m := &daemon.ModelConfig{ID: name, Provider: provider, Key: os.Getenv(strings.ToUpper(provider) + "_API_KEY")}
	switch {
	case t.yes:
		fmt.Fprintf(c.out, "%s may have no internal or personal data: requests of sessions with such data are refused. If its provider may have them, add labels: [internal, pii] to the model in sallyport.yaml.\n", printable(name))
	case t.agrees(c, fmt.Sprintf("May %s of %s have internal and personal data (labels internal and pii), such as a developer's files and mail? Otherwise requests of sessions with such data are refused.", name, provider)):
		m.Labels = []string{"internal", "pii"}
	}
	if m.Key == "" {
		fmt.Fprintf(c.out, "%s has no key yet: add key: \"${NAME}\" to it, and NAME to sallyport.env\n", printable(name))
	}
	return m
}

// labelsHold tells whether a server may have the labels of the catalogue. Where something speaks against them, a person has to say that they are right: --yes
// says it for nobody.
func (c *cli) labelsHold(s *clients.Server, t *takeover) bool {
	doubts := daemon.Doubts(*s)
	if len(doubts) == 0 {
		return true
	}
	why := strings.Join(doubts, " ")
	if t.yes {
		fmt.Fprintf(c.out, "    taken over without its labels. %s If that is yours and right, write labels: catalogue to it.\n", whole(why))
		return false
	}
	return t.agrees(c, why+" Is that yours and right, so that its labels hold?")
}

// has tells whether a configuration that is there has the server.
func (t *takeover) has(id string) bool {
	if t.there == nil {
		return false
	}
	_, ok := t.there.Upstreams[id]
	return ok
}

// missing counts the servers of the files that a configuration that is there does not have.
func (t *takeover) missing(files []*clients.File) (n int) {
	for _, f := range files {
		for _, s := range f.Servers {
			if !t.has(daemon.ServerID(s.Name)) {
				n++
			}
		}
	}
	return n
}

// addMore adds servers to a configuration that is there.
func (c *cli) addMore(dir string, taken daemon.TakeOver) error {
	written, permitted, err := daemon.InitMore(dir, taken)
	for _, f := range written {
		fmt.Fprintf(c.out, "added to %s\n", printable(f))
	}
	if err != nil {
		return unusable(err)
	}
	ids := slices.Sorted(maps.Keys(taken.Servers))
	if !permitted {
		fmt.Fprintf(c.err, "No agent may call it yet: add \"%s.*\" to the permissions of one, under agents.\n", strings.Join(ids, ".*\", \""))
	}
	fmt.Fprintf(c.err, "Next%s: stop sallyport serve and start it again, since a new server needs that.\n", in(dir))
	if permitted {
		fmt.Fprintf(c.err, "The agent's declaration changed, so a person has to approve it then: sallyport agents approve --all --reason TEXT\n")
	}
	c.toRead(&taken)
	return nil
}

// next says what to do once the configuration is there: to read definitions only where the catalogue does not know a server.
func (c *cli) next(dir string, files []*clients.File, taken *daemon.TakeOver) {
	program := "CLIENT"
	if word := map[string]string{"claude-code": "claude", "codex": "codex"}[files[0].Kind]; word != "" {
		program = word
	}
	if cfg, err := daemon.LoadConfig(filepath.Join(dir, "sallyport.yaml")); err == nil && cfg.Elsewhere() {
		fmt.Fprintf(c.err, "Another program has port 7575 or 7576, so this gateway gets %s and %s.\n", cfg.Listen, cfg.AdminListen)
	}
	fmt.Fprintf(c.err, "Next%s, in a terminal of its own: sallyport serve\n", in(dir))
	c.toRead(taken)
	fmt.Fprintf(c.err, "For each piece of work: sallyport run --agent dev -- %s\n", program)
}

// toRead says whose definitions a person has to read: those of servers that the catalogue does not know.
func (c *cli) toRead(taken *daemon.TakeOver) {
	var strange []string
	for _, id := range slices.Sorted(maps.Keys(taken.Servers)) {
		if daemon.KnownServer(taken.Servers[id]) == nil {
			strange = append(strange, id)
		}
	}
	if len(strange) > 0 {
		fmt.Fprintf(c.err, "Then read what servers say about their tools, once (%s): sallyport tools accept --all\n", sentence.Names(strange))
	}
}

// crowded are the servers whose command names a folder that holds the configuration.
func crowded(dir string, t *daemon.TakeOver) (ids []string) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(t.Servers)) {
		s := t.Servers[id]
		for i, arg := range s.Command {
			path := arg.Text
			if !filepath.IsAbs(path) {
				path = filepath.Join(cmp.Or(s.Folder, t.Project), path)
			}
			if rel, err := filepath.Rel(path, dir); i > 0 && err == nil && filepath.IsLocal(rel) {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

func same(a, b *clients.Server) bool {
	return slices.Equal(a.Command, b.Command) && a.URL == b.URL && a.Folder == b.Folder && maps.Equal(a.Env, b.Env) && maps.Equal(a.Headers, b.Headers)
}

// showServer prints all that decides what an entry does, safe for a terminal and whole.
func (c *cli) showServer(s *clients.Server, id string) {
	name := whole(s.Name)
	if id != s.Name {
		name += " (here: " + id + ")"
	}
	fmt.Fprintf(c.out, "  %s\n", name)
	line := func(what, text string) { fmt.Fprintf(c.out, "    %-8s %s\n", what, text) }
	if s.URL.Text != "" {
		line("reaches", whole(s.Address()))
	} else {
		var words []string
		for _, v := range s.Command {
			words = append(words, clients.Quote(whole(v.Text)))
		}
		line("starts", strings.Join(words, " "))
	}
	if s.Folder != "" {
		line("in", whole(s.Folder))
	}
	for _, m := range []map[string]string{s.Env, s.Headers} {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if v := s.Shown(key, m[key]); v != "" {
				line("with", whole(key)+"="+whole(v))
			} else {
				line("with", whole(key)+" (not shown)")
			}
		}
	}
	if known := daemon.KnownServer(*s); known != nil {
		line("labels", "of the catalogue, for "+known.Server+". "+known.Unasked)
	}
	for _, key := range s.Loads() {
		line("caution", whole(key)+" changes what a program runs, loads or reaches")
	}
	if len(s.Reads) > 0 {
		line("takes", strings.Join(s.Reads, ", ")+" from your environment")
	}
	if len(s.Dropped) > 0 {
		line("without", whole(strings.Join(s.Dropped, ", ")))
	}
}

// whole makes foreign text safe for a terminal, on one line, without leaving anything out.
func whole(s string) string { return display.Terminal(s, 16*len(s)+16) }

// agrees asks the person, unless --yes.
func (t *takeover) agrees(c *cli, question string) bool {
	if t.yes || t.ctx.Err() != nil {
		return t.yes && t.ctx.Err() == nil
	}
	fmt.Fprintf(c.err, "%s [y/N] ", printable(question))
	line, err := answer(t.ctx, t.answers)
	t.no = "you said no"
	if err != nil {
		fmt.Fprintln(c.err)
		if t.ctx.Err() != nil {
			t.no = "you stopped"
		} else if line == "" {
			t.no = "nobody answered (--yes takes over all that is shown)"
		}
	}
	word := strings.ToLower(strings.TrimSpace(line))
	return word == "y" || word == "yes"
}

// showConfigured shows what a configuration that is there already starts and reaches, as it is written: it may have come with the client's file.
func (c *cli) showConfigured(dir string) error {
	written, err := daemon.AsWritten(dir)
	if err != nil {
		return unusable(err)
	}
	fmt.Fprintf(c.out, "%s is there already, and is used as it is\n", printable(written.Path))
	if written.Mode == "observe" || written.Mode == "shadow" {
		fmt.Fprintf(c.out, "  caution  mode: %s refuses little\n", written.Mode)
	}
	for _, id := range slices.Sorted(maps.Keys(written.Upstreams)) {
		u := written.Upstreams[id]
		fmt.Fprintf(c.out, "  %s\n", whole(id))
		if u.URL != "" {
			fmt.Fprintf(c.out, "    %-8s %s\n", "reaches", whole(u.URL))
		} else {
			var words []string
			for _, word := range u.Command {
				words = append(words, clients.Quote(whole(word)))
			}
			fmt.Fprintf(c.out, "    %-8s %s\n", "starts", strings.Join(words, " "))
		}
		if u.Sandbox == "none" {
			fmt.Fprintf(c.out, "    %-8s %s\n", "caution", "it runs without a sandbox, and can do what you can")
		}
	}
	return nil
}

// point puts the gateway into the clients' files.
func (c *cli) point(dir string, files []*clients.File, t *takeover) error {
	cfg, err := daemon.LoadConfig(filepath.Join(dir, "sallyport.yaml"))
	if err != nil {
		return unusable(err)
	}
	if strings.HasSuffix(cfg.Listen, ":0") {
		return usagef("listen: %s is another port at every start, which no client's file can name: choose one", cfg.Listen)
	}
	setup := clients.Setup{Address: "http://" + cfg.Listen}
	var note string
	setup.Program, note = clients.Program(os.Executable())
	if setup.Data, err = filepath.Abs(filepath.Join(dir, defaultData)); err != nil {
		return err
	}
	kept, err := keptDir()
	if err != nil {
		return err
	}
	refused := false
	for _, f := range files {
		if f.Pointed(setup) {
			fmt.Fprintf(c.out, "%s has the gateway already\n", printable(f.Path))
			continue
		}
		text, err := f.Point(setup)
		if err != nil {
			return unusable(err)
		}
		fmt.Fprintf(c.out, "%s\n", printable(f.Path))
		c.showChange(f.Masked(f.Text()), string(text))
		if !t.agrees(c, "Rewrite it like this?") {
			refused = true
			continue
		}
		if err := clients.Keep(kept, f.Path, f.Text(), text, time.Now()); err != nil {
			return fmt.Errorf("what the file is can't be kept, so it was not rewritten: %w", err)
		}
		if err := clients.Replace(f.Path, f.Text(), text); err != nil {
			return err
		}
		fmt.Fprintf(c.err, "It was kept in %s; sallyport init --from %s --undo puts it back.\n", printable(kept), printable(clients.Quote(f.Path)))
		if left := notTaken(f); len(left) > 0 {
			fmt.Fprintf(c.err, "Not taken over, and no longer in that file: %s. Once that is mended, put it back, and take it over again.\n", sentence.Names(left))
		}
		if f.Kind == "claude-desktop" {
			fmt.Fprintln(c.err, printable(note+setup.Credential(f.Kind)))
		}
	}
	if refused {
		return &found{what: "not every file was rewritten: its client reaches its servers without the gateway"}
	}
	return nil
}

// notTaken are the entries of a file that can't be taken over as they are.
func notTaken(f *clients.File) (names []string) {
	for _, s := range f.Skipped {
		if !strings.HasPrefix(s.Why, clients.OwnEntry) {
			names = append(names, s.Name)
		}
	}
	return names
}

func (c *cli) showChange(before, after string) {
	mark := map[diff.Kind]string{diff.Both: "    ", diff.Before: "  - ", diff.After: "  + "}
	diff.Lines(strings.Split(before, "\n"), strings.Split(after, "\n"), func(a, b string) bool { return a == b }, func(kind diff.Kind, line string) {
		if kind != diff.Both {
			fmt.Fprintln(c.out, mark[kind]+printable(line))
		}
	})
}

// keptDir is where files are kept as they were: in the person's own configuration, outside of any repository.
func keptDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder to keep what clients' files were: %w", err)
	}
	return filepath.Join(dir, "sallyport", "clients"), nil
}

// putBack restores clients' files.
func (c *cli) putBack(paths []string, t *takeover) error {
	dir, err := keptDir()
	if err != nil {
		return err
	}
	restored := 0
	for _, path := range paths {
		k, err := clients.LastKept(dir, path)
		if err != nil {
			return err
		}
		if k == nil {
			continue
		}
		if err := clients.CheckPlace(path, clients.Options{Folder: t.project, Home: t.home}); err != nil {
			return unusable(err)
		}
		now, err := readRegular(path, int64(len(k.After))+16<<20)
		if err != nil {
			return err
		}
		if string(now) != string(k.After) {
			fmt.Fprintf(c.out, "%s has changed since the gateway was put into it:\n", printable(path))
			c.showChange(string(k.After), string(now))
			if !t.agrees(c, "Put it back as it was before all the same?") {
				return &found{what: "nothing was put back"}
			}
		}
		if err := clients.Replace(path, now, k.Before); err != nil {
			return err
		}
		if err := k.Forget(); err != nil {
			return err
		}
		restored++
		fmt.Fprintf(c.out, "%s is as it was on %s\n", printable(path), when(k.At, reading(c.out)))
	}
	if restored == 0 {
		return &found{what: "no file was kept of those that --from names"}
	}
	return nil
}
