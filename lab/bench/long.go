package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/lab/sample"
)

// floods are what one agent does with floodCallers at once, while another agent makes small calls.
var floods = []string{"bodies of 4 MiB", "answers of 100 MiB", "answers of 1 MiB", "refused calls", "answers that nobody reads"}

const floodCallers = 256

// flood calls until standard input ends. It is a process of its own, so that it can be of the lowest priority.
func flood(target, token, kind string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); cancel() }()
	st := setting{client: "raw", name: "loud_echo", args: echoArgs{Text: strings.Repeat("lorem ipsum ", 4<<20/12-200)}}
	switch kind {
	case "answers of 100 MiB": // the gateway refuses each
		st.args = echoArgs{Kind: hugeKind, Size: 100 << 20}
	case "answers of 1 MiB", "answers that nobody reads":
		st.args = echoArgs{Kind: "words", Size: 1 << 20}
	case "refused calls":
		st.name = "unknown"
	}
	t := &http.Transport{MaxIdleConnsPerHost: floodCallers}
	if kind == "answers that nobody reads" {
		t.ReadBufferSize = 512
	}
	var all sync.WaitGroup
	var done, refused atomic.Int64
	for range floodCallers {
		all.Go(func() {
			for ctx.Err() == nil {
				if kind == "answers that nobody reads" {
					hang(ctx, target, token)
					continue
				}
				c, end, err := rawCaller(ctx, &process{url: target}, &http.Client{Transport: auth{token, t}}, st)
				for err == nil && ctx.Err() == nil {
					if _, err := c(ctx); err == nil {
						done.Add(1)
					} else if ctx.Err() == nil {
						refused.Add(1)
					}
				}
				if end != nil {
					end()
				}
			}
		})
	}
	fmt.Println("flooding")
	all.Wait()
	fmt.Printf("%d answered, %d refused\n", done.Load(), refused.Load())
	return nil
}

// hang asks for a large answer and does not read it.
func hang(ctx context.Context, target, token string) {
	u, err := url.Parse(target)
	if err != nil {
		return
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		return
	}
	defer c.Close()
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"loud_echo","arguments":{"kind":"words","size":1048576},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"}}}}`
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: loud_echo\r\nContent-Length: %d\r\n\r\n%s", u.Path, u.Host, token, len(body), body)
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
}

// alone starts the echo server and Sallyport. A server for floods is of the lowest priority.
func alone(binary string, floods bool, limits string) (p *process, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return nil, nil, err
	}
	direct, err := self("direct", "echo", "")
	if err != nil {
		return nil, nil, err
	}
	loud := &process{}
	if floods {
		if loud, err = self("loud", "echo", ""); err == nil {
			err = exec.Command("renice", "-n", "19", strconv.Itoa(loud.cmd.Process.Pid)).Run()
		}
	}
	if err == nil {
		p, err = sallyport(gatewayOf{binary: binary, target: direct.url, dir: dir, loud: loud.url, limits: limits})
	}
	stop = func() {
		for _, p := range []*process{p, direct, loud} {
			if p != nil && p.cmd != nil {
				p.stop()
			}
		}
		os.RemoveAll(dir)
	}
	if err != nil {
		stop()
	}
	return p, stop, err
}

// runFloods measures the small calls of one agent, first alone and then beside each flood of another agent.
func runFloods(binary string, span time.Duration, rows string) error {
	p, stop, err := alone(binary, true, "")
	if err != nil {
		return err
	}
	defer stop()
	ctx := context.Background()
	small := settings()[0]
	small.client, small.callers = "raw", 1
	open := p.session
	p.session = func(ctx context.Context) (string, error) { // of the first agent, however many there are
		for range agents[1:] {
			if _, err := open(ctx); err != nil {
				return "", err
			}
		}
		return open(ctx)
	}
	quiet, err := measure(p, small, span)
	if err != nil {
		return err
	}
	fmt.Printf("one caller of another agent, 128 bytes: alone p50 %.1f ms, p99 %.1f ms\n", quiet.p50us/1e3, quiet.p99us/1e3)
	for _, kind := range floods {
		if !strings.Contains(kind, rows) {
			continue
		}
		token, err := open(ctx) // the next agent
		if err != nil {
			return err
		}
		for range agents[2:] { // and round to the first
			if _, err := open(ctx); err != nil {
				return err
			}
		}
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		f, out, err := start("flood", exec.Command("nice", "-n", "19", exe, "-role", "flood", "-target", p.url, "-token", token, "-rows", kind))
		if err != nil {
			return err
		}
		if !out.Scan() {
			return fmt.Errorf("the flood of %s did not start", kind)
		}
		s, err := measure(p, small, span)
		f.stdin.Close()
		out.Scan()
		f.stop()
		if err != nil {
			return fmt.Errorf("beside %s: %w", kind, err)
		}
		fmt.Printf("beside %d callers with %s: p50 %.1f ms (%.1f times), p99 %.1f ms; the flood: %s\n", floodCallers, kind, s.p50us/1e3, s.p50us/quiet.p50us, s.p99us/1e3, out.Text())
	}
	fmt.Printf("peak memory %.0f MiB\n", p.peak())
	return nil
}

// soakMemory is limits.memory of the gateway under a long load, in MiB: with the default of a large machine it takes long until memory is level.
const soakMemory = 512

// soak makes mixed calls for a long time, and says ten times how it goes. Sessions are opened anew each time, as work ends and begins.
func soak(binary string, length time.Duration) error {
	p, stop, err := alone(binary, false, fmt.Sprintf(", memory: %dMiB", soakMemory))
	if err != nil {
		return err
	}
	defer stop()
	small := settings()[0].args
	mixed := []setting{
		{label: "small", client: "raw", callers: 8, args: small}, {label: "SDK", client: "sdk", callers: 4, args: small},
		{label: "trusted", client: "raw", callers: 4, args: small, trusted: true},
		{label: "records", client: "raw", callers: 2, args: echoArgs{Kind: sample.Kinds[len(sample.Kinds)-2], Size: 64 << 10}},
		{label: "words", client: "raw", callers: 2, args: echoArgs{Kind: "words", Size: 64 << 10}},
	}
	fmt.Printf("%-8s", "")
	for _, st := range mixed {
		fmt.Printf(" %22s", st.label+": calls/s, p99 ms")
	}
	fmt.Printf(" %12s %12s\n", "resident MiB", "descriptors")
	for part := range 10 {
		results, errs := make([]sampled, len(mixed)), make([]error, len(mixed))
		var all sync.WaitGroup
		var opening sync.Mutex
		of := *p
		of.session = func(ctx context.Context) (string, error) {
			opening.Lock()
			defer opening.Unlock()
			return p.session(ctx)
		}
		for i, st := range mixed {
			all.Go(func() { results[i], errs[i] = measure(&of, st, length/10) })
		}
		all.Wait()
		fmt.Printf("%-8s", (length / 10 * time.Duration(part+1)).Round(time.Second))
		for i, s := range results {
			if errs[i] != nil {
				return errs[i]
			}
			fmt.Printf(" %22s", fmt.Sprintf("%.0f, %.0f", s.perSecond, s.p99us/1e3))
		}
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
		fmt.Printf(" %12.0f %12d\n", p.memory("VmRSS"), len(open))
	}
	return nil
}
