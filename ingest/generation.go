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

	present atomic.Bool // the broker still knew the session
	refused bool        // guarded by the queue's lock

	draining atomic.Bool // stopping: only QoS 0, which nobody would send again, is still accepted
	qos0     atomic.Bool // a QoS 0 message was seen
	lastSeen atomic.Int64

	over  atomic.Bool
	done  chan struct{}
	once  sync.Once
	cause error

	acked     uint64        // QoS 1 messages acknowledged; the writer's
	asked     atomic.Uint64 // acked when the outstanding ping left; 0 = none is out
	askedPing atomic.Uint64 // that ping's number on the connection
	confirmed atomic.Uint64 // acks that the broker has certainly processed
}

func newGeneration(number uint64) *generation {
	return &generation{number: number, done: make(chan struct{})}
}

// end closes the connection once; the first cause stays.
func (g *generation) end(cause error) {
	g.once.Do(func() {
		g.cause = cause
		g.over.Store(true)
		if g.conn != nil {
			_ = g.conn.Close() // the cause is what matters
		}
		close(g.done)
	})
}

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
