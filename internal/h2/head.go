package h2

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/http2/hpack"
)

// Field is one header field; its name is in lower case.
type Field struct{ Name, Value string }

// Of header blocks (RFC 7541, section 6).
const (
	neverIndexed = 0x10
	sizeUpdate   = 0x20 // in the upper three bits
	status200    = 0x88
)

// appendHead adds a header block without any compression: there is no table to
// keep, and nothing that a head could tell about another.
func appendHead(b []byte, fields []Field) []byte {
	text := func(s string) {
		if len(s) < 127 {
			b = append(b, byte(len(s)))
		} else {
			b = binary.AppendUvarint(append(b, 127), uint64(len(s)-127))
		}
		b = append(b, s...)
	}
	for _, f := range fields {
		b = append(b, neverIndexed)
		text(f.Name)
		text(f.Value)
	}
	return b
}

// statusOf reads the status alone, which comes first. The usual one is one byte;
// for all others the decoder builds its tables.
func statusOf(block []byte) (string, error) {
	for b := block; len(b) > 0; b = b[1:] {
		if b[0] == status200 {
			return "200", nil
		}
		if b[0]&0xe0 != sizeUpdate {
			break
		}
	}
	fields, err := readHead(block)
	if err != nil {
		return "", err
	}
	if len(fields) == 0 || fields[0].Name != ":status" || len(fields[0].Value) != 3 {
		return "", fmt.Errorf("%w: an answer has no status", errFrame)
	}
	return fields[0].Value, nil
}

// readHead decodes one header block. We told the peer to keep no table.
func readHead(block []byte) ([]Field, error) {
	decoder := hpack.NewDecoder(0, nil)
	decoder.SetMaxStringLength(maxHead)
	all, err := decoder.DecodeFull(block)
	if err != nil {
		return nil, fmt.Errorf("read the head of an answer: %w", err)
	}
	fields, sum := make([]Field, 0, len(all)), 0
	for _, f := range all {
		if sum += len(f.Name) + len(f.Value); sum > maxHead {
			return nil, errHead
		}
		fields = append(fields, Field{f.Name, f.Value})
	}
	return fields, nil
}
