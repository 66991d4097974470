package effect

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"sallyport.example/guard"
	"sallyport.example/internal/call"
)

// Delivered finds in a JSON value what Wrap has delivered before: attributions and fenced texts.
func Delivered(b []byte, issuer *guard.Issuer) (attributions []guard.Attribution, fenced []guard.Wrapped) {
	// Text in an address is encoded. The word below is the same in both forms, and in every fence and attribution.
	if !bytes.Contains(b, []byte(guard.TrustLevel)) {
		return nil, nil
	}
	// Every form in which an address can hold it is looked at. The decoded ones go to Find in one piece, whose work is bounded.
	var forms, plain []string
	call.Strings(b, func(_, s string) bool {
		if strings.Contains(s, guard.TrustLevel) {
			forms = append(forms, s)
			plain = append(plain, decodings(s)...)
		}
		return true
	})
	attributions = issuer.Find(b)
	if len(plain) > 0 {
		if all, err := json.Marshal(plain); err == nil {
			attributions = append(attributions, issuer.Find(all)...)
		}
	}
	for _, s := range append(forms, plain...) {
		fenced = append(fenced, guard.FindWrapped(s)...)
	}
	return attributions, fenced
}

// maxDecoded bounds the strings that are also read decoded, in encoded bytes: no address is longer.
const maxDecoded = 256 << 10

// decodings takes the percent-encoding off, up to three times, with plus as it is and as a space. What is no encoding stays as it is.
func decodings(s string) (all []string) {
	if len(s) > maxDecoded {
		return nil
	}
	for range 3 {
		if spaced := strings.ReplaceAll(s, "+", " "); spaced != s {
			if all = append(all, spaced); strings.Contains(spaced, "%") {
				all = append(all, unescape(spaced))
			}
		}
		plain := unescape(s)
		if plain == s {
			break
		}
		all = append(all, plain)
		s = plain
	}
	return all
}

// unescape takes one layer of percent-encoding off.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
