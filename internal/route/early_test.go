package route

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"skep.dev/skep/internal/flow"
)

func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, align4(len(b))-len(b))...)
}

func logged(kind uint16, attrs ...[]byte) []byte {
	body := []byte{2, 0, 0, 5}
	for _, a := range attrs {
		body = append(body, a...)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(append(b, make([]byte, 10)...), body...)
}

func packet(dst string, port uint16) []byte {
	a := netip.MustParseAddr(dst)
	var b []byte
	if a.Is4() {
		b = make([]byte, 20)
		b[0] = 0x45
		copy(b[16:], a.AsSlice())
	} else {
		b = make([]byte, 48)
		b[0], b[6] = 0x60, 0 // a hop-by-hop header comes first
		copy(b[24:], a.AsSlice())
		b[40] = 6
	}
	b = append(b, 0x30, 0x39)
	return append(binary.BigEndian.AppendUint16(b, port), make([]byte, 16)...)
}

func TestParseLog(t *testing.T) {
	dgram := append(logged(logPacket, attr(1, make([]byte, 4)), attr(attrPrefix, []byte("skep:tcp\x00")), attr(attrPayload, packet("100.64.0.5", 8443))),
		logged(logPacket, attr(attrPrefix, []byte("skep:udp\x00")), attr(attrPayload, packet("2001:db8::1", 443)))...)
	dgram = append(dgram, logged(logPacket, attr(attrPrefix, []byte("other\x00")), attr(attrPayload, packet("1.1.1.1", 1)))...)
	dgram = append(dgram, logged(2, []byte{1, 2, 3, 4})...)
	dgram = append(dgram, logged(logPacket, attr(attrPrefix, []byte("skep:other\x00")), attr(attrPayload, packet("9.9.9.9", 1)))...)
	dgram = append(dgram, logged(logPacket, attr(attrPrefix, []byte("skep:shut\x00")), attr(attrPayload, packet("8.8.8.8", 443)))...)
	dgram = append(dgram, logged(logPacket, attr(attrPrefix, []byte("skep:held\x00")), attr(attrPayload, packet("2001:db8::2", 80)))...)
	got, err := ParseLog(dgram)
	want := []Refusal{
		{Transport: flow.TCP, Dst: netip.MustParseAddrPort("100.64.0.5:8443"), From: 12345}, {Transport: flow.UDP, Dst: netip.MustParseAddrPort("[2001:db8::1]:443"), From: 12345},
		{Transport: flow.Other, Dst: netip.MustParseAddrPort("9.9.9.9:0")}, {Transport: flow.TCP, Dst: netip.MustParseAddrPort("8.8.8.8:443"), From: 12345, Shut: true},
		{Transport: flow.TCP, Dst: netip.MustParseAddrPort("[2001:db8::2]:80"), From: 12345, Held: true},
	}
	if err != nil || len(got) != len(want) {
		t.Fatal(got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

func TestParseLogRefusesRubbish(t *testing.T) {
	good := logged(logPacket, attr(attrPrefix, []byte("skep:tcp\x00")), attr(attrPayload, packet("1.2.3.4", 5)))
	for n := 1; n < len(good); n++ {
		if got, err := ParseLog(good[:n]); err == nil && len(got) > 0 {
			t.Errorf("cut at %d gives %v", n, got)
		}
	}
	short := logged(logPacket, attr(attrPrefix, []byte("skep:tcp")), attr(attrPayload, []byte{0x45, 0}))
	if _, err := ParseLog(short); err == nil {
		t.Error("a cut packet")
	}
}

func FuzzParseLog(f *testing.F) {
	f.Add(logged(logPacket, attr(attrPrefix, []byte("skep:tcp\x00")), attr(attrPayload, packet("1.2.3.4", 5))))
	f.Add(logged(logPacket, attr(attrPrefix, []byte("skep:udp\x00")), attr(attrPayload, packet("::1", 5))))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _ := ParseLog(b)
		for _, r := range got {
			if !r.Dst.Addr().IsValid() || r.Transport == 0 {
				t.Fatalf("%x -> %+v", b, r)
			}
		}
	})
}
