package boundary

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
)

// The attempts of the field reports that an ordinary program makes (fields_test.go).

// frame is one frame of a WebSocket (RFC 6455), masked as a client's are.
func frame(first byte, mask []byte, payload []byte) []byte {
	b := []byte{first}
	bit := byte(0)
	if mask != nil {
		bit = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, bit|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, bit|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, bit|127), uint64(n))
	}
	b = append(b, mask...)
	at := len(b)
	b = append(b, payload...)
	for i := range payload {
		if mask != nil {
			b[at+i] ^= mask[i%4]
		}
	}
	return b
}

// readFrame is the next frame, unmasked.
func readFrame(in io.Reader) (first byte, payload []byte, err error) {
	var head [14]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return 0, nil, err
	}
	n, rest := uint64(head[1]&0x7f), 0
	switch n {
	case 126:
		rest = 2
	case 127:
		rest = 8
	}
	if _, err := io.ReadFull(in, head[2:2+rest]); err != nil {
		return 0, nil, err
	}
	switch rest {
	case 2:
		n = uint64(binary.BigEndian.Uint16(head[2:]))
	case 8:
		n = binary.BigEndian.Uint64(head[2:])
	}
	var mask [4]byte
	masked := head[1]&0x80 != 0
	if masked {
		if _, err := io.ReadFull(in, mask[:]); err != nil {
			return 0, nil, err
		}
	}
	if n > 32<<20 {
		return 0, nil, errors.New("a frame of more than 32 MiB")
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(in, payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		if masked {
			payload[i] ^= mask[i%4]
		}
	}
	return head[0], payload, nil
}

// webSocket opens one, waits N ms in silence, and then sends a ping, a large frame and a
// compressed one, each of which must come back as it was.
func (a attempt) webSocket() (string, error) {
	c, err := net.DialTimeout("tcp", a.At, patience)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience + time.Duration(a.N)*time.Millisecond))
	fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", a.At)
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Sec-WebSocket-Extensions") != "permessage-deflate" {
		return "", fmt.Errorf("answered %s", answer.Status)
	}
	mask := []byte{1, 2, 3, 4}
	round := func(first, want byte, payload []byte) error {
		go func() { _, _ = c.Write(frame(first, mask, payload)) }()
		got, back, err := readFrame(in)
		if err != nil {
			return err
		}
		if got != want || !bytes.Equal(back, payload) {
			return fmt.Errorf("frame %#x of %d bytes came back as %#x of %d", first, len(payload), got, len(back))
		}
		return nil
	}
	<-time.After(time.Duration(a.N) * time.Millisecond) // which is what is tried: a socket that is idle
	big := make([]byte, 16<<20)
	_, _ = rand.Read(big)
	var small bytes.Buffer
	w, err := flate.NewWriter(&small, flate.BestSpeed)
	if err != nil {
		return "", err
	}
	_, _ = w.Write(bytes.Repeat([]byte("words "), 1000))
	_ = w.Flush()
	return "whole", errors.Join(round(0x89, 0x8a, []byte("ping")), round(0x82, 0x82, big), round(0x81|0x40, 0x81|0x40, small.Bytes()))
}

// socketServer answers what webSocket opens.
func socketServer(w http.ResponseWriter, _ *http.Request) {
	h, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	c, in, err := h.Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
	for {
		first, payload, err := readFrame(in)
		if err != nil {
			return
		}
		if first == 0x89 {
			first = 0x8a
		}
		if _, err := c.Write(frame(first, nil, payload)); err != nil {
			return
		}
	}
}

// upload posts N bytes by https, in the way that Say says, and returns what the server counted.
func (a attempt) upload() (string, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ExpectContinueTimeout: patience, DisableKeepAlives: true}
	body := make([]byte, a.N)
	_, _ = rand.Read(body)
	var from io.Reader = bytes.NewReader(body)
	if a.Say == "chunked" {
		from = struct{ io.Reader }{from}
	}
	q, err := http.NewRequest(http.MethodPost, "https://"+a.At+"/", from)
	if err != nil {
		return "", err
	}
	if a.Say == "expect" {
		q.Header.Set("Expect", "100-continue")
	}
	answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	if want := fmt.Sprintf("%d %x", len(body), sha256.Sum256(body)); string(got) != want {
		return string(got), fmt.Errorf("want %s", want)
	}
	return "the same", err
}

func countUpload(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, _ := io.Copy(sum, r.Body)
	_, _ = fmt.Fprintf(w, "%d %x", n, sum.Sum(nil))
}

// unixSockets are those of the cell's own: with names and without, and descriptors by them (N21).
func unixSockets() error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	for _, at := range []string{filepath.Join(dir, "s"), "@skep-field-" + strconv.Itoa(os.Getpid())} {
		if err := passOver(at); err != nil {
			return fmt.Errorf("%q: %w", at, err)
		}
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		return err
	}
	buf := make([]byte, 8)
	if err := syscall.Sendmsg(pair[0], []byte("message"), nil, nil, 0); err != nil {
		return err
	}
	n, err := syscall.Read(pair[1], buf)
	if err == nil && string(buf[:n]) != "message" {
		err = fmt.Errorf("a pair gave %q", buf[:n])
	}
	return err
}

// passOver sends a file by a connected socket, as D-Bus and Wayland do.
func passOver(at string) error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	s, err := ln.AcceptUnix()
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	if _, _, err := c.WriteMsgUnix([]byte("here"), syscall.UnixRights(int(w.Fd())), nil); err != nil {
		return err
	}
	_ = w.Close()
	data, control := make([]byte, 16), make([]byte, 64)
	n, size, _, _, err := s.ReadMsgUnix(data, control)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 || string(data[:n]) != "here" {
		return fmt.Errorf("%d messages with %q: %w", len(messages), data[:n], err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	passed := os.NewFile(uintptr(fds[0]), "passed")
	if _, err := passed.WriteString("through"); err != nil {
		return err
	}
	_ = passed.Close()
	got, err := io.ReadAll(r)
	if err == nil && string(got) != "through" {
		err = fmt.Errorf("the file gave %q", got)
	}
	return err
}

// batch sends two datagrams by one sendmmsg, to At and to Say, and counts what comes back.
func (a attempt) batch() (string, error) {
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	var messages []ipv4.Message
	for _, at := range []string{a.At, a.Say} {
		to, err := net.ResolveUDPAddr("udp4", at)
		if err != nil {
			return "", err
		}
		messages = append(messages, ipv4.Message{Buffers: [][]byte{[]byte("to " + at)}, Addr: to})
	}
	sent, sendErr := ipv4.NewPacketConn(c).WriteBatch(messages, 0)
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	buf, got := make([]byte, 100), []string{fmt.Sprint("sent ", sent)}
	for {
		n, err := c.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return strings.Join(got, ", "), sendErr
		}
		if err == nil {
			got = append(got, string(buf[:n]))
		}
	}
}

// together has a server of its own on a port while another cell has one there, too: both are
// there when At has let them both in.
func (a attempt) together() (string, error) {
	ln, err := net.Listen("tcp", a.Say)
	if err != nil {
		return "", err
	}
	defer func() { _ = ln.Close() }()
	nonce := make([]byte, 12)
	_, _ = rand.Read(nonce)
	mine := base64.StdEncoding.EncodeToString(nonce)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, mine)
			_ = c.Close()
		}
	}()
	gate, err := net.DialTimeout("tcp", a.At, patience)
	if err != nil {
		return "", err
	}
	defer func() { _ = gate.Close() }()
	_ = gate.SetDeadline(time.Now().Add(patience))
	if _, err := gate.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	c, err := net.DialTimeout("tcp", a.Say, patience)
	if err != nil {
		return "", err
	}
	got, err := io.ReadAll(c)
	if string(got) != mine {
		return "", fmt.Errorf("the port is another's: %q", got)
	}
	return "mine", err
}

// events counts the events of a stream.
func (a attempt) events() (string, error) {
	answer, err := http.Get("http://" + a.At)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	n, lines := 0, bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			n++
		}
	}
	return strconv.Itoa(n), lines.Err()
}

// stream is a server of n events with a gap between two.
func eventServer(n int, gap time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range n {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			select {
			case <-time.After(gap):
			case <-r.Context().Done():
				return
			}
		}
	}
}
