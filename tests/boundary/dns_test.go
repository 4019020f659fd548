package boundary

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"skep.dev/skep/internal/testlab"
)

// resolver is the name server that a cell's resolv.conf names (B11).
const resolver = "100.127.255.253:53"

var types = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "MX": dnsmessage.TypeMX, "SRV": dnsmessage.TypeSRV, "TXT": dnsmessage.TypeTXT,
	"PTR": dnsmessage.TypePTR, "HTTPS": 65, "SVCB": 64, "ANY": dnsmessage.TypeALL,
}

// ask sends the query of Say, a name and a type, to At; over TCP if network says so.
// It returns the code and each address of the answer.
func (a attempt) ask(network string) (string, error) {
	name, kind, _ := strings.Cut(a.Say, " ")
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: types[kind], Class: dnsmessage.ClassINET}},
	}
	packet, err := q.Pack()
	if err != nil {
		return "", err
	}
	c, err := a.dial(network)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if packet, err = exchange(c, network, packet); err != nil {
		return "", err
	}
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil {
		return "", err
	}
	got := []string{strings.TrimPrefix(m.RCode.String(), "RCode")}
	for _, r := range m.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			got = append(got, net.IP(body.A[:]).String())
		case *dnsmessage.AAAAResource:
			got = append(got, net.IP(body.AAAA[:]).String())
		default:
			got = append(got, fmt.Sprint(r.Header.Type))
		}
	}
	return strings.Join(got, " "), nil
}

func exchange(c net.Conn, network string, packet []byte) ([]byte, error) {
	answer := make([]byte, 4096)
	if network == "udp" {
		if _, err := c.Write(packet); err != nil {
			return nil, err
		}
		n, err := c.Read(answer)
		return answer[:n], err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(c, answer[:2]); err != nil {
		return nil, err
	}
	answer = answer[:binary.BigEndian.Uint16(answer)]
	_, err := io.ReadFull(c, answer)
	return answer, err
}

// TestBG6BG11InACell: every name has an address of the cell's own, whatever the rules
// say and whatever server is asked; other questions are answered with nothing; no
// question, and so no byte of one, leaves.
func TestBG6BG11InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("listed.test", public4)
		lab.Echo("8.8.8.8:53")
		h := open(t, lab, "net: [{name: listed.test}]\n")
		tries := []attempt{
			{How: "dns", At: resolver, Say: "secret-data.listed.test A"}, {How: "dns", At: resolver, Say: "listed.test A"},
			{How: "dns", At: "8.8.8.8:53", Say: "listed.test A"}, {How: "dns over tcp", At: resolver, Say: "listed.test A"},
			{How: "dns", At: resolver, Say: "listed.test AAAA"}, {How: "dns over tcp", At: "8.8.8.8:53", Say: "listed.test A"},
		}
		others := []string{"MX", "SRV", "TXT", "PTR", "HTTPS", "SVCB", "ANY"}
		for _, kind := range others {
			tries = append(tries, attempt{How: "dns", At: resolver, Say: "listed.test " + kind})
		}
		r := h.try(tries...)
		for i := range 4 {
			if !strings.HasPrefix(r[i].Got, "Success 100.") || (i > 1 && r[i].Got != r[1].Got) {
				t.Errorf("%+v", r[i])
			}
		}
		if r[0].Got == r[1].Got {
			t.Errorf("two names have one address: %s", r[0].Got)
		}
		if !strings.HasPrefix(r[4].Got, "Success 100::") {
			t.Errorf("%+v", r[4])
		}
		if r[5].Err != "ECONNREFUSED" {
			t.Errorf("TCP/53 to another server: %+v", r[5])
		}
		for _, r := range r[6:] {
			if r.Got != "Success" {
				t.Errorf("%+v, want an empty answer", r)
			}
		}
		if len(lab.Queries()) != 0 || len(lab.Connections()) != 0 {
			t.Errorf("what left: %v %v", lab.Queries(), h.arrived(0))
		}
		h.refused(h.record(), "8.8.8.8:53", "ip-not-on-allowlist")
	})
}
