package partitions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// turn is what one tick remembers from plan to plan.
type turn struct {
	started time.Time
	failed  map[string]bool // partitions left alone for the rest of the turn
	stuck   bool            // a detach is pending: until it is finalized nothing else can be detached
	expired bool
	waits   map[string]bool
	errs    []error
	report  Report
}

// tick is one turn: read, plan, and carry the plan out, until a plan has nothing left but waits. A process that does not
// lead only shows the metrics.
func (m *Manager) tick(ctx context.Context) (lead bool, err error) {
	if lead, err = m.lead(ctx); err != nil {
		return false, err
	}
	if !lead {
		_, _, err := m.look(ctx)
		return false, err
	}
	m.turn = &turn{started: time.Now(), failed: map[string]bool{}, waits: map[string]bool{}, report: Report{Done: []Action{}, Waiting: []Action{}}}
	defer func() { m.metrics.turn.Observe(time.Since(m.turn.started).Seconds()) }()
	return true, m.maintain(ctx)
}

func (m *Manager) lead(ctx context.Context) (bool, error) {
	var lead bool
	if err := m.conn.QueryRow(ctx, tryLead, m.cfg.Parent).Scan(&lead); err != nil {
		return false, fmt.Errorf("ask for the maintainer's lock: %w", err)
	}
	m.metrics.maintainer.Set(0)
	if lead {
		m.metrics.maintainer.Set(1)
	}
	return lead, nil
}

// look reads the state and shows it as metrics.
func (m *Manager) look(ctx context.Context) (State, time.Time, error) {
	state, now, err := readState(ctx, m.conn, m.cfg.Spec, false)
	now = m.cfg.clock(now)
	if err == nil {
		m.metrics.observe(state, now, m.cfg.Spec)
	}
	return state, now, err
}

func (m *Manager) maintain(ctx context.Context) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	for round := 1; ; round++ {
		state, now, err := m.look(ctx)
		if err == nil {
			err = judge(ctx, m.conn, &state, later(now, state.Floor), m.cfg.Drained)
		}
		if err != nil {
			return err
		}
		if m.turn.expired {
			state.ExpiredAt = now
		}
		progress := m.carryOut(ctx, Plan(state, now, m.cfg.Spec), now)
		if !progress || round == maxRounds || m.late() {
			return m.finish(ctx, state, now)
		}
	}
}

// late reports that a turn has taken so long that the runway must be looked after again first.
func (m *Manager) late() bool { return time.Since(m.turn.started) > m.cfg.Interval/2 }

// prepare makes the recorded interval the configured one and clears what an interrupted archive left.
func (m *Manager) prepare(ctx context.Context) error {
	if _, err := m.conn.Exec(ctx, upsertSpec, m.cfg.Parent, int64(m.cfg.Interval/time.Second)); err != nil {
		return fmt.Errorf("record interval: %w", err)
	}
	if m.cfg.Store == nil {
		return nil
	}
	if err := m.cfg.Store.Clean(ctx, m.cfg.Parent+"_p"); err != nil {
		m.turn.errs = append(m.turn.errs, fmt.Errorf("clean archives: %w", err)) // only archiving depends on it
	}
	return nil
}

// finish records the turn. It counts as complete also when a step failed: what failed has its own numbers.
func (m *Manager) finish(ctx context.Context, state State, now time.Time) error {
	var expired *time.Time
	if m.turn.expired {
		expired = &now
	}
	m.metrics.waiting.Set(float64(len(m.turn.waits)))
	m.waits = m.turn.waits
	if m.conn.IsClosed() {
		return errors.Join(m.turn.errs...)
	}
	if _, err := m.conn.Exec(ctx, recordTick, m.cfg.Parent, now, nullable(state.Steady(now, m.cfg.Spec)), expired); err != nil {
		m.turn.errs = append(m.turn.errs, fmt.Errorf("record turn: %w", err))
	}
	m.metrics.lastSuccess.Set(float64(now.UnixMilli()) / 1000)
	m.cfg.failpoint("turn.recorded")
	return errors.Join(m.turn.errs...)
}

func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// carryOut does the actions in order and reports whether one of them changed something. A failure holds up only its own
// partition.
func (m *Manager) carryOut(ctx context.Context, actions []Action, now time.Time) (progress bool) {
	m.turn.report.Waiting = []Action{}
	for _, a := range actions {
		if m.conn.IsClosed() || ctx.Err() != nil {
			return progress
		}
		if m.skipped(a) {
			continue
		}
		err := m.do(ctx, a)
		m.settle(ctx, a, now, err)
		progress = progress || err == nil
		if a.Kind == Archive && m.late() {
			return progress
		}
	}
	return progress
}

func (m *Manager) skipped(a Action) bool {
	if a.Kind == Wait {
		m.turn.report.Waiting = append(m.turn.report.Waiting, a)
		m.wait(a.Partition, a.Reason)
	}
	return a.Kind == Wait || m.turn.failed[a.Partition+a.Subject] || m.turn.stuck && (a.Kind == Seal || a.Kind == Drop)
}

// wait notes what is waited for; it is logged when it begins.
func (m *Manager) wait(partition, why string) {
	if !m.waits[partition] && !m.turn.waits[partition] {
		m.cfg.Log.Info("partition waits", "partition", partition, "reason", why)
	}
	m.turn.waits[partition] = true
}

// settle writes down how an action went.
func (m *Manager) settle(ctx context.Context, a Action, now time.Time, err error) {
	var blocked *blockedError
	var waiting *waitingError
	result := "done"
	switch {
	case err == nil:
		m.turn.report.Done = append(m.turn.report.Done, a)
		m.cfg.Log.Info("partition step done", "action", string(a.Kind), "partition", or(a.Partition, a.Subject), "reason", a.Reason)
	case errors.As(err, &blocked):
		result = "waiting"
		m.turn.report.Waiting = append(m.turn.report.Waiting, a.waits(err.Error()))
		m.turn.waits[a.Partition] = true
		m.cfg.Log.Warn("partition step waits for a lock", "action", string(a.Kind), "partition", a.Partition, "reason", err.Error())
	case errors.As(err, &waiting):
		result = "waiting"
		m.turn.report.Waiting = append(m.turn.report.Waiting, a.waits(waiting.why))
		m.wait(a.Partition, waiting.why)
	default:
		result = "failed"
		err = fmt.Errorf("%s %s: %w", a.Kind, or(a.Partition, a.Subject), err)
		m.turn.errs = append(m.turn.errs, err, m.recordFailure(ctx, a, now, err))
	}
	m.metrics.actions.WithLabelValues(string(a.Kind), result).Inc()
	if err != nil {
		m.turn.failed[a.Partition+a.Subject] = true
		m.turn.stuck = m.turn.stuck || a.Kind == Finalize || m.pendingDetach(ctx, a)
	}
}

func (m *Manager) pendingDetach(ctx context.Context, a Action) bool {
	if a.Kind != Seal && a.Kind != Drop || m.conn.IsClosed() {
		return false
	}
	_, pending, err := m.parentOf(ctx, a.Partition)
	return err != nil || pending
}

// recordFailure makes the ledger tell of an archive that cannot be written, and when it is tried again.
func (m *Manager) recordFailure(ctx context.Context, a Action, now time.Time, failure error) error {
	if a.Kind != Archive || m.conn.IsClosed() || ctx.Err() != nil {
		return nil
	}
	var attempts int
	if err := m.conn.QueryRow(ctx, recordFailure, a.Partition, failure.Error()).Scan(&attempts); err != nil {
		return fmt.Errorf("record failure of %s: %w", a.Partition, err)
	}
	if _, err := m.conn.Exec(ctx, recordNextAttempt, a.Partition, now.Add(pause(attempts))); err != nil {
		return fmt.Errorf("record next attempt of %s: %w", a.Partition, err)
	}
	return nil
}

// do carries out one action.
func (m *Manager) do(ctx context.Context, a Action) error {
	switch a.Kind {
	case Finalize:
		return m.finalize(ctx, a)
	case Forget:
		return m.forget(ctx, a)
	case Adopt:
		return m.adopt(ctx, a)
	case Discard:
		return m.discard(ctx, a)
	case Create:
		return m.create(ctx, a)
	case Attach:
		return m.attach(ctx, a)
	case Seal:
		return m.seal(ctx, a)
	case Shelve:
		return m.shelve(ctx, a)
	case Archive:
		return m.archive(ctx, a)
	case Drop:
		return m.drop(ctx, a)
	case Expire:
		return m.expire(ctx, a)
	}
	return fmt.Errorf("unknown action %q", a.Kind)
}

// locked runs do in a transaction that holds the parent's partition lock: no writer makes a partition meanwhile.
func (m *Manager) locked(ctx context.Context, point string, do func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, takeLock, m.cfg.Parent); err != nil {
			return fmt.Errorf("take the partition lock: %w", err)
		}
		if err := do(tx); err != nil {
			return err
		}
		m.cfg.failpoint(point)
		return nil
	})
	if err == nil {
		m.cfg.failpoint(point + ".committed")
	}
	return err
}
