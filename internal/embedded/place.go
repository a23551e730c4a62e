package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// CheckReal tells everything that StartMosquitto, StartRedis and StartKafka would miss on this machine, joined.
func CheckReal() error {
	_, mosquitto := findProgram("mosquitto", "mosquitto")
	_, redis := findProgram("redis-server", "redis-server")
	_, kafka := findKafka()
	return errors.Join(mosquitto, redis, kafka)
}

// CacheDir is where downloaded servers are kept, each under its version: HUBSTATE_CACHE_DIR, else for root a place
// other users can read (PostgreSQL runs as one), else the user's cache.
func CacheDir() (string, error) {
	if dir := os.Getenv("HUBSTATE_CACHE_DIR"); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 {
		return "/var/cache/hubstate", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(dir, "hubstate"), nil
}

// dirLock keeps two servers out of one data directory. The kernel releases it when its holder dies.
type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("data directory %s is in use by another process: %w", dir, err)
	}
	return &dirLock{file: file}, nil
}

// release unlocks before it closes: a child that another goroutine is just starting holds a copy of the file between fork
// and exec, and the lock would last as long as that copy.
func (l *dirLock) release() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}
