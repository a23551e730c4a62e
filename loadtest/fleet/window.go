package fleet

import (
	"context"
	"sync"
)

// sent is one publish on its way: which report, under which packet id.
type sent struct {
	stream int
	number uint32
	id     uint16
	acked  bool
}

// window holds the publishes of one connection that await their PUBACK, in the order they were sent: that is the order
// in which they are sent again after a reconnect. It is a ring; packet ids follow each other, so the place of an id is
// its distance from the oldest.
type window struct {
	mu     sync.Mutex
	ring   []sent
	head   int // the oldest
	size   int
	nextID uint16
	space  chan struct{} // one token: something was acknowledged
}

func newWindow(limit int) *window {
	return &window{ring: make([]sent, limit), nextID: 1, space: make(chan struct{}, 1)}
}

// push takes a place for a report and returns its packet id; false when the window is full.
func (w *window) push(stream int, number uint32) (uint16, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size == len(w.ring) {
		return 0, false
	}
	id := w.nextID
	w.nextID = nextPacketID(id)
	w.ring[(w.head+w.size)%len(w.ring)] = sent{stream: stream, number: number, id: id}
	w.size++
	return id, true
}

// nextPacketID leaves out 0, which MQTT forbids.
func nextPacketID(id uint16) uint16 {
	if id == 65535 {
		return 1
	}
	return id + 1
}

// ack finds the publish of a PUBACK; false when the id is not waiting.
func (w *window) ack(id uint16) (sent, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size == 0 {
		return sent{}, false
	}
	offset := (int(id) - int(w.ring[w.head].id) + 65535) % 65535
	if id == 0 || offset >= w.size {
		return sent{}, false
	}
	s := &w.ring[(w.head+offset)%len(w.ring)]
	if s.acked {
		return sent{}, false
	}
	s.acked = true
	w.popLocked()
	return *s, true
}

func (w *window) popLocked() {
	for w.size > 0 && w.ring[w.head].acked {
		w.head = (w.head + 1) % len(w.ring)
		w.size--
	}
	select {
	case w.space <- struct{}{}:
	default:
	}
}

// waiting copies what is unacknowledged, oldest first.
func (w *window) waiting(dst []sent) []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.size {
		if s := w.ring[(w.head+i)%len(w.ring)]; !s.acked {
			dst = append(dst, s)
		}
	}
	return dst
}

func (w *window) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size == 0
}

// awaitSpace waits until something was acknowledged, the link is lost or ctx ends.
func (w *window) awaitSpace(ctx context.Context, lost <-chan struct{}) error {
	select {
	case <-w.space:
		return nil
	case <-lost:
		return errLinkLost
	case <-ctx.Done():
		return ctx.Err()
	}
}
