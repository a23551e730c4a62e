package embedded

import (
	"net"
	"os/exec"
	"sync"
	"testing"
)

// A child between fork and exec holds a copy of every socket of its parent: a port tried at that moment stays taken
// after its listener is closed, and the server that was promised it cannot start.
func TestFreePort_IsFreeWhileProcessesStart(t *testing.T) {
	t.Parallel()
	defer startProcesses()()
	for range 2000 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			t.Errorf("a port found free: %v", err)
			break
		}
		_ = listener.Close()
	}
}

// startProcesses starts one after the other on four goroutines until the returned function is called.
func startProcesses() (stop func()) {
	done := make(chan struct{})
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command("/bin/true").Run()
				}
			}
		})
	}
	return func() { close(done); starters.Wait() }
}
