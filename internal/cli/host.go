package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/build"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/model/script"
)

func (a *App) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print this program's version", Args: exactly(0),
		Example: "skep version\nskep version --json",
		RunE:    func(*cobra.Command, []string) error { return a.version() },
	}
}

func (a *App) version() error {
	b := build.This()
	if a.json {
		return a.printValue(map[string]any{
			"version": b.Version, "commit": b.Commit, "api": client.APIMax, "api_min": client.APIMin, "api_max": client.APIMax,
		})
	}
	_, err := fmt.Fprintf(a.Out, "skep %s, API %d\n", b, client.APIMax)
	return err
}

func (a *App) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what this host offers, what is missing and what would help, and prove each wall", Args: exactly(0),
		Example: "skep doctor\nskep doctor --json",
		RunE:    func(c *cobra.Command, _ []string) error { return a.doctor(c.Context()) },
	}
}

// doctor ends with 1 if something is missing that a cell needs.
func (a *App) doctor(ctx context.Context) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	r, err := d.Doctor(ctx, connect.NewRequest(&skepv1.DoctorRequest{}))
	if err != nil {
		return err
	}
	missing := false
	for _, f := range r.Msg.Findings {
		missing = missing || f.Status == "missing"
		if a.json {
			if err := a.printJSON(f); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.Out, "%-9s %-24s %s\n", f.Status, f.Name, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(a.Out, "%-9s %-24s -> %s\n", "", "", f.Fix)
		}
	}
	if missing {
		return &statusError{code: statusRefused}
	}
	return nil
}

func (a *App) upCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Run skepd in the foreground", Args: exactly(0),
		Example: "skep up\nSKEP_RUN=/tmp/mine SKEP_STATE=~/mine skep up",
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := a.places()
			if err != nil {
				return err
			}
			programs, err := launch.Programs()
			if err != nil {
				return err
			}
			return launch.Foreground(c.Context(), launch.Config{Places: p, Programs: programs, UID: os.Getuid()})
		},
	}
}

func (a *App) modelCommand() *cobra.Command {
	model := &cobra.Command{Use: "model", Short: "Models", Args: noSuchCommand, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	var listen string
	serve := &cobra.Command{
		Use: "script FILE", Short: "Serve a scripted model on loopback", Args: exactly(1),
		Example: "skep model script demo.yaml\nskep model script --listen 127.0.0.1:8080 demo.yaml",
		RunE:    func(c *cobra.Command, args []string) error { return a.modelScript(c.Context(), args[0], listen) },
	}
	serve.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback address to serve on")
	model.AddCommand(serve)
	return model
}

// modelScript serves until it is interrupted.
func (a *App) modelScript(ctx context.Context, file, listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return usage("--listen %q: want a loopback address and a port, such as 127.0.0.1:8080", listen)
	}
	// Before anything says that it is served.
	source, err := os.ReadFile(file)
	if err == nil {
		_, err = script.Parse(source)
	}
	if err != nil {
		return fmt.Errorf("read the script %s: %w", file, err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve the script: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	url := "http://" + l.Addr().String() + "/v1"
	if a.json {
		err = a.printValue(map[string]string{"url": url, "script": file})
	} else {
		_, err = fmt.Fprintf(a.Out, "%s serves %s; ctrl-c ends it\n", url, filepath.Base(file))
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return script.Serve(ctx, l, file)
}
