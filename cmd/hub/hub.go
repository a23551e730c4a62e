package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/prometheus/client_golang/prometheus"
)

// stopTimeout bounds a stop: each part has its own time-outs below it.
const stopTimeout = time.Minute

// hub is one run of the pipeline. Parts are started in the order of the data's way from behind and stopped in reverse:
// the fleet falls silent, the ingester commits and acknowledges what it has, the relays write their cursors, and only
// then do the servers go.
type hub struct {
	cfg   *config
	out   io.Writer
	log   *slog.Logger
	reg   *prometheus.Registry
	admin *ops.Admin
	dir   string

	servers servers
	page    string // address, once it is served
	fleet   *fleet

	stops []func(context.Context) error
	fail  context.CancelCauseFunc
}

func newHub(cfg *config, out io.Writer) *hub { return &hub{cfg: cfg, out: out} }

// run works until ctx ends or a part fails, and returns when everything has stopped.
func (h *hub) run(ctx context.Context) error {
	log, err := ops.NewLogger(h.out, h.cfg.LogLevel, h.cfg.LogFormat)
	if err != nil {
		return err
	}
	h.log = log
	begin := time.Now()
	ctx, h.fail = context.WithCancelCause(ctx)
	defer h.fail(nil)
	err = h.start(ctx)
	if err == nil {
		h.printTable(time.Since(begin))
		h.printFlow(ctx)
		err = context.Cause(ctx)
	}
	if ctx.Err() != nil {
		fmt.Fprintln(h.out, "stopping")
	}
	stopErr := h.stop(context.WithoutCancel(ctx))
	if errors.Is(err, context.Canceled) {
		err = nil // Ctrl-C, as asked
	}
	return errors.Join(err, stopErr)
}

func (h *hub) start(ctx context.Context) error {
	if h.cfg.Real {
		if err := embedded.CheckReal(); err != nil {
			return err
		}
	}
	dir, remove, err := h.cfg.openDataDir()
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	h.dir = dir
	h.onStop(func(context.Context) error { return remove() })
	if err := h.startAdmin(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		h.startServers, h.migrate, h.startRelays, h.startIngester, h.startMonitor, h.startFleet,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the parts, last first. A part that does not stop in order does not keep the others from it.
func (h *hub) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var errs []error
	for i := len(h.stops) - 1; i >= 0; i-- {
		errs = append(errs, h.stops[i](ctx))
	}
	return errors.Join(errs...)
}

func (h *hub) onStop(stop func(context.Context) error) { h.stops = append(h.stops, stop) }

// launch runs a part until it is stopped, not until parent ends: the order of a stop is the stack's. A part that ends by itself ends the hub, with its error.
func (h *hub) launch(parent context.Context, name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	ended := make(chan error, 1)
	// Waited for by the stop registered below.
	go func() {
		err := run(ctx)
		if ctx.Err() == nil {
			h.fail(fmt.Errorf("%s ended: %w", name, orEnded(err)))
			err = nil // told once
		}
		ended <- err
	}()
	h.onStop(func(stopping context.Context) error {
		cancel()
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, context.Canceled) {
				return nil
			}
			return fmt.Errorf("stop %s: %w", name, err)
		case <-stopping.Done():
			return fmt.Errorf("stop %s: %w", name, context.Cause(stopping))
		}
	})
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("without being asked to")
	}
	return err
}

func (h *hub) startAdmin(ctx context.Context) error {
	h.reg = ops.NewRegistry()
	h.admin = ops.NewAdmin(h.cfg.AdminAddr, h.reg, h.log)
	if err := h.admin.Listen(); err != nil {
		return err
	}
	h.launch(ctx, "admin server", h.admin.Run)
	return nil
}

// part is the directory of one server.
func (h *hub) part(name string) string { return filepath.Join(h.dir, name) }
