package outbox

import (
	"testing"
	"time"
)

// heldDevice ends with d/2 dead, d/3 and d/4 parked, and another device of the bucket published.
func heldDevice(t *testing.T) (b *bundle, d, other string) {
	t.Helper()
	b = setup(t)
	d = "held"
	other = sameBucket(d, b.cfg.Buckets)
	r := b.start(func(c *Config) { c.OnDead = DeadHold })
	eventually(t, "ready", 20*time.Second, func() bool { return r.Ready() == nil && b.owned() == b.cfg.Buckets })
	b.limitMessages(300_000)
	b.append(b.message(d, nil), b.message(d, noise(500_000)), b.message(d, nil), b.message(other, nil), b.message(d, nil))
	b.read(30*time.Second, unique(2))
	eventually(t, "two rows are parked", 30*time.Second, func() bool { return b.count(`SELECT count(*) FROM outbox_dead WHERE state = 'held'`) == 2 })
	if n := b.count(`SELECT count(*) FROM outbox_dead WHERE state = 'dead' AND parks`); n != 1 {
		t.Fatalf("%d parking heads, want 1", n)
	}
	return b, d, other
}

func (b *bundle) decideHead(decision string) {
	b.t.Helper()
	conn := b.connect("hubstate_operator")
	if _, err := conn.Exec(b.t.Context(), `UPDATE outbox_dead SET state = 'releasing', decision = $1, decided_by = 'test' WHERE state = 'dead'`, decision); err != nil {
		b.t.Fatal(err)
	}
}

func ofDevice(all []delivery, device string) (sequences []int64, skips []string) {
	for _, d := range all {
		if d.device == device {
			sequences, skips = append(sequences, d.sequence), append(skips, d.skipped)
		}
	}
	return sequences, skips
}

func TestRelay_ADiscardedHeadLetsItsParkedRowsGoFirst_O2_O5(t *testing.T) {
	t.Parallel()
	b, d, other := heldDevice(t)
	b.decideHead("discard")
	b.append(b.message(d, nil), b.message(other, nil))
	all := b.read(60*time.Second, unique(6))
	sequences, skips := ofDevice(all, d)
	if len(sequences) != 4 || sequences[1] != 3 || sequences[2] != 4 || sequences[3] != 5 {
		t.Fatalf("the device delivered %v, want 1 3 4 5", sequences)
	}
	if skips[1] != "2:dead" {
		t.Errorf("ce_skipped of 3 is %q, want 2:dead", skips[1])
	}
	eventually(t, "nothing is parked", 30*time.Second, func() bool {
		return b.count(`SELECT count(*) FROM outbox_dead WHERE state IN ('held', 'releasing', 'dead')`) == 0
	})
}

func TestRelay_AReplayedHeadGoesBeforeItsParkedRows_O2_O5(t *testing.T) {
	t.Parallel()
	b, d, _ := heldDevice(t)
	b.limitMessages(1_048_588) // the cause is cured
	b.decideHead("replay")
	b.append(b.message(d, nil))
	eventually(t, "nothing is parked", 60*time.Second, func() bool {
		if b.count(`SELECT count(*) FROM outbox_dead WHERE state = 'dead'`) > 0 {
			b.decideHead("replay") // it was refused once more: a broker under load is slow to apply its limit
		}
		return b.count(`SELECT count(*) FROM outbox_dead WHERE state IN ('dead', 'held', 'releasing')`) == 0
	})
	all := b.read(60*time.Second, unique(6))
	if sequences, _ := ofDevice(all, d); len(sequences) != 5 {
		t.Fatalf("the device delivered %v, want 1 to 5", sequences)
	}
	checkOrder(t, all, nil)
}

// The relay died after the discarded head was recorded and before its parked rows were sent: the next owner sends them.
func TestRelay_ParkedRowsAreReleasedAfterACrash_O5(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := "held"
	hold := func(c *Config) { c.OnDead = DeadHold }
	r := b.start(hold)
	eventually(t, "ready", 30*time.Second, func() bool { return r.Ready() == nil && b.owned() == b.cfg.Buckets })
	b.limitMessages(300_000)
	b.append(b.message(d, nil), b.message(d, noise(500_000)), b.message(d, nil), b.message(d, nil))
	eventually(t, "two rows are parked", 30*time.Second, func() bool { return b.count(`SELECT count(*) FROM outbox_dead WHERE state = 'held'`) == 2 })
	r.stop()
	b.admin(`UPDATE outbox_dead SET state = 'discarded', decision = 'discard', decided_by = 'test' WHERE state = 'dead'`)
	b.admin(`INSERT INTO outbox_skipped (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, reason, up_to)
SELECT bucket, aggregate_id, stream, epoch, sequence, sequence, 'dead', position FROM outbox_dead WHERE state = 'discarded'`)
	b.start(hold)
	eventually(t, "nothing is parked", 30*time.Second, func() bool {
		return b.count(`SELECT count(*) FROM outbox_dead WHERE state IN ('held', 'releasing')`) == 0
	})
}
