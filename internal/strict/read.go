package strict

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes bounds a file (B150: a bundle is at most 256 KiB), maxDepth its
// nesting: our deepest file has five levels.
const (
	MaxBytes = 256 << 10
	maxDepth = 16

	maxLines = 5000
	maxLine  = 4096 // bytes
)

// marks are counted before the library sees the text: its time grows with the
// square of them (20,000 keys took 8 s, 100,000 nested dashes a minute), and a
// profile that Skep found may be hostile. 1,000 rules, the most that are read,
// stay far below.
func marks() map[string]int {
	return map[string]int{":": 10_000, "[": 5000, "{": 5000, "- ": 5000, "? ": 100, "&": 1000, "*": 5000, "!": 1000}
}

// Read parses src. The node is nil for an empty document and whenever the
// text is not YAML at all; the report then says so. file only names it.
func Read(file string, src []byte) (*Node, *Report) {
	r := &Report{file: file, seen: map[Pos]bool{}}
	if len(src) > MaxBytes {
		r.Add(Pos{}, "", fmt.Sprintf("the file has %d bytes", len(src)),
			fmt.Sprintf("at most %d are read", MaxBytes))
		return nil, r
	}
	if !utf8.Valid(src) {
		r.lines = strings.Split(string(src), "\n")
		at := invalidAt(r.lines)
		r.Add(at, "", "the file is not valid UTF-8", "save it as UTF-8")
		return nil, r
	}
	r.lines = strings.Split(strings.ReplaceAll(string(src), "\r\n", "\n"), "\n")
	// Line ends and tabs are normal; anything else below space can hide text
	// from whoever reads the file in a terminal.
	for i, line := range r.lines {
		for col, c := range []rune(line) {
			if (c < ' ' && c != '\t') || c == 0x7f || c == 0xfeff && (i > 0 || col > 0) {
				r.Add(Pos{i + 1, col + 1}, string(c), "control character in the file", "remove it")
			}
		}
	}
	r.bounds()
	if len(r.faults) > 0 {
		return nil, r
	}
	tree, err := parse(strings.Join(r.lines, "\n"))
	if err != nil {
		r.syntax(err)
		return nil, r
	}
	docs := bodies(tree)
	if len(docs) == 0 {
		r.nothing()
		return nil, r
	}
	if len(docs) > 1 {
		// The token of a mapping is a colon; the line is what counts.
		at := Pos{position(docs[1].GetToken()).Line, 1}
		r.Add(at, "", "a second document begins here", "keep one document and remove ---")
	}
	root := r.convert(docs[0], 0)
	r.leftover()
	return root, r
}

// nothing makes sure that an empty document is one: the library drops a lone
// "!" without a word.
func (r *Report) nothing() {
	for i, line := range r.lines {
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#', line == "---", line == "...", strings.HasPrefix(line, "--- #"):
		default:
			r.Add(Pos{i + 1, 1}, line, "this has no meaning here", "remove it, or write key: value")
		}
	}
}

// leftover finds text that the library has read over. Every scalar of the text must have become a part of the tree, and what is
// no plain data must have been reported.
func (r *Report) leftover() {
	if len(r.faults) > 0 {
		return
	}
	for _, t := range lexer.Tokenize(strings.Join(r.lines, "\n")) {
		switch t.Type {
		case token.CommentType, token.DocumentHeaderType, token.DocumentEndType, token.MappingValueType,
			token.SequenceEntryType, token.CollectEntryType, token.MappingStartType, token.MappingEndType,
			token.SequenceStartType, token.SequenceEndType, token.LiteralType, token.FoldedType, token.SpaceType:
			continue
		}
		if at := position(t); !r.seen[at] {
			r.Add(at, strings.TrimSpace(t.Value), "this has no meaning here", "remove it")
		}
	}
}

// bounds refuses what would take the library long.
func (r *Report) bounds() {
	if len(r.lines) > maxLines {
		r.Add(Pos{maxLines, 1}, "", fmt.Sprintf("the file has %d lines", len(r.lines)), fmt.Sprintf("at most %d are read", maxLines))
	}
	for i, line := range r.lines {
		if len(line) > maxLine {
			r.Add(Pos{i + 1, maxLine}, "", "the line is too long", fmt.Sprintf("break it below %d bytes", maxLine))
		}
	}
	text := strings.Join(r.lines, "\n")
	for mark, most := range marks() {
		if n := strings.Count(text, mark); n > most {
			r.Add(Pos{1, 1}, "", fmt.Sprintf("the file has %q %d times", mark, n), fmt.Sprintf("at most %d are read", most))
		}
	}
}

// parse turns a panic of the library into an error: what is parsed may come
// from a cell.
func parse(text string) (f *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be read as YAML: %v", p)
		}
	}()
	return parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
}

// bodies are the documents that hold something.
func bodies(f *ast.File) []ast.Node {
	var out []ast.Node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if _, comment := d.Body.(*ast.CommentGroupNode); comment {
			continue
		}
		out = append(out, d.Body)
	}
	return out
}

func (r *Report) syntax(err error) {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		message, _, _ := strings.Cut(err.Error(), "\n")
		r.Add(Pos{}, "", message, "check the file with a YAML editor")
		return
	}
	t := y.GetToken()
	r.Add(position(t), strings.TrimSpace(t.Value), y.GetMessage(), "correct the YAML here")
}

// position is total: the library leaves tokens and positions out at times.
func position(t *token.Token) Pos {
	if t == nil || t.Position == nil {
		return Pos{1, 1}
	}
	return Pos{max(1, t.Position.Line), max(1, t.Position.Column)}
}

func invalidAt(lines []string) Pos {
	for i, line := range lines {
		for col := 1; len(line) > 0; col++ {
			c, n := utf8.DecodeRuneInString(line)
			if c == utf8.RuneError && n == 1 {
				return Pos{i + 1, col}
			}
			line = line[n:]
		}
	}
	return Pos{}
}
