package outbox

import (
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// window is a run of rows of one bucket in position order, already rendered as records. It is filled by one sweep, owned
// by the engine until it is submitted, and recycled after all its callbacks: the producer keeps no reference by then.
type window struct {
	home       *windowPool
	bucket     int16
	kind       windowKind
	generation int // of the bucket when it was read; another one = throw away
	records    []kgo.Record
	rows       []row
	bytes      int  // what the rows hold in memory, headers included
	full       bool // the sweep's limit cut it: more rows stand behind it
	carries    []carried
	slab       []byte
	headers    []kgo.RecordHeader
}

// windowKind says what is to become of all rows of a window.
type windowKind uint8

const (
	windowPublish  windowKind = iota
	windowPark                // rows of a held aggregate: to outbox_dead, with the cursor
	windowSkipped             // recorded as skipped by an earlier owner: the cursor passes them
	windowRelease             // a decided dead row and what was parked behind it, from outbox_dead
	windowOversize            // one row that no batch can carry: dead without being sent
)

// row is what the engine needs of a record after it was submitted.
type row struct {
	position int64
	id       [16]byte
	created  int64 // Unix microseconds
	size     int32 // bytes on the wire before compression, batch overhead included
}

// carried names a stream whose outbox_skipped ranges below `below` travel in a record of this window.
type carried struct {
	row    int // index in the window
	stream streamKey
	below  int64
}

// streamKey is a stream of an aggregate in one epoch.
type streamKey struct {
	aggregate string
	stream    string
	epoch     int64
}

// windowPool keeps the buffers of windows that are done; shared by the sweepers and the engine of one relay.
type windowPool struct{ pool sync.Pool }

func (p *windowPool) get(bucket int16) *window {
	w, ok := p.pool.Get().(*window)
	if !ok {
		w = &window{}
	}
	w.bucket, w.home = bucket, p
	return w
}

// recycle gives the buffers back. Nobody may hold a record, key or value of the window afterwards.
func (w *window) recycle() {
	home := w.home
	clear(w.records)
	*w = window{records: w.records[:0], rows: w.rows[:0], slab: w.slab[:0], headers: w.headers[:0], carries: w.carries[:0]}
	if home != nil {
		home.pool.Put(w)
	}
}

func (w *window) last() row { return w.rows[len(w.rows)-1] }

// cut drops the rows from n on, so that a smaller group can be sent; they will be read again.
func (w *window) cut(n int) {
	if n >= len(w.rows) {
		return
	}
	w.records, w.rows, w.full = w.records[:n], w.rows[:n], true
	w.carries = slices.DeleteFunc(w.carries, func(c carried) bool { return c.row >= n })
}

// reserve makes room for n more bytes in the slab without moving what is handed out: a slab that is full is replaced,
// and the slices into the old one keep it alive.
func (w *window) reserve(n int) {
	if cap(w.slab)-len(w.slab) < n {
		w.slab = make([]byte, 0, max(n, min(2*cap(w.slab), 1<<20), 32<<10))
	}
}

// copy appends b to the slab and returns its place there.
func (w *window) copy(b []byte) []byte {
	start := len(w.slab)
	w.slab = append(w.slab, b...)
	return w.slab[start:len(w.slab):len(w.slab)]
}
