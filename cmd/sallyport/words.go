package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

// envWords tells the prompt hook of a client where the run is that started the client. The hook's key is not in the environment, where every program
// that the client starts could read it: run keeps it, and takes the words over a socket.
const envWords = "SALLYPORT_WORDS"

const (
	maxPrompt   = 1 << 20          // of what a client hands its hook, in bytes; the gateway takes less
	wordsTime   = 10 * time.Second // for one prompt, from the connection to the answer
	wordsAtOnce = 4                // prompts in progress
)

// wordsAnswer is what run answers a hook.
type wordsAnswer struct {
	Confirms bool   `json:"confirms"`
	Problem  string `json:"problem,omitempty"`
}

// wordsDoor is the socket on which run takes the words that the prompt hook of its program brings.
type wordsDoor struct {
	listener *net.UnixListener
	add      func(ctx context.Context, text string) (*client.AddedWords, error)
}

// openWords makes the socket, in a folder that only this user can enter.
func openWords(add func(ctx context.Context, text string) (*client.AddedWords, error)) (*wordsDoor, error) {
	dir, err := os.MkdirTemp("", "sallyport-run-")
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "words"), Net: "unix"})
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &wordsDoor{listener: l, add: add}, nil
}

func (d *wordsDoor) path() string { return d.listener.Addr().String() }

// close closes the socket and removes it.
func (d *wordsDoor) close() {
	_ = d.listener.Close() // removes the socket; nothing to do about a failure when the run is over
	_ = os.Remove(filepath.Dir(d.path()))
}

// serve takes words from processes below the program, until the socket is closed.
func (d *wordsDoor) serve(program int) {
	busy := make(chan struct{}, wordsAtOnce)
	for {
		conn, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		busy <- struct{}{}
		go func() {
			defer func() { <-busy }()
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(wordsTime))
			_ = json.NewEncoder(conn).Encode(d.take(conn, program)) // a hook that is gone waits for no answer
		}()
	}
}

func (d *wordsDoor) take(conn *net.UnixConn, program int) wordsAnswer {
	if err := peerBelow(conn, program); err != nil {
		return wordsAnswer{Problem: err.Error()}
	}
	text, err := io.ReadAll(io.LimitReader(conn, maxPrompt+1))
	if err != nil {
		return wordsAnswer{Problem: "the words could not be read whole"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wordsTime)
	defer cancel()
	added, err := d.add(ctx, string(text))
	if err != nil {
		return wordsAnswer{Problem: err.Error()}
	}
	return wordsAnswer{Confirms: added.Confirms}
}

func (c *cli) hook() *cobra.Command {
	return group("hook", "For the hooks of agents' clients", c.hookWords())
}

func (c *cli) hookWords() *cobra.Command {
	return c.command(about{
		use: "words", short: "Add what the person typed to their request", local: true, inside: true,
		long: `For the prompt hook of a client that sallyport run started; elsewhere it does nothing. It reads the prompt from standard input: JSON with "prompt", as
clients give it to their hooks, or plain text. It prints nothing, since clients show an agent what a hook prints. Words that come while a call of the
session is open are on record and confirm nothing.`,
		example: "sallyport hook words < prompt.json",
	}, func(ctx context.Context, _ []string) error {
		path := os.Getenv(envWords)
		if path == "" {
			return nil
		}
		text, err := c.prompt()
		if err != nil || strings.TrimSpace(text) == "" {
			return err
		}
		a, err := bringWords(ctx, path, text)
		switch {
		case err != nil:
			return fmt.Errorf("the words are not on record: %w", err)
		case a.Problem != "":
			return fmt.Errorf("the words are not on record: %s", printable(a.Problem))
		case !a.Confirms:
			fmt.Fprintln(c.err, "sallyport: a call of this session is open, so the words are on record and confirm nothing.")
		}
		return nil
	})
}

// prompt is what the client hands its hook.
func (c *cli) prompt() (string, error) {
	raw, err := io.ReadAll(io.LimitReader(c.in, maxPrompt+1))
	switch {
	case err != nil:
		return "", err
	case len(raw) > maxPrompt:
		return "", usagef("a prompt has at most %d bytes", maxPrompt)
	case !json.Valid(raw) || !strings.HasPrefix(strings.TrimSpace(string(raw)), "{"):
		return string(raw), nil
	}
	var given struct {
		Prompt *string `json:"prompt"`
	}
	if err := json.Unmarshal(raw, &given); err != nil || given.Prompt == nil {
		return "", usagef("what came on standard input has no \"prompt\" with the person's words")
	}
	return *given.Prompt, nil
}

// bringWords hands the words to the run that started the client.
func bringWords(ctx context.Context, path, text string) (a wordsAnswer, err error) {
	dialer := net.Dialer{Timeout: wordsTime}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return a, fmt.Errorf("the sallyport run that started this client can't be reached: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * wordsTime))
	if _, err = io.WriteString(conn, text); err == nil {
		err = conn.(*net.UnixConn).CloseWrite()
	}
	if failed := json.NewDecoder(io.LimitReader(conn, maxPrompt)).Decode(&a); failed != nil {
		return a, errors.Join(err, failed)
	}
	return a, nil
}
