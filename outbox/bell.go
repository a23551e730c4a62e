package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// bellQuiet is the silence after which a commit rings: a relay that saw the row before polls often enough meanwhile.
const bellQuiet = 25 * time.Millisecond

// Bell tells idle relays that something came, so that they need not ask often. It is a hint: a relay that does not hear it
// finds the rows by polling (Config.PollIdle). All methods are safe for concurrent use.
//
// It rings after the transaction, never in it: NOTIFY inside takes a lock of the whole database until the commit is on
// the disk, and made 64 writers a third as fast (DESIGN, measured). Only the first commit after a silence rings.
type Bell struct {
	last atomic.Int64 // nanoseconds since start
	due  chan struct{}
	from time.Time
}

// NewBell returns a bell that nobody has rung.
func NewBell() *Bell { return &Bell{due: make(chan struct{}, 1), from: time.Now()} }

// Committed says that a transaction with messages was committed. It never blocks and may be called for each.
func (b *Bell) Committed() {
	now := int64(time.Since(b.from)) + int64(bellQuiet) // the very first rings
	if now-b.last.Swap(now) < int64(bellQuiet) {
		return
	}
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// Run rings until ctx ends. What cannot be rung is reported and forgotten: the relays poll.
func (b *Bell) Run(ctx context.Context, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, report func(error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.due:
		}
		ringing, cancel := context.WithTimeout(ctx, time.Second)
		_, err := db.Exec(ringing, ringBell)
		cancel()
		if err != nil && ctx.Err() == nil {
			report(fmt.Errorf("ring bell: %w", err))
		}
	}
}

// listener hears the bell on a session of its own, and knows whether it does.
type listener struct {
	link  link
	heard chan<- struct{} // room for one
	hears *atomic.Bool    // while true, the engine may poll rarely
	log   *slog.Logger
}

const (
	bellCheck = 10 * time.Second // a session that was silent for so long proves that it still hears
	bellProof = 5 * time.Second  // how long the proof may take
	deafPause = 30 * time.Second // between tries while the bell cannot be heard
)

func (l *listener) run(ctx context.Context) error {
	defer l.link.close()
	for ctx.Err() == nil {
		heard, err := l.listen(ctx)
		l.hears.Store(false)
		l.link.close()
		if ctx.Err() != nil {
			return nil
		}
		pause := deafPause
		if heard {
			pause = retryPause // it broke: a new one hears again
		}
		l.log.Info("bell not heard, polling instead", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// listen returns when the session broke or is deaf, or ctx ended. A session that was silent rings itself: one that was cut
// without a word, or runs through a pooler that gives each transaction another server session, hears nothing and says so
// by nothing.
func (l *listener) listen(ctx context.Context) (heard bool, err error) {
	if err := l.do(ctx, hearBell); err != nil {
		return false, err
	}
	for {
		if err := l.do(ctx, proveBell); err != nil {
			return heard, err
		}
		if err := l.await(ctx, bellProof); err != nil {
			return heard, fmt.Errorf("ring not heard within %s (through a transaction pooler?): %w", bellProof, err)
		}
		heard = true
		l.hears.Store(true)
		for err == nil {
			err = l.await(ctx, bellCheck)
		}
		if l.link.conn.IsClosed() || ctx.Err() != nil {
			return heard, err
		}
		err = nil // silent
	}
}

func (l *listener) do(ctx context.Context, statement string) error {
	return l.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		return nil
	})
}

// await takes one notification and passes it on, unless it is a proof.
func (l *listener) await(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := l.link.conn.WaitForNotification(ctx)
	if err != nil {
		return fmt.Errorf("wait for the bell: %w", err)
	}
	if n.Payload != "" {
		return nil
	}
	select {
	case l.heard <- struct{}{}:
	default:
	}
	return nil
}
