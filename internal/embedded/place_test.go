package embedded

import "testing"

// A server that was stopped and is started again in its data directory was told that another process uses it: a child
// between fork and exec held a copy of the lock's file.
func TestLockDir_IsFreeAtOnceWhileProcessesStart(t *testing.T) {
	t.Parallel()
	defer startProcesses()()
	dir := t.TempDir()
	for i := range 2000 {
		lock, err := lockDir(dir)
		if err != nil {
			t.Fatalf("after %d rounds: %v", i, err)
		}
		if err := lock.release(); err != nil {
			t.Fatal(err)
		}
	}
}
