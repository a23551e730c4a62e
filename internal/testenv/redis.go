package testenv

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
)

// redisDatabases is how many databases a Redis of ours has: one per call of Redis.
const redisDatabases = 4096

// Redis returns the URL of a real Redis, with a numbered database of this test's own. Only a server given by
// HUBSTATE_TEST_REDIS_URL is returned as it is, so its tests must also use keys of their own.
func Redis(t testing.TB) string {
	t.Helper()
	server, err := theRedis()
	if err != nil {
		missing(t, fmt.Errorf("Redis for tests: %w", err))
	}
	return server.database()
}

// redisServer is the one server of this test binary.
type redisServer struct {
	url   string
	given bool
	last  atomic.Int64
}

func (s *redisServer) database() string {
	if s.given {
		return s.url
	}
	return s.url + "/" + strconv.FormatInt(s.last.Add(1)%redisDatabases, 10)
}

var theRedis = sync.OnceValues(func() (*redisServer, error) {
	if url := os.Getenv("HUBSTATE_TEST_REDIS_URL"); url != "" {
		took("Redis", "HUBSTATE_TEST_REDIS_URL")
		return &redisServer{url: url, given: true}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if dockerAnswers() {
		url, err := dockerRedis(ctx)
		return &redisServer{url: url}, err
	}
	dir, err := theEnvironment().subdir("redis")
	if err != nil {
		return nil, err
	}
	server, err := embedded.StartRedis(ctx, embedded.RedisOptions{Dir: dir, Databases: redisDatabases})
	if err != nil {
		return nil, err
	}
	theEnvironment().onStop(server.Stop)
	took("Redis", "redis-server of this machine")
	return &redisServer{url: server.URL()}, nil
})
