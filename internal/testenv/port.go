package testenv

import (
	"net"
	"strconv"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
)

// FreeAddr is a loopback address for a daemon under test. It lies below the ephemeral range: a port from a closed
// listener of that range may be taken by any outgoing connection before the daemon listens, and then another process
// answers the test's questions.
func FreeAddr(t testing.TB) string {
	t.Helper()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
