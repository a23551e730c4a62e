package partitions

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestArchive_OnARealFullAndReadOnlyDisk_P2 runs where a small file system may be mounted (root).
func TestArchive_OnARealFullAndReadOnlyDisk_P2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	f := setup(t)
	first := f.sealed(2000)
	f.exec(`UPDATE ` + first + ` SET payload = (SELECT string_agg(sha256((position * 1000 + i)::text::bytea), '') FROM generate_series(1, 10) i)`)
	cfg := f.config()
	cfg.Store = Dir(dir)
	f.clock.forward(cfg.RetainSent + step)

	f.failsWith(cfg, syscall.ENOSPC, first)
	if files, err := filepath.Glob(filepath.Join(dir, "."+first+"*")); err != nil || len(files) != 0 {
		t.Errorf("a full disk keeps %v, %v: want the half-written file gone", files, err)
	}
	f.remount(dir, syscall.MS_RDONLY, "size=64k")
	f.failsWith(cfg, syscall.EROFS, first)
	f.remount(dir, 0, "size=64m")
	f.clock.forward(step)
	f.turn(cfg)
	if _, err := Verify(t.Context(), Dir(dir), first); err != nil || f.query(`SELECT count(*) FROM partition_ledger WHERE name = $1 AND phase = 'dropped'`, first) != 1 {
		t.Errorf("with room again: %v, want it archived and dropped", err)
	}
}

func (f *fixture) remount(dir string, flags uintptr, options string) {
	f.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, options); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) failsWith(cfg Config, cause syscall.Errno, partition string) {
	f.Helper()
	f.clock.forward(step) // past the pause after a failure
	cfg.Registry = prometheus.NewRegistry()
	m, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := m.Once(f.Context()); !errors.Is(err, cause) {
		f.Errorf("archiving: %v, want %v", err, cause)
	}
	if p := f.find(partition); p.Phase != Sealed || p.Place != History || !strings.Contains(p.LastError, cause.Error()) {
		f.Errorf("%s is %s %s (%s), want it kept with the reason", partition, p.Phase, p.Place, p.LastError)
	}
}

// TestKill_WhileTheDetachWaitsForAReader_P2 kills the maintainer while the server waits on its behalf. The server ends
// the wait by itself and leaves the detach pending; the next maintainer finalizes it.
func TestKill_WhileTheDetachWaitsForAReader_P2(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	f.turn(cfg)
	first := f.state().Partitions[0]
	f.write(f.connect("hubstate_ingest"), f.devices(20)...)
	f.drain()
	f.exec(`UPDATE partition_spec SET floor = $1`, first.To)
	f.clock.forward(step)
	readers := f.openCursors("outbox")

	child := f.child("none")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	f.eventually("the detach waits", func() bool { return f.waitsFor("DETACH") })
	_ = child.Process.Kill()
	_ = child.Wait()
	f.eventually("the server gives up for the dead maintainer", func() bool { return f.query(sessionsOfChild) == 0 })
	if p := f.find(first.Name); p.Place != Detaching {
		t.Fatalf("%s is %s, want its detach pending", first.Name, p.Place)
	}
	for _, tx := range readers {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.turn(cfg)
	if p := f.find(first.Name); p.Place != History || *p.Rows != 20 {
		t.Fatalf("%s is %s with %v rows, want it in the history with 20", first.Name, p.Place, p.Rows)
	}
}

// child is this test binary as a maintainer that takes one turn.
func (f *fixture) child(point string) *exec.Cmd {
	cmd := exec.CommandContext(f.Context(), os.Args[0], "-test.run=^$")
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), childEnv+"="+point, childURL+"="+f.url, childDir+"="+string(f.dir), childOffset+"="+f.clock.offset.String())
	return cmd
}
