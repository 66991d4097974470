// Command sallyport is the gateway and its command line. It holds the flags, the output and the exit codes; other packages do the work.
//
// Exit codes: 0 done; 1 refused, or something was found; 2 usage or configuration; 3 the server can't be reached.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sallyport.example/client"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge/extract"
	"sallyport.example/internal/sandbox"
	"sallyport.example/internal/sentence"
)

const (
	exitDone        = 0
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// version is set when a release is built (-ldflags "-X main.version=v1.2.3").
var version = ""

func main() {
	sandbox.Init() // in a process that was started as a sandbox's launcher it does not return
	extract.Init() // nor does this in one that was started to read a file
	os.Exit(run(untilAsked(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// untilAsked returns a context that ends with the first signal. By then signals have their usual effect again, so that a second one ends the
// program at once: first the one, then the other, or a second signal right behind the first would be swallowed.
func untilAsked() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-asked
		signal.Stop(asked)
		cancel()
	}()
	return ctx
}

// cli holds what all commands share.
type cli struct {
	in       io.Reader
	out, err io.Writer
	data     string // the data directory
	output   string // table, json or yaml
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	c := &cli{in: in, out: out, err: errOut, output: "table"}
	root := c.root()
	root.SetArgs(withValue(args, "init", "--from"))
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	var ran *ranError
	own := errors.As(err, &ran)
	if !own { // of the command line: flags, arguments, unknown commands
		err = commandLine(cmd, err)
	}
	if jsonWanted(args) && !(own && silent(ran.err)) {
		return c.printError(err)
	}
	if !own {
		fmt.Fprintf(errOut, "sallyport: %s\n%s", printable(err.Error()), explains(cmd))
		return exitUsage
	}
	code := exitCode(ran.err)
	if silent(ran.err) {
		return code
	}
	for line := range strings.Lines(ran.err.Error()) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			fmt.Fprintf(errOut, "sallyport: %s\n", printable(line))
		}
	}
	if remedy := remedyOf(ran.err); remedy != "" {
		fmt.Fprintf(errOut, "  %s\n", printable(remedy))
	}
	return code
}

// ranError is an error of a command that ran, as opposed to one of its command line.
type ranError struct{ err error }

func (e *ranError) Error() string { return e.err.Error() }

// found ends a command with exit code 1 because of what it found. If printed is set, the command has shown it already.
type found struct {
	what    string
	printed bool
}

func (e *found) Error() string { return e.what }

// coded is an error that knows its exit code.
type coded struct {
	error
	code int
}

func (e *coded) Unwrap() error { return e.error }

// usagef is a wrong command line that only the command itself could notice.
func usagef(format string, args ...any) error { return &coded{fmt.Errorf(format, args...), exitUsage} }

// unusable marks an error of starting or checking: the caller has to change something first.
func unusable(err error) error { return &coded{err, exitUsage} }

// unreachable says that there is no server to talk to.
func unreachable(format string, args ...any) error {
	return &coded{fmt.Errorf(format, args...), exitUnreachable}
}

func exitCode(err error) int {
	var (
		known  *coded
		config *daemon.ConfigError
		silent *client.Unreachable
	)
	switch {
	case errors.As(err, &known):
		return known.code
	case errors.As(err, &config), fault.Is(err, fault.ConfigurationInvalid):
		return exitUsage
	case errors.As(err, &silent):
		return exitUnreachable
	}
	return exitRefused
}

// remedyOf returns the way out of an error, if its sentence does not name it.
func remedyOf(err error) string {
	var f *fault.Error
	var unknown *unknownID
	var gone *client.Unreachable
	var refused *client.Problem
	switch {
	case errors.As(err, &refused) && refused.Code == string(fault.CredentialMissing) && os.Getenv(envToken) != "":
		return "The token is the one in " + envToken + ": unset it, or set it to another."
	case errors.As(err, &unknown):
		return unknown.remedy()
	case errors.As(err, &f):
		return f.Remedy
	case errors.As(err, &gone):
		return "Start it with: sallyport serve"
	}
	return ""
}

// printable makes foreign text safe for a terminal, on one line.
func printable(s string) string { return display.Terminal(s, 4000) }

func buildVersion() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "dev"
}

// about describes a command. All of it but run is shown by --help.
type about struct {
	use, short, long, example string
	args                      cobra.PositionalArgs // nil: none
	prints                    bool                 // prints data: takes --output
	local                     bool                 // has nothing to do with a server or its directory
	inside                    bool                 // may be used inside a governed session; all others are people's
	reasoned                  bool                 // takes --reason, and needs it
}

// command makes a command whose errors are known as its own.
func (c *cli) command(a about, run func(ctx context.Context, args []string) error) *cobra.Command {
	if a.args == nil {
		a.args = cobra.NoArgs
	}
	cmd := &cobra.Command{
		Use: a.use, Short: a.short, Long: strings.TrimSpace(a.short + ".\n\n" + a.long), Example: indent(a.example), Args: counted(a),
		DisableFlagsInUseLine: strings.Contains(a.use, "--"), // that line names the flags itself
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(formats, c.output) {
				return &ranError{usagef("--output is one of %s, not %q", strings.Join(formats, ", "), c.output)}
			}
			if !a.inside {
				if err := refuseGoverned(); err != nil {
					return &ranError{err}
				}
			}
			if err := run(cmd.Context(), args); err != nil {
				return &ranError{err}
			}
			return nil
		},
	}
	if a.prints {
		cmd.Flags().StringVarP(&c.output, "output", "o", "table", "form of the output: "+strings.Join(formats, ", "))
		must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	}
	if !a.local {
		cmd.Flags().StringVar(&c.data, "data", defaultData, "data directory of the gateway")
		must(cmd.MarkFlagDirname("data"))
	}
	return cmd
}

// counted checks the number of arguments, and says what the command takes.
func counted(a about) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if a.args(cmd, args) == nil {
			return nil
		}
		var takes []string
		for _, word := range strings.Fields(a.use)[1:] {
			if !strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "[-") {
				takes = append(takes, word)
			}
		}
		_, after, _ := strings.Cut(a.use, " -- ")
		if after != "" {
			takes = []string{after}
		}
		switch {
		case len(takes) == 0:
			return fmt.Errorf("%s takes no arguments, and here is %s", cmd.CommandPath(), display.Quote(args[0], 80))
		case len(args) == 0:
			return fmt.Errorf("%s is missing", strings.Join(takes, " "))
		}
		return fmt.Errorf("%s takes %s, and here: %s (put a text with spaces in quotes)", cmd.CommandPath(), strings.Join(takes, " "), sentence.Count(len(args), "argument"))
	}
}

// commandLine is the library's error about a command line, in words for people.
func commandLine(cmd *cobra.Command, err error) error {
	if !strings.HasPrefix(err.Error(), "required flag(s)") {
		return groupedFlags(err)
	}
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if needed := f.Annotations[cobra.BashCompOneRequiredFlag]; !f.Changed && len(needed) > 0 && needed[0] == "true" {
			missing = append(missing, "--"+f.Name)
		}
	})
	if len(missing) == 1 {
		return errors.New(missing[0] + " is missing")
	}
	return fmt.Errorf("%s are missing", sentence.Names(missing))
}

// flagGroups match the library's messages about flags of which one is needed, or only one can be.
var flagGroups = regexp.MustCompile(`^(?:at least one of the flags in the group \[(.*)\] is required|if any flags in the group .*; \[(.*)\] were all set)$`)

func groupedFlags(err error) error {
	m := flagGroups.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	flags := strings.Fields(m[1] + m[2])
	for i := range flags {
		flags[i] = "--" + flags[i]
	}
	if m[1] != "" {
		return fmt.Errorf("one of these is missing: %s", strings.Join(flags, ", "))
	}
	return fmt.Errorf("only one of these can be given: %s", strings.Join(flags, ", "))
}

// explains says where to read how a command is used.
func explains(cmd *cobra.Command) string {
	if !cmd.Runnable() || cmd.HasAvailableSubCommands() {
		return "  " + cmd.CommandPath() + " --help lists the commands.\n"
	}
	return "  " + cmd.UseLine() + "\n  " + cmd.CommandPath() + " --help explains it.\n"
}

// group makes a command that only has commands of its own.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: short + ".", Args: knownCommand, Example: commands[0].Example,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("%s needs a command: %s", cmd.CommandPath(), strings.Join(names(cmd), ", "))
		}}
	cmd.AddCommand(commands...)
	return cmd
}

func names(cmd *cobra.Command) (all []string) {
	for _, sub := range cmd.Commands() {
		all = append(all, sub.Name())
	}
	return all
}

// knownFlag adds to the error about an unknown flag those that are near to it.
func knownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name) })
	return unknownWord(err.Error(), "--"+unknown.GetSpecifiedName(), flags)
}

// must is for mistakes in this program's own tables, which every test would hit.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sallyport",
		Short: "A gateway between AI agents and everything that they can touch",
		Long: `Sallyport stands between an agent and its tools. The agent declares, the gateway judges, people answer for what is risky.

Commands that talk to a running gateway find it through its data directory (--data, by default ` + defaultData + ` in the working
directory) or through SALLYPORT_URL and SALLYPORT_TOKEN. People's commands use the admin address and a person's token; manifest, plan,
connect and client use the agents' address and an agent's or session's token. With people.confirm: terminal the gateway shows a number at your terminal
for what you change, and you type it.

Exit codes: 0 done; 1 refused, or something was found; 2 usage or configuration; 3 the server can't be reached.`,
		Example: indent(`sallyport demo                                            see what it does
sallyport init --from .mcp.json --for developer --apply   take over the servers of your client
sallyport serve                                           start the gateway
sallyport run --agent dev -- claude                       begin a piece of work, in another terminal
sallyport status                                          how the gateway is, and what waits for you`),
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: knownCommand,
	}
	root.SetFlagErrorFunc(knownFlag)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	for _, of := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Begin", []*cobra.Command{c.demo(), c.initialise(), c.serve(), c.runProgram(), c.status(), c.doctor()}},
		{"Each day", []*cobra.Command{c.approvals(), c.recommendations(), c.sessions(), c.kill(), c.unkill(), c.alerts(), c.security(), c.knowledge()}},
		{"Configure", []*cobra.Command{c.lint(), c.reload(), c.tools(), flowCommand(c), threatCommand(c), c.token(), c.client(), c.agents(), c.upstreams(), c.breaker(), c.stored()}},
		{"Prove and keep", []*cobra.Command{c.audit(), c.backup(), c.restore()}},
		{"For agents and their clients", []*cobra.Command{c.manifest(), c.plan(), c.connect(), c.hook()}},
	} {
		root.AddGroup(&cobra.Group{ID: of.title, Title: of.title + ":"})
		for _, cmd := range of.commands {
			cmd.GroupID = of.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(c.version())
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Example = indent("source <(sallyport completion bash)")
		for _, shell := range completion.Commands() {
			shell.Example = indent("sallyport completion " + shell.Name())
		}
	}
	return root
}

func (c *cli) version() *cobra.Command {
	return c.command(about{use: "version", short: "Print the version", example: "sallyport version", local: true, inside: true, prints: true},
		func(context.Context, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
			}{Version: buildVersion()}
			if b, ok := debug.ReadBuildInfo(); ok {
				v.Go = b.GoVersion
			}
			return c.print(v, func(t *table) { t.line("sallyport %s (%s)", v.Version, v.Go) })
		})
}
