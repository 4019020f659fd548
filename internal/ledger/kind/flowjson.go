package kind

import (
	"strconv"

	"skep.dev/skep/internal/ledger/jcs"
)

// appendFlow appends the canonical JSON of a flow's entry, as the codec does, but
// without looking at types: flows are most of what is recorded in a hurry. A
// property compares it with the codec, so that a field that is added to [Flow]
// has to be added here.
func appendFlow(dst []byte, f *Flow) ([]byte, error) {
	w := object{dst: append(dst, '{')}
	w.text(`"address":`, f.Address)
	w.text(`"allow_with":`, f.AllowWith)
	w.text(`"approval":`, f.Approval)
	w.number(`"bytes_down":`, f.BytesDown)
	w.number(`"bytes_up":`, f.BytesUp)
	w.text(`"connection":`, f.Connection)
	w.number(`"count":`, f.Count)
	w.required(`"decision":`, f.Decision)
	w.bytes(`"destination":`, f.Destination)
	w.required(`"direction":`, f.Direction)
	w.number(`"dropped":`, f.Dropped)
	if f.ExternalID != "" {
		w.bytes(`"external_id":`, f.ExternalID)
	}
	w.required(`"flow":`, f.Flow)
	w.digits(`"generation":`, f.Generation)
	if f.Inner != "" {
		w.bytes(`"inner":`, f.Inner)
	}
	w.number(`"line":`, uint64(f.Line))
	w.text(`"listener":`, f.Listener)
	w.text(`"meta":`, f.Meta)
	w.number(`"ms":`, f.Ms)
	if f.Peer != "" {
		w.bytes(`"peer":`, f.Peer)
	}
	w.required(`"policy":`, f.Policy)
	w.digits(`"port":`, uint64(f.Port))
	w.required(`"reason":`, f.Reason)
	w.text(`"rule":`, f.Rule)
	w.text(`"secret":`, f.Secret)
	w.required(`"transport":`, f.Transport)
	w.text(`"wire":`, f.Wire)
	return append(w.dst, '}'), w.err
}

// object is a JSON object under construction; its members come in their order.
// Names are given as they stand in it.
type object struct {
	dst []byte
	err error // the first
}

func (w *object) name(name string) {
	if w.dst[len(w.dst)-1] != '{' {
		w.dst = append(w.dst, ',')
	}
	w.dst = append(w.dst, name...)
}

func (w *object) required(name, s string) {
	w.name(name)
	var err error
	if w.dst, err = jcs.AppendString(w.dst, s); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *object) text(name, s string) {
	if s != "" {
		w.required(name, s)
	}
}

func (w *object) bytes(name string, b Bytes) {
	w.name(name)
	w.dst = jcs.AppendBytes(w.dst, b)
}

func (w *object) digits(name string, n uint64) {
	w.name(name)
	w.dst = append(w.dst, '"')
	w.dst = strconv.AppendUint(w.dst, n, 10)
	w.dst = append(w.dst, '"')
}

func (w *object) number(name string, n uint64) {
	if n != 0 {
		w.digits(name, n)
	}
}
