package tunnel

import (
	"bufio"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"skep.dev/skep/internal/flow"
)

// Bounds of a head (B150). The time for it is the caller's, as a deadline of the reader.
const (
	MaxHead   = 64 << 10
	MaxFields = 128
)

// HeadError is a head that is refused, with the reason to answer.
type HeadError struct{ Reason flow.Reason }

func (e *HeadError) Error() string { return "tunnel request head: " + e.Reason.Token() }

// ReadHead reads one request head. What follows it stays in r. A *HeadError says what to
// answer, and the Target then holds what could be read; io.EOF says that nothing came, and any other error is the reader's.
func ReadHead(r *bufio.Reader, udp bool) (Target, error) {
	line, err := ReadLine(r, MaxHead)
	if err != nil {
		return Target{}, lineFault(err, len(line) > 0, flow.MalformedRequestLine)
	}
	method, target, version, fault := parseLine(string(line[:len(line)-2]))
	if fault != flow.None {
		return Target{}, &HeadError{fault}
	}
	f, err := readFields(r, MaxHead-len(line))
	if err != nil {
		return Target{}, err
	}
	var t Target
	if method == "CONNECT" {
		t, fault = f.connect(target, version)
	} else {
		t, fault = f.connectUDP(target, version, udp)
	}
	if fault != flow.None {
		return t, &HeadError{fault}
	}
	return t, nil
}

// lineFault tells what a line's error means for the head.
func lineFault(err error, begun bool, bare flow.Reason) error {
	var timeout net.Error
	switch {
	case errors.Is(err, ErrLineTooLong):
		return &HeadError{flow.HeadTooLarge}
	case errors.Is(err, ErrBareLF):
		return &HeadError{bare}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &HeadError{flow.HeadTimeout}
	case errors.Is(err, io.EOF) && begun:
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseLine judges the request line, the first that can fail.
func parseLine(line string) (method, target, version string, fault flow.Reason) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || slices.Contains(parts, "") || strings.Contains(line, "\t") {
		return "", "", "", flow.MalformedRequestLine
	}
	method, target, version = parts[0], parts[1], parts[2]
	digits, ok := strings.CutPrefix(version, "HTTP/")
	if !ok || len(digits) != 3 || !isDigit(digits[0]) || digits[1] != '.' || !isDigit(digits[2]) {
		return "", "", "", flow.MalformedRequestLine
	}
	if digits != "1.1" && digits != "1.0" {
		return "", "", "", flow.UnsupportedVersion // also the preface of HTTP/2
	}
	if method != "CONNECT" && method != "GET" {
		return "", "", "", flow.ConnectOnly
	}
	return method, target, version, flow.None
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// fields are the few that matter, with all their values.
type fields struct{ host, connection, upgrade, length, coding []string }

func readFields(r *bufio.Reader, left int) (fields, error) {
	var f fields
	for n := 0; ; n++ {
		line, err := ReadLine(r, left)
		if err != nil {
			return f, lineFault(err, true, flow.MalformedHeader)
		}
		if left -= len(line); len(line) == 2 {
			return f, nil
		}
		if n == MaxFields {
			return f, &HeadError{flow.HeadTooLarge}
		}
		key, value, ok := strings.Cut(string(line[:len(line)-2]), ":")
		if !ok || !IsToken(key) || !IsFieldValue(value) {
			return f, &HeadError{flow.MalformedHeader}
		}
		f.keep(key, strings.Trim(value, " \t"))
	}
}

func (f *fields) keep(key, value string) {
	switch strings.ToLower(key) {
	case "host":
		f.host = append(f.host, value)
	case "connection":
		f.connection = append(f.connection, value)
	case "upgrade":
		f.upgrade = append(f.upgrade, value)
	case "content-length":
		f.length = append(f.length, value)
	case "transfer-encoding":
		f.coding = append(f.coding, value)
	}
}

// connect judges CONNECT: target, then Host. A body's length is ignored: what follows
// is the tunnel's.
func (f *fields) connect(authority, version string) (Target, flow.Reason) {
	t, host, fault := parseAuthority(authority)
	if fault != flow.None && fault != flow.ScopedIP {
		return t, fault
	}
	if missing := f.hosts(version); missing != flow.None {
		return t, missing
	}
	if len(f.host) == 1 && !sameHost(f.host[0], host, t) {
		return t, flow.AuthorityMismatch
	}
	return t, fault
}

// connectUDP judges what is not CONNECT: target, Host, upgrade, and whether UDP is on.
func (f *fields) connectUDP(path, version string, enabled bool) (Target, flow.Reason) {
	wanted := words(f.upgrade)
	if !slices.Contains(wanted, protocolUDP) {
		return Target{}, flow.ConnectOnly
	}
	t, fault := parseUDPPath(path)
	t.Transport = flow.UDP
	if fault != flow.None && fault != flow.ScopedIP {
		return t, fault
	}
	if missing := f.hosts(version); missing != flow.None {
		return t, missing
	}
	body := len(f.coding) > 0 || slices.ContainsFunc(f.length, func(n string) bool { return n != "0" })
	switch {
	case version != "HTTP/1.1", len(wanted) != 1, !slices.Contains(words(f.connection), "upgrade"), body:
		return t, flow.MalformedUpgrade
	case !enabled:
		return t, flow.UDPDisabled
	}
	return t, fault
}

// protocolUDP is the upgrade token of RFC 9298, section 3.2.
const protocolUDP = "connect-udp"

// hosts demands one Host, which HTTP/1.0 may leave out.
func (f *fields) hosts(version string) flow.Reason {
	switch {
	case len(f.host) > 1:
		return flow.DuplicateHost
	case len(f.host) == 0 && version == "HTTP/1.1":
		return flow.MissingHost
	}
	return flow.None
}
