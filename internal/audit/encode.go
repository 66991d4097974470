package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// Known tells whether k is one of the four kinds.
func (k Kind) Known() bool {
	switch k {
	case Intent, Outcome, Decision, Change:
		return true
	}
	return false
}

// Marshal returns the entry's leaf: one line of JSON, the fields in the order of the type, absent where empty, the time in UTC,
// nothing escaped that need not be. The same entry always gives the same bytes, and Unmarshal accepts no others.
//
// Invalid UTF-8 becomes U+FFFD. It fails for an entry that Unmarshal could not accept: an unknown kind, a negative index, a year
// beyond 9999, raw JSON that isn't JSON, or more than MaxLeaf bytes.
func (e *Entry) Marshal() ([]byte, error) { return e.AppendLeaf(make([]byte, 0, 1024)) }

// AppendLeaf appends the leaf bytes to b, so that a writer can use one buffer over and over.
func (e *Entry) AppendLeaf(b []byte) ([]byte, error) {
	start := len(b)
	if !e.Kind.Known() {
		return nil, fmt.Errorf("audit: kind %.40q is not intent, outcome, decision or change", e.Kind)
	}
	if e.Index < 0 {
		return nil, fmt.Errorf("audit: index %d is negative", e.Index)
	}
	at := e.At.UTC()
	if y := at.Year(); y < 0 || y > 9999 {
		return nil, fmt.Errorf("audit: at: year %d is not written with four digits", y)
	}
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, e.Index, 10)
	b = append(b, `,"at":"`...)
	b = at.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","kind":"`...)
	b = append(b, e.Kind...)
	b = append(b, '"')
	b = appendField(b, `,"severity":`, string(e.Severity))
	b = append(b, `,"action":`...)
	b = appendString(b, e.Action)
	b = appendField(b, `,"event":`, string(e.Event))
	b = appendField(b, `,"agent":`, e.Agent)
	b = appendField(b, `,"session":`, e.Session)
	b = appendField(b, `,"requester":`, e.Requester)
	b = appendField(b, `,"actor":`, e.Actor)
	b = appendField(b, `,"door":`, e.Door)
	b = appendField(b, `,"remote":`, e.Remote)
	b = appendField(b, `,"request_id":`, e.RequestID)
	b = appendField(b, `,"operation":`, e.Operation)
	b = appendField(b, `,"action_type":`, e.Type)
	b = appendField(b, `,"call_id":`, e.CallID)
	b = appendField(b, `,"call_digest":`, e.Digest)
	b = appendField(b, `,"definition_hash":`, e.DefHash)
	b = appendField(b, `,"decision":`, e.Decision)
	b = appendField(b, `,"stage":`, e.Stage)
	b = appendField(b, `,"code":`, e.Code)
	b = appendField(b, `,"reason":`, e.Reason)
	b = appendTrue(b, `,"shadow":true`, e.Shadow)
	b = appendField(b, `,"risk":`, e.Risk)
	b = appendField(b, `,"amount":`, e.Amount)
	b = appendList(b, `,"approvers":`, e.Approvers)
	b = appendField(b, `,"model":`, e.Model)
	var err error
	if b, err = appendPayload(b, `,"arguments":`, e.Arguments); err != nil {
		return nil, fmt.Errorf("audit: arguments: %w", err)
	}
	if b, err = appendPayload(b, `,"result":`, e.Result); err != nil {
		return nil, fmt.Errorf("audit: result: %w", err)
	}
	b = appendList(b, `,"labels":`, e.Labels)
	if b, err = appendRaw(b, `,"attribution":`, e.Attribution); err != nil {
		return nil, fmt.Errorf("audit: attribution: %w", err)
	}
	if b, err = appendRaw(b, `,"detail":`, e.Detail); err != nil {
		return nil, fmt.Errorf("audit: detail: %w", err)
	}
	if e.DurationMS != 0 {
		b = append(b, `,"duration_ms":`...)
		b = strconv.AppendInt(b, e.DurationMS, 10)
	}
	b = appendRows(b, e.Rows)
	b = append(b, '}')
	if n := len(b) - start; n > MaxLeaf {
		return nil, fmt.Errorf("audit: the entry has %d bytes and may have %d: store its payloads apart", n, MaxLeaf)
	}
	return b, nil
}

func appendField(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(append(b, name...), s)
}

func appendTrue(b []byte, field string, v bool) []byte {
	if !v {
		return b
	}
	return append(b, field...)
}

func appendList(b []byte, name string, list []string) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(append(b, name...), '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

func appendRows(b []byte, rows []Row) []byte {
	for i := range rows {
		r := &rows[i]
		if i == 0 {
			b = append(b, `,"rows":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"table":`...)
		b = appendString(b, r.Table)
		b = append(b, `,"key":`...)
		b = appendString(b, r.Key)
		b = append(b, `,"was":`...)
		b = strconv.AppendInt(b, r.Was, 10)
		b = appendField(b, `,"mac":`, r.MAC)
		b = append(b, '}')
	}
	if len(rows) > 0 {
		b = append(b, ']')
	}
	return b
}

func appendPayload(b []byte, name string, p *Payload) ([]byte, error) {
	if p == nil {
		return b, nil
	}
	b = append(b, name...)
	b = append(b, `{"sha256":`...)
	b = appendString(b, p.SHA256)
	b = append(b, `,"size":`...)
	b = strconv.AppendInt(b, p.Size, 10)
	b, err := appendRaw(b, `,"shown":`, p.Shown)
	if err != nil {
		return nil, fmt.Errorf("shown: %w", err)
	}
	b = appendTrue(b, `,"stored":true`, p.Stored)
	b = appendField(b, `,"key":`, p.Key)
	b = appendTrue(b, `,"redacted":true`, p.Redacted)
	return append(b, '}'), nil
}

var scratch = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func appendRaw(b []byte, name string, raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 {
		return b, nil
	}
	if len(raw) > 16*MaxLeaf { // it can't fit, however much of it is white space
		return nil, fmt.Errorf("%d bytes of JSON are too many for an entry: store them apart", len(raw))
	}
	if isCompact(raw) { // as what the gateway itself has made
		return append(append(b, name...), raw...), nil
	}
	buf := scratch.Get().(*bytes.Buffer)
	defer scratch.Put(buf)
	buf.Reset()
	if err := json.Compact(buf, raw); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	b = append(b, name...)
	if utf8.Valid(buf.Bytes()) {
		return append(b, buf.Bytes()...), nil
	}
	return append(b, bytes.ToValidUTF8(buf.Bytes(), []byte("\ufffd"))...), nil
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. It escapes what JSON says must be escaped, and no more.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := plain(s); i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		b = append(append(b, s[start:i]...), '\\')
		switch c {
		case '"', '\\':
			b = append(b, c)
		case '\n':
			b = append(b, 'n')
		case '\r':
			b = append(b, 'r')
		case '\t':
			b = append(b, 't')
		default:
			b = append(b, 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// plain returns how many bytes of s, in steps of eight, need no escaping: ASCII from space on without quote and backslash.
func plain(s string) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash := x^'"'*ones, x^'\\'*ones
		// x-n*ones borrows into the top bit of a byte below n; a borrow may also mark the byte after, which costs a second look.
		if (x|(x-' '*ones)|(quote-ones)|(slash-ones))&tops != 0 {
			break
		}
	}
	return i
}
