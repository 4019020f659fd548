package snapshot

// MergedMode is the mode that a merge gives to an object: what the cell chose,
// but never set-id or sticky, and never wider than the base for group and
// others (S5). They keep what they had, may lose it, and gain execution only
// with the owner's and only where they could read. What is new is never
// writable for them.
func MergedMode(base, layer State) uint32 {
	mode := layer.Mode & 0o777
	if layer.Type == Symlink {
		return 0
	}
	if base.Type == Dir && layer.Type == Dir {
		// On a directory these bits start no program; what was there and still
		// is may stay.
		mode |= base.Mode & layer.Mode & 0o7000
	}
	if base.Type == Absent || base.Type != layer.Type {
		return mode &^ 0o022
	}
	allowed := base.Mode & 0o077
	if mode&0o100 != 0 {
		allowed |= base.Mode & 0o044 >> 2
	}
	return mode & (0o7700 | allowed)
}
