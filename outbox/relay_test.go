package outbox

import (
	"testing"
	"time"
)

func TestRelay_PublishesEverythingInOrder_O2(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(200, 50)
	r := b.start()
	all := b.read(30*time.Second, unique(10_000))
	if repeats := checkOrder(t, all, nil); repeats != 0 {
		t.Errorf("%d repeats in an undisturbed run", repeats)
	}
	r.stop()
	b.fill(200, 5) // a second start goes on where the cursors are
	b.start()
	all = b.read(30*time.Second, unique(11_000))
	if repeats := checkOrder(t, all, nil); repeats != 0 {
		t.Errorf("%d repeats after a clean restart", repeats)
	}
}
