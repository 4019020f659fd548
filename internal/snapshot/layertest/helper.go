package layertest

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/snapshot/layer/confined"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/snapshot/walk"
	"skep.dev/skep/internal/sys"
)

// serveConfined is the layer process as the worker starts it: descriptors 3
// to 6 are the socket, the base, the upper directory and the layer's own.
func serveConfined() {
	names := []string{"socket", "base", "upper", "layer"}
	files := make([]*os.File, len(names))
	for i, name := range names {
		f, err := sys.Inherited(3+i, name)
		if err != nil {
			fail(err)
		}
		files[i] = f
	}
	if err := confined.Confine(); err != nil {
		fail(err)
	}
	// The walls, asked from inside; a wall that is not there ends the helper.
	if _, err := os.Open("/proc/self/status"); err == nil {
		fail(errors.New("a confined layer process opened a path from the root"))
	}
	if a, _, err := sys.SeqpacketPair(); err == nil {
		fail(fmt.Errorf("a confined layer process made the socket %v", a))
	}
	if _, err := os.StartProcess("/bin/true", nil, &os.ProcAttr{}); err == nil {
		fail(errors.New("a confined layer process started a program"))
	}
	grants := []layer.Grant{{Grant: walk.Grant{Base: files[1], Upper: files[2], CompareRoot: true}, Dir: files[3]}}
	powers := layer.Powers{Walk: true, Open: true, Remove: true, Measure: true}
	if err := layer.Serve(context.Background(), files[0], grants, powers); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "layertest helper:", err)
	os.Exit(1)
}

func serveCell() {
	conn, err := sys.Inherited(3, "control")
	if err != nil {
		fail(err)
	}
	buf := make([]byte, layer.MaxMessage)
	for {
		n, files, err := sys.RecvFDs(conn, buf, 1)
		if err != nil || n == 0 {
			return
		}
		var q request
		if err := gob.NewDecoder(bytes.NewReader(buf[:n])).Decode(&q); err != nil {
			fail(err)
		}
		r, err := perform(q, files)
		if err != nil {
			r.Error = err.Error()
		}
		var out bytes.Buffer
		if err := gob.NewEncoder(&out).Encode(r); err != nil {
			fail(err)
		}
		if err := os.WriteFile(q.Reply, out.Bytes(), 0o600); err != nil {
			fail(err)
		}
		if err := sys.SendFDs(conn, []byte("done")); err != nil {
			return
		}
	}
}

func perform(q request, files []*os.File) (reply, error) {
	switch {
	case q.Serve:
		return reply{}, startServing(q, files)
	case q.Mount:
		return mounted(q)
	}
	view, err := look(q.Base)
	return reply{View: view}, err
}

func startServing(q request, files []*os.File) error {
	var opened []*os.File
	for _, dir := range []string{q.Base, filepath.Join(q.Layer, "upper"), q.Layer} {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		opened = append(opened, f)
	}
	grants := []layer.Grant{{
		Grant: walk.Grant{Base: opened[0], Upper: opened[1], CompareRoot: true}, Dir: opened[2],
	}}
	go func() {
		_ = layer.Serve(context.Background(), files[0], grants, layer.Powers{Walk: true, Open: true, Remove: true, Measure: true})
		sys.CloseAll(append(opened, files...))
	}()
	return nil
}

// mounted performs the ops in a mount of the layer over the base.
func mounted(q request) (r reply, err error) {
	upper, work, merged := filepath.Join(q.Layer, "upper"), filepath.Join(q.Layer, "work"), filepath.Join(q.Layer, "merged")
	for _, dir := range []string{upper, work, merged} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return r, err
		}
	}
	if err := likeRoot(q.Base, upper); err != nil {
		return r, err
	}
	if err := sys.MountOverlay(merged, q.Base, upper, work); err != nil {
		return r, err
	}
	for _, op := range q.Ops {
		answer := ""
		if err := op.do(merged); err != nil {
			answer = err.Error()
		}
		r.Failed = append(r.Failed, answer)
	}
	r.View, err = look(merged)
	err = errors.Join(err, sys.UnmountTree(merged), os.Remove(merged))
	return r, err
}

// likeRoot gives a new upper directory the base's mode and attributes, which
// is what Grant.CompareRoot asks of its maker.
func likeRoot(base, upper string) error {
	if _, err := os.Stat(upper + "/../made"); err == nil {
		return nil
	}
	from, err := os.Open(base)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Open(upper)
	if err != nil {
		return err
	}
	defer to.Close()
	xattrs, _, err := tree.Xattrs(from)
	if err != nil {
		return err
	}
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(tree.SetXattrs(to, xattrs), os.Chmod(upper, info.Mode().Perm())); err != nil {
		return err
	}
	return os.WriteFile(upper+"/../made", nil, 0o600)
}

// look lists a tree with every state, by descriptors.
func look(dir string) (View, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	view := View{}
	todo := []string{"."}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		s, _, err := tree.Reader{}.At(context.Background(), root, path)
		if err != nil {
			return nil, err
		}
		view[path] = s
		if s.Type != snapshot.Dir {
			continue
		}
		f, err := sys.OpenDirBeneath(root, path)
		if err != nil {
			return nil, err
		}
		names, err := tree.Names(f)
		f.Close()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if path != "." {
				name = path + "/" + name
			}
			todo = append(todo, name)
		}
	}
	return view, nil
}
