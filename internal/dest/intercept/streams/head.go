package streams

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/secret"
)

// The limits of heads, in bytes and fields.
const (
	maxBlock      = 32 << 10 // as it comes, compressed
	maxRequest    = route.MaxInnerHead
	maxAnswerHead = 64 << 10
	maxHeadFields = 256
)

var errTooLarge = errors.New("a head that is too large")

// heads reads the header blocks of one peer.
type heads struct {
	decoder *hpack.Decoder
	most    int

	fields []secret.Field
	size   int
}

func newHeads(most int) *heads {
	h := &heads{most: most}
	h.decoder = hpack.NewDecoder(4096, h.emit)
	h.decoder.SetMaxStringLength(most)
	return h
}

// emit keeps one field while there is room: a block of a few bytes can name many fields
// of the table.
func (h *heads) emit(f hpack.HeaderField) {
	if h.size += len(f.Name) + len(f.Value) + 4; h.size > h.most || len(h.fields) >= maxHeadFields {
		h.fields, h.size = nil, h.most+1
		h.decoder.SetEmitEnabled(false)
		return
	}
	h.fields = append(h.fields, secret.Field{Name: f.Name, Value: []byte(strings.Trim(f.Value, " \t"))})
}

// read decodes one block: each has to be, even one that nobody wants. errTooLarge: the
// next one can still be read.
func (h *heads) read(block []byte) ([]secret.Field, error) {
	h.fields, h.size = nil, 0
	h.decoder.SetEmitEnabled(true)
	_, err := h.decoder.Write(block)
	if err = errors.Join(err, h.decoder.Close()); err != nil {
		return nil, frame.Broken("a header block that cannot be read")
	}
	fields := h.fields
	if h.fields = nil; h.size > h.most {
		return nil, errTooLarge
	}
	return fields, nil
}

// regular tells whether a field may be in any head or trailer of HTTP/2 (section 8.2).
func regular(f secret.Field) bool {
	value := string(f.Value)
	return strings.ToLower(f.Name) == f.Name && route.IsField(f.Name, value) && !ofConnection(f) && (f.Name != "te" || value == "trailers")
}

// ofConnection tells the fields of HTTP/1.1 that are about a connection.
func ofConnection(f secret.Field) bool {
	return slices.Contains([]string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}, f.Name)
}

// request is one request head.
type request struct {
	secret.Head
	scheme, authority string
	protocol          string // of an extended CONNECT
}

// readRequest takes a head apart as strictly as that of HTTP/1.1.
func readRequest(fields []secret.Field) (request, flow.Reason) {
	r := request{Head: secret.Head{Version: "HTTP/2"}}
	pseudo := map[string]string{}
	for _, f := range fields {
		if name, is := strings.CutPrefix(f.Name, ":"); is {
			_, again := pseudo[name]
			if again || len(r.Fields) > 0 || !slices.Contains([]string{"method", "scheme", "authority", "path", "protocol"}, name) || !route.IsField(name, string(f.Value)) {
				return r, flow.MalformedHeader
			}
			pseudo[name] = string(f.Value)
			continue
		}
		if !regular(f) {
			return r, flow.MalformedHeader
		}
		r.Fields = append(r.Fields, f)
	}
	r.Method, r.Target = pseudo["method"], []byte(pseudo["path"])
	r.scheme, r.authority, r.protocol = pseudo["scheme"], pseudo["authority"], pseudo["protocol"]
	return r, r.fault()
}

// fault is what is wrong with the request line, Host and length.
func (r *request) fault() flow.Reason {
	hosts, lengths := 0, 0
	for _, f := range r.Fields {
		switch f.Name {
		case "host":
			if hosts++; r.authority == "" {
				r.authority = string(f.Value)
			} else if string(f.Value) != r.authority {
				return flow.AuthorityMismatch
			}
		case "content-length":
			lengths++
			if strings.Trim(string(f.Value), "0123456789") != "" || len(f.Value) == 0 || len(f.Value) > 18 {
				return flow.MalformedHeader
			}
		}
	}
	// Like a server, which goes by :authority; the extensions of a WebSocket are nobody's.
	r.Fields = slices.DeleteFunc(r.Fields, func(f secret.Field) bool { return f.Name == "host" || f.Name == "sec-websocket-extensions" })
	switch {
	case hosts > 1:
		return flow.DuplicateHost
	case lengths > 1:
		return flow.MalformedHeader
	case r.authority == "":
		return flow.MissingHost
	case !route.IsField(r.Method, ""):
		return flow.MalformedRequestLine
	case r.Method == "CONNECT" && r.protocol == "":
		return flow.MethodNotAllowed
	case r.Method != "CONNECT" && r.protocol != "":
		return flow.MalformedUpgrade
	case r.scheme != "https", bytes.ContainsFunc(r.Target, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
		return flow.MalformedTarget
	case !bytes.HasPrefix(r.Target, []byte("/")) && (string(r.Target) != "*" || r.Method != "OPTIONS"):
		return flow.MalformedTarget
	}
	return flow.None
}

// text is what a head or trailer says, to be looked at.
func text(fields []secret.Field) []byte {
	return secret.Head{Fields: fields}.Bytes()
}

// appendField adds one field to a block, to be kept in nobody's table (RFC 7541, 6.2.3).
func appendField(b []byte, name string, value []byte) []byte {
	b = appendString(append(b, 0x10), len(name))
	b = append(b, name...)
	return append(appendString(b, len(value)), value...)
}

// appendString adds the head of a string of n bytes.
func appendString(b []byte, n int) []byte {
	if n < 127 {
		return append(b, byte(n))
	}
	return binary.AppendUvarint(append(b, 127), uint64(n-127))
}

func appendFields(b []byte, fields []secret.Field) []byte {
	for _, f := range fields {
		b = appendField(b, strings.ToLower(f.Name), f.Value)
	}
	return b
}

// appendRequest adds the block of a request, in one buffer so that no copy of a value is
// left behind.
func appendRequest(b []byte, r request) []byte {
	size := len(r.Method) + len(r.scheme) + len(r.authority) + len(r.Target) + len(r.protocol) + 128
	for _, f := range r.Fields {
		size += len(f.Name) + len(f.Value) + 16
	}
	b = slices.Grow(b, size)
	b = appendField(b, ":method", []byte(r.Method))
	b = appendField(b, ":scheme", []byte(r.scheme))
	b = appendField(b, ":authority", []byte(r.authority))
	b = appendField(b, ":path", r.Target)
	if r.protocol != "" {
		b = appendField(b, ":protocol", []byte(r.protocol))
	}
	return appendFields(b, r.Fields)
}

// readAnswer judges the head of an answer and returns its status and what of it goes on:
// some servers say what is about connections here, too.
func readAnswer(fields []secret.Field) (int, []secret.Field, error) {
	status := 0
	fields = slices.DeleteFunc(fields, ofConnection)
	for i, f := range fields {
		switch {
		case i == 0 && f.Name == ":status" && len(f.Value) == 3 && f.Value[0] >= '1' && strings.Trim(string(f.Value), "0123456789") == "":
			status = int(f.Value[0]-'0')*100 + int(f.Value[1]-'0')*10 + int(f.Value[2]-'0')
		case !regular(f):
			return 0, nil, frame.Broken("an answer with a field that is none")
		}
	}
	if status == 0 || status == 101 {
		return 0, nil, frame.Broken("an answer without a status")
	}
	return status, fields, nil
}

// readTrailer judges a trailer.
func readTrailer(fields []secret.Field) error {
	for _, f := range fields {
		if !regular(f) || slices.Contains([]string{"host", "content-length", "content-encoding", "te", "trailer", "expect"}, f.Name) {
			return frame.Broken("a trailer with a field that is none")
		}
	}
	return nil
}
