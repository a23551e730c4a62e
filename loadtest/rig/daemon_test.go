package rig

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
)

// TestMain lets the test binary play a daemon: ready at once, deaf to SIGTERM when told so.
func TestMain(m *testing.M) {
	if addr := os.Getenv("RIG_TEST_ADMIN"); addr != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up_total 1") })
		_ = http.ListenAndServe(addr, mux)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{name: "test/1", path: os.Args[0], log: filepath.Join(t.TempDir(), "log"), admin: fmt.Sprintf("127.0.0.1:%d", port)}
	d.env = []string{"RIG_TEST_ADMIN=" + d.admin}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Kill() })
	return d
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestDaemon_KilledStaysDownUntilItIsStarted(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	first := d.PID()
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if !d.ended() || ready(t.Context(), d.admin) == nil {
		t.Fatal("it lives on")
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.PID() == first || d.exits != 0 {
		t.Errorf("pid %d as before, or %d exits counted", first, d.exits)
	}
	if err := d.Terminate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestDaemon_IsStartedAgainWhenItEndsByItself: as under any supervisor; and the report must say so.
func TestDaemon_IsStartedAgainWhenItEndsByItself(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	in := &Installation{}
	in.add("test", d)
	if err := syscall.Kill(d.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "not counted", func() bool { return in.Exits()["test/1"] == 1 })
	until(t, "not started again", func() bool { return ready(t.Context(), d.admin) == nil })
}

func TestDaemon_HangsWhilePaused(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	if err := d.Pause(); err != nil {
		t.Fatal(err)
	}
	if ready(t.Context(), d.admin) == nil {
		t.Error("it answers although it is stopped")
	}
	if err := d.Resume(); err != nil {
		t.Fatal(err)
	}
	until(t, "it does not go on", func() bool { return ready(t.Context(), d.admin) == nil })
}

func TestInstallation_SumsMetricsOfRunningMembers(t *testing.T) {
	t.Parallel()
	in := &Installation{}
	a, b := startDaemon(t), startDaemon(t)
	in.add("test", a)
	in.add("test", b)
	if got := in.Metrics(t.Context(), "test")["up_total"]; got != 2 {
		t.Errorf("sum %g, want 2", got)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := in.Metrics(t.Context(), "test")["up_total"]; got != 1 {
		t.Errorf("sum %g, want 1", got)
	}
}

func TestSampler_AddsUpOverRestarts(t *testing.T) {
	t.Parallel()
	s := NewSampler()
	self := map[string]int{"test/1": os.Getpid()}
	first := s.Sample(self)["test"]
	for deadline := time.Now().Add(60 * time.Millisecond); time.Now().Before(deadline); {
		_ = fmt.Sprint(deadline)
	}
	second := s.Sample(self)["test"]
	if second.CPU <= first.CPU || second.RSS < 1<<20 {
		t.Errorf("used %v, then %v", first, second)
	}
	if gone := s.Sample(map[string]int{"test/1": 1 << 30})["test"]; gone.CPU != second.CPU {
		t.Errorf("a process that is gone takes its CPU with it: %v, had %v", gone.CPU, second.CPU)
	}
}

func TestParseStat_CountsFromTheLastBracket(t *testing.T) {
	t.Parallel()
	p, ok := parseStat("42 (a) b) S 7 0 0 0 0 0 0 0 0 0 150 50 0 0")
	if !ok || p.parent != 7 || p.cpu != 2*time.Second {
		t.Errorf("read %+v, %v", p, ok)
	}
	if _, ok := parseStat("42 cut off"); ok {
		t.Error("accepted nonsense")
	}
}
