package sshagent

// MaxUse bounds a message between skepd and the relay, in bytes.
const MaxUse = 64 << 10

// Use is one message to skepd, which answers [Granted] or nothing good.
type Use struct {
	Key    string `json:"key,omitempty"`  // fingerprint
	Host   string `json:"host,omitempty"` // whom the signature is for, where the page names hosts
	Did    string `json:"did"`
	Reason string `json:"reason,omitempty"` // why it is refused; "" asks for the record of a signature
	Count  int    `json:"count,omitempty"`  // refusals of this kind since the last record
}

// The answers of skepd.
const (
	Granted byte = 'y'
	Denied  byte = 'n'
)
