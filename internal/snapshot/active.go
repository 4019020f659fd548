package snapshot

import (
	"path"
	"strings"
)

// heldNames run something on the host by their mere presence in a tree that
// a person opens (S5a): git, editors and shells read them unasked.
var heldNames = map[string]string{
	".gitmodules":    "git reads it",
	".gitattributes": "git reads it and may run filters",
	".envrc":         "direnv runs it",
	".vscode":        "the editor may run its tasks",
	".idea":          "the editor may run its configurations",
	".husky":         "git hooks live there",
}

// buildFiles run when a person builds, tests or installs.
var buildFiles = map[string]bool{
	"package.json": true, "makefile": true, "gnumakefile": true, "cmakelists.txt": true, "dockerfile": true,
	"justfile": true, "rakefile": true, "gemfile": true, "setup.py": true, "conftest.py": true, "pyproject.toml": true,
	"build.rs": true, "build.gradle": true, "build.gradle.kts": true, "pom.xml": true, "gruntfile.js": true,
	"gulpfile.js": true, "configure": true, "meson.build": true, "build.ninja": true, "taskfile.yml": true,
	".pre-commit-config.yaml": true, "tox.ini": true, "noxfile.py": true, "flake.nix": true, "shell.nix": true,
	"compose.yaml": true, "docker-compose.yml": true,
}

// gitData are the parts of a git directory that hold data and run nothing.
var gitData = map[string]bool{"objects": true, "refs": true, "logs": true, "HEAD": true, "index": true}

// classify sets what S5a says of the entry: Active with the reason, and Held
// for what a merge leaves out unless it is named. grant is the root's own host
// path, which counts: a grant may itself lie in a .git directory.
func classify(e *Entry, grant string) {
	e.Active, e.Held = activePath(strings.TrimPrefix(join(grant, e.Path), "/"), e)
	if e.Active == "" && e.Layer.Type == File {
		base := strings.ToLower(path.Base(e.Path))
		switch {
		case buildFiles[base] || strings.HasSuffix(base, ".mk") || strings.HasPrefix(e.Path, ".github/workflows/"):
			e.Active = "a build runs it"
		case e.Layer.Mode&0o111 != 0 && (e.Base.Type != File || e.Base.Mode&0o111 == 0):
			e.Active = "new executable"
		}
	}
}

func activePath(full string, e *Entry) (why string, held bool) {
	parts := strings.Split(full, "/")
	for i, part := range parts {
		// Case is folded: a tree may be shared with a system that folds it.
		name := strings.ToLower(part)
		if why, ok := heldNames[name]; ok {
			return why, true
		}
		if strings.HasSuffix(name, ".code-workspace") {
			return "the editor may run its tasks", true
		}
		if name != ".git" {
			continue
		}
		rest := parts[i+1:]
		if len(rest) == 0 {
			// The directory itself is only a place; a file or link of that
			// name sends git to a directory of its choice.
			if e.Layer.Type == Dir || e.Layer.Type == Absent {
				return "", false
			}
			return "it sends git elsewhere", true
		}
		return gitPath(rest)
	}
	return "", false
}

// gitPath judges a path inside a git directory. Submodules and linked
// worktrees have such a directory of their own further down.
func gitPath(rest []string) (why string, held bool) {
	if gitData[rest[0]] {
		return "", false
	}
	if rest[0] == "modules" || rest[0] == "worktrees" {
		for _, part := range rest[1:] {
			if runsByGit(part) {
				return "git runs or obeys it", true
			}
		}
		return "inside the git directory", false
	}
	if runsByGit(rest[0]) {
		return "git runs or obeys it", true
	}
	return "inside the git directory", false
}

func runsByGit(name string) bool {
	switch strings.ToLower(name) {
	case "config", "config.worktree", "hooks", "info", "commondir", "gitdir":
		return true
	}
	return false
}
