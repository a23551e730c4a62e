package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
)

// daemon is one of the product's binaries as a child process: always the same command, admin address and log file.
type daemon struct {
	name  string
	path  string
	args  []string
	env   []string
	log   string // path of its log, appended to at each start
	admin string // host:port

	mu     sync.Mutex
	pid    int
	done   chan struct{}
	wanted bool // it should be running: an end of its own is repaired, as any supervisor would
	exits  int  // how often it ended although it was wanted
}

// termination is how long a daemon may take to stop in order.
const termination = 20 * time.Second

// Start implements Component: it returns when /readyz answers 200.
func (d *daemon) Start(ctx context.Context) error {
	if d.want(true); d.ended() {
		if err := d.launch(); err != nil {
			return fmt.Errorf("start %s: %w", d.name, err)
		}
	}
	if err := d.awaitReady(ctx); err != nil {
		return fmt.Errorf("start %s: %w; see %s%s", d.name, err, d.log, tail(d.log))
	}
	return nil
}

// launch starts the child from a thread of its own that lives as long as the child: the kernel sends the parent-death
// signal when the forking thread goes, and Go retires threads as it likes.
func (d *daemon) launch() error {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// Its end is stop's and kill's, as the timetable says, not a context's.
	cmd := exec.CommandContext(context.Background(), d.path, d.args...)
	cmd.Env = append(os.Environ(), d.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done, started := make(chan struct{}), make(chan error, 1)
	// Ends when the child does; Kill and Terminate wait for done.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
			d.supervise()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pid, d.done = cmd.Process.Pid, done
	return nil
}

// supervise starts a daemon again that ended although it was wanted, a second later, and counts it.
func (d *daemon) supervise() {
	d.mu.Lock()
	wanted := d.wanted
	if wanted {
		d.exits++
	}
	d.mu.Unlock()
	if !wanted {
		return
	}
	time.AfterFunc(time.Second, func() {
		d.mu.Lock()
		wanted := d.wanted
		d.mu.Unlock()
		if wanted && d.ended() {
			_ = d.launch() // it is not there: everything that waits for it says so
		}
	})
}

// want says whether the daemon should be running.
func (d *daemon) want(running bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = running
}

// awaitReady polls /readyz.
func (d *daemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx, d.admin)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		case <-tick.C:
		}
	}
}

func ready(ctx context.Context, admin string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz answers %s", resp.Status)
	}
	return nil
}

// Kill implements Component.
func (d *daemon) Kill() error {
	d.want(false)
	if err := d.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if done := d.ending(); done != nil {
		<-done
	}
	return nil
}

// Terminate implements Component.
func (d *daemon) Terminate(ctx context.Context) error {
	d.want(false)
	if err := d.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(termination)
	defer timer.Stop()
	if d.ended() {
		return nil
	}
	select {
	case <-d.ending():
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	return errors.Join(fmt.Errorf("%s did not stop within %s of SIGTERM", d.name, termination), d.Kill())
}

// Pause implements Component.
func (d *daemon) Pause() error {
	if err := d.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	embedded.AwaitStopped(d.PID())
	return nil
}

// Resume implements Component.
func (d *daemon) Resume() error { return d.signal(syscall.SIGCONT) }

// PID implements Component.
func (d *daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pid
}

func (d *daemon) signal(sig syscall.Signal) error {
	if d.ended() {
		return nil
	}
	if err := syscall.Kill(-d.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", d.name, err)
	}
	return nil
}

// ending is closed when the running child has ended; nil before the first start.
func (d *daemon) ending() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

func (d *daemon) ended() bool {
	done := d.ending()
	if done == nil {
		return true
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// tail is the end of a log, for an error message.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\n\t" + strings.Join(lines[max(0, len(lines)-8):], "\n\t")
}

// findBinary looks for a product binary beside this one and in dir.
func findBinary(dir, name string) (string, error) {
	places := []string{dir}
	if own, err := os.Executable(); err == nil && dir == "" {
		places = []string{filepath.Dir(own), "bin"}
	}
	for _, place := range places {
		path, err := filepath.Abs(filepath.Join(place, name))
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %q is not in %s: run `make build`, or say where it is with --bin", name, strings.Join(places, " or "))
}
