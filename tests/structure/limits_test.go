package structure

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
)

// ofBoundary is where the limits of the way out of a cell stand.
var ofBoundary = []string{
	"internal/boundary", "internal/route", "internal/box", "internal/box/forwarded", "internal/box/served", "internal/forwarding", "internal/h2", "internal/h2/frame", "internal/policy", "internal/flow/limit", "warden/gen",
	"internal/tunnel", "internal/box/listener", "internal/box/datagrams", "internal/box/held", "internal/box/tunneled", "internal/boundary/link", "internal/daemon/connector", "internal/daemon/guests", "internal/bundle", "internal/credential", "internal/dest/issuer",
	"internal/dest/internet", "internal/dest/internet/splicer", "internal/dest/internet/datagram", "internal/dest/model", "internal/dest/intercept", "internal/dest/intercept/ws", "internal/dest/intercept/streams", "internal/secret", "internal/secret/authority", "internal/dest/desk", "internal/approval", "internal/daemon/boxlink", "internal/daemon/traffic", "internal/daemon/allowance",
	"internal/sshagent", "internal/sshagent/relay", "internal/sshagent/knownhosts",
}

// limitName is what constants are called that bound a queue, a buffer or a table; each
// that is a duration bounds something, too.
var limitName = regexp.MustCompile(`(?i)^max|^min|flows|records|queries|clients|names|itemised|burst|persecond|parts|memory|bytes$|buffer|pipe|share|size$|pending|requests|calls|rules|batch|head$|reply|firstwindow`)

// noLimits are constants that only look like one.
var noLimits = map[string]string{
	"box.requestSize": "a form", "forwarding.eventSize": "a form", "box.answerSize": "a form", "box.maxAnswer": "a form", "box.netlinkHead": "a form", "box.nfgenHead": "a form", "boxlink.partHead": "a form", "route.nfgenHeader": "a form",
	"approval.MinPrefix": "a form", "box.asksAfterLog": "follows from others", "ws.longHead": "a form", "frame.HeadSize": "a form", "box.wireBytes": "a form", "splicer.quietTurns": "a way to wait",
	"boundary.OpenFlows": "limit's", "boundary.IdleTCP": "limit's", "boundary.RecordBatch": "limit's", "boundary.BoxMemory": "limit's", "boxlink.MaxRecords": "limit's", "link.MaxRecords": "limit's",
}

// constant is one as the source has it.
type constant struct {
	name  string // package.Name
	value ast.Expr
}

func constants(t *testing.T) map[string]constant {
	t.Helper()
	all := map[string]constant{}
	for _, s := range load(t).sources {
		if s.test || !slices.Contains(ofBoundary, s.dir) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				return true
			}
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				for i := range v.Values {
					if ok && i < len(v.Names) {
						name := path.Base(s.dir) + "." + v.Names[i].Name
						all[name] = constant{name, v.Values[i]}
					}
				}
			}
			return true
		})
	}
	return all
}

// value is what a constant expression is, and whether it is a duration.
func value(all map[string]constant, within string, e ast.Expr) (n int64, duration, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.ParseInt(e.Value, 0, 64)
		return n, false, err == nil && e.Kind == token.INT
	case *ast.Ident:
		c, there := all[within+"."+e.Name]
		if !there {
			return 0, false, false
		}
		return value(all, within, c.value)
	case *ast.SelectorExpr:
		x, _ := e.X.(*ast.Ident)
		units := map[string]time.Duration{"Hour": time.Hour, "Minute": time.Minute, "Second": time.Second, "Millisecond": time.Millisecond}
		if x != nil && x.Name == "time" {
			return int64(units[e.Sel.Name]), true, units[e.Sel.Name] > 0
		}
		if c, there := all[fmt.Sprint(x)+"."+e.Sel.Name]; there {
			return value(all, x.Name, c.value)
		}
	case *ast.BinaryExpr:
		a, da, oka := value(all, within, e.X)
		b, db, okb := value(all, within, e.Y)
		ops := map[token.Token]int64{token.MUL: a * b, token.ADD: a + b, token.SHL: a << min(max(b, 0), 62)}
		n, known := ops[e.Op]
		return n, da || db, oka && okb && known
	}
	return 0, false, false
}

// forms are how a row may write a value.
func forms(n int64, duration bool) []string {
	if duration {
		return []string{time.Duration(n).String()}
	}
	return []string{fmt.Sprint(n), fmt.Sprintf("%d KiB", n>>10), fmt.Sprintf("%d MiB", n>>20)}
}

// TestEveryLimitIsPublished: a constant that bounds a queue, a buffer, a table or a time
// of the boundary stands in one row of its table, with its value (B150). The page is
// that table, which a test beside it keeps.
func TestEveryLimitIsPublished(t *testing.T) {
	all := constants(t)
	published := map[string]string{}
	for _, row := range boundary.Limits() {
		for name := range strings.SplitSeq(row.Of, "; ") {
			if file, text, is := strings.Cut(name, ": "); is { // the warden is not Go
				if !strings.Contains(read(t, file), text) {
					t.Errorf("%s has no %q, of the row %q", file, text, row.Name)
				}
				continue
			}
			if name == "" { // a number of the profile's
				continue
			}
			published[name] = row.Number
			c, there := all[name]
			n, duration, known := value(all, strings.SplitN(name, ".", 2)[0], c.value)
			if !there || !known {
				t.Errorf("row %q names %s, which is no constant of the boundary", row.Name, name)
				continue
			}
			said := slices.ContainsFunc(forms(n, duration), func(form string) bool {
				return regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(form) + `([^\w.]|$)`).MatchString(row.Number)
			})
			if !said {
				t.Errorf("row %q says %q, and %s is %s", row.Name, row.Number, name, strings.Join(forms(n, duration), " or "))
			}
		}
	}
	for name, c := range all {
		within, short, _ := strings.Cut(name, ".")
		n, duration, known := value(all, within, c.value)
		_, excused := noLimits[name]
		if published[name] == "" && known && n > 0 && !excused && (duration || limitName.MatchString(short)) {
			t.Errorf("%s is in no row of the table of limits: add one to internal/boundary/limits.go", name)
		}
	}
}
