package boundary

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// withSecret speaks to a bound host, as Say says by HTTP/1.1 or HTTP/2, with the
// placeholder of $K in its place (BS-10).
func (a attempt) withSecret() (string, error) {
	key := os.Getenv("K")
	speaks := &http.Protocols{}
	speaks.SetHTTP1(a.Say != "h2")
	speaks.SetHTTP2(a.Say == "h2")
	client := &http.Client{Transport: &http.Transport{Protocols: speaks, ExpectContinueTimeout: patience}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	send := func(path string, body io.Reader, fields ...string) (*http.Response, error) {
		q, err := http.NewRequest(http.MethodPost, "https://"+a.At+path, body)
		if err != nil {
			return nil, err
		}
		q.Header.Set("Authorization", "Bearer "+key)
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			q.Header.Set(name, value)
		}
		answer, err := client.Do(q)
		if err == nil && (answer.StatusCode != 200 || (answer.ProtoMajor == 2) != (a.Say == "h2")) {
			return nil, fmt.Errorf("%s: %s %s", path, answer.Proto, answer.Status)
		}
		return answer, err
	}
	large := make([]byte, 50<<20)
	for _, body := range []io.Reader{bytes.NewReader(large), struct{ io.Reader }{bytes.NewReader(large)}} {
		answer, err := send("/upload", body, "Expect: 100-continue")
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(text) != fmt.Sprint(len(large)) {
			return string(text), errors.Join(err, errors.New("an upload is not whole"))
		}
	}
	answer, err := send("/events", nil)
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(answer.Body)
	for n := 0; n < 20; n++ {
		if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", n) {
			return lines.Text(), errors.Join(lines.Err(), errors.New("an event is missing"))
		}
		lines.Scan()
	}
	_ = answer.Body.Close()
	if err := a.duplex(send); err != nil {
		return "", err
	}
	if a.Say == "h2" {
		return "works", nil
	}
	return "works", a.secretSocket(key)
}

// duplex is a call of gRPC: each message is answered before the next is sent, and a
// trailer comes. HTTP/1.1 has the trailer alone.
func (a attempt) duplex(send func(string, io.Reader, ...string) (*http.Response, error)) error {
	in, out := io.Pipe()
	messages := []string{"one", "two"}
	answers := make(chan error, 1)
	if a.Say != "h2" {
		messages = nil
		_ = out.Close()
	}
	turn := make(chan bool, 1)
	go func() {
		for _, m := range messages {
			_, _ = io.WriteString(out, m)
			<-turn
		}
		_ = out.Close()
	}()
	go func() {
		answer, err := send("/call", in, "Content-Type: application/grpc", "Te: trailers")
		for i := 0; i < len(messages) && err == nil; i++ {
			got := make([]byte, len(messages[i]))
			if _, err = io.ReadFull(answer.Body, got); string(got) != messages[i] {
				err = errors.Join(err, fmt.Errorf("a message came back as %q", got))
			}
			turn <- true
		}
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			if status := answer.Trailer.Get("Grpc-Status"); status != "0" {
				err = errors.Join(err, fmt.Errorf("the status of a call is %q", status))
			}
		}
		answers <- err
	}()
	select {
	case err := <-answers:
		return err
	case <-time.After(patience):
		return errors.New("a call hangs")
	}
}

// secretSocket opens a WebSocket, says the placeholder in a text message and gets large
// frames back.
func (a attempt) secretSocket(key string) error {
	host, _, _ := strings.Cut(a.At, ":")
	raw, err := a.dial("tcp")
	if err != nil {
		return err
	}
	roots, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		return err
	}
	c := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: poolOf(roots)})
	defer func() { _ = c.Close() }()
	fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", host)
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		return errors.Join(err, fmt.Errorf("the socket: %v", answer))
	}
	mask := []byte{1, 2, 3, 4}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	for _, round := range []struct {
		first, want byte
		say, back   string
	}{{0x81, 0x81, "auth " + key, "welcome"}, {0x89, 0x8a, "ping", "ping"}, {0x82, 0x82, string(big), string(big)}} {
		go func() { _, _ = c.Write(frame(round.first, mask, []byte(round.say))) }()
		first, back, err := readFrame(in)
		if err != nil || first != round.want || string(back) != round.back {
			return errors.Join(err, fmt.Errorf("frame %#x came back as %#x of %d bytes", round.first, first, len(back)))
		}
	}
	return nil
}
