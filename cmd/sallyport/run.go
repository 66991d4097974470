package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

// envMCP tells the program that run starts where the gateway is.
const envMCP = "SALLYPORT_MCP_URL"

// Exit codes of run where its program did not start, as shells have them.
const (
	exitNotStarted = 126
	exitNotFound   = 127
)

// closing bounds how long the end of the session is waited for.
const closing = 10 * time.Second

func (c *cli) runProgram() *cobra.Command {
	var open client.OpenSession
	cmd := c.command(about{
		use: "run --agent ID [--request TEXT] -- COMMAND…", short: "Start a program in a fresh session, which ends with it",
		long: `The session is one piece of work: it has no labels yet, and its own budget. When the program ends, the session is closed; its files stay until
sallyport sessions remove-files. The exit code is the program's.

The program finds the session's token in SALLYPORT_TOKEN, and the gateway in SALLYPORT_MCP_URL (for MCP clients) and SALLYPORT_URL (for sallyport
connect). Where the agent may ask models through the gateway, ANTHROPIC_BASE_URL and ANTHROPIC_AUTH_TOKEN, and OPENAI_BASE_URL and OPENAI_API_KEY, name it, too;
a key of the provider's own in your environment is left out then. A prompt hook of the program can call sallyport hook words.

Say with --request what you want done: arguments of calls are traced to these words. Add more with sallyport sessions say.`,
		example: "sallyport run --agent dev -- claude\nsallyport run --agent dev --request \"Fix issue 12 and open a pull request.\" -- codex", args: cobra.MinimumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		path, err := exec.LookPath(args[0])
		if err != nil {
			return &coded{noProgram(args[0], err), exitNotFound}
		}
		mcp, err := c.agentsAddress()
		if err != nil {
			return err
		}
		cl, err := c.reach(adminSide)
		if err != nil {
			return err
		}
		s, err := cl.StartSession(ctx, open)
		if err != nil {
			return c.withAgents(ctx, open.AgentID, err)
		}
		words, err := c.words(ctx, cl, s.SessionID, mcp)
		if err != nil { // without the words people are asked more, and nothing runs that should not
			fmt.Fprintf(c.err, "sallyport: a prompt hook can add no words to %s: %s\n", s.SessionID, printable(err.Error()))
		}
		code, err := c.runIn(s, mcp, words, path, args)
		if failed := closeSession(cl, s.SessionID, code); failed != nil {
			fmt.Fprintf(c.err, "sallyport: the session %s is still open: %s\n  Close it: sallyport sessions close %s --reason done\n", s.SessionID, printable(failed.Error()), s.SessionID)
		}
		if err != nil {
			return &coded{err, exitNotStarted}
		}
		if code != 0 {
			return &coded{&found{what: fmt.Sprintf("%s ended with code %d", args[0], code), printed: true}, code}
		}
		return nil
	})
	needed(cmd, &open.AgentID, "agent", "id of the agent")
	c.completeFlag(cmd, "agent", "AGENT")
	cmd.Flags().StringVar(&open.UserRequest, "request", "", "what you want done, in your words")
	cmd.Flags().StringSliceVar(&open.Labels, "label", nil, "a label that the session starts with")
	return cmd
}

// noProgram says why a program can't be started.
func noProgram(name string, err error) error {
	switch {
	case !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s can't be started: %w", name, errors.Unwrap(err))
	case strings.ContainsRune(name, os.PathSeparator):
		return fmt.Errorf("there is no program %s", name)
	}
	return fmt.Errorf("there is no program %s on your PATH: install it, or give its whole path", name)
}

// agentsAddress is the agents' side, for the program. With SALLYPORT_URL, which names the people's side here, SALLYPORT_MCP_URL has to name it.
func (c *cli) agentsAddress() (string, error) {
	if u := os.Getenv(envMCP); u != "" {
		return strings.TrimSuffix(strings.TrimRight(u, "/"), "/mcp"), nil
	}
	if os.Getenv(envURL) != "" {
		return "", usagef("%s names the people's side: set %s to the gateway's address for agents, such as http://127.0.0.1:7575/mcp", envURL, envMCP)
	}
	return c.address(agentSide)
}

// words opens the socket for the program's prompt hook, with a key of its own.
func (c *cli) words(ctx context.Context, cl *client.Client, session, address string) (*wordsDoor, error) {
	key, err := cl.HookKey(ctx, session)
	if err != nil {
		return nil, err
	}
	hook, err := client.New(address, key)
	if err != nil {
		return nil, err
	}
	return openWords(hook.AddOwnWords)
}

// runIn runs the program in the session and returns its exit code: that of shells for one that a signal ended.
func (c *cli) runIn(s *client.OpenedSession, address string, words *wordsDoor, path string, args []string) (code int, err error) {
	program := exec.Command(path, args[1:]...)
	program.Args[0] = args[0]
	program.Stdin, program.Stdout, program.Stderr = c.in, c.out, c.err
	models, without, err := modelVariables(address, s.SessionToken)
	if err != nil {
		return 0, err
	}
	without = append(without, envToken, envURL, envMCP, envWords)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(without, name) {
			program.Env = append(program.Env, v)
		}
	}
	program.Env = append(program.Env, envToken+"="+s.SessionToken, envURL+"="+address, envMCP+"="+address+"/mcp")
	program.Env = append(program.Env, models...)
	if words != nil {
		defer words.close()
		program.Env = append(program.Env, envWords+"="+words.path())
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := keepBelow(); err != nil { // it could act as the person once it has detached itself
		return 0, fmt.Errorf("what the program starts can't be kept below it: %w", err)
	}
	if err := program.Start(); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	defer close(done)
	go reap(program.Process.Pid, done)
	if words != nil {
		go words.serve(program.Process.Pid)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	for {
		select {
		case got := <-signals:
			if got != os.Interrupt { // a terminal sends that to the program as well
				_ = program.Process.Signal(got) // of one that has just ended: nothing to tell
			}
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return 0, nil
			case !errors.As(err, &exit):
				return 0, err
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return exit.ExitCode(), nil
		}
	}
}

// closeSession ends the session whatever ended the program, a signal to this process included.
func closeSession(cl *client.Client, id string, code int) error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	_, err := cl.CloseSession(ctx, id, fmt.Sprintf("its program ended with code %d", code))
	return err
}
