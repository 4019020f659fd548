package door

import (
	"net/http"
	"time"
)

// yieldTime is what a stream has to send what it is at.
const yieldTime = time.Second

// Yield breaks off answers that nobody reads, as those behind a pager, once the door is
// being shut: for calls that change nothing, and whose caller goes on by position.
func Yield(leaving func() <-chan struct{}, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-leaving():
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(yieldTime))
			case <-over:
			}
		}()
		h.ServeHTTP(w, r)
	})
}
