package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/merging"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/merge"
)

func (a *App) mergeCommand() *cobra.Command {
	var active []string
	var undo string
	c := &cobra.Command{
		Use: "merge CELL HASH | merge --undo HASH", Short: "Apply exactly the difference whose hash was read, or take a merge back (30 days)",
		Example: "skep merge last 09d4509eabaf\nskep merge last 09d4509eabaf --with-active .envrc\nskep merge --undo 09d4509eabaf",
		Args: func(c *cobra.Command, args []string) error {
			if undo != "" {
				return errors.Join(between(0, 0)(c, args), isHash(undo))
			}
			if err := between(2, 2)(c, args); err != nil {
				return err
			}
			return isHash(args[1])
		},
		RunE: func(c *cobra.Command, args []string) error {
			if undo != "" {
				return a.undo(c.Context(), undo)
			}
			return a.merge(c.Context(), args[0], args[1], active)
		},
	}
	c.Flags().StringSliceVar(&active, "with-active", nil, "also these paths, which make programs of the host run something")
	c.Flags().StringVar(&undo, "undo", "", "take the merge with this hash back (30 days)")
	return c
}

// isHash refuses what no hash of a difference can begin with.
func isHash(given string) error {
	if _, err := snapshot.MatchHash(strings.Repeat("0", 64), given); err != nil {
		return usage("%w", err)
	}
	return nil
}

// merge plans with skepd, writes with the user's own rights, then has it recorded.
func (a *App) merge(ctx context.Context, ref, hash string, active []string) error {
	own, err := a.own()
	if err != nil {
		return err
	}
	d, err := a.ready(ctx)
	if err != nil {
		return err
	}
	c, roots, ticket, err := a.offerRoots(ctx, d, ref)
	if err != nil {
		return err
	}
	r := &received{roots: roots}
	defer r.close()
	stream, err := d.MergePlan(ctx, connect.NewRequest(&skepv1.MergePlanRequest{Cell: c.Id, Hash: hash, Ticket: ticket, WithActive: active}))
	if err != nil {
		return err
	}
	if err := a.receive(d, c, stream, r); err != nil {
		return err
	}
	if same, err := snapshot.MatchHash(r.Hash, hash); err != nil {
		return err
	} else if !same {
		return a.moved(ctx, c, r, hash)
	}
	return a.applied(ctx, d, own, c, r, active)
}

// applied writes to the tree and has the end recorded, whichever it is. Should we die
// between the two, the next command finds what is pending, and tells it.
func (a *App) applied(ctx context.Context, d *daemon, own string, c *skepv1.Cell, r *received, active []string) error {
	var pending *merging.Pending
	result, err := a.apply(ctx, own, r, active, func(planned merge.Result) (err error) {
		m := merging.Merge{Cell: c.Id, Hash: planned.Hash, State: d.places.State, At: time.Now()}
		m.Paths = paths(planned)
		pending, err = merging.Begin(own, m)
		return err
	})
	if pending != nil {
		defer pending.Release()
	}
	if err != nil && pending != nil {
		// What is left to tidy up is the next command's, as is telling.
		if done, _ := merge.Finished(own, pending.Hash, pending.At); done {
			return err
		}
	}
	if err != nil {
		recorded, err := a.aborted(ctx, d, c, r, err)
		if recorded && pending != nil {
			err = errors.Join(err, pending.End())
		}
		return err
	}
	if err := a.committed(ctx, d, c, r, result); err != nil {
		return err
	}
	return pending.End()
}

func paths(r merge.Result) [][]byte {
	out := make([][]byte, 0, len(r.Merged))
	for _, p := range r.Merged {
		out = append(out, []byte(p.Path))
	}
	return out
}

// moved shows the difference as it is now.
func (a *App) moved(ctx context.Context, c *skepv1.Cell, r *received, hash string) error {
	if err := a.printDifference(ctx, c, r, diffFlags{stat: true}); err != nil {
		return err
	}
	return fmt.Errorf("nothing was merged: the difference is not the one that you read (%.12s), see above", hash)
}

// apply writes to the tree.
func (a *App) apply(ctx context.Context, own string, r *received, active []string, planned func(merge.Result) error) (merge.Result, error) {
	refused := map[string]bool{}
	for i := range r.Entries {
		if r.Entries[i].Refused != "" {
			refused[r.FullPath(&r.Entries[i])] = true
		}
	}
	request := merge.Request{
		Layer: r.layer, Hash: r.Hash, WithActive: active, StateDir: own, Planned: planned,
		// skepd has judged by the profile of the run; what is new is another hash.
		Judge: func(grant int, path string) bool {
			return !refused[r.FullPath(&snapshot.Entry{Grant: grant, Path: path})]
		},
	}
	opened := map[string]*os.File{}
	for _, path := range r.roots.Roots {
		dir, err := os.Open(path)
		if err != nil {
			return merge.Result{}, fmt.Errorf("open %s to write: %w", path, err)
		}
		defer func() { _ = dir.Close() }()
		opened[path] = dir
		request.Roots = append(request.Roots, merge.Root{Path: path, Dir: dir})
	}
	for i, compared := range r.roots.Files {
		if err := sameObject(opened, r.roots.Roles[i].Path, compared); err != nil {
			return merge.Result{}, err
		}
	}
	shown := a.working("merging")
	defer shown.stop()
	request.Step = shown.step
	return merge.Apply(ctx, request)
}

// sameObject makes sure that what is written is what was compared: a directory that
// we opened, or a single file in one.
func sameObject(opened map[string]*os.File, path string, compared *os.File) error {
	now, err := os.Lstat(path)
	if dir := opened[path]; dir != nil {
		now, err = dir.Stat()
	}
	if err != nil {
		return err
	}
	then, err := compared.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(now, then) {
		return fmt.Errorf("%s was replaced meanwhile; nothing was merged", path)
	}
	return nil
}

// aborted has it recorded that nothing was changed, and says whether it is.
func (a *App) aborted(ctx context.Context, d *daemon, c *skepv1.Cell, r *received, why error) (recorded bool, err error) {
	_, err = d.MergeAbort(context.WithoutCancel(ctx), connect.NewRequest(&skepv1.MergeAbortRequest{Cell: c.Id, Hash: r.Hash, Reason: why.Error()}))
	return err == nil, fmt.Errorf("nothing was merged: %w", errors.Join(why, err))
}

// committed has every path recorded, and tells what was done.
func (a *App) committed(ctx context.Context, d *daemon, c *skepv1.Cell, read *received, result merge.Result) error {
	q := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: result.Hash, Paths: paths(result)}
	r, err := d.MergeCommit(context.WithoutCancel(ctx), connect.NewRequest(q))
	if err != nil {
		return fmt.Errorf("the tree is merged, but skepd could not record it: %w", err)
	}
	if a.json {
		return a.printValue(merging.ReportOf(r.Msg, result, read.replaced()))
	}
	for _, p := range result.LeftOut {
		fmt.Fprintf(a.Out, "left out: %s (%s)\n", escape.Line(p.Path), escape.Line(p.Reason))
	}
	if r.Msg.State == skepv1.CellState_CELL_STATE_STOPPED {
		fmt.Fprintf(a.Out, "the cell keeps what was left out: skep diff %s shows it, skep merge with --with-active takes it, skep drop throws it away\n", c.Id)
	}
	fmt.Fprintf(a.Out, "%s merged; skep merge --undo %.12s takes it back\n", words.Count(int64(len(result.Merged)), "path"), result.Hash)
	replaced, n := read.replaced(), int64(0)
	for _, p := range result.Merged {
		if replaced[p.Path] {
			n++
		}
	}
	if n > 0 {
		fmt.Fprintf(a.Out, "%d of them replaced what changed in your tree since the cell started: skep merge --undo %.12s brings it back\n", n, result.Hash)
	}
	if r.Msg.State == skepv1.CellState_CELL_STATE_MERGED {
		fmt.Fprintln(a.Out, "the layer of the cell is gone with it: an undo gives your tree back as it was, not what the cell wrote")
	}
	return nil
}

// replaced are the full paths that somebody changed in the tree since the cell started.
func (r *received) replaced() map[string]bool {
	paths := map[string]bool{}
	for i := range r.Entries {
		if r.Entries[i].Conflict {
			paths[r.FullPath(&r.Entries[i])] = true
		}
	}
	return paths
}
