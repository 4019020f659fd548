package tunnel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"skep.dev/skep/internal/flow"
)

// Form is which of the two handshakes of ingress are served (B174, B175).
type Form uint8

// Both is the default.
const (
	Both Form = iota
	OnlyHTTP
	OnlyText
)

// ParseForm takes both, http or text.
func ParseForm(s string) (Form, error) {
	for form, word := range [...]string{"both", "http", "text"} {
		if s == word {
			return Form(form), nil
		}
	}
	return 0, fmt.Errorf("ingress form %q: want both, http or text", s)
}

// Bounds of a text handshake, in bytes (B150).
const (
	maxHandshake = 64
	maxReply     = 128
)

// Ingress is one handshake on the reverse channel, in the form that it came in.
type Ingress struct{ text bool }

// ReadIngress reads one handshake, which must name the pinned port of this agent and
// selects nothing (B172). What follows it stays in r (B175). A *HeadError says what to
// answer, by Refused.
func ReadIngress(r *bufio.Reader, pinned uint16, form Form) (Ingress, error) {
	line, err := firstLine(r)
	if err != nil {
		return Ingress{}, err
	}
	words := strings.Split(strings.TrimSuffix(line, "\r"), " ")
	if len(words) == 2 && words[0] == "CONNECT" && !strings.HasSuffix(line, "\r") && form != OnlyHTTP {
		i := Ingress{text: true}
		if port, fault := parsePort(words[1]); fault != flow.None || port != pinned {
			return i, &HeadError{flow.PortNotPermitted}
		}
		return i, nil
	}
	if len(words) != 3 || words[0] != "CONNECT" || words[2] != "HTTP/1.1" || !strings.HasSuffix(line, "\r") || form == OnlyText {
		return Ingress{}, &HeadError{flow.MalformedRequestLine}
	}
	f, err := readFields(r, MaxHead)
	if err != nil {
		return Ingress{}, err
	}
	t, fault := f.connect(words[1], words[2])
	switch {
	case fault != flow.None:
		return Ingress{}, &HeadError{fault}
	case !t.Addr.IsLoopback() || t.Port != pinned:
		return Ingress{}, &HeadError{flow.PortNotPermitted}
	}
	return Ingress{}, nil
}

// firstLine reads to the newline, which it takes off.
func firstLine(r *bufio.Reader) (string, error) {
	var line []byte
	for len(line) <= maxHandshake {
		c, err := r.ReadByte()
		if err != nil {
			return "", lineFault(err, len(line) > 0, flow.MalformedRequestLine)
		}
		if c == '\n' {
			return string(line), nil
		}
		line = append(line, c)
	}
	return "", &HeadError{flow.MalformedRequestLine}
}

// Accepted is the answer once the agent's port was reached.
func (i Ingress) Accepted() string {
	if i.text {
		return "OK\n"
	}
	return Accepted(flow.TCP)
}

// Refused is the answer of a refusal.
func (i Ingress) Refused(why flow.Reason) string {
	switch {
	case i.text && why == flow.IngressUnreachable:
		return "ERR agent does not listen\n"
	case i.text:
		return "ERR " + why.Sentence() + "\n"
	case why == flow.IngressUnreachable:
		return "HTTP/1.1 502 ingress unreachable\r\nBoundary-Reason: agent does not listen\r\n" +
			"Proxy-Status: skep; error=destination_unavailable; reason=ingress-unreachable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	}
	return Refused(why, "")
}

// AskIngress sends the handshake for the pinned port.
func AskIngress(w io.Writer, pinned uint16, form Form) error {
	if form == OnlyText {
		_, err := fmt.Fprintf(w, "CONNECT %d\n", pinned)
		return err
	}
	return Ask(w, Target{Transport: flow.TCP, Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: pinned})
}

// ReadIngressAnswer waits for the answer to AskIngress: nil is success. What follows it
// stays in r.
func ReadIngressAnswer(r *bufio.Reader, form Form) error {
	if form != OnlyText {
		return ReadAnswer(r, flow.TCP)
	}
	var line []byte
	for len(line) <= maxReply {
		c, err := r.ReadByte()
		if err != nil {
			return fmt.Errorf("read the guest's answer: %w", err)
		}
		if c != '\n' {
			line = append(line, c)
			continue
		}
		word, _, _ := strings.Cut(string(line), " ")
		switch word {
		case "OK":
			return nil
		case "ERR":
			return &RefusedError{} // its words are the guest's and prove nothing (B176)
		}
		return errAnswer
	}
	return errors.New("the guest's answer is longer than 128 bytes")
}
