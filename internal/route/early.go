package route

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"skep.dev/skep/internal/flow"
)

// Refusal is one packet that the cell's early gate did not let pass, and logged (B17).
type Refusal struct {
	Transport flow.Transport
	Dst       netip.AddrPort // port 0 where the transport has none
	From      uint16         // the cell's own port, likewise
	Shut      bool           // the gate was shut for all, whatever policy says (B13)
	Held      bool           // it is no refusal: a connect waits for a person, and asks again
}

// ErrMalformedLog says that a datagram of the log does not parse.
var ErrMalformedLog = errors.New("malformed netfilter log datagram")

// Numbers of linux/netfilter/nfnetlink_log.h.
const (
	logPacket     = 4 << 8 // NFNL_SUBSYS_ULOG, NFULNL_MSG_PACKET (0)
	attrPayload   = 9
	attrPrefix    = 10
	attrTypeMask  = 0x3fff
	netlinkHeader = 16
	nfgenHeader   = 4
)

// ParseLog reads one datagram from a netfilter log socket: any number of netlink
// messages. Messages of another kind, and packets under a prefix that is not
// ours, are skipped. What was read before a fault is returned with the error.
func ParseLog(b []byte) ([]Refusal, error) {
	var out []Refusal
	for len(b) >= netlinkHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < netlinkHeader || size > len(b) {
			return out, ErrMalformedLog
		}
		if binary.NativeEndian.Uint16(b[4:]) == logPacket {
			if size < netlinkHeader+nfgenHeader {
				return out, ErrMalformedLog
			}
			r, ours, err := parsePacket(b[netlinkHeader+nfgenHeader : size])
			if err != nil {
				return out, err
			}
			if ours {
				out = append(out, r)
			}
		}
		b = b[min(align4(size), len(b)):]
	}
	if len(b) != 0 {
		return out, ErrMalformedLog
	}
	return out, nil
}

func parsePacket(attrs []byte) (Refusal, bool, error) {
	var payload []byte
	var r Refusal
	for len(attrs) >= 4 {
		size := int(binary.NativeEndian.Uint16(attrs))
		kind := binary.NativeEndian.Uint16(attrs[2:]) & attrTypeMask
		if size < 4 || size > len(attrs) {
			return Refusal{}, false, ErrMalformedLog
		}
		switch kind {
		case attrPayload:
			payload = attrs[4:size]
		case attrPrefix:
			r = kindOf(attrs[4:size])
		}
		attrs = attrs[min(align4(size), len(attrs)):]
	}
	if r.Transport == 0 {
		return Refusal{}, false, nil
	}
	var err error
	r.Dst, r.From, err = parseIP(payload, r.Transport)
	return r, err == nil, err
}

// kindOf reads the log prefix, which the kernel ends with a zero byte.
func kindOf(prefix []byte) Refusal {
	for n := len(prefix); n > 0 && prefix[n-1] == 0; n = len(prefix) {
		prefix = prefix[:n-1]
	}
	switch string(prefix) {
	case "skep:tcp":
		return Refusal{Transport: flow.TCP}
	case "skep:shut":
		return Refusal{Transport: flow.TCP, Shut: true}
	case "skep:held":
		return Refusal{Transport: flow.TCP, Held: true}
	case "skep:udp":
		return Refusal{Transport: flow.UDP}
	case "skep:shut-udp":
		return Refusal{Transport: flow.UDP, Shut: true}
	case "skep:other":
		return Refusal{Transport: flow.Other}
	}
	return Refusal{}
}

// parseIP reads where an IP packet was going, and from which port. Ports are the first bytes of the
// transport header, which the prefix says is there; IPv6 extension headers are
// walked.
func parseIP(b []byte, t flow.Transport) (to netip.AddrPort, from uint16, err error) {
	if len(b) < 20 {
		return netip.AddrPort{}, 0, ErrMalformedLog
	}
	var dst netip.Addr
	var rest []byte
	switch b[0] >> 4 {
	case 4:
		size := int(b[0]&15) * 4
		if size < 20 || size > len(b) {
			return netip.AddrPort{}, 0, ErrMalformedLog
		}
		dst, rest = netip.AddrFrom4([4]byte(b[16:20])), b[size:]
	case 6:
		if len(b) < 40 {
			return netip.AddrPort{}, 0, ErrMalformedLog
		}
		dst, rest = netip.AddrFrom16([16]byte(b[24:40])), afterExtensions(b[6], b[40:])
	default:
		return netip.AddrPort{}, 0, ErrMalformedLog
	}
	if t == flow.Other {
		return netip.AddrPortFrom(dst, 0), 0, nil
	}
	if len(rest) < 4 {
		return netip.AddrPort{}, 0, ErrMalformedLog
	}
	return netip.AddrPortFrom(dst, binary.BigEndian.Uint16(rest[2:4])), binary.BigEndian.Uint16(rest), nil
}

func afterExtensions(next byte, b []byte) []byte {
	for next == 0 || next == 43 || next == 60 {
		if len(b) < 8 || len(b) < (int(b[1])+1)*8 {
			return nil
		}
		next, b = b[0], b[(int(b[1])+1)*8:]
	}
	return b
}

func align4(n int) int { return (n + 3) &^ 3 }
