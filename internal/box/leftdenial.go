package box

import (
	"math"
	"net/netip"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

// leftDenial is a refusal that the cell is shown, as a box leaves it to another: {1 id,
// 2 time, 3 name, 4 address, 5 port, 6 transport, 7 reason, 8 policy, 9 line that would
// allow it, 10 count}.
func leftDenial(d boundary.Denial) (m writer) {
	m.text(1, d.ID)
	m.number(2, uint64(d.Time.UnixNano()))
	m.text(3, d.Request.Name)
	if d.Request.Addr.IsValid() {
		m.message(4, d.Request.Addr.AsSlice())
	}
	m.number(5, uint64(d.Request.Port))
	m.number(6, uint64(d.Request.Transport))
	m.text(7, d.Reason.Token())
	m.text(8, d.Policy)
	m.text(9, d.AllowWith)
	m.number(10, d.Count)
	return m
}

func (r *reader) leftDenial(b []byte) boundary.Denial {
	d := boundary.Denial{Request: flow.Request{Direction: flow.Out, Wire: flow.Native}}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			d.ID = r.text(f)
		case 2:
			d.Time = time.Unix(0, int64(r.number(f, math.MaxInt64)))
		case 3:
			d.Request.Name = r.text(f)
		case 4:
			d.Request.Addr = r.bytesAddr(f)
		case 5:
			d.Request.Port = uint16(r.number(f, math.MaxUint16))
		case 6:
			d.Request.Transport = flow.Transport(r.number(f, uint64(flow.Other)))
		case 7:
			why, err := flow.ParseReason(r.text(f))
			r.fail(err)
			d.Reason = why
		case 8:
			d.Policy = r.text(f)
		case 9:
			d.AllowWith = r.text(f)
		case 10:
			d.Count = r.number(f, math.MaxUint64)
		default:
			r.unknown("a refusal that a box leaves", f)
		}
	})
	if d.Request.Addr != (netip.Addr{}) && d.Request.Name != "" {
		r.fail(errWire)
	}
	return d
}
