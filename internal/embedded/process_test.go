package embedded

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startShell runs a shell script as a Process that is ready when it has written its children's process ids.
func startShell(t *testing.T, script string) (*Process, []int) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "children")
	p, err := startProcess(t.Context(), program{
		name: "shell", path: "/bin/sh", args: []string{"-c", script, "sh", path},
		logPath: filepath.Join(dir, "log"), stop: syscall.SIGTERM,
		ready: func(context.Context) error { _, err := os.Stat(path); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, pid)
	}
	return p, children
}

func TestProcess_KillTakesChildrenInSessionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	p, children := startShell(t, `setsid sleep 60 & a=$!; sleep 60 & echo $a $! > "$1.new"; mv "$1.new" "$1"; wait`)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(children, p.PID()) {
		if alive(pid) {
			t.Errorf("process %d lives on", pid)
		}
	}
}

func TestProcess_PauseAndResumeReachTheWholeTree(t *testing.T) {
	t.Parallel()
	p, children := startShell(t, `setsid sleep 60 & echo $! > "$1.new"; mv "$1.new" "$1"; wait`)
	for _, step := range []struct {
		do   func() error
		want string
	}{{p.Pause, "T"}, {p.Resume, "S"}} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range append(children, p.PID()) {
			awaitState(t, pid, step.want)
		}
	}
}

func awaitState(t *testing.T, pid int, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err == nil && strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')')+2:]), want) {
			return
		}
	}
	t.Fatalf("process %d is not in state %s", pid, want)
}

func TestProcess_StopKillsWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	p, _ := startShell(t, `trap '' TERM; echo $$ > "$1.new"; mv "$1.new" "$1"; while :; do sleep 1; done`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err == nil {
		t.Error("an end by force is no orderly stop")
	}
	if alive(p.PID()) {
		t.Error("it lives on")
	}
}

func TestProcess_AStartThatFailsShowsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	_, err := startProcess(t.Context(), program{
		name: "server", path: "/bin/sh", args: []string{"-c", "echo no such luck; exit 3"},
		logPath: filepath.Join(t.TempDir(), "log"), stop: syscall.SIGTERM,
		ready: func(context.Context) error { return os.ErrNotExist },
	})
	if err == nil || !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the error does not say why: %v", err)
	}
}
