package serve

import (
	"errors"
	"fmt"
	"os"

	"skep.dev/skep/internal/sys"
)

// half is a half-built cell (L22): a warden and a PID 1, each of which waits on a
// socket for its part of a cell. It has what every cell has, and no right, secret or
// layer. To close the sockets ends both.
type half struct {
	warden, init *os.File
	// mounts are the host's, as they were when it began; nil if it has left them:
	// with our capabilities everything of the host's comes as a mount.
	mounts *sys.MountWatch
	kept   bool // it was there before it was asked for

	answered bool // the parent has said how the clone went
	pid      int
	pidfd    *os.File
	err      error
}

// prepare begins as many cells as are to be kept. If it cannot, the next build says why.
func (w *Worker) prepare() {
	for len(w.halves) < w.config.Ready {
		h, err := w.begin()
		if err != nil {
			return
		}
		h.kept = true
		w.halves = append(w.halves, h)
	}
}

// take gives a half-built cell that is kept, or begins one. One in which something
// has failed, and one that may see other mounts than the host has now, is thrown away.
func (w *Worker) take() (*half, error) {
	for len(w.halves) > 0 {
		h := w.halves[0]
		w.halves = w.halves[1:]
		w.settle(h) // until it has answered, the parent has their ends, and none hangs up
		failed, err := sys.Pending(h.warden, h.init)
		stale := false
		if err == nil && h.mounts != nil {
			stale, err = h.mounts.Changed()
		}
		if err == nil && !stale && !failed {
			return h, nil
		}
		w.drop(h)
	}
	return w.begin()
}

func (w *Worker) begin() (_ *half, err error) {
	for _, earlier := range w.halves { // the parent answers in turn
		w.settle(earlier)
	}
	h := &half{}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if !w.ids.capable {
		if h.mounts, err = sys.WatchMounts(); err != nil {
			return nil, fmt.Errorf("watch the host's mounts: %w", err)
		}
	}
	var theirs [2]*os.File
	if h.warden, theirs[0], err = sys.SeqpacketPair(); err != nil {
		return nil, err
	}
	if h.init, theirs[1], err = sys.SeqpacketPair(); err != nil {
		_ = theirs[0].Close()
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
	return h, err
}

var errGone = errors.New("the half-built cell has gone")

// part is what a warden or a PID 1 is told of a cell.
type part struct {
	request wardenRequest
	files   []*os.File
}

// complete gives both their parts of the cell, and returns the warden. PID 1 has the
// longer way and is told first; groups makes its control groups while it mounts. They
// come before the warden's part: whom we wake may take the processor from us.
func (w *Worker) complete(h *half, ofWarden, ofInit part, groups func() ([]*os.File, error)) (pid int, pidfd *os.File, err error) {
	defer func() {
		if h.err != nil { // it is why they could not be told
			err = h.err
		}
		if err != nil {
			w.drop(h)
		}
	}()
	err = tell(h.init, ofInit)
	var procs []*os.File
	if err == nil {
		procs, err = groups()
	}
	defer sys.CloseAll(procs)
	w.settle(h)
	if err == nil {
		err = tell(h.init, part{files: procs})
	}
	if err == nil {
		err = tell(h.warden, ofWarden)
	}
	if err != nil {
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
	h.close()
}

func (h *half) close() {
	for _, f := range []*os.File{h.warden, h.init, h.pidfd} {
		if f != nil {
			_ = f.Close()
		}
	}
	if h.mounts != nil {
		_ = h.mounts.Close()
	}
}

func tell(sock *os.File, p part) error {
	message, err := p.request.encode(len(p.files))
	if err != nil {
		return err
	}
	if err := sys.SendFDs(sock, message, p.files...); err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}
