package route

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/tunnel"
)

// MaxInnerHead bounds an HTTP head inside a flow (B150).
const MaxInnerHead = 32 << 10

// HeadError is a head that must not go on, with the reason to answer.
type HeadError struct{ Reason flow.Reason }

func (e *HeadError) Error() string { return "HTTP request head: " + e.Reason.Token() }

// Head is one HTTP/1.x request head (B112).
type Head struct {
	Inner   flow.Inner
	Raw     []byte // to send on, ends with the empty line
	Length  int64  // of the body; meaningless with Chunked
	Chunked bool
	Upgrade bool // the agent asks to leave HTTP; only the first head of a connection may

	strip bool // of credentials, the trailer too
}

// ReadHead reads one request head, strictly: what one server might read in
// another way than we do is refused, since the Host of every request counts. A
// *HeadError says what to answer; any other error is the reader's. port is what
// Host must name; an h2c upgrade is taken out, and so is any other where
// mayUpgrade is false.
func ReadHead(r *bufio.Reader, port uint16, mayUpgrade bool) (Head, error) {
	first, err := r.Peek(1)
	if err != nil {
		return Head{}, err
	}
	if !tunnel.IsToken(string(first)) {
		return Head{}, &HeadError{flow.HTTPRequired}
	}
	var raw []byte
	var lines []string
	for {
		line, err := tunnel.ReadLine(r, MaxInnerHead-len(raw))
		if err != nil {
			return Head{}, headFault(err, len(lines) == 0)
		}
		raw = append(raw, line...)
		text := string(line[:len(line)-2])
		if text == "" {
			break
		}
		// What cannot be HTTP is not waited for until its head ends.
		if len(lines) == 0 && !isRequestLine(text) {
			return Head{}, &HeadError{flow.HTTPRequired}
		}
		lines = append(lines, text)
	}
	h, fault := parseHead(lines, port, mayUpgrade)
	if fault != flow.None {
		return h, &HeadError{fault}
	}
	if h.Raw == nil {
		h.Raw = raw
	}
	return h, nil
}

// headFault: before the request line is whole, it is not known to be HTTP at all.
func headFault(err error, first bool) error {
	switch {
	case errors.Is(err, tunnel.ErrLineTooLong):
		return &HeadError{flow.HeadTooLarge}
	case errors.Is(err, tunnel.ErrBareLF) && first:
		return &HeadError{flow.HTTPRequired}
	case errors.Is(err, tunnel.ErrBareLF):
		return &HeadError{flow.MalformedHeader}
	}
	return err
}

func parseHead(lines []string, port uint16, mayUpgrade bool) (Head, flow.Reason) {
	if len(lines) == 0 {
		return Head{}, flow.HTTPRequired
	}
	parts := strings.Split(lines[0], " ")
	h := Head{Inner: flow.Inner{Protocol: flow.HTTP, Method: parts[0]}}
	f, fault := parseFields(lines[1:])
	if fault != flow.None {
		return h, fault
	}
	if fault := h.body(f, parts[2]); fault != flow.None {
		return h, fault
	}
	if len(f.host) != 1 {
		return h, map[bool]flow.Reason{true: flow.MissingHost, false: flow.DuplicateHost}[len(f.host) == 0]
	}
	if h.Inner.Method == "CONNECT" {
		return h, flow.MethodNotAllowed
	}
	path, fault := splitTarget(parts[1], f.host[0])
	if fault != flow.None {
		return h, fault
	}
	h.Inner.Path = path
	h.Inner.Name = hostOf(f.host[0], port)
	h.upgrade(lines, f, mayUpgrade)
	return h, flow.None
}

// isRequestLine: three fields with single spaces, HTTP/1.0 or 1.1.
func isRequestLine(s string) bool {
	parts := strings.Split(s, " ")
	return len(parts) == 3 && tunnel.IsToken(parts[0]) && parts[1] != "" && (parts[2] == "HTTP/1.1" || parts[2] == "HTTP/1.0")
}

// fields are the few that matter here, with all their values.
type fields struct {
	host, length, coding, upgrade []string
}

func parseFields(lines []string) (fields, flow.Reason) {
	var f fields
	if len(lines) > 128 {
		return f, flow.HeadTooLarge
	}
	for _, line := range lines {
		key, value, ok := strings.Cut(line, ":")
		if !ok || !tunnel.IsToken(key) || !tunnel.IsFieldValue(value) {
			return f, flow.MalformedHeader
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(key) {
		case "host":
			f.host = append(f.host, value)
		case "content-length":
			f.length = append(f.length, value)
		case "transfer-encoding":
			f.coding = append(f.coding, strings.ToLower(value))
		case "upgrade":
			f.upgrade = append(f.upgrade, value)
		}
	}
	return f, flow.None
}

// body finds how long the body is; two ways to say it are refused (RFC 9112, 6.3).
func (h *Head) body(f fields, version string) flow.Reason {
	switch {
	case len(f.coding) > 0:
		if len(f.coding) != 1 || f.coding[0] != "chunked" || len(f.length) > 0 || version != "HTTP/1.1" {
			return flow.MalformedHeader
		}
		h.Chunked = true
	case len(f.length) == 1:
		n, err := strconv.ParseUint(f.length[0], 10, 62)
		if err != nil {
			return flow.MalformedHeader
		}
		h.Length = int64(n)
	case len(f.length) > 1:
		return flow.MalformedHeader
	}
	return flow.None
}

// splitTarget takes the path of an origin-form or absolute-form target, without
// the query. The authority of an absolute form must be the Host field's text.
func splitTarget(target, host string) (string, flow.Reason) {
	for i := range len(target) {
		if target[i] <= 0x20 || target[i] >= 0x7f {
			return "", flow.MalformedTarget
		}
	}
	if len(target) >= 7 && strings.EqualFold(target[:7], "http://") {
		authority, path, _ := strings.Cut(target[7:], "/")
		if authority != host {
			return "", flow.AuthorityMismatch
		}
		target = "/" + path
	}
	if target != "*" && target[0] != '/' {
		return "", flow.MalformedTarget
	}
	path, _, _ := strings.Cut(target, "?")
	return path, flow.None
}

// hostOf normalises a Host field, a name or an address, whose port must be the
// flow's. 80 may be left out. Only an IPv6 address stands in brackets.
func hostOf(field string, port uint16) string {
	host, p, has := field, "80", false
	if i := strings.LastIndexByte(field, ':'); i >= 0 && !strings.HasSuffix(field, "]") {
		host, p, has = field[:i], field[i+1:], true
	}
	if has && p == "" || p != strconv.Itoa(int(port)) {
		return NotAName
	}
	inside, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		if inside, bracketed = strings.CutSuffix(inside, "]"); !bracketed {
			return NotAName
		}
	}
	normal, addr, err := name.HostOrAddr(inside)
	switch {
	case err != nil, bracketed != addr.Is6():
		return NotAName
	case addr.IsValid():
		return addr.String()
	}
	return normal
}

// upgrade keeps or takes out the wish to leave HTTP. To h2c it is always taken
// out (B112); later in a connection we could not tell which answer grants it.
func (h *Head) upgrade(lines []string, f fields, may bool) {
	if len(f.upgrade) == 0 {
		return
	}
	h2c := slices.ContainsFunc(f.upgrade, func(v string) bool { return strings.Contains(strings.ToLower(v), "h2c") })
	if may && !h2c {
		h.Upgrade = true
		return
	}
	out := []byte(lines[0] + "\r\n")
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(key) {
		case "upgrade", "http2-settings":
			continue
		case "connection":
			line = key + ": " + withoutUpgrade(value)
		}
		out = append(out, line+"\r\n"...)
	}
	h.Raw = append(out, "\r\n"...)
}

// With is the head with one field of ours, and none that the agent gave that name.
func (h Head) With(field, value string) []byte {
	lines := strings.SplitAfter(string(h.Raw), "\r\n")
	out := []byte(lines[0] + field + ": " + value + "\r\n")
	for _, line := range lines[1:] {
		if key, _, _ := strings.Cut(line, ":"); !strings.EqualFold(key, field) {
			out = append(out, line...)
		}
	}
	return out
}

// WithoutCredentials is h without the caller's (B171), in its head and in its trailer.
func (h Head) WithoutCredentials() Head {
	lines := strings.SplitAfter(string(h.Raw), "\r\n")
	out := []byte(lines[0])
	for _, line := range lines[1:] {
		if key, _, _ := strings.Cut(line, ":"); !isCredential(key) {
			out = append(out, line...)
		}
	}
	h.Raw, h.strip = out, true
	return h
}

// isCredential tells the fields by which a caller, or the mesh for him, says who he is.
func isCredential(field string) bool {
	switch field = strings.ToLower(field); field {
	case "authorization", "proxy-authorization", "cookie", "cookie2":
		return true
	}
	return strings.HasPrefix(field, "x-skep-")
}

func withoutUpgrade(value string) string {
	var keep []string
	for word := range strings.SplitSeq(value, ",") {
		word = strings.Trim(word, " \t")
		if l := strings.ToLower(word); l != "" && l != "upgrade" && l != "http2-settings" {
			keep = append(keep, word)
		}
	}
	return strings.Join(keep, ", ")
}

// CopyBody sends one body on as it is, reading no byte too many.
func CopyBody(dst io.Writer, src *bufio.Reader, h Head) (int64, error) {
	if !h.Chunked {
		return io.CopyN(dst, src, h.Length)
	}
	var sum int64
	for {
		size, line, err := chunkSize(src)
		if err != nil {
			return sum, err
		}
		n, err := dst.Write(line)
		sum += int64(n)
		if err != nil {
			return sum, err
		}
		if size == 0 {
			n, err := copyTrailer(dst, src, h.strip)
			return sum + n, err
		}
		m, err := io.CopyN(dst, src, size)
		if sum += m; err != nil {
			return sum, err
		}
		end, err := tunnel.ReadLine(src, 2)
		if err != nil || len(end) != 2 {
			return sum, &HeadError{flow.MalformedHeader}
		}
		if n, err = dst.Write(end); err != nil {
			return sum, err
		}
		sum += int64(n)
	}
}

func chunkSize(src *bufio.Reader) (int64, []byte, error) {
	line, err := tunnel.ReadLine(src, 4096)
	if err != nil {
		return 0, nil, fmt.Errorf("read chunk size: %w", err)
	}
	digits, extension, _ := strings.Cut(string(line[:len(line)-2]), ";")
	size, err := strconv.ParseUint(digits, 16, 62)
	if err != nil || digits[0] == '+' || !tunnel.IsFieldValue(extension) {
		return 0, nil, &HeadError{flow.MalformedHeader}
	}
	return int64(size), line, nil
}

func copyTrailer(dst io.Writer, src *bufio.Reader, strip bool) (int64, error) {
	var sum int64
	for {
		line, err := tunnel.ReadLine(src, MaxInnerHead-int(sum))
		if err != nil {
			return sum, fmt.Errorf("read trailer: %w", err)
		}
		if len(line) > 2 {
			key, value, ok := strings.Cut(string(line[:len(line)-2]), ":")
			if !ok || !tunnel.IsToken(key) || !tunnel.IsFieldValue(value) {
				return sum, &HeadError{flow.MalformedHeader}
			}
			if strip && isCredential(key) {
				sum += int64(len(line)) // it was read, all the same
				continue
			}
		}
		n, err := dst.Write(line)
		sum += int64(n)
		if err != nil || len(line) == 2 {
			return sum, err
		}
	}
}
