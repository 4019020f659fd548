package serve

import (
	"fmt"
	"os"
	"strconv"

	"skep.dev/skep/internal/sys"
)

// Activated reports whether an activator passed this process its one listening
// socket, as descriptor 3 (sd_listen_fds(3)). Any other number of them is an error:
// a socket that nobody serves would only look like a worker.
func Activated(getenv func(string) string) (bool, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return false, nil
	}
	if n := getenv("LISTEN_FDS"); n != "1" {
		return false, fmt.Errorf("the activator passed %q sockets: the worker serves one", n)
	}
	return true, nil
}

// Accept serves connections to a listening socket until it is closed. A peer that
// is not the daemon's user is closed unread, whatever the socket's mode let in (L6a).
func Accept(listener *os.File, c Config) error {
	serves := c.User.UID
	if c.User.Name == "" {
		serves = uint32(os.Getuid())
	}
	for {
		conn, err := sys.AcceptUnix(listener)
		if err != nil {
			return err
		}
		uid, err := sys.PeerUID(conn)
		if err != nil || uid != serves {
			_ = conn.Close()
			fmt.Fprintf(os.Stderr, "skep-worker: refused a connection of user %d: it serves %d (%v)\n", uid, serves, err)
			continue
		}
		c.Conn = conn
		w, err := New(c)
		if err != nil {
			_ = conn.Close()
			return err
		}
		// A new skepd may come while the old one's cells are still built.
		go func() {
			if err := w.Run(); err != nil {
				fmt.Fprintln(os.Stderr, "skep-worker:", err)
			}
			_ = conn.Close()
		}()
	}
}
