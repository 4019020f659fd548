package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"skep.dev/skep/internal/sshagent"
	"skep.dev/skep/internal/sys"
)

// Relay is what one cell has.
type Relay struct {
	page *sshagent.Page

	skepd   *os.File
	answers chan byte     // of skepd
	over    chan struct{} // closed when skepd has ended the connection

	asking sync.Mutex // around one question to skepd and its answer

	using sync.Mutex // around one request to the agent and its answer
	agent *os.File
	gone  bool // the agent did not answer, or not what it may

	mu       sync.Mutex
	refusals map[string]*refusal
	tokens   float64
	filled   time.Time
	now      func() time.Time
}

// refusal is one kind of them.
type refusal struct {
	last  time.Time
	count int // since then
}

// Serve accepts until skepd ends the connection, which is nil.
func (r *Relay) Serve(listener *os.File) error {
	go r.hear(listener)
	places := make(chan struct{}, MaxConns)
	for {
		select {
		case places <- struct{}{}:
		case <-r.over:
			return nil
		}
		c, err := sys.AcceptUnix(listener)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		go func() {
			defer func() { _ = c.Close(); <-places }()
			r.serve(c)
		}()
	}
}

// hear takes what skepd answers, and its end, which is ours.
func (r *Relay) hear(listener io.Closer) {
	defer func() {
		close(r.over)
		_ = listener.Close()
	}()
	buf := make([]byte, 16)
	for {
		n, err := r.skepd.Read(buf)
		if err != nil || n != 1 {
			return
		}
		select {
		case r.answers <- buf[0]:
		case <-time.After(AnswerTime): // nobody waits for it
			return
		}
	}
}

// serve answers one connection of the cell until it ends, or sends what no client does.
func (r *Relay) serve(c *os.File) {
	s := &sshagent.Session{Page: r.page}
	for {
		_ = c.SetReadDeadline(time.Time{})
		var head [4]byte
		if n, err := c.Read(head[:1]); err != nil || n != 1 { // a client may be silent between two
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(MessageTime))
		if _, err := io.ReadFull(c, head[1:]); err != nil {
			return
		}
		m, err := body(c, head, sshagent.MaxRequest)
		if errors.Is(err, errLong) {
			r.refused(sshagent.Use{Did: "a message of more than 32 KiB", Reason: "malformed"})
		}
		if err != nil {
			return
		}
		r.wait()
		_ = c.SetWriteDeadline(time.Now().Add(MessageTime))
		if send(c, r.answer(s, m)) != nil {
			return
		}
	}
}

// answer is what the cell hears to one message.
func (r *Relay) answer(s *sshagent.Session, m []byte) []byte {
	v := s.Judge(m)
	u := sshagent.Use{Key: v.Key, Host: v.Host, Did: v.Did, Reason: v.Reason}
	switch {
	case v.Reason != "":
		r.refused(u)
		return v.Answer
	case v.Answer != nil:
		return v.Answer
	case v.List:
		got, err := r.ask([]byte{11})
		if err == nil {
			got, err = r.page.Shown(got)
		}
		if err != nil {
			return sshagent.Failure()
		}
		return got
	}
	if !r.record(u) {
		return sshagent.Failure()
	}
	got, err := r.ask(v.Sign)
	if err != nil {
		return sshagent.Failure()
	}
	return sshagent.Signed(got)
}

// ask has the agent answer. One that was late or sent what is no message is not asked
// again: what it says next would answer another question.
func (r *Relay) ask(m []byte) (got []byte, err error) {
	r.using.Lock()
	defer r.using.Unlock()
	if r.gone {
		return nil, errors.New("the agent is gone")
	}
	_ = r.agent.SetDeadline(time.Now().Add(AnswerTime))
	if err = send(r.agent, m); err == nil {
		got, err = message(r.agent, sshagent.MaxReply)
	}
	if r.gone = err != nil; r.gone {
		_ = r.agent.Close()
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	return got, nil
}

// record tells skepd of a use, and whether it may be.
func (r *Relay) record(u sshagent.Use) bool {
	r.asking.Lock()
	defer r.asking.Unlock()
	m, err := json.Marshal(u)
	if err != nil {
		return false
	}
	if _, err := r.skepd.Write(m); err != nil {
		return false
	}
	select {
	case a := <-r.answers:
		return a == sshagent.Granted
	case <-r.over:
		return false
	}
}

// refused has a refusal recorded, the first of its kind at once and then one each ten
// seconds for all of them.
func (r *Relay) refused(u sshagent.Use) {
	r.mu.Lock()
	kind := u.Did + "\x00" + u.Reason // from closed sets
	k := r.refusals[kind]
	if k == nil {
		k = &refusal{}
		r.refusals[kind] = k
	}
	k.count++
	now := r.now()
	if now.Sub(k.last) < RefusedEvery {
		r.mu.Unlock()
		return
	}
	u.Count, k.count, k.last = k.count, 0, now
	r.mu.Unlock()
	r.record(u)
}

// wait keeps a cell from asking more than so many times a second.
func (r *Relay) wait() {
	r.mu.Lock()
	now := r.now()
	r.tokens = min(burst, r.tokens+now.Sub(r.filled).Seconds()*perSecond) - 1
	r.filled = now
	behind := time.Duration(-r.tokens / perSecond * float64(time.Second))
	r.mu.Unlock()
	if behind > 0 {
		select {
		case <-time.After(behind):
		case <-r.over:
		}
	}
}
