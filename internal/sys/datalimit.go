package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// LimitData bounds what this process may have of private memory that it can write to,
// in bytes, for good: without a capability nobody raises it again. What Go reserves
// without using it does not count. A heap that would pass it ends the process.
func LimitData(bytes uint64) error {
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}); err != nil {
		return fmt.Errorf("bound this process's memory: %w", err)
	}
	return nil
}
