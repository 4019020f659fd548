package boundary

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/internal/testlab"
)

const probeArgument = "probe"

// attempt is one thing that the program in the cell does.
type attempt struct {
	How string // tcp, udp, unix, tls, http, dns, burst, bulk ..., or a key of kernel
	At  string // address or name with port, or path
	Say string // tcp, udp: what is sent, which comes back; tls: the server name; http: the Hosts, one for each request
	N   int    // burst: how many connects; bulk: how many bytes each way
}

// result is what became of it.
type result struct {
	attempt
	Err    string // the error's short name, "" for success: ECONNREFUSED, EOF, timeout ...
	Got    string // what came back
	Millis int64  // until the connect or the whole failed
}

// reached says whether anything at all was on the other side.
func (r result) reached() bool { return r.Err == "" || r.Got != "" }

// patience is longer than anything may take.
const patience = 15 * time.Second

// probe makes the attempts in their order and prints the results.
func probe(list string) int {
	var attempts []attempt
	if err := json.Unmarshal([]byte(list), &attempts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	results := []result{}
	for _, a := range attempts {
		begin := time.Now()
		got, err := a.make()
		results = append(results, result{a, short(err), got, time.Since(begin).Milliseconds()})
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		return 1
	}
	return 0
}

func (a attempt) make() (string, error) {
	switch a.How {
	case "tcp", "udp", "unix":
		return a.echo()
	case "tls", "ech":
		return a.tls()
	case "http":
		return a.http()
	case "dns":
		return a.ask("udp")
	case "dns over tcp":
		return a.ask("tcp")
	case "burst":
		return a.burst()
	case "fetch":
		return a.fetch()
	case "draft":
		return a.draft()
	case "until closed":
		return a.untilClosed()
	case "knock":
		return a.knock()
	case "bulk":
		return a.bulk()
	case "hold":
		return a.hold()
	case "abreast":
		return a.abreast(), nil
	case "datagrams":
		return a.datagrams()
	case "past the box":
		return a.pastTheBox()
	case "bulks":
		return a.bulks()
	case "drip":
		return "", a.drip()
	case "reset":
		return a.reset()
	case "websocket":
		return a.webSocket()
	case "upload":
		return a.upload()
	case "unix sockets":
		return "", unixSockets()
	case "batch":
		return a.batch()
	case "together":
		return a.together()
	case "events":
		return a.events()
	case "with a secret":
		return a.withSecret()
	case "agent":
		return a.knockAgent()
	case "own servers":
		return "", ownServers()
	}
	if try := kernel()[a.How]; try != nil {
		return "", try()
	}
	return "", fmt.Errorf("no attempt %q", a.How)
}

// dial connects; what comes after it has a deadline.
func (a attempt) dial(network string) (net.Conn, error) {
	c, err := net.DialTimeout(network, a.At, patience)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// echo sends Say and returns as much as comes back, at most its length.
func (a attempt) echo() (string, error) {
	c, err := a.dial(a.How)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	say := a.Say
	if say == "" {
		say = "hello"
	}
	if _, err := io.WriteString(c, say); err != nil {
		return "", err
	}
	back := make([]byte, len(say))
	n, err := io.ReadFull(c, back)
	return string(back[:n]), err
}

func (a attempt) tls() (string, error) {
	c, err := a.dial("tcp")
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	// Whose certificate it is, is not what is tried here.
	config := &tls.Config{ServerName: a.Say, InsecureSkipVerify: true}
	if a.How == "ech" { // Say is what is shown, and another name is meant
		config.ServerName, config.MinVersion = "hidden.test", tls.VersionTLS13
		config.EncryptedClientHelloRejectionVerify = func(tls.ConnectionState) error { return nil }
		if config.EncryptedClientHelloConfigList, err = testlab.ECHFor(a.Say); err != nil {
			return "", err
		}
	}
	t := tls.Client(c, config)
	err = t.Handshake()
	if rejected := (*tls.ECHRejectionError)(nil); errors.As(err, &rejected) {
		return "a handshake", nil // with whom it showed
	}
	if err != nil {
		return "", err
	}
	return "a handshake", nil
}

// http sends one request for each Host on one connection, and returns the statuses.
func (a attempt) http() (string, error) {
	c, err := a.dial("tcp")
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	var got []string
	for _, host := range strings.Fields(a.Say) { // or METHOD|host|path
		method, path := "GET", "/"
		if parts := strings.Split(host, "|"); len(parts) == 3 {
			method, host, path = parts[0], parts[1], parts[2]
		}
		if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method, path, host); err != nil {
			return strings.Join(got, " "), err
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return strings.Join(got, " "), err
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return strings.Join(got, " "), err
		}
		text := fmt.Sprint(answer.StatusCode)
		if answer.StatusCode != http.StatusOK {
			text += ":" + answer.Header.Get("Proxy-Status") + ":" + strings.TrimSpace(string(body))
		}
		got = append(got, text)
	}
	return strings.Join(got, " "), nil
}

// knock tries again until somebody opens, N times at most, and says so.
func (a attempt) knock() (string, error) {
	var err error
	for range max(a.N, 1) {
		var c net.Conn
		if c, err = a.dial("tcp"); err == nil {
			_ = c.Close()
			return "open", nil
		}
		<-time.After(50 * time.Millisecond)
	}
	return "", err
}

// abreast connects N times at once, and says of each how it came out and after how many
// milliseconds, in the order of their answers.
func (a attempt) abreast() string {
	answers, begin := make(chan string), time.Now()
	for range a.N {
		go func() {
			c, err := a.dial("tcp")
			what := short(err)
			if err == nil {
				what = "open"
				defer func() { _ = c.Close() }()
				if _, err := io.WriteString(c, "x"); err != nil {
					what = short(err)
				} else if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					what = short(err)
				}
			}
			answers <- fmt.Sprint(what, ":", time.Since(begin).Milliseconds())
		}()
	}
	var all []string
	for range a.N {
		all = append(all, <-answers)
	}
	return strings.Join(all, " ")
}

// fetch gets a page: its status and what it says.
func (a attempt) fetch() (string, error) {
	answer, err := http.Get("http://" + a.At)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.StatusCode, " ", string(body)), err
}

// draft asks the owner for what Say says, and waits for the word.
func (a attempt) draft() (string, error) {
	answer, err := http.Post("http://"+a.At+"/requests", "application/json", strings.NewReader(a.Say))
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	var card struct{ ID, State string }
	if err := json.NewDecoder(answer.Body).Decode(&card); err != nil || answer.StatusCode != http.StatusAccepted {
		return fmt.Sprint(answer.StatusCode), err
	}
	for card.State == "pending" {
		answer, err := http.Get("http://" + a.At + "/requests/" + card.ID)
		if err != nil {
			return "", err
		}
		err = json.NewDecoder(answer.Body).Decode(&card)
		_ = answer.Body.Close()
		if err != nil {
			return "", err
		}
	}
	return card.State, nil
}

// untilClosed keeps a connection until the other side ends it.
func (a attempt) untilClosed() (string, error) {
	c, err := a.dial("tcp")
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err = c.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return "", fmt.Errorf("it is open: %w", err)
	}
	return "closed", nil
}

// burst connects N times and says how often in vain.
func (a attempt) burst() (string, error) {
	refused := 0
	for range a.N {
		c, err := a.dial("tcp")
		if err == nil {
			_ = c.Close()
			continue
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Sprint(refused), err
		}
		refused++
	}
	return fmt.Sprint(refused), nil
}

// bulk sends N bytes and half-closes, while an echo sends them back to their end.
func (a attempt) bulk() (string, error) {
	c, err := a.dial("tcp")
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(8 * patience))
	sent, received := sha256.New(), sha256.New()
	wrote := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(c, sent), rand.NewChaCha8([32]byte{}), int64(a.N))
		wrote <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	n, err := io.Copy(received, c)
	if err := errors.Join(err, <-wrote); err != nil {
		return "", err
	}
	if n != int64(a.N) || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
		return "", fmt.Errorf("%d of %d bytes came back, or others", n, a.N)
	}
	return "the same", nil
}

// hold opens connections, each once the one before has answered, until one fails or
// there are N, and says how many there were, and whether an old one still answers.
func (a attempt) hold() (string, error) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	ask := func(c net.Conn) error {
		if _, err := io.WriteString(c, "x"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	slipped := time.Time{}
	for len(open) < a.N {
		c, err := a.dial("tcp")
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			return fmt.Sprint(len(open)), errors.Join(err, ask(open[0]))
		}
		if err == nil {
			err = ask(c)
		}
		if err != nil { // let in just before the kernel was told, and reset; connect itself may see that
			if c != nil {
				_ = c.Close()
			}
			if slipped.IsZero() {
				slipped = time.Now()
			}
			if time.Since(slipped) > patience {
				return fmt.Sprint(len(open)), err
			}
			continue
		}
		open = append(open, c)
	}
	return fmt.Sprint(len(open)), nil
}

// bulks is bulk by as many connections at once as Say says; one that fails is enough.
func (a attempt) bulks() (string, error) {
	n, err := strconv.Atoi(a.Say)
	if err != nil {
		return "", err
	}
	ends := make(chan error, n)
	for range n {
		go func() {
			_, err := a.bulk()
			ends <- err
		}()
	}
	for range n {
		err = errors.Join(err, <-ends)
	}
	return "", err
}

// drip sends a little now and then, and reads it back, for a minute.
func (a attempt) drip() error {
	c, err := a.dial("tcp")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	_ = c.SetDeadline(time.Now().Add(4 * patience))
	for b := make([]byte, 500); err == nil; <-tick.C {
		if _, err = c.Write(b); err == nil {
			_, err = io.ReadFull(c, b)
		}
	}
	return err
}

// reset breaks a connection off once the other side has answered.
func (a attempt) reset() (string, error) {
	c, err := a.dial("tcp")
	if err != nil {
		return "", err
	}
	if _, err = io.WriteString(c, "x"); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	return "", errors.Join(err, c.(*net.TCPConn).SetLinger(0), c.Close())
}

// short names an error in a word, so that it can be compared.
func short(err error) string {
	var errno syscall.Errno
	var name *net.DNSError
	var timeout net.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		return errnoName(errno)
	case errors.As(err, &name):
		return "no address"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "EOF"
	}
	return err.Error()
}

// errnoName is the name of those that a boundary may answer with, else the text.
func errnoName(e syscall.Errno) string {
	for name, known := range map[string]syscall.Errno{
		"ECONNREFUSED": syscall.ECONNREFUSED, "ECONNRESET": syscall.ECONNRESET, "ENOENT": syscall.ENOENT, "EPERM": syscall.EPERM,
		"EACCES": syscall.EACCES, "EAFNOSUPPORT": syscall.EAFNOSUPPORT, "EPIPE": syscall.EPIPE,
	} {
		if e == known {
			return name
		}
	}
	return e.Error()
}
