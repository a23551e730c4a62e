package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/faultnet"
	"github.com/hubstate/hubstate/internal/testenv"
)

// cutRounds is how often each place is cut.
const cutRounds = 20

// cutPlace is a place in the protocol of a batch at which the network between ingest and PostgreSQL dies.
type cutPlace struct {
	name string
	at   step
	cut  func(p *faultnet.Proxy) // called when the batch gets there
	lost bool                    // COMMIT is done and its answer lost
}

func cutPlaces() []cutPlace {
	reset := func(p *faultnet.Proxy) { p.Reset() }
	return []cutPlace{
		{"before BEGIN", stepBegin, reset, false},
		{"after the locks", stepLocked, reset, false},
		// The server gets part of the inserts: a cut at any byte of the second pipeline.
		{"in the inserts", stepLocked, func(p *faultnet.Proxy) { p.CutAfter(faultnet.Up, rand.Int64N(6000)) }, false},
		// COMMIT arrives and is done; its answer never comes.
		{"after COMMIT was sent", stepLocked, func(p *faultnet.Proxy) { p.CutAfter(faultnet.Down, rand.Int64N(60)) }, true},
		{"after COMMIT was answered", stepAnswered, reset, false},
	}
}

// At each place, again and again: nothing is lost, nothing is twice in the outbox, the sequence stays dense, N4 holds; also
// for a stream without counter and for a connection stream, whose copies only the tail can tell.
func TestCut_DatabaseLinkDiesAtEachStepOfABatch_N1_N2_N4(t *testing.T) {
	t.Parallel()
	for _, place := range cutPlaces() {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			url := testenv.Postgres(t)
			proxy, through := proxied(t, url)
			b := newBenchOn(t, url, openPool(t, through))
			var armed atomic.Bool
			found := 0
			b.writer.reached = func(at step) {
				if at == stepFound {
					found++
				}
				if at == place.at && armed.CompareAndSwap(true, false) {
					place.cut(proxy)
					context.AfterFunc(heal(t, 30*time.Millisecond), proxy.Heal)
				}
			}
			for round := range cutRounds {
				armed.Store(true)
				b.store(cutBatch(b, round)...)
			}
			b.checkCut(cutRounds)
			if place.lost && found == 0 {
				t.Error("no COMMIT whose answer was lost: this proves nothing")
			}
		})
	}
}

func heal(t *testing.T, after time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), after)
	t.Cleanup(cancel)
	return ctx
}

const cutDevices = 10

// cutBatch: per device a counted report, one without counter and time, and a birth or a will.
func cutBatch(b *bench, round int) []item {
	var items []item
	for d := range cutDevices {
		items = append(items,
			b.message(fmt.Sprintf("hubs/h/devices/c%d/state", d), fmt.Sprintf(`{"seq":%d,"state":{"n":%d}}`, round+1, round)),
			b.message(fmt.Sprintf("tele/t%d/STATE", d), fmt.Sprintf(`{"n":%d}`, round/2)), // the same content twice in a row: both are signs of life
			b.message(fmt.Sprintf("hubs/h/devices/c%d/connection", d), fmt.Sprintf(`{"state":{"online":%t}}`, round%2 == 0)))
	}
	return items
}

func (b *bench) checkCut(rounds int) {
	b.t.Helper()
	want := int64(rounds * cutDevices * 3)
	if got := b.classes(); got[devicestate.Applied] != want || len(got) != 1 {
		b.t.Errorf("classes %v, want %d applied", got, want)
	}
	if n := query[int64](b, `SELECT count(*) FROM outbox`); n != want {
		b.t.Errorf("%d events, want %d", n, want)
	}
	if bad := query[int](b, `SELECT count(*) FROM (SELECT sequence, row_number() OVER (PARTITION BY aggregate_id, stream ORDER BY position) AS n FROM outbox) x WHERE sequence <> n`); bad != 0 {
		b.t.Errorf("%d events out of order, missing or twice", bad)
	}
	if n := query[int](b, `SELECT count(*) FROM stream_gap`); n != 0 {
		b.t.Errorf("%d gaps", n)
	}
	if n := query[int64](b, `SELECT batch FROM ingest_lane`); n != int64(rounds) {
		b.t.Errorf("%d batches, want %d", n, rounds)
	}
}

// The link to the broker dies after COMMIT and before the acks: the broker sends the batch again, and the tail knows it,
// in this process and in a successor that only has the lane's row.
func TestCut_BrokerLinkDiesBeforeTheAcks_N1_N4(t *testing.T) {
	t.Parallel()
	for _, successor := range []bool{false, true} {
		t.Run(fmt.Sprintf("successor=%t", successor), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for round := range cutRounds {
				items := cutBatch(b, round)
				b.gen.end(errStopped)
				b.wire.written = nil
				b.store(items...)
				if len(b.acked()) != 0 {
					t.Fatal("acknowledged on a connection that was over")
				}
				if successor {
					b.claim("lane-0")
				} else {
					b.reconnect(true)
				}
				b.store(again(b, items)...)
				if n := len(b.acked()); n != len(items) {
					t.Fatalf("%d copies acknowledged, want %d", n, len(items))
				}
			}
			want := int64(cutRounds * cutDevices * 3)
			if got := b.classes(); got[devicestate.Applied] != want || got[devicestate.Duplicate] != want || len(got) != 2 {
				t.Errorf("classes %v, want %d applied and as many duplicates", got, want)
			}
			if n := query[int64](b, `SELECT count(*) FROM outbox`); n != want {
				t.Errorf("%d events, want %d", n, want)
			}
		})
	}
}

// again is what the broker sends on the next connection: the same ids and bytes, marked as duplicates.
func again(b *bench, items []item) []item {
	var copies []item
	for i := range items {
		copies = append(copies, b.received(publish{
			topic: []byte(items[i].topic), payload: items[i].payload, size: len(items[i].payload), id: items[i].id, qos: 1, dup: true,
		}))
	}
	return copies
}
