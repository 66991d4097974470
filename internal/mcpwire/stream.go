package mcpwire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"
)

// ErrTooLarge is why a message was not read: it is over the reader's limit.
var ErrTooLarge = errors.New("a message is larger than the limit")

// Events reads a text/event-stream by the WHATWG rules: CR, LF and CRLF end a line, one leading byte order mark is dropped, data lines are
// joined by LF, comments and unknown fields are ignored, and an event that the end of the stream cuts short is discarded.
type Events struct {
	LastID string        // what a resumption names: of the last whole event that had an id
	Retry  time.Duration // what the sender asks to wait before a resumption; 0 if nothing

	r     *bufio.Reader
	max   int // bytes of one event's lines
	line  *[]byte
	begun bool
	cr    bool // the last line ended in CR: an LF right after it belongs to that ending
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// NewEvents reads events of at most max bytes from r, and may read ahead. End it with Free.
func NewEvents(r io.Reader, max int) *Events {
	buffered := readers.Get().(*bufio.Reader)
	buffered.Reset(r)
	return &Events{r: buffered, max: max, line: scratch.Get().(*[]byte)}
}

// Free gives the buffers back. The events are not read any further.
func (s *Events) Free() {
	keep(s.line)
	s.r.Reset(nil)
	readers.Put(s.r)
	s.r, s.line = nil, nil
}

// Next returns the data of the next event of the type message that has any, which may be empty. The bytes are the caller's.
func (s *Events) Next() ([]byte, error) {
	var (
		data    []byte
		hasData bool
		name    string
		size    int
		id      = s.LastID
	)
	for {
		line, err := s.readLine()
		if err != nil {
			return nil, err
		}
		if size += len(line) + 1; size > s.max {
			return nil, ErrTooLarge
		}
		if len(line) == 0 {
			s.LastID = id
			if hasData && (name == "" || name == "message") {
				return data, nil
			}
			data, hasData, name, size = nil, false, "", 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			data = append(data, value...)
			hasData = true
		case "event":
			name = string(value)
		case "id":
			// An id goes into a header of ours when the stream is resumed.
			if len(value) <= 512 && HeaderSafe(string(value)) {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				s.Retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readLine returns the next line without its ending. The bytes are good until the next call.
func (s *Events) readLine() ([]byte, error) {
	if !s.begun {
		s.begun = true
		if mark, err := s.r.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
			s.r.Discard(3)
		}
	}
	line := (*s.line)[:0]
	defer func() { *s.line = line }()
	for {
		if s.r.Buffered() == 0 {
			if _, err := s.r.Peek(1); err != nil {
				return nil, err // a line without its end is no line
			}
		}
		chunk, _ := s.r.Peek(s.r.Buffered())
		if s.cr {
			s.cr = false
			if chunk[0] == '\n' {
				s.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexByte(chunk, '\n')
		if end < 0 {
			end = bytes.IndexByte(chunk, '\r')
		} else if cr := bytes.IndexByte(chunk[:end], '\r'); cr >= 0 {
			end = cr
		}
		whole := end >= 0
		if !whole {
			end = len(chunk)
		}
		if len(line)+end > s.max {
			return nil, ErrTooLarge
		}
		line = append(line, chunk[:end]...)
		if whole {
			s.cr = chunk[end] == '\r'
			s.r.Discard(end + 1)
			return line, nil
		}
		s.r.Discard(end)
	}
}

// WriteEvent writes one message as an event. The message comes in parts, none of which has a line break.
func WriteEvent(w io.Writer, parts ...[]byte) error {
	if _, err := io.WriteString(w, "event: message\ndata: "); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "\n\n")
	return err
}

// Lines reads messages that stand on a line each, as they do on the pipes of a program.
type Lines struct {
	r   *bufio.Reader
	max int
	own []byte // a line that is longer than r's buffer
}

// NewLines reads lines of at most max bytes from r.
func NewLines(r io.Reader, max int) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// A LongLine is a line over the limit. It was skipped without being held.
type LongLine struct{ Head, Tail []byte } // at most the first KiB and the last

func (*LongLine) Error() string { return ErrTooLarge.Error() }
func (*LongLine) Unwrap() error { return ErrTooLarge }

// Next returns the next line without white space around it, good until the next call. After a *LongLine it can be called again. A last line
// that has no end comes with the error that says why.
func (l *Lines) Next() ([]byte, error) {
	const shown = 1 << 10
	l.own = l.own[:0]
	if cap(l.own) > 1<<20 {
		l.own = nil
	}
	var long *LongLine
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case long != nil:
			long.Tail = append(long.Tail, part[max(0, len(part)-shown):]...)
			long.Tail = long.Tail[max(0, len(long.Tail)-shown):]
		case len(l.own)+len(part) > l.max+1: // with its end
			head := append(bytes.Clone(l.own[:min(len(l.own), shown)]), part[:min(len(part), shown)]...)
			long = &LongLine{Head: head[:min(len(head), shown)], Tail: bytes.Clone(part[max(0, len(part)-shown):])}
			l.own = nil
		case len(l.own) > 0 || err != nil:
			l.own = append(l.own, part...)
			part = l.own
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long != nil && (err == nil || err == io.EOF):
			return nil, long
		default:
			return bytes.TrimSpace(part), err
		}
	}
}

// scratch holds buffers for reading what has no known length. Large ones are not kept.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

const maxScratch = 1 << 20

func keep(b *[]byte) {
	if cap(*b) <= maxScratch {
		*b = (*b)[:0]
		scratch.Put(b)
	}
}

// pieces are what a body is read into, so that a long one leaves no garbage behind but what it is joined into, and none where it is refused.
var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

const pieceSize = 32 << 10

// ReadBody reads a body of at most max bytes into memory of its own. length is what the sender says of it, -1 if nothing.
func ReadBody(r io.Reader, length int64, max int) ([]byte, error) {
	if length > int64(max) {
		return nil, ErrTooLarge
	}
	var read []*[pieceSize]byte
	defer func() {
		for _, p := range read {
			pieces.Put(p)
		}
	}()
	for size := 0; ; {
		if size == len(read)*pieceSize {
			read = append(read, pieces.Get().(*[pieceSize]byte))
		}
		n, err := r.Read(read[len(read)-1][size%pieceSize:])
		size += n
		switch {
		case size > max:
			return nil, ErrTooLarge
		case err == io.EOF:
			body := make([]byte, 0, size)
			for _, p := range read {
				body = append(body, p[:min(pieceSize, size-len(body))]...)
			}
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}
