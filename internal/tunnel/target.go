package tunnel

import (
	"net/netip"
	"strconv"
	"strings"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
)

// Target is what a tunnel is asked to reach: exactly one of Name and Addr is set.
type Target struct {
	Transport flow.Transport
	Name      string     // A-label form, lower case, no trailing dot
	Addr      netip.Addr // never IPv4-mapped
	Port      uint16
}

// String is "name:port", "1.2.3.4:port" or "[2001:db8::1]:port": the target of CONNECT.
func (t Target) String() string {
	if t.Name != "" {
		return t.Name + ":" + strconv.Itoa(int(t.Port))
	}
	return netip.AddrPortFrom(t.Addr, t.Port).String()
}

// udpPrefix is the well-known template of RFC 9298, section 2, up to its variables.
const udpPrefix = "/.well-known/masque/udp/"

// path is the request target of connect-udp.
func (t Target) path() string {
	host := t.Name
	if host == "" {
		host = strings.ReplaceAll(t.Addr.String(), ":", "%3A")
	}
	return udpPrefix + host + "/" + strconv.Itoa(int(t.Port)) + "/"
}

// parseAuthority reads the target of CONNECT (B35 to B37). host is the text before the
// port, in brackets where it was.
func parseAuthority(s string) (t Target, host string, fault flow.Reason) {
	if !graphic(s) || strings.ContainsAny(s, "@/?#\\") {
		return t, "", flow.MalformedTarget
	}
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 || strings.HasSuffix(s, "]") {
		return t, "", flow.MalformedTarget // no port
	}
	host, port := s[:colon], s[colon+1:]
	bare, bracketed := unbracket(host)
	if bare == "" || bracketed != strings.Contains(bare, ":") {
		return t, "", flow.MalformedTarget
	}
	t, fault = target(bare, port)
	t.Transport = flow.TCP
	return t, host, fault
}

// target judges a host without brackets and a port.
func target(host, port string) (t Target, fault flow.Reason) {
	var err error
	if t.Name, t.Addr, err = name.HostOrAddr(host); err != nil {
		return t, flow.MalformedTarget
	}
	if t.Port, fault = parsePort(port); fault != flow.None {
		return t, fault
	}
	if t.Addr.Zone() != "" {
		return t, flow.ScopedIP
	}
	return t, flow.None
}

// parsePort takes 1 to 65535 in digits, without a sign.
func parsePort(s string) (uint16, flow.Reason) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' {
		return 0, flow.MalformedPort
	}
	return uint16(n), flow.None
}

// parseUDPPath reads the target of connect-udp. Its components are percent-decoded
// once, and nothing may be encoded twice (B43).
func parseUDPPath(path string) (Target, flow.Reason) {
	rest, ok := strings.CutPrefix(path, udpPrefix)
	if !ok || !graphic(path) {
		return Target{}, flow.MalformedTemplate
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] == "" || parts[2] != "" || strings.Contains(parts[0], ":") {
		return Target{}, flow.MalformedTemplate
	}
	host, okHost := decodeOnce(parts[0])
	port, okPort := decodeOnce(parts[1])
	if !okHost || !okPort || strings.ContainsAny(host, "/[]") {
		return Target{}, flow.MalformedTemplate
	}
	t, fault := target(host, port)
	t.Transport = flow.UDP
	return t, fault
}

// decodeOnce decodes the percent signs of a path component. What holds an encoded
// byte after that was encoded twice.
func decodeOnce(s string) (string, bool) {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out.WriteByte(s[i])
			continue
		}
		if len(s) < i+3 {
			return "", false
		}
		b, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		out.WriteByte(byte(b))
		i += 2
	}
	decoded := out.String()
	for i := range len(decoded) {
		if decoded[i] == '%' && len(decoded) >= i+3 {
			if _, err := strconv.ParseUint(decoded[i+1:i+3], 16, 8); err == nil {
				return "", false
			}
		}
	}
	return decoded, graphic(decoded)
}

// sameHost compares a Host field with the target of CONNECT: names in their one form,
// addresses by their text (B35). A field without a port names the target's.
func sameHost(field, host string, t Target) bool {
	got := field
	if i := strings.LastIndexByte(field, ':'); i >= 0 && !strings.HasSuffix(field, "]") {
		port, fault := parsePort(field[i+1:])
		if fault != flow.None || port != t.Port {
			return false
		}
		got = field[:i]
	}
	if t.Name == "" {
		return strings.EqualFold(got, host)
	}
	normal, err := name.Host(got)
	return err == nil && normal == t.Name
}

func unbracket(s string) (bare string, bracketed bool) {
	if len(s) >= 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1], true
	}
	return s, false
}

// graphic reports whether s is free of spaces and control bytes.
func graphic(s string) bool {
	for i := range len(s) {
		if s[i] <= 0x20 || s[i] == 0x7f {
			return false
		}
	}
	return true
}
