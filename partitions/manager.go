package partitions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// Barrier returns when every writer that may have read the floor before the call has ended its transaction. It may wait
// for them, and fails when they take longer than the connection's lock_timeout.
type Barrier func(ctx context.Context, conn *pgx.Conn) error

// Config is what a Manager needs. Connect, Drained and Barrier are required.
type Config struct {
	Spec
	// Connect opens a session connection (not through a transaction pooler: the lock that makes one maintainer is held
	// by the session) with the rights of the parent's owner. The Manager closes it.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Drained is promise P2.
	Drained Guard
	// Barrier waits out the writers that may still create rows in a range that was just closed.
	Barrier Barrier
	// Store keeps the archives; nil means that there are none. Default nil.
	Store Store
	// SchemaVersion is written into the manifests. Default 0, which says nothing.
	SchemaVersion int64
	// Tick is the time between two turns, at least 1 second. Default a quarter of Interval, at most 15 seconds.
	Tick time.Duration
	// LockTimeout bounds each wait for a lock. It should be above the server's deadlock_timeout (1 s), after which an
	// autovacuum that stands in the way is cancelled. Default 1.5 seconds.
	LockTimeout time.Duration
	// Log receives what was done and what waits. Default slog.Default().
	Log *slog.Logger
	// Registry receives the metrics. Default: they are counted and shown to nobody.
	Registry prometheus.Registerer

	clock     func(database time.Time) time.Time // tests: what the maintainer takes the time for
	failpoint func(point string)                 // tests: called at each named point
}

func (c Config) withDefaults() Config {
	c.Spec = c.Spec.withDefaults()
	c.Spec.Archive = c.Store != nil
	c.Tick = or(c.Tick, min(c.Interval/4, 15*time.Second))
	c.LockTimeout = or(c.LockTimeout, 1500*time.Millisecond)
	c.Log = or(c.Log, slog.Default())
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.clock == nil {
		c.clock = func(database time.Time) time.Time { return database }
	}
	if c.failpoint == nil {
		c.failpoint = func(string) {}
	}
	return c
}

// Validate returns all problems of c joined, each naming the field.
func (c Config) Validate() error {
	errs := []error{c.Spec.Validate()}
	if c.Connect == nil || c.Drained == nil || c.Barrier == nil {
		errs = append(errs, errors.New("Connect, Drained and Barrier: are required"))
	}
	if c.Tick < 0 || c.Tick > 0 && c.Tick < time.Second {
		errs = append(errs, fmt.Errorf("Tick %s: must be 1s or more", c.Tick))
	}
	if c.LockTimeout < 0 || c.LockTimeout > time.Minute {
		errs = append(errs, fmt.Errorf("LockTimeout %s: must be 0s to 1m", c.LockTimeout))
	}
	return errors.Join(errs...)
}

// Manager maintains the partitions of one parent. Any number of them may run; one acts, the others stand by. Its methods
// must not be called concurrently.
type Manager struct {
	cfg     Config
	metrics *metrics
	conn    *pgx.Conn
	turn    *turn
	waits   map[string]bool // what the last turn waited for, so that it is logged once
}

// New checks the configuration. It does not connect.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure partitions: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Manager{cfg: cfg, metrics: newMetrics(cfg.Registry), waits: map[string]bool{}}, nil
}

// Run takes turns until ctx is cancelled and then returns nil. Errors of the database or of an archive are logged and
// tried again; they never end it.
func (m *Manager) Run(ctx context.Context) error {
	for {
		err := m.session(ctx)
		m.metrics.maintainer.Set(0)
		if ctx.Err() != nil {
			return nil
		}
		m.cfg.Log.Warn("partition maintainer lost its session", "err", err)
		if sleep(ctx, m.cfg.Tick) != nil {
			return nil
		}
	}
}

// Report is what one turn did and what it left waiting.
type Report struct {
	Done    []Action `json:"done"`
	Waiting []Action `json:"waiting"`
}

// Once takes one turn. It fails when another process maintains the partitions at this moment, and when a step failed;
// the report then tells of the others.
func (m *Manager) Once(ctx context.Context) (Report, error) {
	if err := m.connect(ctx); err != nil {
		return Report{}, err
	}
	defer m.disconnect(ctx)
	lead, err := m.tick(ctx)
	if err == nil && !lead {
		return Report{}, errors.New("another process maintains the partitions now; nothing was done")
	}
	if m.turn == nil {
		return Report{}, err
	}
	return m.turn.report, err
}

// session takes turns on one connection until it breaks.
func (m *Manager) session(ctx context.Context) error {
	if err := m.connect(ctx); err != nil {
		return err
	}
	defer m.disconnect(ctx)
	for {
		if _, err := m.tick(ctx); err != nil {
			if m.conn.IsClosed() || ctx.Err() != nil {
				return err
			}
			m.cfg.Log.Error("partition maintenance failed", "err", err)
		}
		if err := sleep(ctx, m.cfg.Tick); err != nil {
			return err
		}
	}
}

func (m *Manager) connect(ctx context.Context) error {
	conn, err := m.cfg.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect partition maintainer: %w", err)
	}
	m.conn = conn
	for name, value := range m.settings() {
		if _, err := conn.Exec(ctx, setSetting, name, value); err != nil {
			m.disconnect(ctx)
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// settings of the session. A maintainer that was stopped (SIGSTOP) in a transaction, or while it leads, loses its locks
// by the idle timeouts; archives are read in physical order, always the same.
func (m *Manager) settings() map[string]string {
	return map[string]string{
		"lock_timeout":                        strconv.FormatInt(m.cfg.LockTimeout.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": "10s",
		"idle_session_timeout":                "30min",
		"TimeZone":                            "UTC",
		"DateStyle":                           "ISO",
		"synchronize_seqscans":                "off",
		"max_parallel_workers_per_gather":     "0",
	}
}

// disconnect gives the lead up at once: a server may take a while to notice that a session has gone.
func (m *Manager) disconnect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if !m.conn.IsClosed() {
		_, _ = m.conn.Exec(ctx, unlead) // a session that cannot say it is ended by the server, and the lock with it
	}
	_ = m.conn.Close(ctx)
}
