package strict

// Kind is what a node is. The zero Kind is Null: a key without a value.
type Kind int

// The kinds. Numbers are told apart from text by YAML's own plain forms; a
// quoted number is a String.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	List
	Map
)

// String names the kind as a person would.
func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "an integer", "a number with a fraction",
		"text", "a list", "a mapping"}[k]
}

// Node is a value of the document and where it stands.
type Node struct {
	Pos
	Kind   Kind
	Text   string // of a scalar: as written, without quotes
	Quoted bool
	Items  []*Node // of a List
	Fields []Field // of a Map, in the order of the file, repeats left out
}

// Field is one key of a Map.
type Field struct {
	Key   string
	At    Pos
	Value *Node
}
