package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var errStarting = errors.New("starting")

const shutdownTimeout = 5 * time.Second

// Admin serves /metrics, /healthz (the process answers) and /readyz (it really works: every Condition holds).
// Its methods are safe for concurrent use.
type Admin struct {
	addr string
	log  *slog.Logger
	mux  *http.ServeMux

	mu         sync.Mutex
	listener   net.Listener
	conditions []*Condition
	ready      *prometheus.GaugeVec
}

// NewAdmin prepares a server on addr (host:port; port 0 takes a free one; empty serves nothing).
// reg may be nil: then /metrics shows the Go runtime and the process only.
func NewAdmin(addr string, reg *prometheus.Registry, log *slog.Logger) *Admin {
	if reg == nil {
		reg = NewRegistry()
	}
	a := &Admin{addr: addr, log: log, mux: http.NewServeMux(), ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ops_ready", Help: "1 when the named readiness condition holds, else 0.",
	}, []string{"condition"})}
	// Two parts in one process may share a registry; the first one's gauge then serves both.
	if err := reg.Register(a.ready); err != nil {
		var already prometheus.AlreadyRegisteredError
		if errors.As(err, &already) {
			if same, ok := already.ExistingCollector.(*prometheus.GaugeVec); ok {
				a.ready = same
			}
		}
	}
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	a.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	a.mux.HandleFunc("GET /readyz", a.serveReady)
	return a
}

// Handle serves pattern with h, beside the built-in paths.
func (a *Admin) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// Handler is everything the server answers, for a process that serves it on a listener of its own.
func (a *Admin) Handler() http.Handler { return a.mux }

// EnablePprof adds /debug/pprof: call it only when the operator asked.
func (a *Admin) EnablePprof() {
	a.mux.HandleFunc("/debug/pprof/", pprof.Index)
	a.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	a.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	a.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	a.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// Condition returns the readiness condition of that name; a new one is "not ready: starting".
func (a *Admin) Condition(name string) *Condition {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conditions {
		if c.name == name {
			return c
		}
	}
	c := &Condition{name: name, err: errStarting, gauge: a.ready.WithLabelValues(name)}
	a.conditions = append(a.conditions, c)
	return c
}

// Ready is nil when every condition holds, else an error with one "name: reason" a line.
func (a *Admin) Ready() error {
	a.mu.Lock()
	conditions := slices.Clone(a.conditions)
	a.mu.Unlock()
	var reasons []string
	for _, c := range conditions {
		if err := c.Err(); err != nil {
			reasons = append(reasons, c.name+": "+Mask(err.Error()))
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	return errors.New(strings.Join(reasons, "\n"))
}

func (a *Admin) serveReady(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := a.Ready(); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, "not ready\n%v\n", err)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// Listen binds the address. Run does it too; calling it first makes a port in use fail early and Addr known.
func (a *Admin) Listen() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listener != nil || a.addr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", a.addr)
	if err != nil {
		return fmt.Errorf("listen on admin_addr %s: %w", a.addr, err)
	}
	a.listener = listener
	return nil
}

// Addr is the bound host:port, empty before Listen or Run.
func (a *Admin) Addr() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listener == nil {
		return ""
	}
	return a.listener.Addr().String()
}

// Run serves until ctx ends, then gives open requests a few seconds. Request contexts end with ctx, so that a stream
// never holds up a stop.
func (a *Admin) Run(ctx context.Context) error {
	if err := a.Listen(); err != nil {
		return err
	}
	if a.Addr() == "" {
		<-ctx.Done()
		return nil
	}
	srv := &http.Server{
		Handler:           a.mux,
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- srv.Shutdown(grace)
	})()
	a.log.Info("admin server listening", "addr", a.Addr())
	if err := srv.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin: %w", err)
	}
	if err := <-stopped; err != nil {
		_ = srv.Close()
		return fmt.Errorf("stop admin server: %w", err)
	}
	return nil
}

// Condition is one thing that must hold before a daemon is ready. Safe for concurrent use.
type Condition struct {
	name  string
	gauge prometheus.Gauge
	mu    sync.Mutex
	err   error
}

// Set records the state: nil is ready, else err says why not.
func (c *Condition) Set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.gauge.Set(0)
	if err == nil {
		c.gauge.Set(1)
	}
}

// Err is nil when the condition holds.
func (c *Condition) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
