// Package cell is the contract of a confined process tree, whatever confines it.
//
// Its laws:
//   - A driver gets descriptors and values, never a path of the host to open.
//   - Start either returns a running cell or undoes everything and says why.
//   - A cell ends exactly once: Done is closed after the last process is gone,
//     and only then does Result say how.
//   - A driver records nothing and decides nothing; the daemon does (cell.md).
package cell

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"skep.dev/skep/internal/handover/bequest"
)

// Spec is everything that a cell is made of. The files in it stay the caller's;
// a driver duplicates what it keeps.
type Spec struct {
	ID       string
	Hostname string
	Argv     []string
	Env      []string // NAME=value, complete; its PATH finds a name without a slash
	Dir      string   // working directory, in the cell
	Terminal *Size    // nil: three pipes

	Grants []Grant
	// Narrow are rules below a grant, in the order of the path plan (L8, L8b).
	Narrow []Narrow
	// Links are symlinks of the cell's root, outside of all grants: granted paths
	// lead through them on the host.
	Links []Link
	// Files are generated for the cell (L16a, L13b), by their path in it.
	Files []File
	// Covers show one of Files in the place of a file that a grant shows.
	Covers []Cover
	// Home and Tmp are directories of the layer, mounted at HomePath and /tmp.
	Home, Tmp *os.File
	HomePath  string
	ShmSize   int64 // bytes of /dev/shm
	// Keys is a directory of the daemon's with the socket of an ssh-agent, mounted at
	// [KeysDir]; nil: none (L15).
	Keys *os.File
	// Size is an empty directory of the daemon's for the files that show the cell
	// its own size (L13b); nil: it sees the host's.
	Size *os.File

	Limits Limits

	Stdio   *os.File // stream socket of the attached client, or nil
	Box     *os.File // the warden's end of its socket to the box
	Control *os.File // listening unix socket at RUN/cells/ID/w
	Log     *os.File // the bounded log (L18b)
}

// KeysDir is where a cell sees the directory Keys of its Spec.
const KeysDir = "/.skep/keys"

// Size is a terminal's, in characters.
type Size struct{ Rows, Columns uint16 }

// Grant is one path of the host that the cell sees at the same path.
type Grant struct {
	Path     string
	Object   *os.File // O_PATH, opened by the caller of the run
	Dir      bool
	Writable bool
	// Layer is the directory of a writable grant's own files, with the
	// subdirectories upper and work (one mount holds both, as overlayfs wants).
	// Writable files of one directory have one layer, with a third, lower, that
	// holds a copy of each.
	Layer *os.File
}

// Link is a symlink in the cell.
type Link struct{ Path, Target string }

// NarrowKind is what a rule below a grant does.
type NarrowKind int

// The kinds of a narrower rule.
const (
	ReadOnly   NarrowKind = iota + 1 // writable above, read-only here
	Hidden                           // not there
	MountPoint                       // a directory that must not be renamed away
)

// Narrow is one rule below a grant. A path that does not exist is skipped: the
// difference judges it again.
type Narrow struct {
	Path string
	Kind NarrowKind
}

// File is a generated, read-only file. A path below /proc covers what is there.
type File struct {
	Path    string
	Content []byte
}

// Cover has the content of File, a generated file, stand at Path, read-only.
type Cover struct{ Path, File string }

// Limits are what the kernel is to enforce; 0 is none.
type Limits struct {
	Memory   int64 // bytes
	Pids     int64
	MilliCPU int64
}

// Enforced says which limits hold. Time says that processor time is counted.
type Enforced struct{ Memory, Pids, CPU, Time bool }

// Event is what happens to a running cell.
type Event struct {
	Kind EventKind
	Text string
}

// EventKind is the kind of an Event.
type EventKind int

// The kinds of an event.
const (
	Attached EventKind = iota + 1 // a client is connected
	Detached                      // the client has gone
)

// Result is how a cell ended.
type Result struct {
	// ExitCode is the agent's, 0..255 or 128+signal; 126 and 127 if it was not
	// executable or not found; 125 if the cell failed.
	ExitCode int
	// Failed is not nil if the cell ended because a part of it did.
	Failed error
	Usage  Usage
	// Left is not nil if something that the host keeps for the cell could not be
	// removed: a Sweeper tries again.
	Left error
}

// ErrWarden is how a cell failed whose warden was killed: its boxes end with that, and not the
// other way round.
var ErrWarden = errors.New("its warden was killed")

// Usage is what the kernel counted.
type Usage struct {
	Memory     int64 // bytes, now; 0 after the end
	Cache      int64 // bytes of Memory that hold files and can be had back
	MemoryPeak int64 // bytes
	OOMKills   int64
	Unforked   int64 // processes and threads that the limit refused
	CPU        time.Duration
}

// Running is one cell.
type Running interface {
	// Signal asks PID 1 to pass the signal on to the agent's process group.
	Signal(number int) error
	// Kill ends every process of the cell at once.
	Kill() error
	// Attach hands over a client's stream socket; a client that was there is left.
	Attach(client *os.File) error
	// Events delivers until the cell is done.
	Events() <-chan Event
	// Done is closed when every process of the cell is gone.
	Done() <-chan struct{}
	// Result is valid after Done.
	Result() Result
	// Enforced says which of the limits hold.
	Enforced() Enforced
}

// Ended tells whether every process of a cell is gone.
func Ended(r Running) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

// Driver builds cells.
type Driver interface {
	// Start returns after the agent's exec, or with an error that names the step.
	Start(ctx context.Context, spec *Spec) (Running, error)
	// Box starts a boundary process with its ends of what it works with. They stay the caller's.
	Box(ctx context.Context, ends BoxEnds) (Process, error)
	// Layer starts a process that serves layers on conn (S12a).
	Layer(ctx context.Context, conn *os.File, powers LayerPowers, grants []LayerGrant) (Process, error)
	// Features says what this host offers.
	Features(ctx context.Context) (Features, error)
	// Close ends the driver, never a cell.
	Close() error
}

// BoxEnds are what a boundary process is started with.
type BoxEnds struct {
	Daemon   *os.File // stream socket to skepd
	Warden   *os.File // seqpacket socket to the warden
	Lifeline *os.File // seqpacket socket to skepd
	Model    *os.File // stream socket to the model gateway; may be nil
}

// KeyRelay is a driver that can start the process between a cell and its owner's
// ssh-agent (L15). The ends stay the caller's.
type KeyRelay interface {
	Keys(ctx context.Context, skepd, listener, agent *os.File) (Process, error)
}

// Mortal is a driver that can lose what it works with. It then starts nothing any
// more; cells go on.
type Mortal interface{ Gone() <-chan struct{} }

// Sweeper is a driver that removes what the host keeps for a cell whose processes
// are gone. That nothing is left is no error.
type Sweeper interface {
	Sweep(ctx context.Context, cell string) error
}

// Preparer is a driver that can begin a cell before it is asked for one: with what
// every cell has, and no right, secret or layer (L22). The next Start completes it.
type Preparer interface {
	// Prepare does not wait.
	Prepare()
}

// Pauser is a driver, or a running cell, that can be left to a program which takes this
// one's place (L20a): while it is paused, nothing is half said or half heard.
type Pauser interface {
	// Pause returns when what was begun has ended; more waits for Resume. After an error
	// nothing is paused: of a cell, that it ends.
	Pause(ctx context.Context) error
	// Resume goes on where Pause stopped.
	Resume()
}

// Leaver is a running cell or a process that describes itself, with its files,
// to the program that takes the place.
type Leaver interface {
	Leave(e *bequest.Estate) (json.RawMessage, error)
}

// Inheritor is a driver that goes on with what another program left.
type Inheritor interface {
	InheritCell(id string, left json.RawMessage, h *bequest.Heir) (Running, error)
	InheritProcess(left json.RawMessage, h *bequest.Heir) (Process, error)
}

// Meter is a driver that can say what a running cell has used so far.
type Meter interface {
	Usage(ctx context.Context, cell string) (Usage, error)
}

// LayerGrant is one writable grant for a layer process: its base and its layer
// directory (which holds upper and work). Without a base and files it is any
// directory of the daemon's, there to be emptied.
type LayerGrant struct {
	Base, Layer *os.File
	// Files, if not nil, is the grant of single files of one directory: by name, each
	// opened for reading, those that the host has.
	Files map[string]*os.File
}

// LayerPowers says what a connection to a layer process may ask for.
type LayerPowers struct {
	Walk   bool
	Open   bool // contents: for a process of the cell's owner only
	Remove bool // for the daemon only
	// Measure tells how many bytes the disk holds, for the daemon only.
	Measure bool
}

// Keeper is a running cell that can say how many bytes its processes keep on the
// disk in files without a name, which no walk of its layers finds.
type Keeper interface {
	// disk is a directory on the filesystem of the layers.
	Unseen(ctx context.Context, disk *os.File) (bytes int64, err error)
}

// Process is a helper program of a cell.
type Process interface {
	Pid() int
	Kill() error
	Done() <-chan struct{}
}

// Features are what the driver found on this host.
type Features struct {
	Capable bool // an id range and idmapped mounts
	Limits  Enforced
	AgentID uint32 // the agent's numeric id in a cell
	GroupID uint32 // its group's
}
