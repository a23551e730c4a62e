package embedded

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Miniredis is a Redis inside this process, in memory only: what it holds must be a view that can be built again.
// Times to live run with the clock. It has no CONFIG, FUNCTION and CLIENT TRACKING.
type Miniredis struct{ server *miniredis.Miniredis }

// StartMiniredis starts it on 127.0.0.1; port 0 is a free one.
func StartMiniredis(_ context.Context, port int) (*Miniredis, error) {
	port, err := portOr(port)
	if err != nil {
		return nil, err
	}
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(loopback(port)); err != nil {
		return nil, fmt.Errorf("start miniredis: %w", err)
	}
	server.ClockTTL(true) // otherwise nothing ever expires
	return &Miniredis{server: server}, nil
}

// URL is redis://127.0.0.1:port.
func (m *Miniredis) URL() string { return "redis://" + m.server.Addr() }

// Stop ends the server and forgets everything.
func (m *Miniredis) Stop(context.Context) error {
	m.server.Close()
	return nil
}
