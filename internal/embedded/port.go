package embedded

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Server ports come from below the ephemeral range (Linux: 32768 up): a server that is down for a moment must find its
// port free again, and an outgoing connection of any process may take a port from that range.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePort finds a loopback TCP port that nobody listens on now. Another process may take it before the caller does.
func FreePort() (int, error) {
	var lastErr error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if lastErr = tryPort(port); lastErr == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %w", lastErr)
}

// tryPort listens and stops listening while no child of this process is between fork and exec: such a child holds a copy
// of the socket, and the port would stay taken for the server that is promised it.
func tryPort(port int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

func portOr(port int) (int, error) {
	if port != 0 {
		return port, nil
	}
	return FreePort()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
