package oracle

import (
	"time"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

// History is everything known of a run that has come to rest.
type History struct {
	Ledger   *ledger.Ledger
	Database Database
	Topic    []Record // in offset order within each partition
	Consumer Consumer

	// BrokerHurt says that the MQTT broker lost state during the run (killed, its sessions expired), so that reports it
	// had acknowledged may never have reached ingest.
	BrokerHurt bool
	// Resent is how many publishes the fleet repeated after reconnects.
	Resent int64
	// Undisturbed says that no component failed: then nothing may have been delivered twice.
	Undisturbed bool
	// Counted is what the ingesters' own counters say, if none of them ended during the run. Nil: not read.
	Counted *Counted
	// AckedByIngest holds, if the link between broker and ingest was tapped, the reports whose delivery ingest had
	// acknowledged to the broker. Nil: not tapped.
	AckedByIngest map[Ref]bool
	// Screen is what the monitor showed of each stream in the end. Nil: not looked at.
	Screen map[ledger.Key]Shown
}

// Counted is what ingest counted of what it received, beside what it committed.
type Counted struct{ Received, Abandoned int64 }

// Ref names a report.
type Ref struct {
	Stream int
	Report uint32
}

// Event is what is read of one event, wherever it lies.
type Event struct {
	Stream   int    // index into the ledger's streams
	Report   uint32 // the number inside the state; 0 when it has none
	Epoch    int64
	Sequence int64
	ID       [16]byte
	Hash     uint64 // of the whole value
	Intact   bool   // the state is, byte for byte, what the device sent
	Restated bool   // says a known state again
}

// at orders events of one stream.
func (e Event) at() place { return place{e.Epoch, e.Sequence} }

// place is where an event stands in its stream.
type place struct{ epoch, sequence int64 }

func (p place) before(q place) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.sequence < q.sequence
}

// Row is one row of the outbox.
type Row struct {
	Event
	Position int64
	Bucket   int16
}

// Record is one record of the topic.
type Record struct {
	Event
	Partition int32
	Offset    int64
	Skipped   []Range // from ce_skipped
	Misfiled  bool    // its key is not the device id, or a header contradicts the value
}

// Range is an inclusive range of sequences or counters.
type Range struct{ From, To int64 }

// Size is how many numbers r holds.
func (r Range) Size() int64 { return r.To - r.From + 1 }

// Database is what PostgreSQL says.
type Database struct {
	States          map[int]State    // by stream
	Outbox          []Row            // in position order
	Gaps            map[int][]Range  // counters, by stream
	Rejects         map[Ref]int      // quarantined reports that name themselves
	Rejected        int64            // all rows of ingest_reject
	Overflow        int64            // rejects only counted
	Dead            []Row            // rows of outbox_dead that never left: dead, held, releasing
	Skipped         map[int][]Skip   // outbox_skipped: written before the event that carries it
	Pending         int64            // rows above their bucket's cursor
	Classes         Classes          // the sum over all lanes
	Possible        int64            // rows of possible_gap
	Late, Duplicate int64            // what the totals of all streams grew by
	Halted          map[int16]string // buckets that stopped for good
}

// Skip is a range the relay recorded as left out.
type Skip struct {
	Epoch int64
	Range
}

// State is one row of device_state.
type State struct {
	Epoch, Sequence              int64
	Report                       uint32
	Intact                       bool
	Missed, Late, Duplicate, Bad int64
	ReceivedAt                   time.Time
}

// Classes counts committed reports.
type Classes struct {
	Applied     int64 `json:"applied"`
	Duplicate   int64 `json:"duplicate"`
	Late        int64 `json:"late"`
	Coalesced   int64 `json:"coalesced"`
	Discarded   int64 `json:"discarded"`
	Ignored     int64 `json:"ignored"`
	Quarantined int64 `json:"quarantined"`
}

// Total is the number of committed reports.
func (c Classes) Total() int64 {
	return c.Applied + c.Duplicate + c.Late + c.Coalesced + c.Discarded + c.Ignored + c.Quarantined
}

// Minus is what was added since b.
func (c Classes) Minus(b Classes) Classes {
	return Classes{
		c.Applied - b.Applied, c.Duplicate - b.Duplicate, c.Late - b.Late, c.Coalesced - b.Coalesced,
		c.Discarded - b.Discarded, c.Ignored - b.Ignored, c.Quarantined - b.Quarantined,
	}
}

// Consumer is what the consumer under test did.
type Consumer struct {
	Effects   []Effect             // in the order they happened
	Positions map[int]PositionSeen // what its store remembers, by stream; nil: not read
	Counts    map[int]int64        // effects made inside its store, by stream; nil: it makes none
}

// Effect is one event handled.
type Effect struct {
	Stream   int
	Report   uint32
	Epoch    int64
	Sequence int64
}

// PositionSeen is what a consumer's store says it has seen of a stream.
type PositionSeen struct{ Epoch, Sequence int64 }

// Shown is what a screen says of a stream.
type Shown struct {
	Epoch, Sequence int64
	ReceivedAt      time.Time
}

func keyOf(book *ledger.Ledger, stream int) ledger.Key {
	s := book.Streams[stream]
	return ledger.Key{Device: s.Device, Stream: s.Name}
}
