package mcpwire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
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

func readEvents(r io.Reader) (all []string) {
	ev := NewEvents(r, 1<<10)
	defer ev.Free()
	for {
		data, err := ev.Next()
		if err != nil {
			return append(all, fmt.Sprint(err, " ", ev.LastID, " ", ev.Retry))
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
		{"data: " + strings.Repeat("x", 2000) + "\n\n", `["a message is larger than the limit  0s"]`},
		{strings.Repeat("data: xxxxxxxxxxxxxxxxxxxxx\n", 100) + "\n", `["a message is larger than the limit  0s"]`},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.text), &shredder{c.text, rand.New(rand.NewPCG(1, 2))}} {
			if got := fmt.Sprintf("%q", readEvents(r)); got != c.want {
				t.Errorf("%.80q: %s, want %s", c.text, got, c.want)
			}
		}
	}
}

// FuzzEvents: reading a stream in any pieces gives the same events, never panics, and each event stays within the limit.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{"data: a\n\n", "data:a\r\rdata\r\n\r\n", "\xef\xbb\xbf: c\nid: 1\nevent: x\ndata: y\n\nretry: 5\ndata:z\n\n", "data\ndata\n\n", "\r\n\r\ndata: q"} {
		f.Add(seed, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		whole := readEvents(strings.NewReader(text))
		pieces := readEvents(&shredder{text, rand.New(rand.NewPCG(seed, 0))})
		if fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", pieces) {
			t.Fatalf("%q: %q in one, %q in pieces", text, whole, pieces)
		}
		for _, e := range whole {
			if len(e) > 1<<10 {
				t.Fatal("over the limit")
			}
		}
	})
}

func readLines(r io.Reader, most int) (all []string) {
	lines := NewLines(r, most)
	for {
		line, err := lines.Next()
		var long *LongLine
		if errors.As(err, &long) {
			all = append(all, fmt.Sprintf("long %.4s %.4s", long.Head, long.Tail[max(0, len(long.Tail)-4):]))
			continue
		}
		all = append(all, string(line))
		if err != nil {
			return append(all, err.Error())
		}
	}
}

// TestLines: a line over the limit is told of by its ends and held by nobody; those around it are read.
func TestLines(t *testing.T) {
	const most = 100 << 10
	fill := strings.Repeat("x", most-2)
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{"", "EOF"}},
		{"a\n b \r\n\nc", []string{"a", "b", "", "c", "EOF"}},
		{"<" + fill + ">\nb\n", []string{"<" + fill + ">", "b", "", "EOF"}},
		{"<" + fill + ">12345678\nb\n", []string{"long <xxx 678\n", "b", "", "EOF"}},
		{"<" + fill + fill + fill + "12345678\nb\n", []string{"long <xxx 678\n", "b", "", "EOF"}},
		{"a\n<" + fill + "12345678", []string{"a", "long <xxx 5678", "", "EOF"}},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.text), &shredder{c.text, rand.New(rand.NewPCG(1, 2))}} {
			if got := fmt.Sprintf("%q", readLines(r, most)); got != fmt.Sprintf("%q", c.want) {
				t.Errorf("%.40q: %.300s, want %.300q", c.text, got, c.want)
			}
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add("a\nb", uint64(1))
	f.Add(strings.Repeat("long", 40<<10)+"\nb\r\n", uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		whole, pieces := readLines(strings.NewReader(text), 1<<10), readLines(&shredder{text, rand.New(rand.NewPCG(seed, 0))}, 1<<10)
		if fmt.Sprint(whole) != fmt.Sprint(pieces) {
			t.Fatalf("%q: %q in one, %q in pieces", text, whole, pieces)
		}
	})
}

func TestReadBody(t *testing.T) {
	for _, size := range []int{0, 1, pieceSize - 1, pieceSize, pieceSize + 1, 3 * pieceSize, 3*pieceSize + 5} {
		text := strings.Repeat("0123456789", size/10+1)[:size]
		for _, c := range []struct {
			length int64
			max    int
			ok     bool
		}{{-1, size, true}, {int64(size), size, true}, {-1, size - 1, false}, {int64(size), size - 1, false}, {0, size, true}} {
			for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "its end with it": iotest.DataErrReader(strings.NewReader(text))} {
				b, err := ReadBody(r, c.length, c.max)
				if ok := err == nil && string(b) == text; ok != c.ok || !ok && !errors.Is(err, ErrTooLarge) {
					t.Errorf("%d bytes, %s, %+v: %d bytes, %v", size, name, c, len(b), err)
				}
			}
		}
	}
	if _, err := ReadBody(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab"))), -1, 10); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a body that breaks off: %v", err)
	}
}

// A body that is refused leaves no garbage of its size.
func BenchmarkReadBodyTooLarge(b *testing.B) {
	text := strings.Repeat("x", 4<<20+1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadBody(strings.NewReader(text), -1, 4<<20); !errors.Is(err, ErrTooLarge) {
			b.Fatal(err)
		}
	}
}

func TestWriteEvent(t *testing.T) {
	var b bytes.Buffer
	if err := WriteEvent(&b, []byte(`{"a":`), []byte(`1}`)); err != nil {
		t.Fatal(err)
	}
	if got := readEvents(&b); len(got) != 2 || got[0] != `{"a":1}` {
		t.Errorf("%q", got)
	}
}
