package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errNotRunning says that a signal was meant for a process that has ended.
var errNotRunning = errors.New("process is not running")

// stopTimeout is how long Stop waits for an orderly end before it kills, unless its context ends sooner.
const stopTimeout = 15 * time.Second

// program is how a server is started, always the same way: same port, same data.
type program struct {
	name    string
	path    string
	args    []string
	env     []string // added to the parent's
	logPath string
	owner   *owner         // nil: as the caller
	stop    syscall.Signal // asks for an orderly end
	ready   func(ctx context.Context) error
}

// Process is a server running as a child of this process. Its methods may be called from several goroutines, but two
// that change its state (Restart, Stop, Kill) exclude each other by waiting.
type Process struct {
	prog program

	change sync.Mutex // held through Restart, Stop and Kill
	mu     sync.Mutex // guards what follows
	pid    int
	done   chan struct{} // closed when the child has been reaped
	err    error         // how it ended; read after done
}

// startProcess starts p and returns when it answers. On failure nothing is left running and the error carries the end
// of the server's log.
func startProcess(ctx context.Context, p program) (*Process, error) {
	proc := &Process{prog: p}
	if err := proc.start(ctx); err != nil {
		return nil, err
	}
	return proc, nil
}

// PID is the process id of the running child, or of the last one.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Done is closed when the child that runs now has ended, for whatever reason. Restart makes a new one.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// LogPath is the file the server's standard output and error go to.
func (p *Process) LogPath() string { return p.prog.logPath }

// Stop asks for an orderly end and waits for it. When ctx or the time-out of 15 s ends first, the process tree is killed
// and an error returned. Stopping what has ended is not an error.
func (p *Process) Stop(ctx context.Context) error {
	p.change.Lock()
	defer p.change.Unlock()
	return p.stopLocked(ctx)
}

// Kill ends the whole process tree at once with SIGKILL and waits until it is gone, so that Restart finds port and data
// free. What the server had not written to its files is lost; what the operating system holds in its page cache is not.
func (p *Process) Kill() error {
	p.change.Lock()
	defer p.change.Unlock()
	return p.killLocked()
}

// Pause stops the whole process tree (SIGSTOP): connections stay open and nothing answers, as on a machine that hangs.
func (p *Process) Pause() error { return p.signalTree(syscall.SIGSTOP) }

// Resume lets a paused tree go on.
func (p *Process) Resume() error { return p.signalTree(syscall.SIGCONT) }

// Restart starts the server again on the same port and data, stopping it in order first when it still runs.
// It returns when the server answers.
func (p *Process) Restart(ctx context.Context) error {
	p.change.Lock()
	defer p.change.Unlock()
	if err := p.stopLocked(ctx); err != nil {
		return err
	}
	return p.start(ctx)
}

func (p *Process) stopLocked(ctx context.Context) error {
	if p.ended() {
		return nil
	}
	// A paused server cannot act on the signal.
	_ = p.signalTree(syscall.SIGCONT)
	if err := syscall.Kill(p.PID(), p.prog.stop); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s: %w", p.prog.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop %s: no orderly end: %w", p.prog.name, context.Cause(ctx)), p.killLocked())
	}
}

func (p *Process) killLocked() error {
	if p.ended() {
		return nil
	}
	if err := p.signalTree(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.prog.name, err)
	}
	<-p.Done()
	return nil
}

func (p *Process) ended() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// signalTree signals the child and all its descendants. A process group would not do: PostgreSQL's backends each make
// their own session.
func (p *Process) signalTree(sig syscall.Signal) error {
	if p.ended() {
		return errNotRunning
	}
	var errs []error
	pids := tree(p.PID())
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	if sig == syscall.SIGSTOP {
		AwaitStopped(pids...)
	}
	if sig == syscall.SIGKILL {
		waitGone(pids) // a backend that lives on would keep the shared memory, and the next start would refuse
	}
	return errors.Join(errs...)
}

func (p *Process) start(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return fmt.Errorf("start %s: %w", p.prog.name, err)
	}
	if err := p.awaitReady(ctx); err != nil {
		err = fmt.Errorf("start %s: %w%s", p.prog.name, err, logTail(p.prog.logPath))
		return errors.Join(err, p.killLocked())
	}
	return nil
}

// launch starts the child from a thread of its own and keeps that thread until the child has ended: the kernel sends
// the parent-death signal when the *thread* that forked goes away, and Go retires threads as it likes.
func (p *Process) launch() error {
	logFile, err := os.OpenFile(p.prog.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	cmd := exec.Command(p.prog.path, p.prog.args...) //nolint:noctx // it outlives the context it is started under
	cmd.Dir = "/"                                    // a dropped uid may not be able to enter our directory
	cmd.Env = append(os.Environ(), p.prog.env...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = childAttributes(p.prog.owner, p.prog.stop)
	done := make(chan struct{})
	started := make(chan error, 1)
	// Ends with the child; whoever stops or kills the child waits for done.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer logFile.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(done)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.done = cmd.Process.Pid, done
	return nil
}

// awaitReady polls ready until it succeeds, the child ends, or ctx does.
func (p *Process) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.prog.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("it ended before it answered: %w", p.exitError())
		case <-ctx.Done():
			return fmt.Errorf("it does not answer (%w): %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (p *Process) exitError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// logTail is the last lines of a server's log, for an error message.
func logTail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\nlast lines of " + path + ":\n\t" + strings.Join(lines[max(0, len(lines)-8):], "\n\t")
}
