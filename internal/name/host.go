package name

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// MaxHost is the longest name in A-label form, in bytes, without the final dot.
const MaxHost = 253

// profile is non-transitional UTS-46 with the Bidi rule. Hyphens in the third
// and fourth place are allowed: content networks use such names. Which ASCII is
// allowed is checked here, since the strict rule would refuse "_".
func profile() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(),
		idna.StrictDomainName(false), idna.CheckHyphens(false), idna.CheckJoiners(true))
}

// Host brings a host name to its one form: lower case A-labels without the
// final dot (B36). It refuses an address, a name whose last label is a number
// (B37), an empty label, one over 63 bytes, a name over 253 bytes and every
// byte but letters, digits, "-" and "_".
func Host(s string) (string, error) {
	ascii := strings.TrimSuffix(s, ".")
	// Four times the limit in bytes is the longest UTF-8 that could still map to
	// a valid name; more is not worth the mapping.
	if len(ascii) > 4*MaxHost {
		return "", fmt.Errorf("host name is longer than %d bytes", MaxHost)
	}
	if !plain(ascii) || strings.Contains(ascii, "xn--") {
		mapped, err := profile().ToASCII(ascii)
		if err != nil {
			return "", fmt.Errorf("host name %q: %w", clip(s), err)
		}
		ascii = strings.ToLower(mapped)
	}
	if err := checkLabels(ascii); err != nil {
		return "", fmt.Errorf("host name %q: %w", clip(s), err)
	}
	if Numeric(ascii) {
		return "", fmt.Errorf("host name %q ends in a number, so it reads as an address", clip(s))
	}
	return ascii, nil
}

// HostOrAddr parses what may stand before a port: a name as by Host, an IPv4
// address in strict dotted decimal, or an IPv6 address without brackets. Exactly
// one result is set. An IPv4-mapped address comes back as IPv4 (B37); one with a
// zone keeps it, for the caller to refuse.
func HostOrAddr(s string) (string, netip.Addr, error) {
	if strings.Contains(s, ":") || Numeric(s) {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return "", netip.Addr{}, fmt.Errorf("%q is no address in its strict form", clip(s))
		}
		return "", addr.Unmap(), nil
	}
	host, err := Host(s)
	return host, netip.Addr{}, err
}

// Numeric reports whether the last label is a number in any of the forms that a
// C library would read as an address: decimal, octal or hexadecimal (B37).
func Numeric(s string) bool {
	last := s[strings.LastIndexByte(s, '.')+1:]
	if last == "" {
		return false
	}
	if len(last) >= 2 && last[0] == '0' && last[1]|0x20 == 'x' {
		return strings.Trim(last[2:], "0123456789abcdefABCDEF") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// plain reports whether s is lower-case ASCII that needs no mapping at all, the
// usual case.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x80 || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}

func checkLabels(s string) error {
	if len(s) > MaxHost {
		return fmt.Errorf("longer than %d bytes", MaxHost)
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" {
			return fmt.Errorf("empty label")
		}
		if len(label) > 63 {
			return fmt.Errorf("label longer than 63 bytes")
		}
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return fmt.Errorf("byte %q is not allowed", c)
			}
		}
	}
	return nil
}

// clip bounds what an error repeats of its input.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
