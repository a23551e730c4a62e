package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// stateRows are the arrays of updateStreams or, for streams never seen, of insertStreams.
type stateRows struct {
	device, stream, hub                                      column[text]
	bucket                                                   column[number]        // of new streams
	xmin                                                     column[pgtype.Uint32] // of known streams
	epoch, sequence, flags                                   column[number]
	counter, boot, skew                                      column[pgtype.Int8]
	bootStarted, bootReceived, occurred, received, emittedAt column[pgtype.Timestamptz]
	state, hash, emitted                                     column[blob]
	missed, late, duplicate, quarantined                     column[number]
	hashes                                                   []byte // backs hash and emitted
	unsteady                                                 bool   // a column moves that updateSteady leaves as it is
}

// The booleans of a row, as they travel.
const (
	flagSuspect = 1 << iota
	flagRetained
	flagRebootPending
	flagOwed
)

func (c *stateRows) reset() {
	clear(c.state)
	*c = stateRows{
		device: c.device[:0], stream: c.stream[:0], hub: c.hub[:0], bucket: c.bucket[:0], xmin: c.xmin[:0], epoch: c.epoch[:0],
		sequence: c.sequence[:0], flags: c.flags[:0], counter: c.counter[:0], boot: c.boot[:0], skew: c.skew[:0],
		bootStarted: c.bootStarted[:0], bootReceived: c.bootReceived[:0], occurred: c.occurred[:0], received: c.received[:0],
		emittedAt: c.emittedAt[:0], state: c.state[:0], hash: c.hash[:0], emitted: c.emitted[:0], missed: c.missed[:0],
		late: c.late[:0], duplicate: c.duplicate[:0], quarantined: c.quarantined[:0], hashes: c.hashes[:0],
	}
}

// addNew adds the first row of a stream.
func (c *stateRows) addNew(key streamKey, bucket int16, s *devicestate.State) {
	c.bucket = append(c.bucket, number(bucket))
	c.hub = append(c.hub, text(s.Hub))
	c.epoch = append(c.epoch, number(s.Epoch))
	c.add(key, s)
}

// addKnown adds the version that follows stored, which xmin wrote. Hub and epoch of a known stream are not a report's to
// change.
func (c *stateRows) addKnown(key streamKey, xmin uint32, stored, s *devicestate.State) {
	c.xmin = append(c.xmin, pgtype.Uint32{Uint32: xmin, Valid: true})
	c.unsteady = c.unsteady || !steady(stored, s)
	c.add(key, s)
}

// steady: from a to b only counter, sequence, times and content move.
func steady(a, b *devicestate.State) bool {
	return a.Boot == b.Boot && a.BootStartedAt.Equal(b.BootStartedAt) && a.BootReceivedAt.Equal(b.BootReceivedAt) && flagsOf(a) == flagsOf(b) &&
		a.Missed == b.Missed && a.Late == b.Late && a.Duplicate == b.Duplicate && a.Quarantined == b.Quarantined
}

func (c *stateRows) add(key streamKey, s *devicestate.State) {
	c.device = append(c.device, text(key.device))
	c.stream = append(c.stream, text(key.stream))
	c.sequence = append(c.sequence, number(s.Sequence))
	c.flags = append(c.flags, flagsOf(s))
	c.counter = append(c.counter, nullable(s.Counter))
	c.boot = append(c.boot, nullable(s.Boot))
	c.skew = append(c.skew, pgtype.Int8{Int64: s.Skew.Milliseconds(), Valid: s.SkewKnown})
	c.bootStarted = append(c.bootStarted, instant(s.BootStartedAt))
	c.bootReceived = append(c.bootReceived, instant(s.BootReceivedAt))
	c.occurred = append(c.occurred, instant(s.OccurredAt))
	c.received = append(c.received, instant(s.ReceivedAt))
	c.emittedAt = append(c.emittedAt, instant(s.EmittedAt))
	c.state = append(c.state, orEmpty(s.Content))
	c.hash = append(c.hash, c.keep(s.Hash))
	c.emitted = append(c.emitted, c.keep(s.EmittedHash))
	c.missed = append(c.missed, number(s.Missed))
	c.late = append(c.late, number(s.Late))
	c.duplicate = append(c.duplicate, number(s.Duplicate))
	c.quarantined = append(c.quarantined, number(s.Quarantined))
}

func flagsOf(s *devicestate.State) number {
	var f number
	if s.ClockSuspect {
		f |= flagSuspect
	}
	if s.Retained {
		f |= flagRetained
	}
	if s.RebootPending {
		f |= flagRebootPending
	}
	if s.Owed {
		f |= flagOwed
	}
	return f
}

func (c *stateRows) queueInsert(b *pgx.Batch) {
	if len(c.bucket) > 0 {
		b.Queue(insertStreams, c.device, c.stream, c.sequence, c.flags, c.counter, c.boot, c.skew, c.bootStarted, c.bootReceived,
			c.occurred, c.received, c.emittedAt, c.state, c.hash, c.emitted, c.missed, c.late, c.duplicate, c.quarantined,
			c.bucket, c.hub, c.epoch)
	}
}

// queueUpdate leaves the transaction's number in xid.
func (c *stateRows) queueUpdate(b *pgx.Batch, xid *uint32) {
	answer := func(row pgx.Row) error { return row.Scan(nil, xid) }
	switch {
	case len(c.xmin) == 0:
	case c.unsteady:
		b.Queue(updateStreams, c.device, c.stream, c.sequence, c.flags, c.counter, c.boot, c.skew, c.bootStarted, c.bootReceived,
			c.occurred, c.received, c.emittedAt, c.state, c.hash, c.emitted, c.missed, c.late, c.duplicate, c.quarantined,
			c.xmin).QueryRow(answer)
	default:
		b.Queue(updateSteady, c.device, c.stream, c.sequence, c.counter, c.skew, c.occurred, c.received, c.emittedAt,
			c.state, c.hash, c.emitted, c.xmin).QueryRow(answer)
	}
}

func (c *stateRows) keep(h devicestate.Hash) []byte {
	c.hashes = append(c.hashes, h[:]...)
	return c.hashes[len(c.hashes)-len(h):]
}

func nullable(n devicestate.Number) pgtype.Int8 { return pgtype.Int8{Int64: n.V, Valid: n.OK} }

func instant(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()} }

// orEmpty: a nil slice would be NULL, and an empty one says that the content did not move.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

var errTextFormat = errors.New("the connection answers in text format; use a connection whose pooler supports prepared statements")

// scan reads the stored rows into the streams they belong to.
func (b *batch) scan(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		r := rawRow{values: rows.RawValues()}
		if rows.FieldDescriptions()[0].Format != pgx.BinaryFormatCode {
			return errTextFormat
		}
		at := r.int64() - 1
		if at < 0 || at >= int64(len(b.asked)) {
			return fmt.Errorf("read streams: row %d of %d", at, len(b.asked))
		}
		s := &b.streams[b.asked[at]]
		s.known = true
		r.state(&s.stored)
		s.xmin = r.xid()
		if r.bad {
			return fmt.Errorf("read streams: a column has an unexpected size; is the schema of this version?")
		}
	}
	return rows.Err()
}

// rawRow decodes PostgreSQL's binary format column by column: a quarter of the cost of scanning into pointers.
type rawRow struct {
	values [][]byte
	bad    bool
}

func (r *rawRow) state(s *devicestate.State) {
	*s = devicestate.State{
		Hub: r.text(), Epoch: r.int64(), Sequence: r.int64(), Counter: r.number(), Boot: r.number(),
		BootStartedAt: r.time(), BootReceivedAt: r.time(), OccurredAt: r.time(), ReceivedAt: r.time(),
		ClockSuspect: r.bool(), Retained: r.bool(),
	}
	skew := r.number()
	s.Skew, s.SkewKnown = time.Duration(skew.V)*time.Millisecond, skew.OK
	s.Hash, s.EmittedHash, s.EmittedAt = r.hash(), r.hash(), r.time()
	s.Missed, s.Late, s.Duplicate, s.Quarantined = r.int64(), r.int64(), r.int64(), r.int64()
	s.RebootPending, s.Owed = r.bool(), r.bool()
}

func (r *rawRow) next(size int) []byte {
	v := r.values[0]
	r.values = r.values[1:]
	if v != nil && size > 0 && len(v) != size {
		r.bad = true
		return nil
	}
	return v
}

func (r *rawRow) text() string { return string(r.next(0)) }

func (r *rawRow) number() devicestate.Number {
	v := r.next(8)
	if v == nil {
		return devicestate.Number{}
	}
	return devicestate.Some(int64(binary.BigEndian.Uint64(v)))
}

func (r *rawRow) int64() int64 { return r.number().V }

func (r *rawRow) bool() bool {
	v := r.next(1)
	return v != nil && v[0] == 1
}

func (r *rawRow) xid() uint32 {
	v := r.next(4)
	if v == nil {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

// time: microseconds since 2000.
func (r *rawRow) time() time.Time {
	n := r.number()
	if !n.OK {
		return time.Time{}
	}
	return time.UnixMicro(n.V + microsecondsTo2000).UTC()
}

const microsecondsTo2000 = 946_684_800_000_000

func (r *rawRow) hash() devicestate.Hash {
	var h devicestate.Hash
	copy(h[:], r.next(len(h)))
	return h
}
