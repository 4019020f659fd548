package kind

// Flow is what is recorded of one attempt to reach one destination; the fields
// are those of B191, without the ones that the entry itself holds (time, cell,
// agent).
type Flow struct {
	Flow        string `json:"flow"`               // id, the same in intent and outcome
	Listener    string `json:"listener,omitempty"` // native: sockets in the cell's own namespace
	Direction   string `json:"direction"`          // out, in
	Wire        string `json:"wire,omitempty"`     // how it was asked for: native, or by tunnel h1 or h2
	Transport   string `json:"transport"`          // tcp, udp, or other: counted by the kernel only
	Destination Bytes  `json:"destination"`        // the name, or the address where there was none
	Port        uint16 `json:"port"`
	Address     string `json:"address,omitempty"` // only if connected
	Peer        Bytes  `json:"peer,omitempty"`
	Connection  string `json:"connection,omitempty"`
	Decision    string `json:"decision"` // allow, block, fail; of what waits ask
	Reason      string `json:"reason"`
	Rule        string `json:"rule,omitempty"`
	Line        uint32 `json:"line,omitempty"` // of the profile
	AllowWith   string `json:"allow_with,omitempty"`
	Generation  uint64 `json:"generation"`
	Policy      string `json:"policy"` // digest
	ExternalID  Bytes  `json:"external_id,omitempty"`
	Inner       Bytes  `json:"inner,omitempty"`  // what the agent said inside: protocol, name, ALPN
	Secret      string `json:"secret,omitempty"` // its name
	Approval    string `json:"approval,omitempty"`
	Meta        string `json:"meta,omitempty"`
	Count       uint64 `json:"count,omitempty"`   // attempts that one record stands for
	Dropped     uint64 `json:"dropped,omitempty"` // addresses of the name that were not kept (B102)
	BytesUp     uint64 `json:"bytes_up,omitempty"`
	BytesDown   uint64 `json:"bytes_down,omitempty"`
	Ms          uint64 `json:"ms,omitempty"`
}

// FlowIntent is durable before the flow opens.
type FlowIntent Flow

// FlowOutcome says how an opened flow ended, with its bytes and duration.
type FlowOutcome Flow

// FlowDenied is an attempt that got nothing.
type FlowDenied Flow

// FlowHeld is an attempt that waits for a person, who has been asked. What became of it is
// an entry of its own, unless the agent gave up.
type FlowHeld Flow

// NameResolved is one question of a cell's resolver and what it was told.
type NameResolved struct {
	Name       Bytes    `json:"name"`
	Type       string   `json:"type"`
	Answers    []string `json:"answers"`
	Decision   string   `json:"decision"`
	Reason     string   `json:"reason"`
	Rule       string   `json:"rule,omitempty"`
	Line       uint32   `json:"line,omitempty"`
	AllowWith  string   `json:"allow_with,omitempty"`
	Generation uint64   `json:"generation"`
	Policy     string   `json:"policy"`
	Count      uint64   `json:"count,omitempty"`
}

// SecretUsed says that a placeholder was filled in, never with what.
type SecretUsed struct {
	Secret    string `json:"secret"`
	Flow      string `json:"flow"`
	Host      Bytes  `json:"host"`
	Placement string `json:"placement"`
	Decision  string `json:"decision"`
	Reason    string `json:"reason"`
}

// Kind implements [Body].
func (FlowIntent) Kind() Kind { return KindFlowIntent }

// Kind implements [Body].
func (FlowOutcome) Kind() Kind { return KindFlowOutcome }

// Kind implements [Body].
func (FlowDenied) Kind() Kind { return KindFlowDenied }

// Kind implements [Body].
func (FlowHeld) Kind() Kind { return KindFlowHeld }

// Kind implements [Body].
func (NameResolved) Kind() Kind { return KindNameResolved }

// Kind implements [Body].
func (SecretUsed) Kind() Kind { return KindSecretUsed }
