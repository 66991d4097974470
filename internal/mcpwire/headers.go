package mcpwire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"sallyport.example/internal/call"
)

// MediaType is the media type that the headers name, in lower case and without parameters; "" if they name none.
func MediaType(h http.Header) string {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return media
}

// Name is the name or URI of a request, which the modern era repeats in Mcp-Name. repeated is false for methods that have none.
func Name(method string, params json.RawMessage) (name string, repeated, ok bool) {
	member := "name"
	switch call.Method(method) {
	case call.CallTool, call.GetPrompt:
	case call.ReadResource:
		member = "uri"
	default:
		return "", false, true
	}
	name, ok = call.GetText(params, member)
	return name, true, ok
}

// SetHeaders sets the headers in which the modern era repeats what stands in the body: version, method, name, and those arguments of a
// tool that its schema binds to headers.
func SetHeaders(h http.Header, m *Message, version string, bound []ParamHeader) {
	h[HeaderVersion] = []string{HeaderValue(version)}
	h[HeaderMethod] = []string{HeaderValue(m.Method)}
	if name, repeated, ok := Name(m.Method, m.Params); repeated && ok {
		h[HeaderName] = []string{HeaderValue(name)}
	}
	arguments, _ := call.Get(m.Params, "arguments")
	for _, p := range bound {
		if text, ok := paramText(p.value(arguments)); ok {
			h[p.Header] = []string{HeaderValue(text)}
		}
	}
}

// CheckHeaders refuses a request of the modern era whose headers differ from its body: a proxy could have judged the headers, and the gateway
// would act on the body.
func CheckHeaders(h http.Header, m *Message, version string) *Error {
	mismatch := func(header, why string) *Error {
		return refuse(CodeHeaderMismatch, "The header "+header+" is "+why+".")
	}
	switch header := h.Get(HeaderVersion); {
	case header == "":
		return mismatch(HeaderVersion, "missing")
	case version == "":
		return refuse(CodeInvalidParams, "_meta must have "+MetaVersion+".")
	case header != version:
		return mismatch(HeaderVersion, "not the protocolVersion in the body")
	}
	switch header := h.Get(HeaderMethod); header {
	case "":
		return mismatch(HeaderMethod, "missing")
	case m.Method:
	default:
		return mismatch(HeaderMethod, "not the method in the body")
	}
	if name, repeated, ok := Name(m.Method, m.Params); repeated {
		header := h.Get(HeaderName)
		decoded, good := decodeHeader(header)
		switch {
		case header == "":
			return mismatch(HeaderName, "missing")
		case !ok || header != name && (!good || decoded != name):
			return mismatch(HeaderName, "not the name in the body")
		}
	}
	return nil
}

// ParamHeader binds one argument of a tool to a header Mcp-Param-… (x-mcp-header in the tool's inputSchema, modern era).
type ParamHeader struct {
	Path   []string
	Header string // canonical
}

const (
	maxParamHeaders = 64 // of one tool
	maxParamHeader  = 64 // bytes of a header's name
	maxParamDepth   = 16 // of the argument in the schema
	maxSafeInteger  = 1<<53 - 1
)

// ParamHeaders collects the x-mcp-header annotations of a checked inputSchema. They count only where properties lead to them. Its errors
// can stand after "the tool": such a tool is not to be offered.
func ParamHeaders(inputSchema json.RawMessage) ([]ParamHeader, error) {
	var found []ParamHeader
	taken := map[string]bool{}
	var walk func(schema json.RawMessage, path []string) error
	walk = func(schema json.RawMessage, path []string) error {
		properties, _ := call.Get(schema, "properties")
		for name, property := range call.Members(properties) {
			inner := append(path[:len(path):len(path)], name)
			if raw, ok := call.Get(property, "x-mcp-header"); ok {
				text, _ := call.Text(raw)
				header := http.CanonicalHeaderKey("Mcp-Param-" + text)
				kind, _ := call.Get(property, "type")
				switch {
				case !Token(text) || len(text) > maxParamHeader:
					return errors.New("has an x-mcp-header in its inputSchema that is no header name")
				case string(kind) != `"string"` && string(kind) != `"integer"` && string(kind) != `"boolean"`:
					return errors.New("has an x-mcp-header in its inputSchema on something other than a string, integer or boolean")
				case taken[header] || len(found) == maxParamHeaders || len(inner) > maxParamDepth:
					return errors.New("has an x-mcp-header in its inputSchema twice, too many of them, or one too deep")
				}
				taken[header] = true
				found = append(found, ParamHeader{inner, header})
			}
			if err := walk(property, inner); err != nil {
				return err
			}
		}
		return nil
	}
	return found, walk(inputSchema, nil)
}

// CheckParamHeaders refuses a call whose Mcp-Param headers are not the arguments in its body.
func CheckParamHeaders(h http.Header, bound []ParamHeader, arguments json.RawMessage) *Error {
	for _, p := range bound {
		value, headers := p.value(arguments), h[p.Header]
		absent := value == nil || string(value) == "null"
		if absent && len(headers) == 0 {
			continue
		}
		if absent || len(headers) != 1 || !sameParam(headers[0], value) {
			return refuse(CodeHeaderMismatch, "The header "+Clip(p.Header)+" is not the argument "+Quote(strings.Join(p.Path, "."))+" in the body.")
		}
	}
	return nil
}

func (p *ParamHeader) value(arguments json.RawMessage) json.RawMessage {
	for _, name := range p.Path {
		arguments, _ = call.Get(arguments, name)
	}
	return arguments
}

// paramText is the text of a string, boolean, or integer that every double holds exactly. Other arguments go into no header.
func paramText(value json.RawMessage) (string, bool) {
	if s, ok := call.Text(value); ok {
		return s, true
	}
	if w := string(value); w == "true" || w == "false" {
		return w, true
	}
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > maxSafeInteger {
		return "", false
	}
	return strconv.FormatInt(int64(n), 10), true
}

// sameParam compares a header with an argument. Numbers are equal by their value.
func sameParam(header string, value json.RawMessage) bool {
	text, ok := paramText(value)
	decoded, good := decodeHeader(header)
	if !ok || !good {
		return false
	}
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		return decoded == text
	}
	a, _ := strconv.ParseFloat(text, 64)
	b, err := strconv.ParseFloat(decoded, 64)
	return err == nil && a == b
}

// The marks of a header value that is in base64.
const base64Prefix, base64Suffix = "=?base64?", "?="

// HeaderValue writes a text the way the modern era wants it in headers: as it is if that is plain ASCII, in marked base64 otherwise.
func HeaderValue(s string) string {
	marked := strings.HasPrefix(s, base64Prefix) && strings.HasSuffix(s, base64Suffix)
	if !marked && s == strings.TrimSpace(s) && utf8.ValidString(s) && HeaderSafe(s) {
		return s
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(s)) + base64Suffix
}

// decodeHeader undoes HeaderValue.
func decodeHeader(v string) (string, bool) {
	encoded, ok := strings.CutPrefix(v, base64Prefix)
	if !ok {
		return v, true
	}
	if encoded, ok = strings.CutSuffix(encoded, base64Suffix); !ok {
		return v, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return string(b), err == nil
}

// HeaderSafe tells whether s is made of printable ASCII alone.
func HeaderSafe(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Token tells whether s can be the name of a header (RFC 9110).
func Token(s string) bool {
	for i := range len(s) {
		b := s[i]
		if !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0) {
			return false
		}
	}
	return s != ""
}
