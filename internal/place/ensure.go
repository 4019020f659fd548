package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/sys"
)

// Ensure makes STATE and RUN (0700) where they are absent and checks them.
func (p Places) Ensure() error {
	for _, dir := range []string{p.State, p.Run} {
		if err := Private(dir, p.uid); err != nil {
			return err
		}
	}
	return nil
}

// Private makes dir with mode 0700, its missing parents too, and refuses one
// that is a symlink, another's, or open to others. The check follows the
// making, so that a directory which somebody else put there first is found.
func Private(dir string, uid int) error {
	if err := makeParents(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	f, st, err := sys.OpenDir(dir)
	if err != nil {
		if link, lerr := os.Readlink(dir); lerr == nil {
			return fmt.Errorf("%s is a symlink to %s and is not used: remove it, or name the directory itself", dir, link)
		}
		return err
	}
	defer f.Close()
	if int64(st.UID) != int64(uid) {
		return fmt.Errorf("%s belongs to user %d, not to %d, and is not used: remove it, or name another with --state or --run", dir, st.UID, uid)
	}
	if st.Mode&0o077 != 0 {
		return fmt.Errorf("%s is open to others (mode %04o) and is not used: chmod 700 %s", dir, st.Mode, dir)
	}
	return trustedAbove(dir, uid)
}

// makeParents makes what is missing above a place, closed to others as the XDG
// specification wants it.
func makeParents(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	return nil
}

// trustedAbove walks the real path upwards: who may write a directory may
// replace what lies in it, unless it is sticky (as /tmp is) and what lies in
// it is not his. Group-writable directories pass: with one group per user
// they are the default of several distributions.
func trustedAbove(dir string, uid int) error {
	above, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("resolve %s: %w", filepath.Dir(dir), err)
	}
	for {
		st, err := sys.Owner(above)
		if err != nil {
			return err
		}
		const sticky, others = 0o1000, 0o002
		if st.Mode&others != 0 && st.Mode&sticky == 0 {
			return fmt.Errorf("%s is not used, since anybody may write to %s (mode %04o): chmod o-w %s", dir, above, st.Mode, above)
		}
		if st.UID != 0 && int64(st.UID) != int64(uid) {
			return fmt.Errorf("%s is not used, since %s belongs to user %d: name a directory of your own", dir, above, st.UID)
		}
		if above == "/" {
			return nil
		}
		above = filepath.Dir(above)
	}
}
