package limit

import "fmt"

// The ports at which the boundary itself listens in a native cell (boundary.md, B10). They
// are nobody's to serve.
const (
	firstOwnPort = 65001
	lastOwnPort  = 65053
)

// CheckServed says why a port of a cell cannot be reached from outside, if it cannot.
func CheckServed(port uint16) error {
	switch {
	case port == 0:
		return fmt.Errorf("port 0: want 1 to 65535")
	case port >= firstOwnPort && port <= lastOwnPort:
		return fmt.Errorf("port %d: %d to %d are the boundary's own", port, firstOwnPort, lastOwnPort)
	}
	return nil
}
