package ingest

import (
	"fmt"
	"time"
)

// ackTimeout bounds how long a broker may refuse to read acks before its connection is dropped.
const ackTimeout = 5 * time.Second

// acks writes PUBACKs, in order of arrival, to the connection that the messages came from (N1: call it after the commit
// only). The writer's own; not safe for concurrent use.
type acks struct{ buf []byte }

// send acknowledges batch. Messages of an ended connection are left out: the broker sends them again, and the tail knows
// them. A failed write ends the connection.
func (a *acks) send(batch []item) {
	for start := 0; start < len(batch); {
		g := batch[start].gen
		end := start
		a.buf = a.buf[:0]
		for ; end < len(batch) && batch[end].gen == g; end++ {
			if batch[end].qos > 0 {
				a.buf = appendPuback(a.buf, batch[end].id)
			}
		}
		a.flush(g)
		start = end
	}
}

// flush asks for a PINGRESP behind the acks unless one is on its way: its answer shortens the tail.
func (a *acks) flush(g *generation) {
	if len(a.buf) == 0 || g.over.Load() {
		return
	}
	g.acked += uint64(len(a.buf) / pubackBytes)
	var asking func(uint64)
	if g.asked.Load() == 0 {
		asking = g.ask
	}
	if err := g.conn.writeAcks(a.buf, asking, ackTimeout); err != nil {
		g.end(fmt.Errorf("write acks: %w", err))
	}
}
