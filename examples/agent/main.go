// Command agent is a small coding agent on the OpenAI Chat Completions API. It is
// an ordinary program: it reads, writes and runs what the model asks for, in the
// working directory, and knows nothing of where it runs.
//
//	OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=x OPENAI_MODEL=coder agent "make the tests pass"
//
// It runs commands that a model chose. Run it where that is harmless.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	a := agent{out: os.Stdout}
	flag.StringVar(&a.client.baseURL, "base-url", fallback("OPENAI_BASE_URL", "http://mesh.skep.alt/v1"), "where the API is")
	flag.StringVar(&a.client.key, "api-key", os.Getenv("OPENAI_API_KEY"), "key to send, if any")
	flag.StringVar(&a.client.model, "model", fallback("OPENAI_MODEL", "coder"), "model to ask for")
	flag.IntVar(&a.steps, "steps", 30, "most answers of the model before giving up")
	flag.StringVar(&a.dir, "dir", ".", "directory to work in")
	flag.Parse()
	task := strings.Join(flag.Args(), " ")
	if task == "" {
		fmt.Fprintln(os.Stderr, `usage: agent [flags] "what to do"`)
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := a.run(ctx, task); err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// fallback reads a variable of the environment.
func fallback(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
