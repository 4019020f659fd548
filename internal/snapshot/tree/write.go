package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys"
)

// ErrMoved says that what was read is not what the difference bound by its
// hash.
var ErrMoved = errors.New("it is not what the difference shows")

// CopyFile makes the new file name in dir, mode 0600, with the content of src,
// holes kept, and checks it against want where want has a digest. The file stays where an error is met.
func CopyFile(ctx context.Context, dir *os.File, name string, src *os.File, want snapshot.State) error {
	dst, err := sys.OpenBeneath(dir, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	digest, err := copySparse(ctx, dst, src, want.Size)
	if err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	// A base that the layer process could not read has no digest to check.
	if !want.Unreadable && digest != want.Digest {
		return fmt.Errorf("copy %q: %w", name, ErrMoved)
	}
	return dst.Close()
}

const copyChunk = 4 << 20

// copySparse copies size bytes, skips holes, and hashes all.
func copySparse(ctx context.Context, dst, src *os.File, size int64) (digest [32]byte, err error) {
	h := sha256.New()
	zeros := io.LimitedReader{R: zeroReader{}}
	for at := int64(0); at < size; {
		start, end, err := sys.NextData(src, at, size)
		if err != nil {
			return digest, err
		}
		start, end = min(start, size), min(end, size)
		zeros.N = start - at
		if _, err := io.Copy(h, &zeros); err != nil {
			return digest, err
		}
		for at = start; at < end; {
			if err := ctx.Err(); err != nil {
				return digest, err
			}
			n := min(end-at, copyChunk)
			part := io.NewSectionReader(src, at, n)
			copied, err := io.Copy(io.MultiWriter(io.NewOffsetWriter(dst, at), h), part)
			if err == nil && copied < n {
				err = ErrMoved
			}
			if err != nil {
				return digest, err
			}
			at += n
		}
		if start == size {
			break
		}
	}
	if err := dst.Truncate(size); err != nil {
		return digest, err
	}
	// One byte more than was promised is another content.
	if n, err := src.ReadAt(make([]byte, 1), size); n > 0 || (err != nil && err != io.EOF) {
		return digest, errors.Join(err, ErrMoved)
	}
	h.Sum(digest[:0])
	return digest, nil
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// SetXattrs gives f exactly the attributes of want, and leaves those that a
// difference does not know.
func SetXattrs(f *os.File, want []snapshot.Xattr) error {
	have, oversized, err := Xattrs(f)
	if err != nil {
		return err
	}
	if oversized {
		return fmt.Errorf("set attributes of %q: it has too many", f.Name())
	}
	keep := make(map[string]bool, len(want))
	for _, x := range want {
		keep[x.Name] = true
		if err := sys.SetXattr(f, x.Name, x.Value); err != nil {
			return err
		}
	}
	for _, x := range have {
		if !keep[x.Name] {
			if err := sys.RemoveXattr(f, x.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Finish gives the file or directory name in dir, which only this process
// works in, its attributes, then its mode, then its time: in this order, since
// each needs or would move the other.
func Finish(dir *os.File, name string, xattrs []snapshot.Xattr, mode uint32, mtime time.Time) error {
	if len(xattrs) > 0 {
		f, err := sys.OpenBeneath(dir, name, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		err = SetXattrs(f, xattrs)
		f.Close()
		if err != nil {
			return err
		}
	}
	if err := sys.ChmodAt(dir, name, mode); err != nil {
		return err
	}
	return sys.SetModTimeAt(dir, name, mtime)
}
