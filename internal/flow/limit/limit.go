// Package limit has the numbers of boundary.md, B150, that more than one program
// holds. The whole table is internal/boundary/limits.go.
package limit

import "time"

// Of one cell.
const (
	OpenFlows   = 1024
	IdleTCP     = time.Hour
	RecordBatch = 256 // records in one request to skepd
)

// Of all cells of one owner.
const (
	OwnerFlows    = 8192  // open
	OwnerNewFlows = 5000  // a second
	OwnerBurst    = 10000 // at once
	OwnerKept     = 1600  // of those, what no cell takes more of than its share
)

// Of a lease of bytes (rights.md, R9a).
const (
	LeaseParts = 16      // of what is left, one is leased
	MinLease   = 1 << 20 // bytes
	MaxLease   = 64 << 20
)

// BoxMemory is how much one box may have, bytes.
const BoxMemory = 256 << 20

// MaxHold is how long a flow may wait for the person who is asked (B140).
const MaxHold = 120 * time.Second
