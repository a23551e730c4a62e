package ingest

import (
	"fmt"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
)

func TestWriter_StateAndEventCommitTogetherAndAcksFollowInOrder_N1_N2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var items []item
	for i := range 10 {
		items = append(items, b.message(fmt.Sprintf("hubs/h1/devices/d%d/state", i%3), fmt.Sprintf(`{"seq":%d,"state":{"n":%d}}`, i, i)))
	}
	b.store(items...)
	if n := query[int](b, `SELECT count(*) FROM device_state`); n != 3 {
		t.Errorf("%d states, want 3", n)
	}
	if n := query[int](b, `SELECT count(*) FROM outbox`); n != 10 {
		t.Errorf("%d events, want 10", n)
	}
	if got := b.classes(); got[devicestate.Applied] != 10 || len(got) != 1 {
		t.Errorf("classes %v", got)
	}
	for i, id := range b.acked() {
		if id != uint16(i+1) {
			t.Fatalf("acks %v are not in order of arrival", b.acked())
		}
	}
	if len(b.acked()) != 10 {
		t.Errorf("%d acks, want 10", len(b.acked()))
	}
	if bad := query[int](b, `SELECT count(*) FROM (SELECT sequence, row_number() OVER (PARTITION BY aggregate_id, stream ORDER BY position) AS n FROM outbox) x WHERE sequence <> n`); bad != 0 {
		t.Errorf("%d events out of order or not dense", bad)
	}
}
