package ingest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What a lane remembers must be what it would read, to the last bit: times in the database's resolution, no content.
func TestKnown_RemembersWhatIsStored_D1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		b.now = b.now.Add(time.Duration(random.IntN(90_000)) * time.Microsecond)
		var items []item
		for range 1 + random.IntN(20) {
			device, stream := fmt.Sprintf("d-%d", random.IntN(8)), []string{"state", "connection", "other"}[random.IntN(3)]
			payload := fmt.Sprintf(`{"seq":%d,"boot":%d,"ts":"%s","state":{"n":%d}}`, random.IntN(40), random.IntN(3),
				b.now.Add(time.Duration(random.IntN(3_000_000)-1_500_000)).UTC().Format(time.RFC3339Nano), random.IntN(3))
			items = append(items, b.message("hubs/h/devices/"+device+"/"+stream, payload))
		}
		b.store(items...)
		b.checkKnown()
	}
	if len(b.writer.batch.remembers) < 8 {
		t.Errorf("only %d rows are remembered", len(b.writer.batch.remembers))
	}
}

// checkKnown reads all that the writer remembers and compares.
func (b *bench) checkKnown() {
	b.t.Helper()
	reader := newBatch()
	for key := range b.writer.batch.remembers {
		reader.streams = append(reader.streams, stream{streamKey: key})
	}
	reader.recall()
	rows, err := b.service.pool.Query(b.t.Context(), readStreams, reader.names.devices, reader.names.streams)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := reader.scan(rows); err != nil {
		b.t.Fatal(err)
	}
	for i := range reader.streams {
		s := &reader.streams[i]
		row := b.writer.batch.remembers[s.streamKey]
		if row.xmin != s.xmin || fmt.Sprintf("%+v", row.state) != fmt.Sprintf("%+v", s.stored) {
			b.t.Fatalf("%v\nremembered %d %+v\nstored     %d %+v", s.streamKey, row.xmin, row.state, s.xmin, s.stored)
		}
	}
}

// An operator, another lane or an erase between two batches: the lane must decide on what is stored, with one more try.
func TestKnown_SeesWhatOthersWrote_D1(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others string
		check  string
	}{
		"an operator accepts a reboot": {`UPDATE device_state SET reboot_pending = true WHERE device_id = 'a'`,
			`SELECT counter = 3 AND NOT reboot_pending AND sequence = 3 FROM device_state WHERE device_id = 'a'`},
		"another lane wrote": {`UPDATE device_state SET sequence = 9, counter = 3 WHERE device_id = 'a'`,
			`SELECT counter = 3 AND sequence = 9 AND duplicate = 1 FROM device_state WHERE device_id = 'a'`},
		"a rebase began an epoch": {`UPDATE device_state SET epoch = 77 WHERE device_id = 'a'`,
			`SELECT bool_and(epoch = 77) FROM outbox WHERE aggregate_id = 'a' AND sequence = 3`},
		"the device was erased": {`DELETE FROM device_state WHERE device_id = 'a'`,
			`SELECT counter = 3 AND sequence = 1 FROM device_state WHERE device_id = 'a'`},
		"all rows were rewritten": {`VACUUM FULL device_state`,
			`SELECT counter = 3 AND sequence = 3 FROM device_state WHERE device_id = 'a'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			report := func(device string, seq int) item {
				return b.message("hubs/h/devices/"+device+"/state", fmt.Sprintf(`{"seq":%d,"state":{}}`, seq))
			}
			for seq := 1; seq <= 2; seq++ {
				b.store(report("a", seq), report("b", seq))
			}
			if len(b.writer.batch.remembers) != 2 {
				t.Fatalf("%d rows are remembered before", len(b.writer.batch.remembers))
			}
			if _, err := b.admin.Exec(t.Context(), c.others); err != nil {
				t.Fatal(err)
			}
			b.store(report("b", 3), report("a", 3))
			if !query[bool](b, c.check) {
				t.Errorf("decided on what was remembered: %s", query[string](b, `SELECT d::text FROM device_state d WHERE device_id = 'a'`))
			}
			if n := query[int64](b, `SELECT sequence FROM device_state WHERE device_id = 'b'`); n != 3 {
				t.Errorf("the other device is at %d", n)
			}
			moved := testutil.ToFloat64(b.service.metrics.retries.WithLabelValues("moved"))
			if rewritten := name == "all rows were rewritten"; rewritten == (moved == 1) {
				t.Errorf("%v tries found another version", moved)
			}
		})
	}
}

func TestKnown_IsBounded_N3(t *testing.T) {
	t.Parallel()
	k := known{}
	for i := range maxKnown + 100 {
		k.remember(streamKey{fmt.Sprint(i), "state"}, &devicestate.State{Sequence: int64(i)}, 7)
	}
	last := &stream{streamKey: streamKey{fmt.Sprint(maxKnown + 99), "state"}}
	if len(k) != maxKnown || !k.recall(last) || last.stored.Sequence != maxKnown+99 || last.xmin != 7 {
		t.Errorf("%d rows, the last %+v", len(k), last)
	}
}

// Two lanes with the same devices (a shared subscription) overtake each other all the time: they must not pay for what they
// remember wrongly with every batch.
func TestKnown_LanesThatShareDevicesStopRemembering(t *testing.T) {
	t.Parallel()
	a := newBench(t)
	b := *a
	b.gen = nil
	b.claim("lane-1")
	for seq := 1; seq <= 400; seq += 2 {
		a.store(a.message("hubs/h/devices/d/state", fmt.Sprintf(`{"seq":%d,"state":{}}`, seq)))
		b.store(b.message("hubs/h/devices/d/state", fmt.Sprintf(`{"seq":%d,"state":{}}`, seq+1)))
	}
	if n := query[int64](a, `SELECT sequence FROM device_state`); n != 400 {
		t.Errorf("sequence %d, want 400", n)
	}
	if moved := testutil.ToFloat64(a.service.metrics.retries.WithLabelValues("moved")); moved == 0 || moved > 8 {
		t.Errorf("%v tries found another version in 400 batches", moved)
	}
}
