package provenance

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Hosts are compared in one form, however they are written: in lower case, without a port and a point behind them, decoded from punycode, and IPv4
// addresses as four decimal numbers.

// hostOf is the host of an address or a link.
func hostOf(f form) string {
	host := f.value[strings.LastIndexByte(f.value, '@')+1:]
	if f.kind == link {
		host = authority(f.value)
	}
	return plainHost(host)
}

// authority is the host of a web address, with its port.
func authority(address string) string {
	if _, rest, ok := strings.Cut(address, "//"); ok {
		address = strings.TrimLeft(rest, "/")
	}
	if i := strings.IndexAny(address, "/?#"); i >= 0 {
		address = address[:i]
	}
	return address[strings.LastIndexByte(address, '@')+1:]
}

// plainHost is a host in the form in which hosts are compared.
func plainHost(host string) string {
	if in, _, ok := strings.Cut(strings.TrimPrefix(host, "["), "]"); ok && host[0] == '[' {
		host = in
	} else if strings.Count(host, ":") == 1 {
		host, _, _ = strings.Cut(host, ":")
	}
	host = strings.ToLower(strings.TrimRight(host, "."))
	if strings.Contains(host, ":") {
		if ip, err := netip.ParseAddr(host); err == nil {
			return ip.Unmap().String()
		}
	}
	if last, _ := utf8.DecodeLastRuneInString(host); last >= '0' && last <= '9' || last >= 'a' && last <= 'f' { // an address may end like this
		if ip, ok := ipv4Of(host); ok {
			return ip
		}
	}
	if strings.Contains(host, "xn--") {
		labels := strings.Split(host, ".")
		for i, label := range labels {
			if code, ok := strings.CutPrefix(label, "xn--"); ok {
				if text, ok := punycodeDecoded(code); ok {
					labels[i] = text
				}
			}
		}
		host = strings.Join(labels, ".")
	}
	if strings.IndexFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		host = strings.ToLower(norm.NFKC.String(host))
	}
	return host
}

// ipv4Of reads an IPv4 address as programs do: up to four numbers, each decimal, octal or hexadecimal, of which the last one fills what is left.
func ipv4Of(host string) (string, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return "", false
	}
	address := uint64(0)
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		most := uint64(1)<<8 - 1
		if i == len(parts)-1 {
			most = 1<<(8*(5-len(parts))) - 1
		}
		if err != nil || n > most || strings.ContainsAny(part, "_+ob") && !strings.HasPrefix(part, "0x") {
			return "", false
		}
		if i == len(parts)-1 {
			address += n
		} else {
			address += n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(address >> 24), byte(address >> 16), byte(address >> 8), byte(address)}).String(), true
}

// punycodeDecoded decodes a label of a host name (RFC 3492).
func punycodeDecoded(s string) (string, bool) {
	var out []rune
	if at := strings.LastIndexByte(s, '-'); at > 0 {
		out, s = []rune(s[:at]), s[at+1:]
	}
	n, i, bias := 128, 0, 72
	for len(s) > 0 {
		was, weight := i, 1
		for k := 36; ; k += 36 {
			if len(s) == 0 {
				return "", false
			}
			digit := strings.IndexByte(lower+digits, s[0])
			if s = s[1:]; digit < 0 || i > unicode.MaxRune*64 || weight > 1<<24 {
				return "", false
			}
			i += digit * weight
			limit := min(max(k-bias, 1), 26)
			if digit < limit {
				break
			}
			weight *= 36 - limit
		}
		length := len(out) + 1
		delta := (i - was) / 2
		if was == 0 {
			delta = (i - was) / 700
		}
		for delta, bias = delta+delta/length, 0; delta > 455; bias += 36 {
			delta /= 35
		}
		bias += 36 * delta / (delta + 38)
		n, i = n+i/length, i%length
		if n > unicode.MaxRune || length > 63 {
			return "", false
		}
		out = append(out[:i], append([]rune{rune(n)}, out[i:]...)...)
		i++
	}
	return string(out), true
}

func hasLetterOrDigit(s string) bool { return strings.ContainsAny(s, lower+upper+digits) }

// hostsIn yields every host that a text names, wherever it stands: by itself, in a filter (from:*@evil.example), in a web address of any form. It leaves out
// the hosts of those mail addresses of which mailHost says so.
func hostsIn(s string, mailHost func(address string) bool) func(yield func(host string) bool) {
	return func(yield func(string) bool) {
		if plainWord(s) {
			return
		}
		for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '[' || r == ']' || unicode.IsSpace(r) }) {
			if strings.Count(part, ":") < 2 {
				continue
			}
			if ip, err := netip.ParseAddr(part); err == nil && !yield(ip.Unmap().String()) {
				return
			}
		}
		inHost := func(r rune) bool { return inWord(r) || r == '-' || r == '_' || r == '.' }
		for at := 0; at < len(s); {
			start := strings.IndexFunc(s[at:], inHost)
			if start < 0 {
				return
			}
			start += at
			end := len(s)
			if n := strings.IndexFunc(s[start:], func(r rune) bool { return !inHost(r) }); n >= 0 {
				end = start + n
			}
			run := strings.Trim(s[start:end], ".-_")
			if at = end; !strings.Contains(run, ".") && !(len(run) >= 8 && run[0] >= '0' && run[0] <= '9') {
				continue
			}
			if start > 0 && s[start-1] == '@' {
				from := strings.LastIndexFunc(s[:start-1], func(r rune) bool { return r >= utf8.RuneSelf || !mailChars[r] }) + 1
				if hasLetterOrDigit(s[from:start-1]) && !strings.Contains(s[:from], "//") && mailHost(strings.TrimRight(s[from:end], ".-_")) {
					continue
				}
			}
			host := plainHost(run)
			if _, err := netip.ParseAddr(host); (err == nil || hostname(host) && !isFileName(run)) && !yield(host) {
				return
			}
		}
	}
}
