package embedded

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			lastErr = err
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", lastErr)
}

func portOr(port int) (int, error) {
	if port != 0 {
		return port, nil
	}
	return FreePort()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
