package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
)

const nftMsgGetObj = 10<<8 | 19 // NFNL_SUBSYS_NFTABLES, NFT_MSG_GETOBJ

// writeElements writes the messages that change a set, with the offsets of what
// the warden fills in, and the one that reads the counter of refusals (B15, B17).
func writeElements(out *bytes.Buffer) error {
	for _, f := range []struct {
		name string
		size int
	}{{"tcp4", 4}, {"tcp6", 16}} {
		// Bytes that stand nowhere else in the message mark the holes.
		key, end := bytes.Repeat([]byte{0xa5}, f.size+4), bytes.Repeat([]byte{0x5a}, f.size+4)
		message, err := caught(func(c *nftables.Conn) error {
			set := &nftables.Set{
				Table: &nftables.Table{Name: "skep", Family: nftables.TableFamilyINet}, Name: f.name,
				Interval: true, Concatenation: true,
			}
			return c.SetAddElements(set, []nftables.SetElement{{Key: key, KeyEnd: end}})
		})
		if err != nil {
			return err
		}
		name := fmt.Sprintf("element%d", map[int]int{4: 4, 16: 6}[f.size])
		at := map[string]int{"key": bytes.Index(message.bytes, key), "end": bytes.Index(message.bytes, end)}
		for _, hole := range []string{"key", "end"} {
			if at[hole] < 0 || message.last != 2 {
				return fmt.Errorf("the message of a set element has no place for its %s", hole)
			}
			// The port is padded to four bytes with zeros.
			padding := message.bytes[at[hole]:][:f.size+4]
			clear(padding)
			fmt.Fprintf(out, "enum { %s_%s = %d };\n", name, hole, at[hole])
		}
		if f.size == 4 {
			begin := int(binary.NativeEndian.Uint32(message.bytes))
			fmt.Fprintf(out, "enum { element_type = %d, element_set = %d };\n", begin+4, bytes.Index(message.bytes, []byte(f.name)))
		}
		writeBytes(out, name, "an element of "+f.name+": its set, address and ports are filled in", message)
	}
	family := []byte{1, 0, 0, 0} // nfgenmsg: NFPROTO_INET
	counter := encode(0, message{nftMsgGetObj, 0, concat(family,
		attribute(1, []byte("skep\x00")), attribute(2, []byte("refused\x00")), attribute(3, []byte{0, 0, 0, 1}))})
	writeBytes(out, "counter_get", "asks for the counter of refusals", counter)
	return nil
}
