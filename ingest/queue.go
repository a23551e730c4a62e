package ingest

import (
	"sync"
	"time"
)

// queue holds decoded messages between the reader and the writer of a lane, in order of arrival, bounded by count and
// bytes. Safe for one reader and one writer.
type queue struct {
	maxItems, maxBytes int

	mu    sync.Mutex
	items []item
	head  int // items before it are taken
	bytes int
	ready chan struct{} // holds a token when items may be there
	room  chan struct{} // holds a token when there may be room
}

func newQueue(maxItems, maxBytes int) *queue {
	return &queue{maxItems: maxItems, maxBytes: maxBytes, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put appends it, waiting for room for as long as patience: meanwhile nothing is read from the connection, so the
// pressure reaches the broker through TCP. Then it refuses it and, from then on, everything of its connection.
//
// The patience is shorter than the client library's for a PINGRESP, which cannot be read meanwhile. Dropping the
// connection at once would be simpler and worse: a broker whose window is larger than the queue (Mosquitto 2.0 lets its
// own slip) would send everything again, and most of it would be refused again.
func (q *queue) put(it *item, patience time.Duration) bool {
	if q.offer(it) {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-q.room:
			if q.offer(it) {
				return true
			}
		case <-it.gen.done:
			return q.refuse(it)
		case <-timer.C:
			return q.refuse(it)
		}
	}
}

// offer appends it if there is room and nothing of its connection was refused.
func (q *queue) offer(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.gen.refused || len(q.items)-q.head >= q.maxItems || q.bytes+it.size > q.maxBytes {
		return false
	}
	q.items = append(q.items, *it)
	q.bytes += it.size
	nudge(q.ready)
	return true
}

func (q *queue) refuse(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.gen.refused = true
	return false
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take moves up to maxItems messages or maxBytes, at least one, to dst. Messages of an ended generation that the broker
// will send again are abandoned here: committing them now would only make their next copies duplicates.
func (q *queue) take(dst []item, maxItems, maxBytes int) (batch []item, abandoned int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	for q.head < len(q.items) && len(dst) < maxItems {
		it := &q.items[q.head]
		gone := it.abandoned()
		if !gone && len(dst) > 0 && size+it.size > maxBytes {
			break
		}
		if gone {
			abandoned++
		} else {
			dst = append(dst, *it)
			size += it.size
		}
		q.bytes -= it.size
		*it = item{}
		q.head++
	}
	q.compactLocked()
	nudge(q.room)
	return dst, abandoned
}

// compactLocked moves what is left to the front once half of the slice is taken, and leaves a token while items wait.
func (q *queue) compactLocked() {
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		return
	}
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	nudge(q.ready)
}

// size is what waits: messages and bytes.
func (q *queue) size() (items, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) - q.head, q.bytes
}

// roomy says whether a new connection makes sense: at most half is in use.
func (q *queue) roomy() bool {
	items, bytes := q.size()
	return items <= q.maxItems/2 && bytes <= q.maxBytes/2
}
