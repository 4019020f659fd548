package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/cli/terminal"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/seal"
	"skep.dev/skep/internal/ledger/story"
	"skep.dev/skep/internal/ledger/verify"
)

func (a *App) ledgerCommand() *cobra.Command {
	c := &cobra.Command{Use: "ledger", Short: "The record", Args: noSuchCommand, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.ledgerShow(), a.ledgerVerify(), a.ledgerKey())
	return c
}

func (a *App) ledgerShow() *cobra.Command {
	var q skepv1.LedgerReadRequest
	c := &cobra.Command{
		Use: "show [CELL]", Short: "Tell what was recorded, one line an event", Args: between(0, 1),
		Example: "skep ledger show last --decision deny\nskep ledger show --kind flow.denied --since 2026-11-01T00:00:00Z --json",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.Cell = args[0]
			}
			return a.show(c.Context(), &q)
		},
	}
	f := c.Flags()
	f.BoolVarP(&q.Follow, "follow", "f", false, "wait for more")
	f.StringSliceVar(&q.Kinds, "kind", nil, "only these kinds, such as flow.denied")
	f.StringVar(&q.Decision, "decision", "", "only allow, deny or ask")
	f.StringVar(&q.Since, "since", "", "not before this time (2006-01-02T15:04:05Z)")
	f.StringVar(&q.Until, "until", "", "before this time")
	return c
}

func (a *App) show(ctx context.Context, q *skepv1.LedgerReadRequest) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	teller := story.Teller{Colour: a.colour(), Zone: time.Local, Cell: q.Cell == ""}
	once := func(w io.Writer) error {
		stream, err := d.LedgerRead(ctx, connect.NewRequest(q))
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			q.From = stream.Msg().Position + 1
			line := string(stream.Msg().Json)
			if !a.json {
				e, err := entry.Parse(stream.Msg().Json)
				if err != nil {
					return err
				}
				line = teller.Line(&e)
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
		return stream.Err()
	}
	tell := func(w io.Writer) error { // from one skepd after the other
		err := once(w)
		for d.goesOn(ctx, err) {
			err = once(w)
		}
		return err
	}
	if q.Follow {
		return tell(a.Out) // what comes is to be seen at once
	}
	return a.paged(tell)
}

// colour is for a terminal that has some, and a user who did not say no.
func (a *App) colour() bool {
	term := a.Getenv("TERM")
	return terminal.IsTerminal(a.Out) && a.Getenv("NO_COLOR") == "" && term != "" && term != "dumb"
}

func (a *App) ledgerVerify() *cobra.Command {
	var since, key string
	c := &cobra.Command{
		Use: "verify", Short: "Prove the record: needs no daemon and no private key", Args: exactly(0),
		Example: "skep ledger verify\nskep ledger verify --key ledger.pub --json",
		RunE:    func(c *cobra.Command, _ []string) error { return a.verify(c.Context(), since, key) },
	}
	c.Flags().StringVar(&since, "since", "", "a checkpoint that was kept elsewhere (default: the last one that skep saw)")
	c.Flags().StringVar(&key, "key", "", "file with the public key (default: the one beside the ledger, which proves less)")
	return c
}

// verify keeps the last good checkpoint in the user's own directory, so that a
// record which was rolled back as a whole is found (D8).
func (a *App) verify(ctx context.Context, since, keyFile string) error {
	p, err := a.places()
	if err != nil {
		return err
	}
	var o verify.Options
	if keyFile != "" {
		text, err := os.ReadFile(keyFile)
		if err == nil {
			o.Key, err = seal.ParsePublic(text)
		}
		if err != nil {
			return fmt.Errorf("read the public key: %w", err)
		}
	}
	kept := ""
	if own, err := a.own(); err == nil {
		kept = checkpointFile(own, p.State)
	}
	if since == "" && kept != "" {
		if raw, err := os.ReadFile(kept); err == nil {
			since = string(raw)
		}
	}
	if since != "" {
		checkpoint, err := verify.ParseCheckpoint(since)
		if err != nil {
			return usage("--since: %w", err)
		}
		o.Since = &checkpoint
	}
	dir := filepath.Join(p.State, "ledger")
	r, err := verify.Ledger(dir, o)
	if err == nil && r.Status == verify.UnsignedTail && r.Live && sealed(ctx, launch.APISocket(p)) {
		r, err = verify.Ledger(dir, o)
	}
	if err != nil {
		return &statusError{int(verify.CannotRead), err}
	}
	if r.Checkpoint != (verify.Checkpoint{}) && r.Fault == nil && kept != "" {
		if err := keep(kept, r.Checkpoint.String()); err != nil {
			a.say("the checkpoint was not kept: %v", err)
		}
	}
	if err := a.printReport(r); err != nil {
		return err
	}
	if r.Status != verify.Valid {
		return &statusError{code: int(r.Status)}
	}
	return nil
}

// sealTime bounds the wait for a seal that is on its way: a sync of one file.
const sealTime = 2 * time.Second

// sealed has the skepd that writes the record sign what it has of cells that have ended,
// which follows the word of their end. None is started, and one that does not answer leaves
// the record as it was read: it needs no daemon.
func sealed(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, sealTime)
	defer cancel()
	_, err := client.New(socket).LedgerSeal(ctx, connect.NewRequest(&skepv1.LedgerSealRequest{}))
	return err == nil
}

// checkpointFile is one for each record: a user may have several state directories.
func checkpointFile(own, state string) string {
	digest := sha256.Sum256([]byte(state))
	return filepath.Join(own, "checkpoints", hex.EncodeToString(digest[:8]))
}

func keep(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}

func (a *App) printReport(r verify.Report) error {
	if !a.json {
		_, err := fmt.Fprintln(a.Out, r.String())
		return err
	}
	out := map[string]any{
		"status": r.Status.String(), "exit": int(r.Status), "entries": r.Entries, "cells": r.Cells, "seals": r.Seals,
		"unsigned": r.Unsigned, "live": r.Live, "checkpoint": r.Checkpoint.String(),
	}
	if f := r.Fault; f != nil {
		out["fault"] = map[string]any{"cell": f.Cell, "seq": f.Seq, "seal": f.Seal, "detail": f.Detail}
	}
	return a.printValue(out)
}

func (a *App) ledgerKey() *cobra.Command {
	return &cobra.Command{
		Use: "key", Short: "Print the public half of the record's key", Args: exactly(0),
		Example: "skep ledger key >ledger.pub",
		RunE: func(*cobra.Command, []string) error {
			p, err := a.places()
			if err != nil {
				return err
			}
			k, err := seal.LoadPublic(filepath.Join(p.State, "keys"))
			if errors.Is(err, os.ErrNotExist) {
				return errors.New("there is no key yet: the first start of skepd makes it")
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printValue(map[string]any{"id": k.ID(), "key": json.RawMessage(k.Text())})
			}
			_, err = fmt.Fprint(a.Out, k.Text())
			return err
		},
	}
}
