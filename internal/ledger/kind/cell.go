package kind

// CellDeclared says what a cell was to be, before it is built: whose profile,
// which rights in canonical text, and who confirmed them (L3).
type CellDeclared struct {
	Name          string   `json:"name,omitempty"`
	Program       Bytes    `json:"program"`
	ArgsDigest    string   `json:"args_digest"` // SHA-256 over the arguments, each ended by NUL; they may hold a prompt
	Args          int      `json:"args"`
	Profile       Bytes    `json:"profile"` // the file, or the name of a shipped one
	ProfileDigest string   `json:"profile_digest"`
	Rights        []string `json:"rights"` // canonical text, sorted
	ConfirmedBy   string   `json:"confirmed_by"`
	ConfirmedHow  string   `json:"confirmed_how"` // prompt, flag, before, shipped; bundle: another runtime runs it
	Parent        string   `json:"parent,omitempty"`
	// Of an agent that another runtime runs, behind a boundary of ours:
	ExternalID Bytes  `json:"external_id,omitempty"`
	Identity   string `json:"identity,omitempty"` // verified, unverified, none
	Listener   Bytes  `json:"listener,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	PoolSlice  string `json:"pool_slice,omitempty"` // a number
}

// CellStarted says that the agent was executed, and behind which walls.
type CellStarted struct {
	Driver      string   `json:"driver"`
	Walls       []string `json:"walls"`
	NotEnforced []string `json:"not_enforced"` // limits marked if_available that this host cannot hold
	Ms          uint64   `json:"ms"`           // from the request to the agent's exec
}

// CellStopped says why every process is gone.
type CellStopped struct {
	Cause  string `json:"cause"` // exit, signal, budget, operator, revoked, boundary-died, daemon-died, failed
	Exit   uint8  `json:"exit"`  // as the caller saw it: 0 to 255, or 128 + signal
	Signal uint8  `json:"signal,omitempty"`
	Limit  string `json:"limit,omitempty"` // the budget that ended it, as in a profile: "wall: 20m"
	Peak   string `json:"peak,omitempty"`  // what was reached, in the limit's unit
	Detail Bytes  `json:"detail,omitempty"`
	Ms     uint64 `json:"ms"`
}

// Exec is one execve as seen by notification. Path and arguments are what the
// caller showed; Ran is the file that ran, where it was found to differ (L12).
type Exec struct {
	Pid      uint32  `json:"pid"`
	Parent   uint32  `json:"parent"`
	Path     Bytes   `json:"path"`
	Args     []Bytes `json:"args"`
	Cut      bool    `json:"cut"` // the arguments were longer than the bound
	Decision string  `json:"decision"`
	Reason   string  `json:"reason,omitempty"`
	Ran      Bytes   `json:"ran,omitempty"`
}

// CallDenied is a system call that the filter refused, counted while it repeats.
type CallDenied struct {
	Pid    uint32 `json:"pid"`
	Call   string `json:"call"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// FileDropped is a path of a layer that cannot be or was not carried on.
type FileDropped struct {
	Path   Bytes  `json:"path"`
	Type   string `json:"type,omitempty"`
	Reason string `json:"reason"`
	Digest string `json:"digest,omitempty"`
}

// Note is a sentence that its writer wanted kept.
type Note struct {
	By   string `json:"by"`
	Text Bytes  `json:"text"`
}

// Kind implements [Body].
func (CellDeclared) Kind() Kind { return KindCellDeclared }

// Kind implements [Body].
func (CellStarted) Kind() Kind { return KindCellStarted }

// Kind implements [Body].
func (CellStopped) Kind() Kind { return KindCellStopped }

// Kind implements [Body].
func (Exec) Kind() Kind { return KindExec }

// Kind implements [Body].
func (CallDenied) Kind() Kind { return KindCallDenied }

// Kind implements [Body].
func (FileDropped) Kind() Kind { return KindFileDropped }

// Kind implements [Body].
func (Note) Kind() Kind { return KindNote }
