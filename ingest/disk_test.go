package ingest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The database's disk is really full (where a small file system may be mounted: root): nothing is acknowledged that is not
// stored, nothing is quarantined for it, the pauses between tries grow, and with room again everything is in.
func TestFlow_AFullDiskHoldsTheFleetAndLosesNothing_N1_N3(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a PostgreSQL of its own")
	}
	testenv.Postgres(t) // skips, or fails in CI, where there is no PostgreSQL
	dir := smallDisk(t, "size=400m")
	broker := testenv.MQTT(t)
	pg, url := ownPostgresIn(t, dir)
	r := startRig(t, url, broker)
	r.waitReady()
	l := newLedger(t, broker, name(t), 20)
	l.publish(1, 10)
	eventually(t, 30*time.Second, func() error { return everythingIn(r, l) })

	filler := fill(t, filepath.Join(dir, "filler"))
	tries := func() float64 { return testutil.ToFloat64(r.service.metrics.retries.WithLabelValues("resources")) }
	for range 60 {
		if l.publish(1, 20); tries() > 0 {
			break
		}
	}
	if tries() == 0 {
		t.Skip("the server found room for everything")
	}
	before, grown := tries(), heap()
	time.Sleep(3 * time.Second) // the outage whose tries are counted
	if n := tries() - before; n > 60 {
		t.Errorf("%v tries in three seconds: a busy loop", n)
	}
	if grown = heap() - grown; grown > 32<<20 {
		t.Errorf("heap grew by %d KB", grown>>10)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := r.admin.Exec(t.Context(), `SELECT 1`); err != nil { // a server whose log could not grow has ended
		if err := pg.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, time.Minute, func() error { return everythingIn(r, l) })
	r.count(l.total(), `SELECT count(*) FROM outbox`)
	r.count(0, `SELECT count(*) FROM ingest_reject`)
	r.count(0, `SELECT count(*) FROM stream_gap`)
}

// smallDisk mounts a file system in memory.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubstate-ingest-disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill takes all room there is with one file.
func fill(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, size := range []int{1 << 20, 4096} {
		block := make([]byte, size)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	return path
}
