package words

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// JSON is a message as JSON with every field, in a stable form. The state of a
// cell is the word that a person reads too.
func JSON(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	line, err := compact(raw)
	if c, ok := m.(*skepv1.Cell); ok && err == nil {
		// Within a string the quotes have backslashes: this is the field itself.
		line = bytes.Replace(line, fmt.Appendf(nil, `"state":%q`, c.State), fmt.Appendf(nil, `"state":%q`, State(c.State)), 1)
	}
	return line, err
}

// compact removes the spaces that protojson adds at random, so that a line is
// always the same.
func compact(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return b.Bytes(), nil
}
