package ingest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var errQueueFull = errors.New("queue is full")

// generation is one connection of a session, from its CONNACK to its end. Acks belong to the generation that received
// the message: packet ids mean nothing on another connection.
//
// Interleaving that it guards against: message n is refused because the queue is full, the writer takes a batch, and
// n+1 would fit. Accepting it makes the redelivered n late. So a refusal ends the generation, and the queue, under its
// own lock, accepts nothing more of it.
type generation struct {
	number uint64
	conn   *conn

	answered atomic.Bool // the CONNACK came
	present  atomic.Bool // the broker still knew the session
	fresh    bool        // its session was new on an earlier connection that received nothing
	refused  bool        // guarded by the queue's lock

	draining atomic.Bool // stopping: only QoS 0, which nobody would send again, is still accepted
	qos0     atomic.Bool // a QoS 0 message was seen
	lastSeen atomic.Int64

	mu    sync.Mutex // of conn and cause until over
	over  atomic.Bool
	done  chan struct{}
	cause error

	acked     uint64        // QoS 1 messages acknowledged; the writer's
	asked     atomic.Uint64 // acked when the outstanding ping left; 0 = none is out
	askedPing atomic.Uint64 // that ping's number on the connection
	confirmed atomic.Uint64 // acks that the broker has certainly processed
}

func newGeneration(number uint64) *generation {
	return &generation{number: number, done: make(chan struct{})}
}

// take gives the generation its connection. One that opens after the end is closed at once: the library's goroutine
// that opens it may outlive our patience.
func (g *generation) take(c *conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over.Load() {
		_ = c.Close() // nobody waits for it any more
		return g.cause
	}
	g.conn = c
	return nil
}

// end closes the connection once; the first cause stays.
func (g *generation) end(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over.Load() {
		return
	}
	g.cause = cause
	g.over.Store(true)
	if g.conn != nil {
		_ = g.conn.Close() // the cause is what matters
	}
	close(g.done)
}

// newSession: the broker made a session for this connection, or for one before it that received nothing.
func (g *generation) newSession() bool { return g.fresh || g.answered.Load() && !g.present.Load() }

func (g *generation) delivered() bool { return g.lastSeen.Load() != 0 }

// ask notes the ping that will prove the acks written so far.
func (g *generation) ask(nth uint64) {
	g.askedPing.Store(nth)
	g.asked.Store(g.acked)
}

// pong: the broker reads in order, so an answered ping proves that every ack before it was processed.
func (g *generation) pong(nth uint64) {
	if acked := g.asked.Load(); acked > 0 && nth >= g.askedPing.Load() {
		g.confirmed.Store(acked)
		g.asked.Store(0)
	}
}

func (g *generation) seen(at time.Time, qos byte) {
	if qos == 0 {
		g.qos0.Store(true)
	}
	g.lastSeen.Store(at.UnixMicro())
}

func (g *generation) seenAt() time.Time { return time.UnixMicro(g.lastSeen.Load()) }
