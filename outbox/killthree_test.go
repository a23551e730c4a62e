package outbox

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Three relays under load, one of them killed every two seconds (60 s with HUBSTATE_TEST_LONG). What a dying producer had
// on the wire, at most a group for each partition it owned, may come twice; the tail check makes the rest zero.
func TestRelay_OneOfThreeKilledEveryTwoSeconds_O2_O4(t *testing.T) {
	t.Parallel()
	kills := 4
	if os.Getenv("HUBSTATE_TEST_LONG") != "" {
		kills = 30
	}
	if testing.Short() {
		kills = 2
	}
	b := setup(t)
	relays := make([]*child, 3)
	for i := range relays {
		relays[i] = b.startChild("relay-" + strconv.Itoa(i))
	}
	eventually(t, "all buckets are owned", 30*time.Second, func() bool { return b.owned() == b.cfg.Buckets })
	stop := b.load(400, 50*time.Millisecond)
	defer stop()
	for i := range kills {
		time.Sleep(2 * time.Second) // the pace of the kills is the scenario
		victim := i % len(relays)
		relays[victim].kill()
		relays[victim] = b.startChild("relay-" + strconv.Itoa(victim) + "-" + strconv.Itoa(i))
	}
	rows := stop()
	all := b.read(2*time.Minute, unique(rows))
	repeats := checkOrder(t, all, nil)
	t.Logf("%d rows, %d kills, %d repeats", rows, kills, repeats)
	if limit := kills * b.cfg.TopicPartitions / len(relays) * 8; repeats > limit {
		t.Errorf("%d repeats, want at most %d", repeats, limit)
	}
	if n := b.count(`SELECT count(*) FROM outbox_dead`); n != 0 {
		t.Errorf("%d dead rows", n)
	}
}
