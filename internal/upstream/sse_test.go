package upstream

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// shredder reads a text in pieces of random length.
type shredder struct {
	rest string
	r    *rand.Rand
}

func (s *shredder) Read(p []byte) (int, error) {
	if s.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+s.r.IntN(5))], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func readEvents(r io.Reader, buffer int) (all []string) {
	ev := newEvents(bufio.NewReaderSize(r, buffer), 1<<10)
	for {
		data, err := ev.next()
		if err != nil {
			return append(all, fmt.Sprint(err, " ", ev.lastID, " ", ev.retry))[:len(all)+1]
		}
		all = append(all, string(data))
	}
}

// TestEvents follows the examples and rules of the WHATWG text.
func TestEvents(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // events, then how it ended
	}{
		{"data: a\n\n", `["a" "EOF  0s"]`},
		{"data: a\ndata: b\n\n", `["a\nb" "EOF  0s"]`},
		{"data:  a\n\n", `[" a" "EOF  0s"]`},
		{"data\n\ndata\ndata\n\ndata:", `["" "\n" "EOF  0s"]`},
		{"data: a\r\rdata: b\r\n\r\ndata: c\n\r", `["a" "b" "c" "EOF  0s"]`},
		{"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", `["a" "EOF  0s"]`},
		{": c\ndata: a\n: d\n\n", `["a" "EOF  0s"]`},
		{"id: 7\ndata: a\n\nid\ndata: b\n\n", `["a" "b" "EOF  0s"]`},
		{"id: 7\n\n", `["EOF 7 0s"]`},
		{"id: 7\ndata: cut\n", `["EOF  0s"]`},
		{"id: a\x01\nid: b\x00\n\n", `["EOF  0s"]`},
		{"retry: 20\nretry: x\nretry: -1\n\n", `["EOF  20ms"]`},
		{"event: other\ndata: a\n\nevent: message\ndata: b\n\n", `["b" "EOF  0s"]`},
		{"Data: a\ndatax: b\n\n", `["EOF  0s"]`},
		{"data: " + strings.Repeat("x", 2000) + "\n\n", `["an event is larger than the limit  0s"]`},
		{strings.Repeat("data: xxxxxxxxxxxxxxxxxxxxx\n", 100) + "\n", `["an event is larger than the limit  0s"]`},
	} {
		for _, buffer := range []int{16, 4096} {
			if got := fmt.Sprintf("%q", readEvents(strings.NewReader(c.text), buffer)); got != c.want {
				t.Errorf("%.80q: %s, want %s", c.text, got, c.want)
			}
		}
	}
}
