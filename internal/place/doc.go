// Package place finds and guards Skep's own directories: STATE, RUN and the
// config files (overview.md, "Places").
//
// Its laws:
//   - Where a place is depends on flags, SKEP_STATE, SKEP_RUN, XDG_* and the
//     home directory, in this order, and on nothing else of the environment.
//   - A place is used only if it is a real directory (no symlink), belongs to
//     the caller, and is closed to everybody else (0700); and if no directory
//     above it lets another user put a different one in its stead.
//   - What cannot be trusted is refused with the command that repairs it; it
//     is never repaired behind the user's back.
package place
