package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// RedisOptions says how StartRedis runs.
type RedisOptions struct {
	// Dir holds the append-only file and the log; made when missing, kept at Stop. Required.
	Dir string
	// Port on 127.0.0.1; 0 is a free one.
	Port int
	// Databases is how many numbered databases there are; 0 is Redis' own 16.
	Databases int
}

// Redis is a running redis-server with an append-only file synced every second: Kill loses nothing, a power cut a second.
type Redis struct {
	*Process
	port int
	lock *dirLock
}

// StartRedis starts the redis-server of this machine and returns when it answers.
func StartRedis(ctx context.Context, opts RedisOptions) (*Redis, error) {
	path, err := findProgram("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	dir, lock, err := claimDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	proc, port, err := startOnPort(ctx, opts.Port, func(port int) (program, error) {
		return program{
			name: "Redis", path: path,
			args: []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--appendonly", "yes",
				"--appendfsync", "everysec", "--save", "", "--daemonize", "no",
				"--databases", strconv.Itoa(cmp.Or(opts.Databases, 16))},
			logPath: filepath.Join(dir, "redis.log"), stop: syscall.SIGTERM, ready: redisReady(port),
		}, nil
	})
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return &Redis{Process: proc, port: port, lock: lock}, nil
}

// URL is redis://127.0.0.1:port.
func (r *Redis) URL() string { return "redis://" + loopback(r.port) }

// Stop writes the append-only file to disk.
func (r *Redis) Stop(ctx context.Context) error {
	return errors.Join(r.Process.Stop(ctx), r.lock.release())
}

// redisReady asks for PING: Redis accepts connections while it still loads its file, and answers LOADING.
func redisReady(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		client := redis.NewClient(&redis.Options{Addr: loopback(port), MaxRetries: -1})
		defer client.Close()
		return client.Ping(ctx).Err()
	}
}
