package tunnel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"skep.dev/skep/internal/flow"
)

// The statuses that mean something here (RFC 9110, 15); net/http would bring TLS into the box.
const (
	statusSwitchingProtocols = 101
	statusMethodNotAllowed   = 405
	statusServiceUnavailable = 503
)

// Accepted is the whole answer to a request whose destination was reached (B38, B43).
func Accepted(t flow.Transport) string {
	if t == flow.UDP {
		return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocolUDP + "\r\nCapsule-Protocol: ?1\r\n\r\n"
	}
	return "HTTP/1.1 200 OK\r\n\r\n"
}

// Refused is the whole answer to a refusal; nothing follows it (B39, B60). detail is
// the RFC 9209 error type, empty for the reason's own.
func Refused(why flow.Reason, detail string) string {
	var more string
	switch why.Status() {
	case statusMethodNotAllowed:
		more = "Allow: CONNECT\r\n"
	case statusServiceUnavailable:
		more = "Retry-After: 1\r\n"
	}
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nBoundary-Reason: %s\r\nProxy-Status: %s\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n",
		why.Status(), strings.ReplaceAll(why.Token(), "-", " "), why.Sentence(), why.ProxyStatus(detail), more)
}

// RefusedError is the other side's refusal.
type RefusedError struct {
	Status int
	Reason string // its token, as it was sent; empty where none was
}

func (e *RefusedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("the boundary answered %d", e.Status)
	}
	return fmt.Sprintf("the boundary answered %d (%s)", e.Status, e.Reason)
}

// Ask sends the request for t.
func Ask(w io.Writer, t Target) error {
	head := "CONNECT " + t.String() + " HTTP/1.1\r\nHost: " + t.String() + "\r\n\r\n"
	if t.Transport == flow.UDP {
		head = "GET " + t.path() + " HTTP/1.1\r\nHost: boundary\r\nConnection: Upgrade\r\nUpgrade: " + protocolUDP + "\r\nCapsule-Protocol: ?1\r\n\r\n"
	}
	if _, err := io.WriteString(w, head); err != nil {
		return fmt.Errorf("ask the boundary: %w", err)
	}
	return nil
}

// maxInterim bounds the interim answers before the final one (B38).
const maxInterim = 8

var errAnswer = errors.New("the boundary's answer is not HTTP/1.1")

// ReadAnswer waits for the final answer: nil is success, any 2xx, or 101 for UDP. What
// follows it stays in r. A refusal is a *RefusedError.
func ReadAnswer(r *bufio.Reader, transport flow.Transport) error {
	left := MaxHead
	for range maxInterim + 1 {
		status, reason, err := readStatus(r, &left)
		switch {
		case err != nil:
			return err
		case status == statusSwitchingProtocols && transport == flow.UDP:
			return nil
		case status/100 == 2 && transport == flow.TCP:
			return nil
		case status/100 != 1 || status == statusSwitchingProtocols:
			return &RefusedError{Status: status, Reason: reason}
		}
	}
	return fmt.Errorf("the boundary sent more than %d interim answers", maxInterim)
}

// readStatus reads one answer's head.
func readStatus(r *bufio.Reader, left *int) (status int, reason string, err error) {
	for first := true; ; first = false {
		line, err := ReadLine(r, *left)
		if err != nil {
			return 0, "", fmt.Errorf("read the boundary's answer: %w", err)
		}
		*left -= len(line)
		text := string(line[:len(line)-2])
		switch {
		case first:
			if status = parseStatus(text); status == 0 {
				return 0, "", errAnswer
			}
		case text == "":
			return status, reason, nil
		default:
			key, value, ok := strings.Cut(text, ":")
			if !ok || !IsToken(key) || !IsFieldValue(value) {
				return 0, "", errAnswer
			}
			if strings.EqualFold(key, "Proxy-Status") {
				reason = reasonOf(value)
			}
		}
	}
}

// parseStatus takes the status of "HTTP/1.x NNN words", 0 if it is none.
func parseStatus(line string) int {
	if len(line) < 12 || line[:7] != "HTTP/1." || !isDigit(line[7]) || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return 0
	}
	n := 0
	for _, c := range []byte(line[9:12]) {
		if !isDigit(c) {
			return 0
		}
		n = 10*n + int(c-'0')
	}
	if n < 100 {
		return 0
	}
	return n
}

// reasonOf takes our token from a Proxy-Status field, only if it is one of the set.
func reasonOf(value string) string {
	_, token, _ := strings.Cut(value, "reason=")
	token, _, _ = strings.Cut(token, ";")
	if _, err := flow.ParseReason(strings.TrimSpace(token)); err != nil {
		return ""
	}
	return strings.TrimSpace(token)
}
