// Package build says which build a program is.
package build

import "runtime/debug"

// Build is a version and the commit that it was made of, if that is known.
type Build struct{ Version, Commit string }

// release is the version of this source tree.
const release = "0.1.0-dev"

// This reads what the compiler noted of the source.
func This() Build {
	b := Build{Version: release}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true" && b.Commit != "":
			b.Commit += "+"
		}
	}
	return b
}

// String names a build in one word and its commit.
func (b Build) String() string {
	if b.Commit == "" {
		return b.Version
	}
	return b.Version + " (" + b.Commit + ")"
}
