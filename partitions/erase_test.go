package partitions

import (
	"context"
	"testing"
	"time"

	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
)

// erase begins to erase a device and returns the id of the erasure.
func (f *fixture) erase(device string) int64 {
	f.Helper()
	return f.query(`SELECT erasure_id FROM erase_device($1, $2, 'test', 'asked to')`, device, outbox.Bucket(device, testBuckets))
}

func (f *fixture) erasePartition(id int64, partition string) {
	f.Helper()
	f.exec(`SELECT erase_partition($1, $2)`, id, partition)
}

// restored is how many rows of a device the archive of a partition holds.
func (f *fixture) restored(partition, device string) int64 {
	f.Helper()
	if _, err := Restore(f.Context(), f.connect("hubstate_maintainer"), f.dir, partition, "restored"); err != nil {
		f.Fatal(err)
	}
	return f.query(`SELECT count(*) FROM restored WHERE aggregate_id = $1`, device)
}

// TestErase_WhileItIsArchived: the rows are deleted after the archive was read and before it is recorded. The archive is
// void and made again.
func TestErase_WhileItIsArchived(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(20)
	device := f.devices(1)[0]
	cfg := f.config()
	erased := false
	cfg.failpoint = func(point string) {
		if point == "archive.checked" && !erased {
			erased = true
			f.erasePartition(f.erase(device), first)
		}
	}
	f.turn(cfg)
	if p := f.find(first); p.Phase != Sealed {
		t.Fatalf("%s is %s, want an archive with erased rows not recorded", first, p.Phase)
	}
	f.turn(cfg)
	if n := f.restored(first, device); n != 0 || *f.find(first).Rows != 19 {
		t.Fatalf("the archive holds %d rows of the erased device", n)
	}
}

// TestErase_WhileItIsDropped: the rows are deleted between the last look at the archive and the drop of the table. The
// table stays until an archive without them exists.
func TestErase_WhileItIsDropped(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(20)
	device := f.devices(1)[0]
	cfg := f.config()
	f.turn(cfg)
	f.clock.forward(cfg.RetainSent + step)
	erased := false
	cfg.failpoint = func(point string) {
		if point == "drop.detached" && !erased {
			erased = true
			f.erasePartition(f.erase(device), first)
		}
	}
	f.turn(cfg)
	f.turn(cfg)
	if n := f.query(`SELECT count(*) FROM partition_ledger WHERE name = $1 AND phase = 'dropped' AND rows = 19`, first); n != 1 {
		t.Fatalf("%s was not dropped in the end", first)
	}
	if n := f.restored(first, device); n != 0 {
		t.Fatalf("the archive that outlives the table holds %d rows of the erased device", n)
	}
}

// TestErase_WaitsForTheSealingThatIsUnderWay: a table between outbox and history is seen by neither; whoever erases then
// waits, and finds the rows in the history.
func TestErase_WaitsForTheSealingThatIsUnderWay(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	cfg.Store = nil
	f.turn(cfg)
	first := f.state().Partitions[0]
	device := f.devices(1)[0]
	f.write(f.connect("hubstate_ingest"), device)
	f.drain()
	f.exec(`UPDATE partition_spec SET floor = $1`, first.To)
	f.clock.forward(step)
	eraser := f.connect("")
	done := make(chan error, 1)
	cfg.failpoint = func(point string) {
		if point != "seal.record" {
			return
		}
		go func() { done <- eraseOn(f.Context(), eraser, device) }() // waited for below
		f.eventually("the eraser waits for the sealing", func() bool { return f.waitsFor("erase_device") })
	}
	f.turn(cfg)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.erasePartition(f.query(`SELECT max(id) FROM erasure`), first.Name)
	if n := f.query(`SELECT count(*) FROM outbox_history WHERE aggregate_id = $1`, device); n != 0 {
		t.Fatalf("%d rows of the erased device in the history", n)
	}
}

func eraseOn(ctx context.Context, conn *pgx.Conn, device string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := conn.Exec(ctx, `SELECT erase_device($1, $2, 'test', 'asked to')`, device, outbox.Bucket(device, testBuckets))
	return err
}
