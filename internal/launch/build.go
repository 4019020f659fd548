package launch

import "runtime/debug"

// Build says which build a program is.
type Build struct{ Version, Commit string }

// release is the version of this source tree.
const release = "0.1.0-dev"

// ThisBuild reads what the compiler noted of the source.
func ThisBuild() Build {
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
