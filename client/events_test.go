package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"sallyport.example/client"
)

// streamer answers every request with the text, under the media type.
func streamer(t *testing.T, media, text string, then func(r *http.Request)) *client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", media)
		fmt.Fprint(w, text)
		w.(http.Flusher).Flush()
		then(r)
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "spt_person_x")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEvents(t *testing.T) {
	const stream = "text/event-stream; charset=utf-8"
	ends := func(*http.Request) {}
	const three = "retry: 2000\n\nevent: all\ndata: {\"id\":\"\"}\n\n: still here\n\nevent: approval\ndata: {\"id\":\"appr_1\"}\n\ndata: {\"id\":\"of no topic\"}\n\nevent: kill\ndata:{\"id\":\"a\"}\r\n\r\nevent: cut\ndata: {"
	var got []client.Event
	var last error
	for e, err := range streamer(t, stream, three, ends).Events(t.Context()) {
		if err != nil {
			last = err
			continue
		}
		got = append(got, e)
	}
	var gone *client.Unreachable
	if want := []client.Event{{Topic: "all"}, {Topic: "approval", ID: "appr_1"}, {Topic: "kill", ID: "a"}}; !slices.Equal(got, want) || !errors.As(last, &gone) {
		t.Errorf("%v, then %v", got, last)
	}

	for name, c := range map[string]struct{ media, text, want string }{
		"another program": {"text/html", "<html>", "not this version"},
		"not JSON":        {stream, "event: all\ndata: <html>\n\n", "not this version"},
		"an endless line": {stream, "event: " + strings.Repeat("x", 1<<20), "too long"},
	} {
		n := 0
		for _, err := range streamer(t, c.media, c.text, ends).Events(t.Context()) {
			if n++; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d errors", name, n)
		}
	}

	// The loop is left, or the context ends, while the server has nothing more to say.
	waits := func(r *http.Request) { <-r.Context().Done() }
	c := streamer(t, stream, "event: all\ndata: {\"id\":\"\"}\n\n", waits)
	for _, err := range c.Events(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	last = nil
	for _, err := range c.Events(ctx) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("cancelled: %v", last)
	}
}
