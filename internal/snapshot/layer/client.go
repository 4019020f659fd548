package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys"
)

// Client is the other end of Serve. It satisfies snapshot.Walker and may be
// used by several goroutines, one request after the other. A request whose
// context ends breaks the connection, since the answers to it are on their way.
type Client struct {
	mu     sync.Mutex
	conn   *os.File
	grants int
	buf    []byte
}

// NewClient speaks on conn, which it owns from now on, with a layer process
// that serves that many grants.
func NewClient(conn *os.File, grants int) *Client {
	return &Client{conn: conn, grants: grants, buf: make([]byte, MaxMessage)}
}

// Close hangs up, which ends the layer process.
func (c *Client) Close() error { return c.conn.Close() }

// Walk yields every entry of the layer, checked, in no order. An error of
// yield breaks the connection.
func (c *Client) Walk(ctx context.Context, yield func(snapshot.Entry) error) error {
	received := uint64(0)
	err := c.exchange(ctx, message(kindWalk).b, func(k kind, r *reader, _ []*os.File) (bool, error) {
		switch k {
		case kindEntry:
			e, err := decodeEntry(r)
			if err != nil {
				return false, fmt.Errorf("entry %d: %w", received, err)
			}
			if e.Grant >= c.grants {
				return false, fmt.Errorf("entry %d: grant %d of %d", received, e.Grant, c.grants)
			}
			received++
			return false, yield(e)
		case kindDone:
			if count := r.u64(); count != received {
				return false, fmt.Errorf("%d entries were sent, %d came", count, received)
			}
			return true, r.done()
		}
		return false, fmt.Errorf("%w: kind %d in a walk", errMalformed, k)
	})
	if err != nil {
		return fmt.Errorf("walk: %w", err)
	}
	return nil
}

// Open returns a read-only descriptor of a regular file of one side; the
// caller owns it. NotFound and NotRegular come as *Failure.
func (c *Client) Open(ctx context.Context, side snapshot.Side, grant int, path string) (*os.File, error) {
	w := message(kindOpen)
	w.u8(byte(side))
	w.u32(uint32(grant))
	w.text(path)
	var f *os.File
	err := c.exchange(ctx, w.b, func(k kind, r *reader, files []*os.File) (bool, error) {
		if k != kindFile || len(files) != 1 {
			return false, fmt.Errorf("%w: kind %d with %d descriptors", errMalformed, k, len(files))
		}
		f = files[0]
		return true, r.done()
	})
	if err == nil {
		err = mustBeFile(f)
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, fmt.Errorf("open %q in the layer process: %w", path, err)
	}
	return f, nil
}

// mustBeFile keeps a hostile server from handing us a pipe to block on.
func mustBeFile(f *os.File) error {
	st, err := sys.StatFile(f)
	if err == nil && st.Mode&sys.ModeTypeMask != sys.ModeRegular {
		err = errors.New("it passed something that is no regular file")
	}
	return err
}

// Remove throws the layer away: everything in the directories of its grants.
func (c *Client) Remove(ctx context.Context) error {
	err := c.exchange(ctx, message(kindRemove).b, func(k kind, r *reader, _ []*os.File) (bool, error) {
		if k != kindDone {
			return false, fmt.Errorf("%w: kind %d in a removal", errMalformed, k)
		}
		_ = r.u64()
		return true, r.done()
	})
	if err != nil {
		return fmt.Errorf("remove layer: %w", err)
	}
	return nil
}

// Measure tells how many bytes the disk holds of the layer: everything in the
// directories of its grants.
func (c *Client) Measure(ctx context.Context) (bytes int64, err error) {
	err = c.exchange(ctx, message(kindMeasure).b, func(k kind, r *reader, _ []*os.File) (bool, error) {
		if k != kindDone {
			return false, fmt.Errorf("%w: kind %d in a measurement", errMalformed, k)
		}
		if bytes = int64(r.u64()); bytes < 0 {
			return false, errMalformed
		}
		return true, r.done()
	})
	if err != nil {
		return 0, fmt.Errorf("measure layer: %w", err)
	}
	return bytes, nil
}

// exchange sends one request and hands each answer to take until it is done.
// Failure and progress are handled here. Any error but a Failure leaves the
// connection out of step, so it is closed.
func (c *Client) exchange(ctx context.Context, request []byte, take func(kind, *reader, []*os.File) (bool, error)) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer func() {
		stop()
		var failure *Failure
		if err != nil && !errors.As(err, &failure) {
			c.conn.Close()
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	if err := sys.SendFDs(c.conn, request); err != nil {
		return err
	}
	for {
		done, err := c.step(take)
		if done || err != nil {
			return err
		}
	}
}

func (c *Client) step(take func(kind, *reader, []*os.File) (bool, error)) (done bool, err error) {
	n, files, err := sys.RecvFDs(c.conn, c.buf, 1)
	if err != nil {
		return false, err
	}
	if n == 0 {
		sys.CloseAll(files)
		return false, fmt.Errorf("the layer process ended: %w", io.ErrUnexpectedEOF)
	}
	k, r, err := open(c.buf[:n])
	if err != nil || (k != kindFile && len(files) > 0) {
		sys.CloseAll(files)
		return false, errors.Join(err, errMalformed)
	}
	switch k {
	case kindProgress:
		return false, r.done()
	case kindFailure:
		f := &Failure{Code: Code(r.u8()), Text: r.text(maxFailure)}
		if err := r.done(); err != nil {
			return false, err
		}
		return false, f
	}
	done, err = take(k, r, files)
	if err != nil && k != kindFile {
		sys.CloseAll(files)
	}
	return done, err
}
