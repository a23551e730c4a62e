package partitions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Guard says whether every row of a table is decided: published, or recorded as skipped or dead. When not, why says in a
// person's words which row is not. It runs in a transaction of its own; the table is attached or stands alone.
type Guard func(ctx context.Context, tx pgx.Tx, partition string) (drained bool, why string, err error)

// Read returns what the maintainer would plan by at this moment, and the database's time. With a guard it says what ended
// partitions wait for; the connection then needs the rights of the maintainer. all includes partitions that were dropped.
func Read(ctx context.Context, conn *pgx.Conn, spec Spec, guard Guard, all bool) (State, time.Time, error) {
	state, now, err := readState(ctx, conn, spec.withDefaults(), all)
	if err == nil && guard != nil {
		err = judge(ctx, conn, &state, later(now, state.Floor), guard)
	}
	return state, now, err
}

// readState reads what Plan judges by, and the database's time. all includes the partitions that were dropped.
func readState(ctx context.Context, conn *pgx.Conn, spec Spec, all bool) (State, time.Time, error) {
	var state State
	now, err := readSpec(ctx, conn, spec.Parent, &state)
	if err != nil {
		return state, now, err
	}
	if state.Partitions, err = readLedger(ctx, conn, spec.Parent, all); err != nil {
		return state, now, err
	}
	if err := readChildren(ctx, conn, spec, &state); err != nil {
		return state, now, err
	}
	slices.SortFunc(state.Partitions, func(a, b Partition) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Name, b.Name))
	})
	return state, now, nil
}

func readSpec(ctx context.Context, conn *pgx.Conn, parent string, state *State) (time.Time, error) {
	var now time.Time
	var floor, ticked, steady, expired *time.Time
	err := conn.QueryRow(ctx, selectSpec, parent).Scan(&now, &floor, &ticked, &steady, &expired)
	if err != nil {
		return now, fmt.Errorf("read partition_spec of %s: %w", parent, err)
	}
	state.Floor, state.TickedAt, state.SteadySince, state.ExpiredAt = utc(floor), utc(ticked), utc(steady), utc(expired)
	return now.UTC(), nil
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func readLedger(ctx context.Context, conn *pgx.Conn, parent string, all bool) ([]Partition, error) {
	rows, err := conn.Query(ctx, selectLedger, parent, all)
	if err != nil {
		return nil, fmt.Errorf("read partition_ledger: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Partition, error) {
		var p Partition
		var bytes *int64
		var next, sealed, archived, dropped *time.Time
		var exists bool
		err := row.Scan(&p.Name, &p.From, &p.To, &p.Phase, &p.Rows, &bytes, &p.Archive, &p.SHA256,
			&p.Attempts, &p.LastError, &next, &sealed, &archived, &dropped, &exists)
		p.From, p.To = p.From.UTC(), p.To.UTC()
		p.NextAttemptAt, p.SealedAt, p.ArchivedAt, p.DroppedAt = utc(next), utc(sealed), utc(archived), utc(dropped)
		if bytes != nil {
			p.Bytes = *bytes
		}
		if exists && p.Phase != Dropped {
			p.Place = Alone
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read partition_ledger: %w", err)
	}
	return list, nil
}

// child is a table that is part of the parent or of the history.
type child struct {
	name     string
	attached bool
	pending  bool
	from, to *time.Time
	bytes    int64
}

func (c child) place() Place {
	switch {
	case c.attached && c.pending:
		return Detaching
	case c.attached:
		return Attached
	case c.pending:
		return LeavingHistory
	}
	return History
}

func readChildren(ctx context.Context, conn *pgx.Conn, spec Spec, state *State) error {
	rows, err := conn.Query(ctx, selectChildren, spec.Parent, spec.History)
	if err != nil {
		return fmt.Errorf("read partitions of %s: %w", spec.Parent, err)
	}
	children, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (child, error) {
		var c child
		return c, row.Scan(&c.name, &c.attached, &c.pending, &c.from, &c.to, &c.bytes)
	})
	if err != nil {
		return fmt.Errorf("read partitions of %s: %w", spec.Parent, err)
	}
	for _, c := range children {
		if c.from == nil || c.to == nil {
			return fmt.Errorf("partition %s has no finite range: detach it, only ranges of created_at are managed", c.name)
		}
		state.place(c)
	}
	return nil
}

// place enters where a child is. One that the ledger does not know becomes a partition without a phase.
func (s *State) place(c child) {
	i := slices.IndexFunc(s.Partitions, func(p Partition) bool { return p.Name == c.name && p.Phase != Dropped })
	if i < 0 {
		s.Partitions = append(s.Partitions, Partition{Name: c.name})
		i = len(s.Partitions) - 1
	}
	p := &s.Partitions[i]
	p.From, p.To, p.Place, p.Bytes = utc(c.from), utc(c.to), c.place(), c.bytes
}

// judge asks the guard about what has ended and is attached. The answer is asked for again before anything is detached;
// here it only tells a plan what to wait for.
func judge(ctx context.Context, conn *pgx.Conn, state *State, at time.Time, guard Guard) error {
	for i := range state.Partitions {
		p := &state.Partitions[i]
		if p.Place != Attached || !p.endedAt(at) {
			continue
		}
		why, err := undrained(ctx, conn, guard, p.Name)
		if err != nil {
			return err
		}
		p.Undrained = why
	}
	return nil
}

// undrained returns "" when every row of the table is decided, else which one is not.
func undrained(ctx context.Context, conn *pgx.Conn, guard Guard, partition string) (why string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		drained, reason, err := guard(ctx, tx, partition)
		if err == nil && !drained {
			why = or(reason, "the guard holds it")
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("ask whether %s is drained: %w", partition, err)
	}
	return why, nil
}
