package monitor

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/hubstate/hubstate/internal/testenv"
)

// The view is a position store like any other and passes the same suite.
func TestView_KeepsThePromisesOfAConsumerStore_C1(t *testing.T) {
	t.Parallel()
	consumertest.TestStore(t, func(t *testing.T) consumertest.Store {
		opts, err := redis.ParseURL(testenv.Redis(t))
		if err != nil {
			t.Fatal(err)
		}
		rdb := redis.NewClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		e, _ := NewExpectations(nil)
		topic := uuid.NewString()
		open := func() consumer.Store { return NewView(rdb, topic, e) }
		return consumertest.Store{
			Open: open,
			Position: func(t *testing.T, device string) devicestate.Position {
				v := NewView(rdb, topic, e)
				text, err := rdb.HGet(t.Context(), v.key("d:", device), "p:state").Result()
				if err != nil && !errors.Is(err, redis.Nil) {
					t.Fatal(err)
				}
				if len(text) < positionSize {
					return devicestate.Position{}
				}
				return parsePosition(text[:positionSize])
			},
			Forget: func(t *testing.T) {
				if err := rdb.FlushDB(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
