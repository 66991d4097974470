package upstream

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// room has room for so many bytes.
type room struct{ left, asked int }

func (r *room) More(n int) error {
	if r.asked += n; r.asked > r.left {
		return fault.New(fault.LimitRate, "full")
	}
	return nil
}

// An answer over HTTP asks for room before it is read on, whatever its form; without room it is discarded, and the call counts as made. A small one needs
// to ask nobody.
func TestAnswersAskForRoom(t *testing.T) {
	const size = 1 << 20
	for name, c := range map[string]struct {
		media string
		size  int
		room  int
		want  fault.Code
	}{
		"body, with room":      {"application/json", size, 2 * size, ""},
		"body, without room":   {"application/json", size, size / 2, fault.LimitRate},
		"events, with room":    {"text/event-stream", size, 2 * size, ""},
		"events, without room": {"text/event-stream", size, size / 2, fault.LimitRate},
		"a small body":         {"application/json", 2 << 10, 0, ""},
	} {
		s := &rawHTTP{}
		written := 0
		s.call = func(w http.ResponseWriter, _ *http.Request, id string) {
			w.Header().Set("Content-Type", c.media)
			text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":"%s"}}`, id, strings.Repeat("x", c.size))
			if c.media != "application/json" {
				text = "data: " + text + "\n\n"
			}
			written, _ = io.WriteString(w, text)
		}
		m, _ := start(t, Config{URL: serve(t, s)}, nil)
		r := &room{left: c.room}
		result, err := run(m, "x", &call.Exchange{Room: r})
		if c.want == "" && (err != nil || len(result) < c.size) || c.want != "" && (!fault.Is(err, c.want) || !dispatched(err)) {
			t.Errorf("%s: %d bytes, %v", name, len(result), err)
		}
		if c.want == "" && c.size > freeAnswer && r.asked < c.size-freeAnswer {
			t.Errorf("%s: of %d bytes, %d were asked for", name, written, r.asked)
		}
		m.Close()
	}
}

// An answer on a pipe asks for its room once it is known whose it is.
func TestAnswersOnThePipeAskForRoom(t *testing.T) {
	s := &server{settings: settings{cfg: Config{ID: "srv"}}}
	for size, want := range map[int]fault.Code{freeAnswer: "", freeAnswer + 1: "", 100 << 10: fault.LimitRate} {
		p := &pending{x: &call.Exchange{Room: &room{left: 50 << 10}}}
		var a answer
		a.Result = make([]byte, size)
		m, err := s.roomFor(p, a)
		if want == "" && (err != nil || len(m.Result) != size) || want != "" && (!fault.Is(err, want) || m.Result != nil) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
