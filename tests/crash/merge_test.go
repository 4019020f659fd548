package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/tests/journey"
)

// change is what an agent does to the tree: new, changed, removed and replaced files,
// in a tree that is not small, so that a merge has a middle.
const change = `umask 022
for i in 1 2 3 4 5 6 7 8; do
  mkdir -p dir$i; for j in 1 2 3 4 5; do echo "$1 $i $j" > dir$i/file$j; done
done
echo "$1" >> README
rm -rf gone; mkdir gone; echo "$1" > "gone/$1"
ln -sfn "dir$1" link`

var hash = regexp.MustCompile(`(?m)^[0-9a-f]{64}$`)

// TestKilledMergeIsAllOrNothing kills skep in the middle of a merge: once the next
// command of this user ran, the tree is exactly as before or exactly as it should be (S4).
func TestKilledMergeIsAllOrNothing(t *testing.T) {
	r := set(t)
	rng := seed(t)
	lasts := r.mergeOnce(0, func(*started) {}).lasted
	times := 12
	if soak() {
		times = 60
	}
	was := map[bool]int{}
	for i := 1; i <= times; i++ {
		delay := time.Duration((0.3 + 0.8*rng.Float64()) * float64(lasts))
		staged := i%3 == 0
		if staged {
			delay = time.Duration(rng.IntN(8)) * time.Millisecond
		}
		m := r.mergeOnce(i, func(s *started) {
			if staged {
				r.await("the staging", func() bool { return s.ended() || r.staging() })
			}
			select {
			case <-time.After(delay):
				_ = s.cmd.Process.Kill()
			case <-s.done:
			}
		})
		was[m.after]++
	}
	t.Logf("before %d times, after %d times", was[false], was[true])
}

// staging tells whether a merge has begun to write.
func (r *rig) staging() bool {
	found, _ := filepath.Glob(filepath.Join(r.Tree, ".skep-merge-*"))
	return len(found) > 0
}

type mergeEnd struct {
	lasted time.Duration
	after  bool
}

// mergeOnce has a cell change the tree, merges it, harmed by harm, and looks.
func (r *rig) mergeOnce(i int, harm func(*started)) mergeEnd {
	r.t.Helper()
	name := "m" + strings.Repeat("x", i%5) + string(rune('a'+i%26))
	r.skep("run", "--yes", "--quiet", "--name", name, "--", "/bin/sh", "-c", change, "sh", name)
	shown, _ := r.skep("diff", name)
	h := hash.FindString(shown)
	before, after := r.content(), r.changed(name)
	begin := time.Now()
	s := r.start("merge", name, h)
	harm(s)
	s.wait(r.t)
	end := mergeEnd{lasted: time.Since(begin)}
	// Any of the commands that look at a tree: the next one of this user.
	if i%2 == 0 {
		r.skep("run", "--yes", "--quiet", "--", "/bin/true")
	} else {
		r.start("diff", name).wait(r.t) // refused where all of it was done
	}
	switch now := r.content(); now {
	case before:
		out, _ := r.skep("diff", name)
		if again := hash.FindString(out); again != h {
			r.t.Errorf("merge %d was undone, and the difference is another:\n%s", i, out)
		}
		r.skep("merge", name, h)
		if now := r.content(); now != after {
			r.t.Errorf("merge %d, made again:\n%s", i, difference(after, now))
		}
	case after:
		end.after = true
		if c := r.named(name); c.hasLayer() {
			r.skep("drop", c.ID) // skep died before it could tell skepd
		}
	default:
		r.t.Errorf("merge %d is half done:\nfrom before:\n%sfrom after:\n%s", i, difference(before, now), difference(after, now))
	}
	r.list()
	r.recorded()
	r.verify()
	r.left()
	r.Git("add", "--all")
	r.Git("commit", "--quiet", "--message="+name)
	return end
}

// changed is the tree as it should be: what the same commands make of a copy.
func (r *rig) changed(name string) string {
	r.t.Helper()
	copied := filepath.Join(journey.Directory(r.t), "tree")
	if out, err := exec.Command("cp", "-a", r.Tree, copied).CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("/bin/sh", "-c", change, "sh", name)
	cmd.Dir = copied
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	tree := r.Tree
	defer func() { r.Tree = tree }()
	r.Tree = copied
	text := r.content()
	if err := os.RemoveAll(copied); err != nil {
		r.t.Error(err)
	}
	return text
}

func (r *rig) named(name string) cell {
	var found cell
	for _, c := range r.list() {
		if c.Name == name {
			found = c
		}
	}
	return found
}
