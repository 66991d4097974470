package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"sallyport.example/lab/sample"
)

// benchModel is the model that is asked.
const benchModel = "bench-20250101"

// held is how many events a request asks for whose stream stays open after the first one. The declaration allows more.
const held = 19_999

// provider answers chats at once: whole, or in as many events as the request allows tokens.
func provider(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Stream bool
		Tokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !asked.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"It is done, and all is well."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9}}`, benchModel)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := func() { _ = http.NewResponseController(w).Flush() }
	for i := range asked.Tokens {
		fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"several words \"},\"finish_reason\":null}]}\n\n", benchModel)
		flush()
		if asked.Tokens == held && i == 0 {
			<-r.Context().Done()
			return
		}
	}
	fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", benchModel)
}

// modelCaller asks with a conversation of st.args.Size bytes, whose last message is another one each time. Streamed, what counts is the time to the first text.
func modelCaller(_ context.Context, p *process, hc *http.Client, st setting) (caller, func(), error) {
	var history []map[string]string
	for left := st.args.Size; left > 0; left -= 1 << 10 {
		history = append(history, map[string]string{"role": []string{"user", "assistant"}[len(history)%2], "content": fmt.Sprintf("%d %s", len(history), sample.Text("words", min(left, 1<<10)))})
	}
	b, err := json.Marshal(history)
	if err != nil {
		return nil, nil, err
	}
	before := bytes.TrimSuffix(b, []byte("]"))
	var turn atomic.Int64
	return func(ctx context.Context) (took time.Duration, err error) {
		body := fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":%d,"messages":%s,{"role":"user","content":"This is question number %d."}]}`, benchModel, st.events > 0, max(st.events, 1), before, turn.Add(1))
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		r.Header.Set("Content-Type", "application/json")
		began := time.Now()
		res, err := hc.Do(r)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		in := bufio.NewReader(res.Body)
		line, err := in.ReadString('\n')
		if st.events > 0 && err == nil {
			took = time.Since(began)
		}
		if st.events == held {
			return took, err
		}
		rest, failed := io.ReadAll(in)
		if whole := line + string(rest); res.StatusCode != http.StatusOK || failed != nil || st.events > 0 && !strings.Contains(whole, "[DONE]") || strings.Contains(whole, `"error"`) {
			return 0, fmt.Errorf("status %d, %w: %.300s", res.StatusCode, failed, whole)
		}
		return took, nil
	}, func() {}, nil
}

// modelSettings are the rows of models.
var modelSettings = []setting{
	{label: "1 caller, 2 KiB of conversation", client: "model", callers: 1, args: echoArgs{Size: 2 << 10}},
	{label: "1 caller, 256 KiB of conversation", client: "model", callers: 1, args: echoArgs{Size: 256 << 10}},
	{label: "64 callers, 2 KiB of conversation", client: "model", callers: 64, args: echoArgs{Size: 2 << 10}},
	{label: "1 caller, 2 KiB, 16 events, to the first text", client: "model", callers: 1, args: echoArgs{Size: 2 << 10}, events: 16},
	{label: "4 callers, 2 KiB, 2000 events", client: "model", callers: 4, args: echoArgs{Size: 2 << 10}, events: 2000},
}

// runModels measures requests to models through a proxy with two durable records and through the gateway.
func runModels(binary string, span time.Duration, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	direct, err := self("direct", "provider", "")
	if err != nil {
		return err
	}
	defer direct.stop()
	echoes, err := self("echo", "echo", "")
	if err != nil {
		return err
	}
	defer echoes.stop()
	proxy, err := self("proxy+fsync", "proxy+fsync, streams", direct.url)
	if err != nil {
		return err
	}
	defer proxy.stop()
	gateway, err := sallyport(gatewayOf{binary: binary, target: echoes.url, dir: dir, model: direct.url})
	if err != nil {
		return err
	}
	defer gateway.stop()
	gateway.url = strings.TrimSuffix(gateway.url, "/mcp") + "/openai/v1/chat/completions"
	for _, st := range modelSettings {
		samples := map[string][]sampled{}
		for range rounds {
			for _, p := range []*process{direct, proxy, gateway} {
				s, err := measure(p, st, span)
				if err != nil {
					return err
				}
				samples[p.name] = append(samples[p.name], s)
			}
		}
		fmt.Printf("\n%s\n  %-12s %10s %10s %10s %12s\n", st.label, "", "calls/s", "p50 µs", "p99 µs", "CPU µs/call")
		of := func(name string, f func(sampled) float64) float64 { return median(samples[name], f) }
		rate, half, cpu := func(s sampled) float64 { return s.perSecond }, func(s sampled) float64 { return s.p50us }, func(s sampled) float64 { return s.cpuUS }
		for _, p := range []*process{direct, proxy, gateway} {
			fmt.Printf("  %-12s %10.0f %10.0f %10.0f %12.0f\n", p.name, of(p.name, rate), of(p.name, half), of(p.name, func(s sampled) float64 { return s.p99us }), of(p.name, cpu))
		}
		fmt.Printf("  sallyport / proxy+fsync: p50 %.2f, CPU %.2f, throughput %.2f", of("sallyport", half)/of("proxy+fsync", half), of("sallyport", cpu)/of("proxy+fsync", cpu), of("sallyport", rate)/of("proxy+fsync", rate))
		if st.events > 0 {
			fmt.Printf("; first text %.0f µs later, %.1f µs of CPU more per event", of("sallyport", half)-of("proxy+fsync", half), (of("sallyport", cpu)-of("proxy+fsync", cpu))/float64(st.events))
		}
		fmt.Println()
	}
	return openStreams(gateway, 1000)
}

// openStreams measures the memory of a gateway with so many streams open.
func openStreams(p *process, n int) error {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	before := p.memory("VmRSS")
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	defer transport.CloseIdleConnections()
	for i := range n {
		token, err := p.session(ctx)
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"Hi."}]}`, benchModel, held)))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := auth{token, transport}.RoundTrip(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("stream %d: status %d, %w: %.300s", i, res.StatusCode, err, line)
		}
	}
	open := p.memory("VmRSS")
	time.Sleep(20 * time.Second) // until the collector has run with all of them open
	later := p.memory("VmRSS")
	time.Sleep(10 * time.Second)
	fmt.Printf("\n%d open streams: %.0f MiB resident before, %.0f with all open, %.0f twenty seconds later, %.0f after thirty\n", n, before, open, later, p.memory("VmRSS"))
	return nil
}
