// Package columns is the list of the boundary's cases with what of it each route has to
// show, and the search for the tests that show it.
//
// Its laws:
//   - A case that applies to a route has a test with the case's id in its name, or the list
//     says that it has none yet. Neither is ever counted as passed.
//   - What does not apply says why, in words.
package columns

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed cases.txt
var text string

// Column is a route from an agent to the boundary.
type Column string

// The routes.
const (
	Native   Column = "native"   // a cell of skepd's
	Socket   Column = "socket"   // a client of the Unix socket
	Tun      Column = "tun"      // skep-init, by its device
	Explicit Column = "explicit" // skep-init, by its endpoint
)

// All are the columns in their order.
func All() []Column { return []Column{Native, Socket, Tun, Explicit} }

// Place is what a case is to one column.
type Place struct {
	Applies bool
	Awaited bool   // its test may not be here yet
	Why     string // it does not apply, or its test is awaited
}

// Case is one line of the list.
type Case struct {
	ID, What string
	Places   map[Column]Place
}

// List reads the cases, in the order of the page.
func List() ([]Case, error) { return parse(text) }

func parse(text string) (list []Case, err error) {
	reasons, seen := map[string]string{}, map[string]bool{}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, " | ")
		if key, ok := strings.CutPrefix(fields[0], "= "); ok && len(fields) == 2 {
			reasons[key] = fields[1]
			continue
		}
		if len(fields) != 2+len(All()) || seen[fields[0]] {
			return nil, fmt.Errorf("line %d: %q is no case, or stands twice", n+1, line)
		}
		c := Case{ID: fields[0], What: fields[len(fields)-1], Places: map[Column]Place{}}
		seen[c.ID] = true
		for i, column := range All() {
			if c.Places[column], err = place(fields[1+i], reasons); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		}
		list = append(list, c)
	}
	return list, nil
}

func place(word string, reasons map[string]string) (Place, error) {
	if word == "yes" {
		return Place{Applies: true}, nil
	}
	why := reasons[word[1:]]
	if why == "" || word[0] != '-' && word[0] != '?' {
		return Place{}, fmt.Errorf("%q is neither yes nor a reason", word)
	}
	return Place{Applies: word[0] == '?', Awaited: word[0] == '?', Why: why}, nil
}
