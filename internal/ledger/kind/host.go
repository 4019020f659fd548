package kind

// Recovery says what a daemon found when it opened a ledger that had not been
// closed (D11). Its entry is in the chain of the host.
type Recovery struct {
	Position      uint64 `json:"position"`       // where whole entries end in the journal, in bytes
	Dropped       uint64 `json:"dropped"`        // bytes after it, never acknowledged
	DroppedDigest string `json:"dropped_digest"` // SHA-256 of them; they are kept in the file Kept
	Kept          string `json:"kept,omitempty"`
	SealsDropped  uint64 `json:"seals_dropped"` // bytes of a seal that was half written
	Unsealed      uint64 `json:"unsealed"`      // whole entries that no seal covered
	Cells         uint64 `json:"cells"`         // chains that they belong to
}

// Seal signs one segment of a cell's chain (D5). Its entry is in the chain of
// all seals, so that its seq counts seals and its prev is the seal before it.
type Seal struct {
	Segment    uint64     `json:"segment"` // of the cell, from 1
	First      uint64     `json:"first"`   // seq of the segment's first entry
	Last       uint64     `json:"last"`
	Count      uint64     `json:"count"`
	Hash       string     `json:"hash"`     // of the last entry
	Before     string     `json:"before"`   // hash of the cell's seal before this, or 64 zeros
	At         uint64     `json:"at"`       // position in the journal where the segment was cut
	Unsealed   uint64     `json:"unsealed"` // position before which every entry is sealed, this seal included
	Key        string     `json:"key"`      // id of the key pair that signs
	Signatures Signatures `json:"signatures"`
}

// Signatures are both over the seal's entry with empty signatures; both must
// verify. Standard base64.
type Signatures struct {
	Ed25519 string `json:"ed25519"`
	MLDSA65 string `json:"mldsa65"`
}

// Kind implements [Body].
func (Recovery) Kind() Kind { return KindRecovery }

// Kind implements [Body].
func (Seal) Kind() Kind { return KindSeal }
