package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/seal"
	"skep.dev/skep/internal/sys"
)

// HostCell is the cell of entries that belong to no cell: recoveries. It is no
// cell id, since those have 26 characters.
const HostCell = "host"

// What an append or an opening may be refused for. Whoever gets one denies.
var (
	ErrClosed  = errors.New("ledger is closed")
	ErrFull    = errors.New("ledger's disk is full")
	ErrBroken  = errors.New("ledger cannot write any more: restart the daemon, and look at its disk")
	ErrInUse   = errors.New("ledger is in use by another daemon")
	ErrDamaged = errors.New("ledger is damaged: run `skep ledger verify`; moving its directory away begins a new one")
)

// Options of [Open]. The zero value is what a daemon uses.
type Options struct {
	Keys  string // directory of the key pair; default: keys beside the ledger
	Clock Clock

	SegmentBytes uint64        // a segment is cut at this size; default 4 MiB
	SegmentAge   time.Duration // or at this age; default 60 s
	JournalBytes uint64        // a journal file is left at this size; default 64 MiB
	Reserve      int64         // bytes kept for the last words of a full disk; default 4 MiB
	SyncWithin   time.Duration // of what is acknowledged by the write; default 50 ms

	disk disk
}

func (o *Options) fill(dir string) {
	if o.Keys == "" {
		o.Keys = filepath.Join(filepath.Dir(filepath.Clean(dir)), "keys")
	}
	if o.Clock == nil {
		o.Clock = realClock{}
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 4 << 20
	}
	if o.SegmentAge == 0 {
		o.SegmentAge = time.Minute
	}
	if o.JournalBytes == 0 {
		o.JournalBytes = 64 << 20
	}
	if o.Reserve == 0 {
		o.Reserve = 4 << 20
	}
	if o.SyncWithin == 0 {
		o.SyncWithin = 50 * time.Millisecond
	}
	if o.disk == nil {
		o.disk = osDisk{}
	}
}

// Ledger is the one writer of a ledger directory.
type Ledger struct {
	dir  string
	opts Options
	lock *os.File
	key  *seal.Signer

	sealer *sealer

	// Taken in this order. syncing is the leader's; writing is held around
	// writes to the journal.
	syncing, writing, mu sync.Mutex

	chains map[string]*chain
	open   map[*chain]struct{} // those with an open segment
	cur    *group              // gathers entries that are not written yet
	spare  []byte              // buffers for the group after this
	marks  []undo
	behind []*group // written, not synced, in order
	inSync []*group // being synced
	lead   bool     // somebody is syncing, or has been told to
	synced uint64   // position up to which the journal is durable
	tick   chan struct{}
	late   bool   // a sync of written entries is due within SyncWithin
	undone uint64 // how often entries were taken back
	last   int    // how many waited for the last sync; the leader's
	err    error
	full   fullness
	closed bool

	bodies  sync.Pool    // of *[]byte
	waiting atomic.Int64 // how many wait for a sync that has not begun; changed with mu held

	// The journal; changed only with writing held.
	file    file
	base    uint64 // position of the file's first byte
	written uint64
}

// chain is the end of one cell's chain, and its open segment.
type chain struct {
	cell string
	mark

	sealed  entry.Hash // the cell's last seal; zeros if it has none
	segment uint64     // number of the open segment, from 1
	first   uint64     // seq of its first entry, which may not exist yet
	pos     uint64     // position of that entry, if it exists
	agent   string
	stop    func() // of the age timer; nil if the segment is empty
	asked   bool   // the sealer has been asked
	in      *group // that moved it last, and has its mark
}

// mark is what an entry moves, and what is put back if it was not written.
type mark struct {
	seq  uint64
	hash entry.Hash
	size uint64 // bytes of the open segment
}

func (c *chain) isOpen() bool { return c.seq >= c.first }

// Open opens the ledger in dir, making it if it is not there, and becomes its
// only writer. It repairs what a crash left (D11) and seals it. Errors: ErrInUse,
// ErrDamaged, [seal.ErrKey] if the key is not the one that sealed it.
func Open(dir string, opts Options) (*Ledger, error) {
	opts.fill(dir)
	if err := os.MkdirAll(filepath.Join(dir, "journal"), 0o700); err != nil {
		return nil, fmt.Errorf("open the ledger %s: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger %s: %w", dir, err)
	}
	l, err := openLocked(dir, opts, lock)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("open the ledger %s: %w", dir, err)
	}
	return l, nil
}

func openLocked(dir string, opts Options, lock *os.File) (*Ledger, error) {
	if err := sys.LockFile(lock); errors.Is(err, sys.ErrLocked) {
		return nil, ErrInUse
	} else if err != nil {
		return nil, fmt.Errorf("lock it: %w", err)
	}
	_, err := os.Stat(filepath.Join(dir, "seals"))
	key, err := seal.Load(opts.Keys, errors.Is(err, os.ErrNotExist))
	if err != nil {
		return nil, err
	}
	l := &Ledger{
		dir: dir, opts: opts, lock: lock, key: key,
		chains: map[string]*chain{}, open: map[*chain]struct{}{}, cur: newGroup(nil, nil), tick: make(chan struct{}),
	}
	l.sealer = newSealer(l)
	found, err := l.repair()
	if err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	l.keepReserve()
	go l.sealer.run()
	if found.Dropped == 0 && found.SealsDropped == 0 && found.Unsealed == 0 {
		return l, nil
	}
	// The recovery is acknowledged, and signed with all that it found, before
	// anything new is recorded.
	if _, err := l.Append(context.Background(), Entry{Cell: HostCell, Body: found}); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("record the recovery: %w", err)
	}
	if err := l.sealAll(); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("seal the recovery: %w", err)
	}
	return l, nil
}

// Key returns the public half of the ledger's key.
func (l *Ledger) Key() *seal.Public { return l.key.Public() }

// EndCell seals the open segment of a cell now. Later entries of the cell (its
// difference, its merge) begin a new one.
func (l *Ledger) EndCell(cell string) error {
	l.mu.Lock()
	c := l.chains[cell]
	l.mu.Unlock()
	if c == nil {
		return nil
	}
	return l.sealer.wait(c)
}

func (l *Ledger) sealAll() error {
	l.mu.Lock()
	open := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	return l.sealer.wait(open...)
}

// Close seals every open segment and gives the directory back. Appends that
// are under way finish; later ones are refused.
func (l *Ledger) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	err := l.sync()
	if err == nil {
		err = l.sealAll()
	}
	l.sealer.stop()
	l.mu.Lock()
	close(l.tick) // followers see that it is closed
	l.tick = make(chan struct{})
	l.mu.Unlock()
	return errors.Join(err, l.closeFiles())
}

func (c *chain) stopTimer() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

func (l *Ledger) closeFiles() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	for c := range l.open {
		c.stopTimer()
	}
	l.mu.Unlock()
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	return errors.Join(err, l.sealer.close(), l.lock.Close())
}
