package ingest

import (
	"strings"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

// The batches that read all their rows after a row was not the remembered one: an operator was there once, or lanes share
// devices (shared subscriptions) and meet all the time.
const (
	leastDistrust = 64
	mostDistrust  = 4096
)

// trust says whether remembered rows are worth their check. A wrong one costs a whole try.
type trust struct {
	reading int // batches that still read everything
	next    int // how many after the next wrong one
}

// worth is asked once a batch.
func (t *trust) worth() bool {
	if t.reading > 0 {
		t.reading--
		return false
	}
	t.next = max(t.next-1, leastDistrust)
	return true
}

// deceived: a row was another than the remembered one.
func (t *trust) deceived() {
	t.next = max(t.next, leastDistrust)
	t.reading, t.next = t.next, min(2*t.next, mostDistrust)
}

// maxKnown bounds what a lane remembers: about 10 MiB. Lanes with more devices read some of their rows.
const maxKnown = 20_000

// known is what a lane remembers of the rows it wrote last, so that a batch need not read them. A remembered row is never
// trusted, it is checked: updateStreams finds only the version that was remembered, under the lock of its bucket, else
// the transaction ends and everything is read. So operators, other lanes, a rebase or an erased device between two
// batches cost one more try, never a wrong decision (D1).
//
// A version is named by the transaction that wrote it, which writes a row once. The name cannot come back: numbers of
// transactions do after four thousand million, but a lane remembers nothing across an error, a lost lease or a restored
// database (whose lane row says another batch).
type known map[streamKey]*knownRow

type knownRow struct {
	state devicestate.State // as a read would return it
	xmin  uint32
}

// recall takes the row into s. It tells whether it is remembered.
func (k known) recall(s *stream) bool {
	row, ok := k[s.streamKey]
	if ok {
		s.stored, s.xmin, s.known = row.state, row.xmin, true
	}
	return ok
}

// remember keeps a row that is committed.
func (k known) remember(key streamKey, s *devicestate.State, xmin uint32) {
	row, ok := k[key]
	if !ok {
		k.makeRoom()
		row = &knownRow{state: devicestate.State{Hub: strings.Clone(s.Hub)}} // the strings of a batch lie in payloads
		k[streamKey{strings.Clone(key.device), strings.Clone(key.stream)}] = row
	}
	hub := row.state.Hub
	row.state, row.xmin = asStored(s), xmin
	row.state.Hub = hub
}

// makeRoom lets go of any row: with more devices than room, none is a better guess.
func (k known) makeRoom() {
	for key := range k {
		if len(k) < maxKnown {
			return
		}
		delete(k, key)
	}
}

func (k known) forget() { clear(k) }

// asStored is the state as it will be read: in the database's resolution, without the content, which is not read.
func asStored(s *devicestate.State) devicestate.State {
	r := *s
	r.Content = nil
	r.Skew = time.Duration(s.Skew.Milliseconds()) * time.Millisecond
	if !s.SkewKnown {
		r.Skew = 0
	}
	for _, at := range []*time.Time{&r.BootStartedAt, &r.BootReceivedAt, &r.OccurredAt, &r.ReceivedAt, &r.EmittedAt} {
		if !at.IsZero() {
			*at = time.UnixMicro(at.UnixMicro()).UTC()
		}
	}
	return r
}

// remember keeps the rows that the transaction xid has written and committed.
func (b *batch) remember(xid uint32) {
	for _, i := range b.moved {
		s := &b.streams[i]
		b.remembers.remember(s.streamKey, b.newest(s), xid)
	}
}
