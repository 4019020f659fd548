package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
)

// MaxHello bounds what an agent may send before its hello is complete (B111).
const MaxHello = 64 << 10

// NotAName is what Inner.Name holds where the agent sent something that is no
// host name. No name equals it.
const NotAName = "!"

// ErrHelloTooLarge says that a TLS hello did not end within MaxHello.
var ErrHelloTooLarge = errors.New("TLS hello is larger than 64 KiB")

// First reads the first message of an agent, in pieces of any size, until it is
// known to be a whole TLS or SSLv2 hello or something else (B110, B111). Each
// byte is looked at once, so that one-byte segments cost no more than one piece.
type First struct {
	Inner flow.Inner // set when Feed has returned true

	seen      []byte // all that arrived
	next      int    // where the next TLS record starts in seen
	handshake []byte // the payloads of the records before next
	tls       bool
}

// Bytes is all that was fed.
func (f *First) Bytes() []byte { return f.seen }

// Feed adds bytes and reports whether the message is known now.
func (f *First) Feed(b []byte) (done bool, err error) {
	f.seen = append(f.seen, b...)
	if !f.tls {
		kind := sniff(f.seen)
		switch kind {
		case sniffMore:
			return false, nil
		case sniffOther:
			f.Inner = flow.Inner{Protocol: flow.Opaque}
			return true, nil
		case sniffSSL2, sniffNoHello:
			// A hello of SSLv2 has no extensions, so it names nobody.
			f.Inner = flow.Inner{Protocol: flow.TLS}
			return true, nil
		}
		f.tls = true
	}
	if f.records() {
		return true, nil
	}
	if len(f.seen) > MaxHello {
		return false, ErrHelloTooLarge
	}
	return false, nil
}

// records takes whole records off seen. A record that is no handshake, or empty,
// before the hello is complete is refused by leaving the name out.
func (f *First) records() bool {
	for {
		rest := f.seen[f.next:]
		if len(rest) < 5 {
			return false
		}
		size := int(binary.BigEndian.Uint16(rest[3:5]))
		if rest[0] != recordHandshake || size == 0 || size > 16384 {
			f.Inner = flow.Inner{Protocol: flow.TLS}
			return true
		}
		if len(rest) < 5+size {
			return false
		}
		f.handshake = append(f.handshake, rest[5:5+size]...)
		f.next += 5 + size
		if f.handshake[0] != 1 {
			f.Inner = flow.Inner{Protocol: flow.TLS}
			return true
		}
		if len(f.handshake) < 4 {
			continue
		}
		length := int(f.handshake[1])<<16 | int(f.handshake[2])<<8 | int(f.handshake[3])
		if len(f.handshake) >= 4+length {
			f.Inner = parseHello(f.handshake[4 : 4+length])
			return true
		}
	}
}

const (
	recordAlert     = 0x15
	recordHandshake = 0x16

	// Extensions that hide the name that is meant: Encrypted Client Hello, with its drafts, and
	// what went before it. A client that only pretends to hide one sends them, too.
	firstECH, lastECH = 0xfe08, 0xfe0d
	extensionESNI     = 0xffce
)

type sniffed int

const (
	sniffMore sniffed = iota
	sniffOther
	sniffTLS
	sniffSSL2
	sniffNoHello // TLS records that are no hello
)

// sniff tells TLS from other protocols by the first bytes. Servers are lenient:
// Go's takes any record version below 0x1000, OpenSSL's a warning alert before
// the hello. What such a server would take for TLS must be judged as TLS here.
// MySQL packets look alike in their first bytes and are told by the sixth.
func sniff(b []byte) sniffed {
	switch {
	case len(b) == 0:
		return sniffMore
	case b[0]&0x80 != 0:
		return sniffOld(b)
	case b[0] < 0x14 || b[0] > 0x18:
		return sniffOther
	case len(b) < 2:
		return sniffMore
	case b[1] == 3 && b[0] == recordHandshake:
		return sniffTLS
	case b[1] == 3:
		return sniffNoHello
	case b[1] >= 0x10 || b[0] != recordHandshake && b[0] != recordAlert:
		return sniffOther
	case len(b) < 6:
		return sniffMore
	}
	size := binary.BigEndian.Uint16(b[3:5])
	switch {
	case b[0] == recordAlert && size == 2:
		return sniffNoHello
	case b[0] == recordHandshake && (size == 0 || b[5] == 1):
		return sniffTLS
	}
	return sniffOther
}

// sniffOld looks for the SSLv2 form of a client hello (RFC 5246, appendix E.2).
func sniffOld(b []byte) sniffed {
	switch {
	case len(b) >= 3 && b[2] != 1:
		return sniffOther
	case len(b) < 5:
		return sniffMore
	case b[3] == 3 || b[3] == 0 && b[4] == 2:
		return sniffSSL2
	}
	return sniffOther
}

// parseHello reads the body of a ClientHello (RFC 8446, 4.1.2). A malformed one,
// or one with two names, names nobody.
func parseHello(b []byte) flow.Inner {
	nobody := flow.Inner{Protocol: flow.TLS}
	c := cursor{b: b}
	c.skip(2 + 32)
	c.take(1)
	c.take(2)
	c.take(1)
	extensions := cursor{b: c.take(2)}
	if c.bad || len(c.b) != 0 {
		return nobody
	}
	inner := nobody
	named := false
	for len(extensions.b) > 0 {
		kind := extensions.number(2)
		body := extensions.take(2)
		switch {
		case extensions.bad:
			return nobody
		case kind == 0 && named:
			return nobody
		case kind == 0:
			named = true
			if inner.Name = serverName(body); inner.Name == "" {
				return nobody
			}
		case kind == 16:
			inner.ALPN = alpn(body)
		case kind >= firstECH && kind <= lastECH, kind == extensionESNI:
			inner.ECH = true
		}
	}
	return inner
}

// serverName reads the one host name of the extension (RFC 6066, 3).
func serverName(b []byte) string {
	outer := cursor{b: b}
	list := cursor{b: outer.take(2)}
	kind := list.number(1)
	host := list.take(2)
	if outer.bad || list.bad || len(outer.b) != 0 || len(list.b) != 0 || kind != 0 || len(host) == 0 {
		return ""
	}
	normal, err := name.Host(string(host))
	if err != nil {
		return NotAName
	}
	return normal
}

// alpn joins the protocol names that are plain words (RFC 7301).
func alpn(b []byte) string {
	outer := cursor{b: b}
	list := cursor{b: outer.take(2)}
	var words []string
	for len(list.b) > 0 && len(words) < 8 {
		word := string(list.take(1))
		if list.bad {
			return ""
		}
		if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789./-") == "" && len(word) <= 16 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

// cursor reads big-endian numbers and length-prefixed fields; after the first
// fault everything is empty and bad is set.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) skip(n int) []byte {
	if c.bad || n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) number(size int) int {
	n := 0
	for _, x := range c.skip(size) {
		n = n<<8 | int(x)
	}
	return n
}

func (c *cursor) take(size int) []byte { return c.skip(c.number(size)) }

// ReadFirst reads from an agent until its first message is known. begun is
// called once when the first byte is there: only then does the time for a hello
// run, since a server may speak first (B113). What was read is in the result's
// Bytes, also with an error.
func ReadFirst(r io.Reader, begun func()) (*First, error) {
	f := &First{}
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if len(f.seen) == 0 {
				begun()
			}
			done, ferr := f.Feed(buf[:n])
			if done || ferr != nil {
				return f, ferr
			}
		}
		if err != nil {
			return f, fmt.Errorf("read the first message: %w", err)
		}
	}
}
