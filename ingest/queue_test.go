package ingest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func queued(g *generation, n int) item {
	return item{gen: g, id: uint16(n), qos: 1, size: 1, report: devicestate.Report{Counter: devicestate.Some(int64(n))}}
}

// The race of docs/architecture.md "Ingest", 1,000 times: message n is refused while the writer makes room, so n+1 would
// fit. Nothing after the first refusal may be taken: the redelivered n would be late.
func TestQueue_AfterTheFirstRefusalNothingOfThatConnectionIsAccepted_N3(t *testing.T) {
	t.Parallel()
	for round := range 1000 {
		q, g := newQueue(8, 1<<20), newGeneration(1)
		var taken []int64
		var reader sync.WaitGroup
		stop := make(chan struct{})
		reader.Go(func() {
			for {
				items, _ := q.take(nil, 3, 1<<20)
				for i := range items {
					taken = append(taken, items[i].report.Counter.V)
				}
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		})
		refused := int64(-1)
		for n := range 200 {
			it := queued(g, n)
			if ok := q.put(&it, 0); !ok && refused < 0 {
				refused = int64(n)
			} else if ok && refused >= 0 {
				t.Errorf("round %d: %d was accepted after %d was refused", round, n, refused)
			}
		}
		close(stop)
		reader.Wait()
		for i, n := range taken {
			if n != int64(i) || refused >= 0 && n >= refused {
				t.Fatalf("round %d: took %v, refused %d", round, taken, refused)
			}
		}
	}
}

func TestQueue_EndedConnectionsMessagesAreAbandonedExceptQoS0_N4(t *testing.T) {
	t.Parallel()
	q, old, now := newQueue(100, 1<<20), newGeneration(1), newGeneration(2)
	for n := range 10 {
		it := queued(old, n)
		if n%2 == 0 {
			it.qos = 0 // nobody would send it again
		}
		q.put(&it, 0)
	}
	old.end(errStopped)
	it := queued(now, 99)
	q.put(&it, 0)
	items, abandoned := q.take(nil, 100, 1<<20)
	if len(items) != 6 || abandoned != 5 {
		t.Errorf("%d taken, %d abandoned, want 6 and 5", len(items), abandoned)
	}
	if n, bytes := q.size(); n != 0 || bytes != 0 {
		t.Errorf("%d items and %d bytes are left", n, bytes)
	}
}

// A connection that ends leaves packets in its reader's buffer, which arrive after its end; each was received, so each must
// be accounted for.
func TestSession_WhatAnEndedConnectionStillReadsIsAbandoned_N4(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := &session{service: b.service, queue: newQueue(3, 1<<20), decoder: b.decoder}
	g := newGeneration(1)
	deliver := func(n int) {
		s.receive(g, publish{topic: []byte("hubs/h/devices/d/state"), payload: []byte("{}"), size: 2, id: uint16(n), qos: 1})
	}
	for n := range 3 {
		deliver(n)
	}
	g.end(errStopped)
	for n := range 5 {
		deliver(10 + n)
	}
	_, abandoned := s.queue.take(nil, 100, 1<<20)
	m := b.service.metrics
	m.abandoned.Add(float64(abandoned))
	if received, given := testutil.ToFloat64(m.received), testutil.ToFloat64(m.abandoned); received != 8 || given != 8 {
		t.Errorf("%v received, %v abandoned, want 8 and 8", received, given)
	}
}

func TestQueue_IsBoundedByCountAndBytes_N3(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ items, bytes, size, want int }{{5, 1 << 20, 1, 5}, {1000, 50, 10, 5}, {1000, 5, 10, 0}} {
		q, n := newQueue(c.items, c.bytes), 0
		for i := range 20 {
			it := queued(newGeneration(uint64(i)), i)
			it.size = c.size
			if q.put(&it, 0) {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%+v: %d accepted", c, n)
		}
	}
}

// A batch holds at least one message, however large, and otherwise keeps to its bytes.
func TestQueue_TakeKeepsToItsBytes(t *testing.T) {
	t.Parallel()
	q, g := newQueue(100, 1<<20), newGeneration(1)
	for n, size := range []int{900, 300, 300, 300, 900} {
		it := queued(g, n)
		it.size = size
		q.put(&it, 0)
	}
	var got []string
	for {
		items, _ := q.take(nil, 100, 700)
		if len(items) == 0 {
			break
		}
		got = append(got, fmt.Sprint(len(items)))
	}
	if fmt.Sprint(got) != "[1 2 1 1]" {
		t.Errorf("batches of %v", got)
	}
}

// A full queue holds the reader until the writer makes room; only when that takes too long is the connection given up.
func TestQueue_AFullQueueHoldsTheReaderForAWhile_N3(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, g := newQueue(2, 1<<20), newGeneration(1)
		for n := range 2 {
			it := queued(g, n)
			q.put(&it, time.Second)
		}
		done := make(chan bool, 1)
		go func() { // ends with the put
			it := queued(g, 2)
			done <- q.put(&it, 5*time.Second)
		}()
		time.Sleep(4 * time.Second)
		q.take(nil, 1, 1<<20)
		if !<-done {
			t.Error("refused although room came in time")
		}
		it := queued(g, 3)
		started := time.Now()
		if q.put(&it, 5*time.Second) || time.Since(started) != 5*time.Second {
			t.Errorf("not refused after 5s but %v", time.Since(started))
		}
		q.take(nil, 10, 1<<20)
		if it = queued(g, 4); q.put(&it, 5*time.Second) {
			t.Error("accepted after a refusal")
		}
	})
}
