package ingest

import (
	"encoding/binary"
	"fmt"
)

// tail remembers messages that are committed and perhaps not acknowledged: the broker sends them again after a
// reconnect. Counters tell most such copies apart; for streams without counter and for connection streams only the tail
// can. It is stored in the lane's row in the same transaction as the messages, so a successor knows it too.
//
// current are the entries of the living connection, in the order of their acks. Those whose acks the broker has
// certainly processed (generation.pong) are dropped, so the tail stays about as long as one round trip.
//
// before are the entries of connections that ended. A broker that resumes a session sends what was in flight first, in
// order; the first committed message that is neither marked as a duplicate nor in before ends that prefix, and before
// with it. Not safe for concurrent use.
type tail struct {
	gen     *generation
	dropped uint64 // entries of gen that were dropped
	current []tailEntry
	before  map[tailEntry]struct{}
	qos0    bool // the lane carries QoS 0, which no broker sends again
}

type tailEntry struct {
	id   uint16
	hash uint64
}

const (
	tailVersion   = 1
	tailFlagQoS0  = 1
	tailEntrySize = 10
)

// redelivered says whether it was committed on an earlier connection.
func (t *tail) redelivered(it *item) bool {
	if it.qos == 0 || len(t.before) == 0 {
		return false
	}
	_, ok := t.before[tailEntry{it.id, it.hash}]
	return ok
}

// with returns the encoding to store with batch, without changing t: the batch may still fail.
func (t *tail) with(dst []byte, batch []item) []byte {
	flags := byte(0)
	if t.qos0 {
		flags = tailFlagQoS0
	}
	dst = append(dst, tailVersion, flags)
	for e := range t.before {
		dst = e.append(dst)
	}
	for _, e := range t.current {
		dst = e.append(dst)
	}
	for i := range batch {
		if it := &batch[i]; it.qos > 0 {
			dst = tailEntry{it.id, it.hash}.append(dst)
		}
	}
	return dst
}

func (e tailEntry) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(dst, e.id), e.hash)
}

// prepare brings t to the state that the next batch is judged by: a new connection makes the old entries past ones,
// confirmed entries go.
func (t *tail) prepare(batch []item) {
	for i := range batch {
		it := &batch[i]
		if it.qos == 0 {
			t.qos0 = true
			continue
		}
		if t.gen == nil || it.gen.number > t.gen.number {
			t.reconnected(it.gen)
		}
	}
	if t.gen == nil {
		return
	}
	if n := int(t.gen.confirmed.Load() - t.dropped); n > 0 && n <= len(t.current) {
		t.current = append(t.current[:0], t.current[n:]...)
		t.dropped += uint64(n)
	}
}

// reconnected: a broker that lost the session starts its packet ids again.
func (t *tail) reconnected(g *generation) {
	if g.newSession() {
		t.forget()
	}
	for _, e := range t.current {
		t.remember(e)
	}
	t.gen, t.dropped, t.current = g, 0, t.current[:0]
}

func (t *tail) remember(e tailEntry) {
	if t.before == nil {
		t.before = map[tailEntry]struct{}{}
	}
	t.before[e] = struct{}{}
}

// committed adds the messages of a committed batch.
func (t *tail) committed(batch []item) {
	for i := range batch {
		it := &batch[i]
		if it.qos == 0 {
			continue
		}
		if !it.dup && len(t.before) > 0 && !t.redelivered(it) {
			clear(t.before)
		}
		t.current = append(t.current, tailEntry{it.id, it.hash})
	}
}

func (t *tail) forget() {
	t.current = t.current[:0]
	clear(t.before)
}

// loadTail reads what a predecessor stored; all its entries are of connections that ended.
func loadTail(stored []byte) (tail, error) {
	var t tail
	if len(stored) == 0 {
		return t, nil
	}
	if len(stored) < 2 || stored[0] != tailVersion || (len(stored)-2)%tailEntrySize != 0 {
		return t, fmt.Errorf("read tail of the lane: %d bytes of version %d, this binary knows version %d", len(stored), stored[0], tailVersion)
	}
	t.qos0 = stored[1]&tailFlagQoS0 != 0
	for rest := stored[2:]; len(rest) > 0; rest = rest[tailEntrySize:] {
		t.remember(tailEntry{binary.BigEndian.Uint16(rest), binary.BigEndian.Uint64(rest[2:])})
	}
	return t, nil
}
