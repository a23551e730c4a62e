package ingest

import "sync"

// queue holds decoded messages between the reader and the writer of a lane, in order of arrival, bounded by count and
// bytes. It never blocks the reader. Safe for one reader and one writer.
type queue struct {
	maxItems, maxBytes int

	mu    sync.Mutex
	items []item
	head  int // items before it are taken
	bytes int
	ready chan struct{} // holds a token when items may be there
}

func newQueue(maxItems, maxBytes int) *queue {
	return &queue{maxItems: maxItems, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// put appends it, or refuses it and, from then on, everything of its generation.
func (q *queue) put(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.gen.refused || len(q.items)-q.head >= q.maxItems || q.bytes+it.size > q.maxBytes {
		it.gen.refused = true
		return false
	}
	q.items = append(q.items, *it)
	q.bytes += it.size
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return true
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
	select {
	case q.ready <- struct{}{}:
	default:
	}
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
