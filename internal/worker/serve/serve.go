// Package serve performs the requests of internal/worker/proto: id maps, idmapped
// mounts, cgroups, one warden per cell.
//
// Its laws:
//   - It holds nothing between two requests but the connection, the resident
//     warden parent, the directories of its cgroups, the id maps of owners, and as
//     many half-built cells as it is to keep, which end with it (L22).
//   - It re-checks every argument and holds no policy (L6).
//   - It opens no path that a request names; the only paths are its own
//     programs, /etc/subuid and /etc/subgid, and /proc/self.
//   - A request that fails leaves no mount, process or cgroup.
package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// Config says what a worker is made of.
type Config struct {
	Conn *os.File // seqpacket socket to skepd
	// Programs, by path; they are opened by the worker and nobody else.
	Warden, Box, Self string
	// Cgroups are the parents under which cells get children.
	Cgroups []Hierarchy
	// Ready is how many half-built cells are kept (L22); 0 keeps none.
	Ready int
	// User is whom a capable worker works for: the daemon's account.
	User Account
	Log  *slog.Logger
	// Args are those that the program was started with; without them it is not replaced.
	Args []string
}

// Worker serves one connection.
type Worker struct {
	config  Config
	ids     ids
	parent  *parent
	base    *base
	halves  []*half
	cgroups cgroups
	maps    idmaps
	// emptyRoot is where boxes of a capable worker start, made for the first.
	emptyRoot *emptyRoot
}

// New starts the resident warden parent and returns a worker that is ready.
func New(c Config) (*Worker, error) {
	ids, err := chooseIDs(c.User)
	if err != nil {
		return nil, err
	}
	base, err := newBase(ids.capable)
	if err != nil {
		return nil, err
	}
	p, err := startParent(c.Warden)
	if err != nil {
		return nil, err
	}
	return &Worker{config: c, ids: ids, parent: p, base: base, cgroups: cgroups{parents: c.Cgroups}, maps: idmaps{agent: ids}}, nil
}

// Run answers requests until skepd closes the connection.
func (w *Worker) Run() error {
	defer w.parent.close()
	defer func() {
		for _, h := range w.halves {
			w.drop(h)
		}
	}()
	defer w.maps.close()
	defer func() {
		if w.emptyRoot != nil {
			w.emptyRoot.close()
		}
	}()
	for {
		var request proto.Request
		id, files, err := proto.Receive(w.config.Conn, &request)
		var body *proto.BodyError
		switch {
		case errors.Is(err, proto.ErrClosed):
			return nil
		case errors.As(err, &body):
			if err := w.refuse(id, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		err = w.answer(id, &request, files)
		sys.CloseAll(files)
		if err != nil {
			return err
		}
	}
}

func (w *Worker) refuse(id uint64, cause error) error {
	return proto.Send(w.config.Conn, id, proto.Reply{Error: cause.Error()})
}

func (w *Worker) answer(id uint64, r *proto.Request, files []*os.File) error {
	if err := r.Check(len(files)); err != nil {
		return w.refuse(id, fmt.Errorf("refused by the worker: %w", err))
	}
	if r.Prepare != nil {
		w.prepare()
		return nil
	}
	if r.Replace != nil {
		return w.refuse(id, w.replace(id)) // only if it could not
	}
	reply, pidfd, err := w.perform(r, files)
	if err != nil {
		return w.refuse(id, err)
	}
	if pidfd == nil {
		return proto.Send(w.config.Conn, id, reply)
	}
	defer func() { _ = pidfd.Close() }()
	return proto.Send(w.config.Conn, id, reply, pidfd)
}

func (w *Worker) perform(r *proto.Request, files []*os.File) (proto.Reply, *os.File, error) {
	switch {
	case r.Build != nil:
		return w.build(r.Build, files)
	case r.Box != nil:
		return w.startBox(files)
	case r.Layer != nil:
		return w.startLayer(r.Layer, files)
	case r.Keys != nil:
		return w.startKeys(files)
	case r.Close != nil:
		usage, err := w.cgroups.remove(r.Close.Cell)
		return proto.Reply{Usage: usage}, nil, err
	case r.Count != nil:
		return proto.Reply{Usage: w.cgroups.usage(r.Count.Cell)}, nil, nil
	case r.Unseen != nil:
		bytes, err := w.unseen(files[0], files[1])
		return proto.Reply{Unseen: bytes}, nil, err
	default:
		return proto.Reply{Features: &proto.Features{
			Capable: w.ids.capable, Limits: w.cgroups.enforceable(), AgentID: w.ids.inside, GroupID: w.ids.group,
		}}, nil, nil
	}
}
