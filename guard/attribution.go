package guard

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/call"
)

const (
	attributionPrefix = "CommunicationOS ("
	attributionMiddle = ") in session "
	minKey            = 32
	maxMetadata       = 64 << 10
)

// FormatAttribution returns the line that names where external knowledge is from: "CommunicationOS (fetch) in session
// sess_…". Of a built-in operation, comm.fetch, the line carries the short name.
func FormatAttribution(operation, session string) (string, error) {
	if err := checkName("operation", operation); err != nil {
		return "", err
	}
	short := strings.TrimPrefix(operation, "comm.")
	if short == "" {
		return "", errors.New(`operation "comm." has no name: use comm.fetch or the like`)
	}
	if err := checkName("session", session); err != nil {
		return "", err
	}
	return attributionPrefix + short + attributionMiddle + session, nil
}

// ParseAttribution takes an attribution line apart; it accepts exactly what FormatAttribution writes. The operation is the
// line's, so "fetch" for comm.fetch. A well-formed line proves nothing: only an Issuer can tell whether it was issued.
func ParseAttribution(line string) (operation, session string, err error) {
	rest, ok := strings.CutPrefix(line, attributionPrefix)
	if !ok {
		return "", "", fmt.Errorf("attribution %q doesn't begin with %q", clip(line), attributionPrefix)
	}
	operation, session, ok = strings.Cut(rest, attributionMiddle)
	if !ok || strings.HasPrefix(operation, "comm.") || checkName("", operation) != nil || checkName("", session) != nil {
		return "", "", fmt.Errorf("attribution %q is not of the form %q", clip(line), attributionPrefix+"operation"+attributionMiddle+"id")
	}
	return operation, session, nil
}

// Source describes the content that an Attribution is issued for.
type Source struct {
	Operation string    // "comm.fetch", "server.tool"
	Session   string    // the session that the content was delivered to
	Source    string    // the URL or server.tool it came from
	CallID    string    // the call that brought it
	At        time.Time // when
	Content   []byte    // the original bytes; or, instead, their hash:
	SHA256    [32]byte

	// Declaration is the digest of the declaration that was approved for the call: a SHA-256 in lower-case hex. Empty
	// where nothing was declared.
	Declaration string
}

// Attribution proves to the holder of the key where content is from. It is an immutable value: it has no
// field to overwrite, copying it copies all of it, and it is read back from JSON only by the Issuer (AT-3). The zero
// Attribution attributes nothing and doesn't marshal.
type Attribution struct {
	f   fields
	mac [sha256.Size]byte
}

// fields are what the authentication code covers.
type fields struct {
	operation, session, source, callID string
	at                                 time.Time // UTC, no monotonic clock
	sha256                             [32]byte
	declaration                        string // hex, or empty
}

// Operation returns the id of the operation that brought the content.
func (a Attribution) Operation() string { return a.f.operation }

// Session returns the session that the content was delivered to.
func (a Attribution) Session() string { return a.f.session }

// Source returns the URL or server.tool, with escapes as in the fence where it was not inert.
func (a Attribution) Source() string { return a.f.source }

// CallID returns the id of the call.
func (a Attribution) CallID() string { return a.f.callID }

// At returns the time of delivery in UTC.
func (a Attribution) At() time.Time { return a.f.at }

// SHA256 returns the hash of the original content.
func (a Attribution) SHA256() [32]byte { return a.f.sha256 }

// Declaration returns the hex SHA-256 of the declaration that was approved for the call, so that a citation can point to it;
// empty where nothing was declared.
func (a Attribution) Declaration() string { return a.f.declaration }

// TrustLevel returns the trust level of all that carries an attribution.
func (a Attribution) TrustLevel() string { return TrustLevel }

// IsZero reports whether a attributes nothing.
func (a Attribution) IsZero() bool { return a == Attribution{} }

// Covers reports whether content is, byte for byte, what was attributed: an attribution moved to other content doesn't
// cover it.
func (a Attribution) Covers(content []byte) bool {
	return !a.IsZero() && sha256.Sum256(content) == a.f.sha256
}

// String returns the attribution line, empty for the zero Attribution.
func (a Attribution) String() string {
	if a.IsZero() {
		return ""
	}
	return attributionPrefix + strings.TrimPrefix(a.f.operation, "comm.") + attributionMiddle + a.f.session
}

// metadata is the JSON form, in this order.
type metadata struct {
	Attribution   string  `json:"attribution"`
	Operation     string  `json:"operation"`
	SessionID     string  `json:"session_id"`
	Source        string  `json:"source"`
	Timestamp     string  `json:"timestamp"`
	TrustLevel    string  `json:"trust_level"`
	ContentSHA256 string  `json:"content_sha256"`
	CallID        string  `json:"call_id"`
	MAC           string  `json:"mac"`
	Declaration   *string `json:"declaration,omitempty"` // nil where it is absent; there and empty is malformed
}

// MarshalJSON returns the metadata object of a result. Objects that gain further keys are still read by Parse.
func (a Attribution) MarshalJSON() ([]byte, error) {
	if a.IsZero() {
		return nil, errors.New("attribution is empty: issue one with Issuer.Attribute")
	}
	m := metadata{
		Attribution: a.String(), Operation: a.f.operation, SessionID: a.f.session, Source: a.f.source,
		Timestamp: a.f.at.Format(time.RFC3339Nano), TrustLevel: TrustLevel, ContentSHA256: hex.EncodeToString(a.f.sha256[:]),
		CallID: a.f.callID, MAC: base64.RawURLEncoding.EncodeToString(a.mac[:]),
	}
	if d := a.f.declaration; d != "" {
		m.Declaration = &d
	}
	return json.Marshal(m)
}

// UnmarshalJSON always fails: an attribution without authentication proves nothing.
func (a *Attribution) UnmarshalJSON([]byte) error {
	return errors.New("attribution can't be unmarshalled without its key: use Issuer.Parse")
}

// AttributionProblem is the kind of a refused attribution.
type AttributionProblem string

// The kinds.
const (
	AttributionMissing   AttributionProblem = "missing"         // no metadata, or a field of it is absent
	AttributionMalformed AttributionProblem = "malformed"       // not strict JSON, or a field is not as it is written
	AttributionForeign   AttributionProblem = "foreign_session" // another session's
	AttributionForged    AttributionProblem = "forged"          // not issued with this key, or changed since
)

// AttributionError is a refusal at ingress (AT-2).
type AttributionError struct {
	Problem AttributionProblem
	Field   string // the JSON field, empty for the whole
	Reason  string
}

func (e *AttributionError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("attribution is %s: %s", e.Problem, e.Reason)
	}
	return fmt.Sprintf("attribution is %s: %s: %s", e.Problem, e.Field, e.Reason)
}

// Issuer issues and recognises attributions. It is safe for concurrent use. The holder of the key can forge. Printing an
// Issuer doesn't show the key.
type Issuer struct {
	macs sync.Pool // of hash.Hash, keyed; the key is nowhere else
}

// NewIssuer returns an issuer for a key of at least 32 random bytes, which it copies. Issuers with the same key recognise
// each other's attributions.
func NewIssuer(key []byte) (*Issuer, error) {
	if len(key) < minKey {
		return nil, fmt.Errorf("attribution key is %d bytes long: use at least %d random bytes", len(key), minKey)
	}
	key = bytes.Clone(key)
	i := &Issuer{}
	i.macs.New = func() any { return hmac.New(sha256.New, key) }
	return i, nil
}

// ready reports whether i has a key. The zero Issuer has none, and neither issues nor recognises anything.
func (i *Issuer) ready() bool { return i != nil && i.macs.New != nil }

// Format prints no more than that this is an Issuer.
func (i *Issuer) Format(s fmt.State, _ rune) { io.WriteString(s, "guard.Issuer") }

// Attribute issues the attribution of content. Call it when content enters, before any other code uses it.
func (i *Issuer) Attribute(s Source) (Attribution, error) {
	if !i.ready() {
		return Attribution{}, errors.New("issuer has no key: make it with NewIssuer")
	}
	if _, err := FormatAttribution(s.Operation, s.Session); err != nil {
		return Attribution{}, err
	}
	if err := checkName("call id", s.CallID); err != nil {
		return Attribution{}, err
	}
	if s.Source == "" {
		return Attribution{}, errors.New("source is empty: give the URL or server.tool that the content came from")
	}
	if len(s.Source) > maxSource {
		return Attribution{}, fmt.Errorf("source is %d bytes long: the limit is %d", len(s.Source), maxSource)
	}
	if s.At.IsZero() || s.At.UTC().Year() < 1 || s.At.UTC().Year() > 9999 {
		return Attribution{}, errors.New("time is missing or out of range: give the time of delivery")
	}
	if s.Declaration != "" && !isDigest(s.Declaration) {
		return Attribution{}, errors.New("declaration is not 64 lower-case hex digits: give the SHA-256 of the approved declaration, or nothing")
	}
	if s.SHA256 == ([32]byte{}) {
		s.SHA256 = sha256.Sum256(s.Content)
	} else if s.Content != nil {
		return Attribution{}, errors.New("content and its sha256 are both given: give one")
	}
	a := Attribution{f: fields{
		operation: strings.Clone(s.Operation), session: strings.Clone(s.Session), source: strings.Clone(escapeValue(s.Source)),
		callID: strings.Clone(s.CallID), at: s.At.Round(0).UTC(), sha256: s.SHA256,
		declaration: strings.Clone(s.Declaration),
	}}
	a.mac = i.sign(a.f)
	return a, nil
}

// sign computes the authentication code: HMAC-SHA-256 over a domain word and every field, each behind its length.
func (i *Issuer) sign(f fields) (mac [sha256.Size]byte) {
	var array [512]byte
	b := append(array[:0], "sallyport/attribution/v1\x00"...)
	for _, s := range [...]string{f.operation, f.session, f.source, f.callID} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(f.at.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(f.at.Nanosecond()))
	b = append(b, f.sha256[:]...)
	if f.declaration != "" { // all before it delimits itself, so nothing that ends here reads as something that goes on, or the reverse
		b = binary.BigEndian.AppendUint32(b, uint32(len(f.declaration)))
		b = append(b, f.declaration...)
	}
	return i.hmac(b)
}

// isDigest reports whether s is a SHA-256 as it is written here.
func isDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

func (i *Issuer) hmac(b []byte) (mac [sha256.Size]byte) {
	h := i.macs.Get().(interface {
		io.Writer
		Sum([]byte) []byte
		Reset()
	})
	h.Reset()
	h.Write(b)
	h.Sum(mac[:0])
	i.macs.Put(h)
	return mac
}

// Parse reads the metadata object of a result back. It refuses attributions that this issuer's key didn't issue or that were changed since,
// and JSON in which a field is there twice or in another case. It accepts further fields beside the attribution's own.
func (i *Issuer) Parse(data []byte) (Attribution, error) {
	if len(data) > maxMetadata {
		return Attribution{}, &AttributionError{AttributionMalformed, "", fmt.Sprintf("metadata is %d bytes long, the limit is %d", len(data), maxMetadata)}
	}
	if !utf8.Valid(data) {
		return Attribution{}, &AttributionError{AttributionMalformed, "", "metadata is not valid UTF-8"}
	}
	values, err := object(data, metadataFields)
	if err != nil {
		return Attribution{}, err
	}
	var v [10]string
	for k, name := range metadataFields {
		if values[k] == nil {
			if name == "declaration" {
				continue
			}
			return Attribution{}, &AttributionError{AttributionMissing, name, "the field is absent"}
		}
		var ok bool
		if v[k], ok = call.Text(values[k]); !ok {
			return Attribution{}, &AttributionError{AttributionMalformed, name, "the field is not a string"}
		}
	}
	m := metadata{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], nil}
	if values[9] != nil {
		m.Declaration = &v[9]
	}
	return i.verify(m)
}

// metadataFields are those of metadata; all but the last are required.
var metadataFields = []string{"attribution", "operation", "session_id", "source", "timestamp", "trust_level", "content_sha256", "call_id", "mac", "declaration"}

// verify checks form first, so that the error can say what is wrong, and then the code over all of it.
func (i *Issuer) verify(m metadata) (Attribution, error) {
	malformed := func(field, reason string) (Attribution, error) {
		return Attribution{}, &AttributionError{AttributionMalformed, field, reason}
	}
	if m.Attribution == "" {
		return Attribution{}, &AttributionError{AttributionMissing, "attribution", "the field is empty"}
	}
	if _, _, err := ParseAttribution(m.Attribution); err != nil {
		return malformed("attribution", err.Error())
	}
	if err := checkName("session", m.SessionID); err != nil {
		return malformed("session_id", err.Error())
	}
	if line, err := FormatAttribution(m.Operation, m.SessionID); err != nil {
		return malformed("operation", err.Error())
	} else if line != m.Attribution {
		return malformed("attribution", "it names another operation or session than the fields beside it")
	}
	if m.TrustLevel != TrustLevel {
		return malformed("trust_level", "it is not "+TrustLevel)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Timestamp)
	if err != nil || at.UTC().Format(time.RFC3339Nano) != m.Timestamp {
		return malformed("timestamp", "it is not RFC 3339 in UTC")
	}
	var a Attribution
	a.f = fields{operation: m.Operation, session: m.SessionID, source: m.Source, callID: m.CallID, at: at.UTC()}
	if !isDigest(m.ContentSHA256) {
		return malformed("content_sha256", "it is not 64 lower-case hex digits")
	}
	hex.Decode(a.f.sha256[:], []byte(m.ContentSHA256))
	if m.Declaration != nil {
		if !isDigest(*m.Declaration) {
			return malformed("declaration", "it is not 64 lower-case hex digits")
		}
		a.f.declaration = *m.Declaration
	}
	if raw, err := base64.RawURLEncoding.Strict().DecodeString(m.MAC); err != nil || len(raw) != len(a.mac) {
		return malformed("mac", "it is not 32 bytes in unpadded base64url")
	} else {
		a.mac = [32]byte(raw)
	}
	if !i.ready() {
		return Attribution{}, &AttributionError{AttributionForged, "mac", "there is no key to check it with: make the issuer with NewIssuer"}
	}
	if want := i.sign(a.f); !hmac.Equal(want[:], a.mac[:]) {
		return Attribution{}, &AttributionError{AttributionForged, "mac", "this gateway issued no such attribution"}
	}
	return a, nil
}

// Enforce checks at ingress that data, the JSON object of a result, carries in "metadata" an attribution that this issuer
// gave for session (AT-2). The error is an *AttributionError.
func (i *Issuer) Enforce(data []byte, session string) error {
	if !utf8.Valid(data) {
		return &AttributionError{AttributionMalformed, "", "the result is not valid UTF-8"}
	}
	values, err := object(data, []string{"metadata", "results"})
	if err != nil {
		return err
	}
	if values[0] == nil || bytes.Equal(values[0], []byte("null")) {
		return &AttributionError{AttributionMissing, "metadata", "the field is absent"}
	}
	a, err := i.Parse(values[0])
	if err != nil {
		return err
	}
	if session == "" || a.f.session != session {
		return &AttributionError{AttributionForeign, "session_id", fmt.Sprintf("it is of session %q", a.f.session)}
	}
	return nil
}

const (
	maxFindDepth = 3  // how deep Find follows JSON within strings of JSON
	maxFindTries = 64 // how many things in prose that begin like an attribution and aren't one Find puts up with
)

// Find returns the attributions of this issuer anywhere within data: a JSON value, such as the arguments of a call, at any
// depth, JSON inside its strings, and such JSON as MarshalJSON writes within prose. So a result that an agent repackages is
// recognised when it comes back. Each is returned once. Attributions of other issuers are passed over.
func (i *Issuer) Find(data []byte) []Attribution {
	f := finder{issuer: i, tries: maxFindTries}
	f.text(string(data), 0)
	return f.found
}

type finder struct {
	issuer *Issuer
	found  []Attribution
	tries  int
}

func (f *finder) text(s string, depth int) {
	if depth > maxFindDepth || !strings.Contains(s, "attribution") {
		return
	}
	var v any
	if json.Unmarshal([]byte(s), &v) == nil {
		f.value(v, depth)
		return
	}
	for f.tries > 0 {
		k := strings.Index(s, `"attribution"`)
		if k < 0 {
			return
		}
		s = s[k:]
		var m map[string]any
		dec := json.NewDecoder(io.MultiReader(strings.NewReader("{"), strings.NewReader(s[:min(len(s), maxMetadata)])))
		if dec.Decode(&m) != nil {
			f.tries--
			s = s[1:]
			continue
		}
		f.value(m, depth)
		s = s[dec.InputOffset()-1:]
	}
}

func (f *finder) value(v any, depth int) {
	switch v := v.(type) {
	case string:
		f.text(v, depth+1)
	case []any:
		for _, x := range v {
			f.value(x, depth)
		}
	case map[string]any:
		field := func(name string) string { s, _ := v[name].(string); return s }
		m := metadata{field("attribution"), field("operation"), field("session_id"), field("source"), field("timestamp"),
			field("trust_level"), field("content_sha256"), field("call_id"), field("mac"), nil}
		if _, there := v["declaration"]; there {
			d := field("declaration")
			m.Declaration = &d
		}
		if m.MAC != "" {
			if a, err := f.issuer.verify(m); err == nil && !slices.Contains(f.found, a) {
				f.found = append(f.found, a)
			}
		}
		for _, x := range v {
			f.value(x, depth)
		}
	}
}

// object splits the JSON object data into the raw values of the named fields, in their order, nil for one that is absent.
// A named field that is there twice or in another case is refused; other fields are passed over.
func object(data []byte, names []string) ([]json.RawMessage, error) {
	malformed := func(field, reason string) ([]json.RawMessage, error) {
		return nil, &AttributionError{AttributionMalformed, field, reason}
	}
	data = bytes.Trim(data, " \t\r\n")
	if len(data) == 0 || string(data) == "null" {
		return nil, &AttributionError{AttributionMissing, "", "there is no JSON object"}
	}
	if !json.Valid(data) || data[0] != '{' {
		return malformed("", "it is not one JSON object")
	}
	values := make([]json.RawMessage, len(names))
	for key, value := range call.Members(data) { // the syntax is known to be right
		for k, name := range names {
			switch {
			case !strings.EqualFold(key, name):
			case key != name:
				return malformed(clip(key), "the field is written "+name)
			case values[k] != nil:
				return malformed(name, "the field is there twice")
			default:
				values[k] = value
			}
		}
	}
	return values, nil
}
