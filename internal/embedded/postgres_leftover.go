package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopLeftover stops a server that still runs on the cluster although nobody holds the directory's lock: its parent was
// killed where there is no parent-death signal, or is still on its way out.
func stopLeftover(cluster string) error {
	pid, ok := leftoverPID(cluster)
	if !ok {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the server left on %s (process %d): %w", cluster, pid, err)
	}
	for deadline := time.Now().Add(stopTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !alive(pid) {
			return nil
		}
	}
	return fmt.Errorf("the server left on %s (process %d) does not stop", cluster, pid)
}

// leftoverPID reads postmaster.pid and believes it only when that process really serves this cluster: process ids are
// used again.
func leftoverPID(cluster string) (int, bool) {
	text, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || pid <= 1 {
		return 0, false
	}
	command, err := os.ReadFile("/proc/" + line + "/cmdline")
	if err != nil {
		return 0, false
	}
	return pid, strings.Contains(string(command), cluster)
}
