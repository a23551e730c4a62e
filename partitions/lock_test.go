package partitions

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestLocks_NoStepHoldsTheParentExclusively looks at the server's locks at every point of a turn that has everything to
// do, the points inside of transactions among them.
func TestLocks_NoStepHoldsTheParentExclusively(t *testing.T) {
	t.Parallel()
	s := newKillScene(t)
	cfg := killConfig(s.url, string(s.dir), s.offset)
	cfg.failpoint = func(point string) {
		modes := s.query(`SELECT count(*) FROM pg_locks WHERE relation = 'outbox'::regclass AND granted AND pid <> pg_backend_pid()
			AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock', 'ShareUpdateExclusiveLock')`)
		if modes != 0 {
			t.Errorf("at %s the parent is locked against its readers or writers", point)
		}
	}
	s.turn(cfg)
	s.checkFinished()
}

// TestAttach_ScansNothing: the server says that the CHECK of the table already proves its range.
func TestAttach_ScansNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(50)
	f.exec(`ALTER TABLE outbox_sealed DETACH PARTITION ` + first)

	var notices []string
	cfg, err := pgx.ParseConfig(f.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{`SET client_min_messages = debug1`, `SELECT attach_partition('outbox', '` + first + `')`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(strings.Join(notices, "\n"), "is implied by existing constraints") {
		t.Errorf("attaching a filled table scanned it; the server said %q", notices)
	}
}

func TestSpec_ValidateNamesAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	err := Spec{Parent: "Outbox; --", Interval: 90 * time.Second, Runway: -time.Hour, KeepAttached: 101, RetainSent: -1, Settle: -1}.Validate()
	for _, field := range []string{"Parent", "Interval", "Runway", "KeepAttached", "RetainSent", "Settle"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	for _, good := range []Spec{{}, {Interval: time.Minute, Runway: time.Hour}, {Interval: 31 * 24 * time.Hour, Runway: 365 * 24 * time.Hour}} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}
