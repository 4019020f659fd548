package strict

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// convert turns the library's tree into ours; what is not plain data becomes
// a fault and a Null node, so that reading goes on.
func (r *Report) convert(n ast.Node, depth int) *Node {
	if n == nil {
		return &Node{Pos: Pos{1, 1}}
	}
	at := position(n.GetToken())
	if depth > maxDepth {
		r.Add(at, "", "nested too deeply", fmt.Sprintf("at most %d levels are read", maxDepth))
		return &Node{Pos: at}
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(at, n.Values, depth)
	case *ast.MappingValueNode:
		return r.mapping(at, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		out := &Node{Pos: at, Kind: List}
		for _, item := range n.Values {
			out.Items = append(out.Items, r.convert(item, depth+1))
		}
		return out
	case *ast.AnchorNode:
		return r.foreign(at, "&"+nodeText(n.Name), "an anchor (&) is not allowed", "write the value where it is used")
	case *ast.AliasNode:
		return r.foreign(at, "*"+nodeText(n.Value), "an alias (*) is not allowed",
			`write the value itself, or quote a name that begins with * ("*.example.org")`)
	case *ast.TagNode:
		return r.foreign(at, n.GetToken().Value, "a tag (!) is not allowed", "remove it, or quote text that begins with !")
	case *ast.LiteralNode:
		r.seen[position(n.Value.GetToken())] = true
		return &Node{Pos: at, Kind: String, Text: n.Value.Value, Quoted: true}
	}
	r.seen[at] = true
	return scalar(at, n)
}

func (r *Report) foreign(at Pos, text, message, fix string) *Node {
	r.Add(at, text, message, fix)
	return &Node{Pos: at, Kind: Null, Text: text, Quoted: true}
}

// isNumber tells whether s is a sign at most, a digit, then digits and _, and, in a
// float, one point after the first digit.
func isNumber(s string, float bool) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	points := 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9', i > 0 && c == '_':
		case i > 0 && c == '.':
			points++
		default:
			return false
		}
	}
	return s != "" && (points == 0 && !float || points == 1 && float)
}

// scalar reads the plain forms by its own two patterns, not by the library's
// guess: 0x10, 1e3, .inf and dates stay text and are refused by whoever wants
// a number.
func scalar(at Pos, n ast.Node) *Node {
	t := n.GetToken()
	if t == nil {
		return &Node{Pos: at}
	}
	if _, null := n.(*ast.NullNode); null {
		return &Node{Pos: at, Text: t.Value}
	}
	out := &Node{Pos: at, Kind: String, Text: t.Value}
	if s, ok := n.(*ast.StringNode); ok {
		out.Text = s.Value
	}
	switch t.Type {
	case token.SingleQuoteType, token.DoubleQuoteType:
		out.Quoted = true
		return out
	}
	out.Text = strings.TrimSpace(out.Text)
	switch {
	case out.Text == "true" || out.Text == "false":
		out.Kind = Bool
	case isNumber(out.Text, false):
		out.Kind = Int
	case isNumber(out.Text, true):
		out.Kind = Float
	}
	return out
}

func (r *Report) mapping(at Pos, values []*ast.MappingValueNode, depth int) *Node {
	out := &Node{Pos: at, Kind: Map}
	first := map[string]Pos{}
	for _, v := range values {
		key := v.Key.GetToken()
		keyAt := position(key)
		if len(out.Fields) == 0 {
			out.Pos = keyAt // the library points at the colon
		}
		r.seen[keyAt] = true
		name, ok := keyText(v.Key)
		if !ok {
			r.Add(keyAt, key.Value, "a key must be plain text", "write it as name: value")
			continue
		}
		value := r.convert(v.Value, depth+1)
		if v.Value == nil || value.Kind == Null && value.Text == "" {
			value.Pos = keyAt
		}
		if before, seen := first[name]; seen {
			r.Add(keyAt, name, fmt.Sprintf("duplicate key %q", name),
				fmt.Sprintf("it already stands in line %d; keep one", before.Line))
			continue
		}
		first[name] = keyAt
		out.Fields = append(out.Fields, Field{Key: name, At: keyAt, Value: value})
	}
	return out
}

// keyText refuses merge keys (<<), complex keys (?) and anything anchored.
func keyText(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true
	}
	return "", false
}

func nodeText(n ast.Node) string {
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}
