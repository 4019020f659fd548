// Package proto is the closed set of requests to the cell builder: the only
// package that skepd and skep-worker share.
//
// Its laws:
//   - A request that is not in this file is refused, never ignored; so is an
//     unknown field, a missing descriptor, or one too many (L6).
//   - Nothing here names a path of the host: what the cell gets from it comes
//     as a descriptor that the caller opened with its own rights (L6b). The
//     paths in a Step are paths of the cell.
//   - No request carries a host id: ids come from the worker's own knowledge
//     of the user that it works for (L6a).
//
// One message over a seqpacket socket is one request or reply. Its body stands in
// a sealed memory file, the first descriptor, since an agent's arguments may be
// larger than a socket's buffer.
package proto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Version is spoken by both sides, or the connection ends.
const Version = 1

// Bounds of a request.
const (
	MaxBody  = 4 << 20 // bytes of a body
	MaxSteps = 4096
	MaxArgs  = 4096
)

// Header is the message itself.
type Header struct {
	Version int    `json:"v"`
	ID      uint64 `json:"id"`
}

// Request is one of its fields.
type Request struct {
	Prepare *Prepare `json:"prepare,omitempty"`
	Build   *Build   `json:"build,omitempty"`
	Box     *Box     `json:"box,omitempty"`
	Layer   *Layer   `json:"layer,omitempty"`
	Keys    *Keys    `json:"keys,omitempty"`
	Close   *Close   `json:"close,omitempty"`
	Count   *Count   `json:"count,omitempty"`
	Unseen  *Unseen  `json:"unseen,omitempty"`
	Probe   *Probe   `json:"probe,omitempty"`
	Replace *Replace `json:"replace,omitempty"`
}

// Prepare asks for a half-built cell (L22), which the next Build completes: with
// what every cell has, and no right, secret or layer. Where there is one it changes
// nothing. It is not answered: what cannot be done the Build says.
type Prepare struct{}

// Build asks for a cell. Its descriptors, in this order: control, box,
// listening and log sockets and files of the warden; stdio if Stdio; then the
// ones that steps name by index.
type Build struct {
	Cell     string   `json:"cell"`
	Hostname string   `json:"hostname"`
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`
	Dir      string   `json:"dir"`
	Terminal *Size    `json:"terminal,omitempty"`
	Stdio    bool     `json:"stdio,omitempty"`
	Steps    []Step   `json:"steps"`
	Limits   Limits   `json:"limits"`
}

// Size is a terminal's, in characters.
type Size struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Limits are the amounts that the kernel is to enforce; 0 is no limit.
type Limits struct {
	Memory   int64 `json:"memory,omitempty"`    // bytes
	Pids     int64 `json:"pids,omitempty"`      // processes and threads
	MilliCPU int64 `json:"milli_cpu,omitempty"` // thousandths of a processor
}

// Op is what a step does.
type Op string

// The operations of a step.
const (
	OpDir     Op = "dir"     // make a directory of the skeleton
	OpFile    Op = "file"    // make a file of the skeleton with Data
	OpSymlink Op = "symlink" // make a link of the skeleton to Target
	OpBind    Op = "bind"    // mount descriptor FD
	OpOverlay Op = "overlay" // mount an overlay of descriptors FD (base) and, unless ReadOnly, FD+1 (a directory with upper and work)
	OpTmpfs   Op = "tmpfs"   // mount a tmpfs of Size bytes
	OpHide    Op = "hide"    // cover a path with nothing
	OpSelf    Op = "self"    // mount a path of the cell onto itself
	OpCover   Op = "cover"   // show the cell's file Target at a path
)

// Step is one part of the cell's tree, in the order in which it is built. The
// root, /dev and /proc are the worker's, and there before the first step.
type Step struct {
	Op       Op     `json:"op"`
	Path     string `json:"path"`
	Mode     uint32 `json:"mode,omitempty"`
	FD       int    `json:"fd,omitempty"`
	Data     []byte `json:"data,omitempty"`
	Target   string `json:"target,omitempty"`
	Size     uint64 `json:"size,omitempty"`
	ReadOnly bool   `json:"read_only,omitempty"`
	Optional bool   `json:"optional,omitempty"`
	NoExec   bool   `json:"no_exec,omitempty"`
	File     bool   `json:"file,omitempty"`
	Writable bool   `json:"writable,omitempty"`
	// Private says that FD lies in the daemon's own layer, not in a grant of the caller.
	Private bool `json:"private,omitempty"`
	// Own says that FD is a layer with a base of its own, its directory lower: what
	// a dir, file or symlink makes stands there, Path being /lower/..., and an overlay
	// is over it.
	Own bool `json:"own,omitempty"`
}

// Box asks for a boundary process. Its descriptors: the connection to skepd,
// the socket to the warden, the lifeline, and with Model the connection to skep-model.
type Box struct {
	Model bool `json:"model,omitempty"`
}

// Layer asks for a process that walks and removes layers (S12a). Its
// descriptors: the connection to it, then per grant its base, unless it is Plain
// or of files, its files, each opened for reading, and its layer directory.
type Layer struct {
	Walk    bool         `json:"walk,omitempty"`
	Open    bool         `json:"open,omitempty"`
	Remove  bool         `json:"remove,omitempty"`
	Measure bool         `json:"measure,omitempty"`
	Grants  []LayerGrant `json:"grants"`
}

// LayerGrant says what stands at its descriptors.
type LayerGrant struct {
	Plain bool     `json:"plain,omitempty"` // no base: a directory to be emptied
	Own   bool     `json:"own,omitempty"`   // no base: single files of one directory
	Files []string `json:"files,omitempty"` // with Own, the names of those that the host has
}

// Descriptors is how many belong to the request.
func (l *Layer) Descriptors() int {
	n := 1
	for _, g := range l.Grants {
		n += 2 + len(g.Files)
		if g.Plain || g.Own {
			n--
		}
	}
	return n
}

// Keys asks for the process between a cell and its owner's ssh-agent (L15). Its
// descriptors: the connection to skepd, the listening socket, the agent.
type Keys struct{}

// Close asks to remove what the worker keeps for a cell that has ended: its cgroups.
type Close struct {
	Cell string `json:"cell"`
}

// Count asks what the kernel has counted of a cell so far.
type Count struct {
	Cell string `json:"cell"`
}

// Unseen asks how many bytes of files without a name the processes below a warden
// hold open. Its descriptors: the warden's pidfd, and a directory on the filesystem
// of the layers.
type Unseen struct{}

// Probe asks what this worker can do here.
type Probe struct{}

// Replace asks the worker to execute the program that stands at its path now, in its own
// process. That one answers, with its build; or the one that stays, with an error.
type Replace struct{}

// Reply answers the request of the same id. Pid and a pidfd, the second
// descriptor, are there for Build, Box, Layer and Keys.
type Reply struct {
	Error    string    `json:"error,omitempty"`
	Pid      int       `json:"pid,omitempty"`
	Limits   *Enforced `json:"limits,omitempty"`
	Usage    *Usage    `json:"usage,omitempty"`
	Unseen   int64     `json:"unseen,omitempty"` // bytes
	Features *Features `json:"features,omitempty"`
	Build    string    `json:"build,omitempty"` // of the program that took the place
}

// Enforced says which limits hold in the cell that was built.
type Enforced struct {
	Memory bool `json:"memory"`
	Pids   bool `json:"pids"`
	CPU    bool `json:"cpu"`
	Time   bool `json:"time"` // processor time is counted; skepd ends the cell
}

// Usage is what the kernel counted when a cell was closed, or has counted so far.
type Usage struct {
	Memory     int64 `json:"memory,omitempty"`      // bytes, now
	Cache      int64 `json:"cache,omitempty"`       // bytes of Memory that hold files
	MemoryPeak int64 `json:"memory_peak,omitempty"` // bytes
	OOMKills   int64 `json:"oom_kills,omitempty"`
	PidsMax    int64 `json:"pids_max,omitempty"` // refused forks
	CPUNanos   int64 `json:"cpu_nanos,omitempty"`
}

// Features are what the worker found on this host.
type Features struct {
	Capable bool     `json:"capable"` // an id range and idmapped mounts
	Limits  Enforced `json:"limits"`
	AgentID uint32   `json:"agent_id"` // the agent's id in a cell
	GroupID uint32   `json:"group_id"` // its group's
}

// Encode returns the canonical body of a request or reply.
func Encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode worker message: %w", err)
	}
	if len(body) > MaxBody {
		return nil, fmt.Errorf("encode worker message: %d bytes are more than %d", len(body), MaxBody)
	}
	return body, nil
}

// Decode reads one body strictly: an unknown field or trailing bytes are errors.
func Decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode worker message: %w", err)
	}
	if d.More() {
		return errors.New("decode worker message: bytes after its end")
	}
	return nil
}
