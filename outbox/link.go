package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// link is one database session that is opened again after it broke. Each loop of the relay has its own, so that none can
// starve another: above all the lease's. Not safe for concurrent use.
type link struct {
	name    string
	connect func(ctx context.Context) (*pgx.Conn, error)
	timeout time.Duration // of one use, connecting included
	conn    *pgx.Conn
}

// use runs fn on the session and closes the session when fn failed in a way that broke it.
func (l *link) use(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, fmt.Errorf("%s took longer than %s", l.name, l.timeout))
	defer cancel()
	if l.conn == nil || l.conn.IsClosed() {
		conn, err := l.connect(ctx)
		if err != nil {
			return fmt.Errorf("connect for %s: %w", l.name, err)
		}
		l.conn = conn
	}
	err := fn(ctx, l.conn)
	if err != nil && ctx.Err() != nil {
		l.close()
		return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}

func (l *link) close() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) // it is broken or no longer needed: nothing to do about a failed goodbye
	l.conn = nil
}
