package consumertest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
)

// lights is another team's code: it switches a lamp per device.
type lights struct {
	mu   sync.Mutex
	last map[string][]devicestate.Position
}

func (l *lights) handle(_ context.Context, deliveries []*consumer.Delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range deliveries {
		l.last[d.Event.Device] = append(l.last[d.Event.Device], d.Position())
	}
	return nil
}

// TestLights is all that the team writes to have its handler tried with whatever the topic may bring.
func TestLights(t *testing.T) {
	t.Parallel()
	consumertest.TestHandler(t, func(*testing.T) consumertest.Handler {
		l := &lights{last: map[string][]devicestate.Position{}}
		return consumertest.Handler{
			Config:  consumer.Config{Store: consumer.NewMemoryStore(), Handler: l.handle},
			Applied: func(_ *testing.T, device string) []devicestate.Position { return l.last[device] },
		}
	})
}
