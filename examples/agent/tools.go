package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// commandTime bounds one command.
const commandTime = 5 * time.Minute

// mostOutput bounds what one tool tells the model, in bytes.
const mostOutput = 32 << 10

// tools describes the tools to the model.
func tools() []any {
	tool := func(name, description string, args ...string) any {
		properties := map[string]any{}
		for _, a := range args {
			properties[a] = map[string]string{"type": "string"}
		}
		return map[string]any{"type": "function", "function": map[string]any{
			"name": name, "description": description,
			"parameters": map[string]any{"type": "object", "properties": properties, "required": args},
		}}
	}
	return []any{
		tool("list_dir", "List the files of a directory.", "path"),
		tool("read_file", "Read a text file.", "path"),
		tool("write_file", "Write a text file, replacing what is there.", "path", "content"),
		tool("run_command", "Run a shell command and return its output and exit status.", "command"),
	}
}

// tool does one call.
func (a *agent) tool(ctx context.Context, name string, args map[string]string) (string, error) {
	switch name {
	case "list_dir":
		return listDir(a.path(args["path"]))
	case "read_file":
		b, err := os.ReadFile(a.path(args["path"]))
		return clip(string(b), mostOutput), err
	case "write_file":
		return a.writeFile(args["path"], args["content"])
	case "run_command":
		return a.runCommand(ctx, args["command"])
	}
	return "", fmt.Errorf("there is no tool %q", name)
}

// path resolves against the working directory. It is no wall: the model may run
// any command anyway.
func (a *agent) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(a.dir, p)
}

// listDir marks directories with a slash, so that the model need not ask.
func listDir(path string) (string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Name())
		if e.IsDir() {
			b.WriteByte('/')
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// writeFile makes missing directories: models expect it.
func (a *agent) writeFile(path, content string) (string, error) {
	if path == "" {
		return "", errors.New("path is empty")
	}
	full := a.path(path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %d bytes to %s", len(content), path), nil
}

// runCommand returns output also beside an error: a failing test's is what counts.
func (a *agent) runCommand(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Dir = a.dir
	cmd.WaitDelay = 2 * time.Second // a child may keep the pipe open
	out, err := cmd.CombinedOutput()
	return clip(string(out), mostOutput), err
}
