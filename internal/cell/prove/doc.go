// Package prove tries the walls of a cell from inside of it (L10): one attempt for
// each mechanism, chosen so that only that mechanism gives the answer.
//
// Its laws:
//   - What is tried is harmless where the wall is missing.
//   - The program in the cell tells what it got and judges nothing: what has to
//     come is known to the one who asked.
//   - Anything but the expected answer is a wall that does not hold: another
//     errno, no line, two lines, a line more.
package prove

// Wall is one mechanism and how it is tried.
type Wall struct {
	Name string // of the mechanism
	Did  string // what is tried
	Want string // the one answer that proves it
}

// Dir is where the program stands in its cell: a directory of a tmpfs that is
// mounted for writing, and that nothing but Landlock keeps the agent from filling.
const Dir = "/prove"

// Program is the path of the program in the cell, granted for reading.
const Program = Dir + "/walls"

// Walls are all of them, in the order in which they are tried.
func Walls() []Wall {
	return []Wall{
		{"mount flags", "set the times of a file that is granted for reading", "EROFS"},
		{"Landlock", "make a directory in a writable tmpfs of its own that is not granted", "EACCES"},
		{"seccomp", "call io_uring_setup and keyctl", "ENOSYS ENOSYS"},
		{"capabilities", "read its own sets, and whether an exec can add to them", "none, no_new_privs"},
		{"packet rules", "connect to an address that is not listed", "ECONNREFUSED"},
		{"pid namespace", "signal a process of the host", "ESRCH"},
	}
}
