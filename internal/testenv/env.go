package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds the start of one server, the download of a container image included.
const startTimeout = 2 * time.Minute

// cleanupTimeout bounds what is done at the end of a test or of the binary.
const cleanupTimeout = 30 * time.Second

// environment is what one test binary has started. It is made by the first caller and ended by Main.
type environment struct {
	mu    sync.Mutex
	dir   string
	lock  *os.File
	stops []func(context.Context) error
}

// Main runs the tests of a package and then stops what they started. Without it the servers end with the test binary
// (parent-death signal) and their directories are removed by the next run.
func Main(m *testing.M) {
	code := m.Run()
	if err := theEnvironment().close(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// theEnvironment is one per test binary: Main and the tests have no other way to meet.
var theEnvironment = sync.OnceValue(func() *environment { return &environment{} })

// onStop registers what close does, last first.
func (e *environment) onStop(stop func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stops = append(e.stops, stop)
}

func (e *environment) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for i := len(e.stops) - 1; i >= 0; i-- {
		errs = append(errs, e.stops[i](ctx))
	}
	if e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir), e.lock.Close())
	}
	return errors.Join(errs...)
}

// subdir makes a directory for one server below a directory of this test binary. The latter is locked while the binary
// lives, so that a later run can tell what a killed one left behind and remove it.
func (e *environment) subdir(name string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dir == "" {
		removeAbandoned(os.TempDir())
		dir, err := os.MkdirTemp("", "hubstate-test-")
		if err != nil {
			return "", err
		}
		// PostgreSQL runs as another user when we are root and must be able to pass.
		if err := os.Chmod(dir, 0o711); err != nil {
			return "", err
		}
		if e.lock, err = lockFile(filepath.Join(dir, "lock")); err != nil {
			return "", err
		}
		e.dir = dir
	}
	dir := filepath.Join(e.dir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

func removeAbandoned(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, "hubstate-test-*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue // perhaps just being made, its lock not yet taken
		}
		if lock, err := lockFile(filepath.Join(dir, "lock")); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}

func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// took prints once what a test binary runs on.
func took(what, where string) { fmt.Fprintf(os.Stderr, "testenv: %s: %s\n", what, where) }

// missing ends the test: failed in CI, skipped elsewhere.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}
