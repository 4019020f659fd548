package serve

import (
	"errors"
	"os"

	"skep.dev/skep/internal/sys"
)

// half is a half-built cell (L22): a warden and a PID 1, each of which waits on a
// socket for its part of a cell. It has what every cell has, and no right, secret or
// layer. To close the sockets ends both.
type half struct {
	warden, init *os.File
	kept         bool // it was there before it was asked for

	answered bool // the parent has said how the clone went
	pid      int
	pidfd    *os.File
	err      error
}

// prepare asks for a half-built cell, where there is none, and does not wait. If it
// cannot be, the next build says why.
func (w *Worker) prepare() {
	if w.half != nil {
		return
	}
	if h, err := w.begin(); err == nil {
		h.kept = true
		w.half = h
	}
}

// take gives the half-built cell that is kept, or begins one. One in which something
// has failed, and one that may see other mounts than the host has now, is thrown away.
func (w *Worker) take() (*half, error) {
	h := w.half
	w.half = nil
	if h != nil {
		failed, err := sys.Pending(h.warden, h.init)
		stale := false
		if err == nil && !w.ids.capable { // with capabilities it has left the host's tree already
			stale, err = sys.MountsChanged(w.mounts)
		}
		if err == nil && !stale && !failed {
			return h, nil
		}
		w.drop(h)
	}
	return w.begin()
}

func (w *Worker) begin() (_ *half, err error) {
	if _, err := sys.MountsChanged(w.mounts); err != nil { // from here on
		return nil, err
	}
	h := &half{}
	var theirs [2]*os.File
	if h.warden, theirs[0], err = sys.SeqpacketPair(); err != nil {
		return nil, err
	}
	if h.init, theirs[1], err = sys.SeqpacketPair(); err != nil {
		sys.CloseAll([]*os.File{h.warden, theirs[0]})
		return nil, err
	}
	files := append(theirs[:], w.base.spec)
	owned := theirs[:]
	for _, node := range w.base.nodes {
		if w.ids.capable {
			if node, err = sys.DetachedMount(node); err != nil {
				break
			}
			owned = append(owned, node)
		}
		files = append(files, node)
	}
	if err == nil {
		r := wardenRequest{
			UIDIn: w.ids.inside, GIDIn: w.ids.group, UIDOut: w.ids.outsideU, GOut: w.ids.outsideG, SpecLen: uint32(w.base.size),
		}
		if w.ids.capable {
			r.Flags = allDetached
		}
		err = w.parent.ask(r, files)
	}
	sys.CloseAll(owned)
	if err != nil {
		sys.CloseAll([]*os.File{h.warden, h.init})
		return nil, err
	}
	return h, nil
}

// part is what a warden or a PID 1 is told of a cell.
type part struct {
	request wardenRequest
	files   []*os.File
}

// complete gives both their parts of the cell, and returns the warden. PID 1 waits
// for its control groups.
func (w *Worker) complete(h *half, ofWarden, ofInit part) (pid int, pidfd *os.File, err error) {
	// PID 1 has the longer way.
	err = tell(h.init, ofInit)
	if err == nil {
		err = tell(h.warden, ofWarden)
	}
	w.settle(h)
	if h.err != nil { // it is why they could not be told
		err = h.err
	}
	if err != nil {
		w.drop(h)
		return 0, nil, err
	}
	pidfd, h.pidfd = h.pidfd, nil
	return h.pid, pidfd, nil
}

// settle hears from the parent how the clone went.
func (w *Worker) settle(h *half) {
	if !h.answered {
		h.pid, h.pidfd, h.err = w.parent.answer()
		h.answered = true
	}
}

// drop closes what is ours of a half-built cell. One that is not complete ends.
func (w *Worker) drop(h *half) {
	w.settle(h)
	sys.CloseAll([]*os.File{h.warden, h.init})
	if h.pidfd != nil {
		_ = h.pidfd.Close()
	}
}

func tell(sock *os.File, p part) error {
	message, err := p.request.encode(len(p.files))
	if err != nil {
		return err
	}
	if err := sys.SendFDs(sock, message, p.files...); err != nil {
		return errors.Join(errors.New("the half-built cell has gone"), err)
	}
	return nil
}
