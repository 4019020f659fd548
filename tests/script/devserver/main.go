// Command devserver is what an agent starts while it develops: `devserver ADDRESS` answers
// HTTP, echoes what follows an upgrade, and echoes what is no HTTP at all.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening on", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}

func serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	if first, err := r.Peek(4); err != nil || string(first) != "GET " {
		_, _ = io.Copy(c, r)
		return
	}
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if q.Header.Get("Upgrade") != "" {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, r)
			return
		}
		body := fmt.Sprintf("%s from %s, cookie %q\n", q.URL.Path, q.Host, q.Header.Get("Cookie"))
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}
