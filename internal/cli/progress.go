package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"skep.dev/skep/internal/cli/terminal"
)

const (
	patience = time.Second            // before anything is said
	refresh  = 250 * time.Millisecond // between two of its lines
)

// progress tells on one line of a terminal how far something long is, and takes the line
// away at its end. What is over within a second says nothing. The nil progress is silent.
type progress struct {
	w     io.Writer
	end   chan struct{}
	ended sync.WaitGroup

	mu   sync.Mutex
	what string
	n    int
}

// working begins the progress of what; it is silent where no terminal shows it.
func (a *App) working(what string) *progress {
	if a.json || !terminal.IsTerminal(a.Err) {
		return nil
	}
	return begin(a.Err, what)
}

func begin(w io.Writer, what string) *progress {
	p := &progress{w: w, end: make(chan struct{}), what: what}
	p.ended.Go(p.show)
	return p
}

// one counts one more of what is done now.
func (p *progress) one(what string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.what != what {
		p.what, p.n = what, 0
	}
	p.n++
}

// step counts the steps of a merge, in the words of a person.
func (p *progress) step(name string) error {
	switch name {
	case "stage":
		p.one("copying")
	case "rename":
		p.one("putting in place")
	case "clean":
		p.one("tidying up")
	}
	return nil
}

// stop takes the line away; what is printed next begins at the left.
func (p *progress) stop() {
	if p == nil {
		return
	}
	close(p.end)
	p.ended.Wait()
}

func (p *progress) show() {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	shown := false
	for {
		select {
		case <-p.end:
			if shown {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		case <-timer.C:
		}
		p.mu.Lock()
		line := p.what + " ..."
		if p.n > 1 {
			line = fmt.Sprintf("%s: %d paths", p.what, p.n)
		}
		p.mu.Unlock()
		fmt.Fprintf(p.w, "\r\x1b[Kskep: %s", line)
		shown = true
		timer.Reset(refresh)
	}
}
