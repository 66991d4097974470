package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

var errNotWritten = errors.New("not an entry as the log writes them: unknown or repeated fields, or another encoding of the same values")

// Unmarshal reads a leaf. It accepts exactly what Marshal writes: an unknown, repeated, reordered or differently written field, a
// space, or anything after the entry is an error.
func Unmarshal(leaf []byte) (Entry, error) {
	if len(leaf) > MaxLeaf {
		return Entry{}, fmt.Errorf("an entry of %d bytes, more than %d", len(leaf), MaxLeaf)
	}
	r := reader{leaf: leaf}
	e := r.entry()
	if r.bad || r.at != len(r.leaf) {
		return Entry{}, errNotWritten
	}
	buf := scratch.Get().(*bytes.Buffer)
	defer scratch.Put(buf)
	buf.Reset()
	buf.Grow(len(leaf))
	again, err := e.AppendLeaf(buf.AvailableBuffer())
	if err != nil {
		return Entry{}, fmt.Errorf("not an entry: %w", err)
	}
	if !bytes.Equal(leaf, again) {
		return Entry{}, errNotWritten
	}
	return e, nil
}

// reader reads a leaf from its beginning, field by field in the order of AppendLeaf. It only finds where values begin and end: Unmarshal then
// compares the leaf with the entry as Marshal writes it, which no other bytes pass.
type reader struct {
	leaf []byte
	at   int
	bad  bool
}

func (r *reader) entry() (e Entry) {
	r.must(`{"index":`)
	e.Index = r.number()
	r.must(`,"at":`)
	e.At = r.time()
	r.must(`,"kind":`)
	e.Kind = Kind(r.text())
	e.Severity = Severity(r.field(`,"severity":`))
	r.must(`,"action":`)
	e.Action = r.text()
	e.Event = Event(r.field(`,"event":`))
	e.Agent = r.field(`,"agent":`)
	e.Session = r.field(`,"session":`)
	e.Requester = r.field(`,"requester":`)
	e.Actor = r.field(`,"actor":`)
	e.Door = r.field(`,"door":`)
	e.Remote = r.field(`,"remote":`)
	e.RequestID = r.field(`,"request_id":`)
	e.Operation = r.field(`,"operation":`)
	e.Type = r.field(`,"action_type":`)
	e.CallID = r.field(`,"call_id":`)
	e.Digest = r.field(`,"call_digest":`)
	e.DefHash = r.field(`,"definition_hash":`)
	e.Decision = r.field(`,"decision":`)
	e.Stage = r.field(`,"stage":`)
	e.Code = r.field(`,"code":`)
	e.Reason = r.field(`,"reason":`)
	e.Shadow = r.has(`,"shadow":true`)
	e.Risk = r.field(`,"risk":`)
	e.Amount = r.field(`,"amount":`)
	e.Approvers = r.list(`,"approvers":`)
	e.Model = r.field(`,"model":`)
	e.Arguments = r.payload(`,"arguments":`)
	e.Result = r.payload(`,"result":`)
	e.Labels = r.list(`,"labels":`)
	e.Attribution = r.raw(`,"attribution":`)
	e.Detail = r.raw(`,"detail":`)
	if r.has(`,"duration_ms":`) {
		e.DurationMS = r.number()
	}
	e.Rows = r.rows()
	r.must("}")
	return e
}

// has passes over what comes next, if it is this.
func (r *reader) has(next string) bool {
	if r.bad || !bytes.HasPrefix(r.leaf[r.at:], []byte(next)) {
		return false
	}
	r.at += len(next)
	return true
}

func (r *reader) must(next string) {
	if !r.has(next) {
		r.bad = true
	}
}

func (r *reader) field(name string) string {
	if !r.has(name) {
		return ""
	}
	return r.text()
}

func (r *reader) number() int64 {
	if r.bad {
		return 0
	}
	n := 0
	for rest := r.leaf[r.at:]; n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || n == 0 && rest[n] == '-'); {
		n++
	}
	v, err := strconv.ParseInt(string(r.leaf[r.at:r.at+n]), 10, 64)
	r.bad = r.bad || err != nil
	r.at += n
	return v
}

func (r *reader) time() time.Time {
	t, err := time.Parse(time.RFC3339Nano, r.text())
	r.bad = r.bad || err != nil
	return t
}

// text reads a JSON string.
func (r *reader) text() string {
	start := r.at
	escaped := r.passString()
	switch {
	case r.bad:
		return ""
	case escaped:
		return r.unescape(r.leaf[start:r.at])
	}
	return string(r.leaf[start+1 : r.at-1])
}

func (r *reader) unescape(quoted []byte) (s string) {
	if err := json.Unmarshal(quoted, &s); err != nil {
		r.bad = true
	}
	return s
}

// passString passes over a JSON string, and tells whether anything in it is escaped.
func (r *reader) passString() (escaped bool) {
	r.must(`"`)
	for ; r.at < len(r.leaf); r.at++ {
		switch r.leaf[r.at] {
		case '"':
			r.at++
			return escaped
		case '\\':
			escaped = true
			r.at++
		}
	}
	r.bad = true
	return escaped
}

func (r *reader) list(name string) []string {
	if !r.has(name) {
		return nil
	}
	var list []string
	for r.must("["); !r.bad; r.must(",") {
		list = append(list, r.text())
		if r.has("]") {
			break
		}
	}
	return list
}

func (r *reader) rows() (rows []Row) {
	if !r.has(`,"rows":`) {
		return nil
	}
	for r.must("["); !r.bad; r.must(",") {
		var row Row
		r.must(`{"table":`)
		row.Table = r.text()
		r.must(`,"key":`)
		row.Key = r.text()
		r.must(`,"was":`)
		row.Was = r.number()
		row.MAC = r.field(`,"mac":`)
		r.must("}")
		rows = append(rows, row)
		if r.has("]") {
			break
		}
	}
	return rows
}

func (r *reader) payload(name string) *Payload {
	if !r.has(name) {
		return nil
	}
	p := &Payload{}
	r.must(`{"sha256":`)
	p.SHA256 = r.text()
	r.must(`,"size":`)
	p.Size = r.number()
	p.Shown = r.raw(`,"shown":`)
	p.Stored = r.has(`,"stored":true`)
	p.Key = r.field(`,"key":`)
	p.Redacted = r.has(`,"redacted":true`)
	r.must("}")
	return p
}

// raw finds the end of a JSON value. Whether it is one, Marshal finds out.
func (r *reader) raw(name string) json.RawMessage {
	if !r.has(name) {
		return nil
	}
	start := r.at
	for depth := 0; !r.bad; {
		if r.at == len(r.leaf) {
			r.bad = true
			break
		}
		switch r.leaf[r.at] {
		case '"':
			r.passString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				depth = -1
			}
		}
		if depth < 0 { // what is here is no longer of the value
			return json.RawMessage(bytes.Clone(r.leaf[start:r.at]))
		}
		r.at++
	}
	return nil
}
