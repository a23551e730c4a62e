package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is one run of a peer.
type process interface {
	PID() int
	Kill() error
	Terminate(ctx context.Context) error
}

// child is a program that is no part of the installation.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// termination is how long a child may take to commit what it has done.
const termination = 30 * time.Second

// startChild starts a program in a process group of its own; it appends to the log.
func startChild(log, path string, args ...string) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own
	// Its end is Kill's and Terminate's: a context would kill it before it has committed its offsets.
	c := &child{cmd: exec.CommandContext(context.Background(), path, args...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	// Ends with the child; Kill and Terminate wait for it.
	go func() { _ = c.cmd.Wait(); close(c.done) }() // how it ended after a signal says nothing
	return c, nil
}

// PID is the process id.
func (c *child) PID() int { return c.cmd.Process.Pid }

// Kill ends it with SIGKILL.
func (c *child) Kill() error {
	err := c.signal(syscall.SIGKILL)
	<-c.done
	return err
}

// Terminate asks it to end, and kills it when it does not.
func (c *child) Terminate(ctx context.Context) error {
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(termination)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	return c.Kill()
}

func (c *child) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-c.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", c.cmd.Path, err)
	}
	return nil
}
