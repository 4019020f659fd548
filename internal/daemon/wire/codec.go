// Package wire reads and writes the API's messages strictly.
//
// Its laws:
//   - A field that this version does not know is an error with its name, in JSON
//     and in binary form: what is silently ignored is silently not enforced.
//   - Both forms hold the same messages; which one is used is the caller's choice.
package wire

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxMessage bounds one message of the API, in bytes. An agent's arguments and
// environment may fill most of it.
const MaxMessage = 8 << 20

// Options are those of every handler.
func Options() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
		connect.WithCodec(binaryCodec{}),
		connect.WithReadMaxBytes(MaxMessage),
		connect.WithCompressMinBytes(MaxMessage), // a socket of this host is faster than any compression
	}
}

// jsonCodec replaces connect's own, which discards unknown fields.
type jsonCodec struct{ name string }

func (c jsonCodec) Name() string { return c.name }

func (jsonCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return protojson.Marshal(m)
}

func (jsonCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	if len(data) == 0 {
		return fmt.Errorf("empty body: send {} for no fields")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: false}.Unmarshal(data, m)
}

type binaryCodec struct{}

func (binaryCodec) Name() string { return "proto" }

func (binaryCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return proto.Marshal(m)
}

func (binaryCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	return Unmarshal(data, m)
}

// Unmarshal reads the binary form as the handlers do.
func Unmarshal(data []byte, m proto.Message) error {
	if err := proto.Unmarshal(data, m); err != nil {
		return err
	}
	return known(m.ProtoReflect())
}

// known refuses a message that holds fields beyond its type, at any depth.
func known(m protoreflect.Message) error {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return fmt.Errorf("unknown field %d of %s", number, m.Descriptor().Name())
	}
	var fault error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := 0; i < v.List().Len() && fault == nil; i++ {
				fault = known(v.List().Get(i).Message())
			}
		default:
			fault = known(v.Message())
		}
		return fault == nil
	})
	return fault
}
