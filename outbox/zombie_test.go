package outbox

import (
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// load appends events of devices until stop is called; it returns how many rows there are.
func (b *bundle) load(devices int, pause time.Duration) (stop func() int) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(pause):
				b.fill(devices, 1)
			}
		}
	}()
	var once sync.Once
	return func() int {
		once.Do(func() { close(quit); <-done })
		rows := 0
		for _, n := range b.next {
			rows += int(n)
		}
		return rows
	}
}

func (b *bundle) ownedBy(instance string) int {
	return b.count(`SELECT count(*) FROM outbox_bucket WHERE owner LIKE '` + instance + `/%'`)
}

func TestRelay_AStoppedOwnerIsReplacedAndChangesNothing_O3_O2(t *testing.T) {
	t.Parallel()
	b := setup(t)
	zombie := b.startChild("zombie")
	eventually(t, "the child owns all", 30*time.Second, func() bool { return b.ownedBy("zombie") == b.cfg.Buckets })
	stop := b.load(200, 20*time.Millisecond)
	defer stop()
	eventually(t, "rows flow", 30*time.Second, func() bool { return b.count(`SELECT coalesce(sum(published), 0) FROM outbox_bucket`) > 2000 })

	zombie.signal(syscall.SIGSTOP) // with groups on the wire and rows read ahead
	stoppedAt := time.Now()
	b.start(func(c *Config) { c.Instance = "heir" })
	eventually(t, "the heir owns all", 30*time.Second, func() bool { return b.ownedBy("heir") == b.cfg.Buckets })
	if took := time.Since(stoppedAt); took > 3*b.cfg.TTL {
		t.Errorf("takeover took %s with a ttl of %s", took, b.cfg.TTL)
	}
	before := b.terms()
	zombie.signal(syscall.SIGCONT)
	rows := stop()
	all := b.read(60*time.Second, unique(rows))
	repeats := checkOrder(t, all, nil)
	t.Logf("%d rows, %d repeats", rows, repeats)
	eventually(t, "the heir keeps a fair share", 30*time.Second, func() bool { return b.ownedBy("heir") <= b.cfg.Buckets/2 })
	if moved := b.cursorsBehind(before); moved != "" {
		t.Errorf("a cursor moved back: %s", moved)
	}
	if n := b.count(`SELECT count(*) FROM outbox_dead`); n != 0 {
		t.Errorf("%d dead rows", n)
	}
}

// terms are the cursors at one instant.
func (b *bundle) terms() map[int]int64 {
	b.t.Helper()
	conn := b.connect("hubstate_reader")
	rows, err := conn.Query(b.t.Context(), `SELECT bucket, cursor FROM outbox_bucket`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	cursors := make(map[int]int64)
	for rows.Next() {
		var bucket int
		var cursor int64
		if err := rows.Scan(&bucket, &cursor); err != nil {
			b.t.Fatal(err)
		}
		cursors[bucket] = cursor
	}
	return cursors
}

func (b *bundle) cursorsBehind(before map[int]int64) string {
	for bucket, now := range b.terms() {
		if now < before[bucket] {
			return "bucket " + strconv.Itoa(bucket)
		}
	}
	return ""
}

func TestRelay_KilledOwnersLeaveNothingLostOrReordered_O2_O4(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := b.load(200, 20*time.Millisecond)
	defer stop()
	kills := 4
	if testing.Short() {
		kills = 2
	}
	for i := range kills {
		c := b.startChild("victim-" + strconv.Itoa(i))
		from := b.count(`SELECT coalesce(sum(published), 0) FROM outbox_bucket`)
		eventually(t, "rows flow", 30*time.Second, func() bool {
			return b.count(`SELECT coalesce(sum(published), 0) FROM outbox_bucket`) > from+1000
		})
		c.kill()
	}
	b.start(func(c *Config) { c.Instance = "last" })
	rows := stop()
	all := b.read(60*time.Second, unique(rows))
	repeats := checkOrder(t, all, nil)
	t.Logf("%d rows, %d kills, %d repeats", rows, kills, repeats)
	if repeats > kills*b.cfg.TopicPartitions*16 {
		t.Errorf("%d repeats: the tail check should leave only what was on the wire", repeats)
	}
}
