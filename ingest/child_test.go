package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/prometheus/client_golang/prometheus"
)

// childVariable makes this test binary an ingester of its own, which tests kill and stop.
const childVariable = "HUBSTATE_TEST_INGEST_CHILD"

// childConfig is what a child is told.
type childConfig struct {
	DatabaseURL string
	Config      Config
	StopAt      *step // the process stops itself (SIGSTOP) the first time a batch gets there
}

func runChild() {
	if err := child(os.Getenv(childVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

func child(text string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := ops.OpenPool(ctx, c.DatabaseURL, Role, "child "+c.Config.Instance, SessionSettings(), 4)
	if err != nil {
		return err
	}
	defer pool.Close()
	out := io.Discard
	if os.Getenv("HUBSTATE_TEST_LOG") != "" {
		out = os.Stderr
	}
	s, err := New(c.Config, pool, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(out, nil)).With("child", c.Config.Instance))
	if err != nil {
		return err
	}
	var once sync.Once
	s.reached = func(at step) {
		if c.StopAt != nil && at == *c.StopAt {
			once.Do(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) })
		}
	}
	s.OnReady(func(err error) {
		if err == nil {
			fmt.Println("ready")
		}
	})
	return s.Run(ctx)
}

// process is a running child.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ready chan struct{}
}

func startChild(t *testing.T, c childConfig) *process {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0]), ready: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go func() { // ends with the child's output
		line := make([]byte, 64)
		if n, _ := out.Read(line); strings.HasPrefix(string(line[:n]), "ready") {
			close(p.ready)
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	return p
}

func (p *process) waitReady() {
	p.t.Helper()
	select {
	case <-p.ready:
	case <-time.After(30 * time.Second):
		p.t.Fatal("the child did not get ready")
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// waitStopped waits until the process stands still.
func (p *process) waitStopped() {
	p.t.Helper()
	eventually(p.t, 30*time.Second, func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("process state %.1s", rest)
		}
		return nil
	})
}
