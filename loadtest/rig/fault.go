package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Fault is one line of a timetable: what is done, to whom, when, and for how long.
type Fault struct {
	At    time.Duration `yaml:"at" json:"at"`                 // after the fleet's start
	Do    string        `yaml:"do" json:"do"`                 // kill, stop, hang or restart
	On    []string      `yaml:"on" json:"on"`                 // components; relay/2 is one member, relay all
	For   time.Duration `yaml:"for" json:"for"`               // how long it stays down or hangs; default 500ms
	Every time.Duration `yaml:"every" json:"every,omitempty"` // again and again until Until
	Until time.Duration `yaml:"until" json:"until,omitempty"` // the last repetition begins before it; default: the end of the load
}

// The things that can be done to a component.
const (
	DoKill    = "kill"    // SIGKILL; started again after For
	DoStop    = "stop"    // SIGTERM and its orderly end; started again after For
	DoHang    = "hang"    // SIGSTOP of all its processes, SIGCONT after For
	DoRestart = "restart" // SIGTERM, and started again at once
)

// Actions lists what can be done.
func Actions() []string { return []string{DoKill, DoStop, DoHang, DoRestart} }

// Validate returns all problems joined.
func (f Fault) Validate() error {
	var errs []error
	if !slices.Contains(Actions(), f.Do) {
		errs = append(errs, fmt.Errorf("fault at %s: do: %q is none of %s", f.At, f.Do, strings.Join(Actions(), ", ")))
	}
	if len(f.On) == 0 {
		errs = append(errs, fmt.Errorf("fault at %s: on: names no component", f.At))
	}
	if f.At < 0 || f.For < 0 || f.Every < 0 {
		errs = append(errs, fmt.Errorf("fault at %s: times must not be negative", f.At))
	}
	return errors.Join(errs...)
}

// Hurts reports whether f makes the MQTT broker forget what it had acknowledged.
func (f Fault) Hurts() bool {
	return f.Do == DoKill && slices.ContainsFunc(f.On, func(name string) bool { return strings.HasPrefix(name, Mosquitto) })
}

// Mark is a fault as it happened.
type Mark struct {
	Do     string        `json:"do"`
	On     []string      `json:"on"`
	From   time.Duration `json:"from"`   // after the fleet's start
	Healed time.Duration `json:"healed"` // when everything was up again
}

// Timetable carries out faults.
type Timetable struct {
	in    *Installation
	start time.Time

	mu    sync.Mutex
	marks []Mark
}

// NewTimetable counts from start.
func NewTimetable(in *Installation, start time.Time) *Timetable {
	return &Timetable{in: in, start: start}
}

// Marks are the faults so far, in order of their beginning.
func (t *Timetable) Marks() []Mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.marks)
}

// Run carries out all faults and returns when the last is healed. When ctx ends it heals what is broken and returns.
func (t *Timetable) Run(ctx context.Context, faults []Fault, until time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range faults {
		group.Go(func() error { return t.repeat(ctx, f, until) })
	}
	return group.Wait()
}

func (t *Timetable) repeat(ctx context.Context, f Fault, until time.Duration) error {
	if f.Until > 0 {
		until = f.Until
	}
	for at := f.At; ; at += f.Every {
		if at > 0 && at >= until && f.Every > 0 || !sleepUntil(ctx, t.start.Add(at)) {
			return nil
		}
		if err := t.once(ctx, f); err != nil {
			return err
		}
		if f.Every <= 0 {
			return nil
		}
	}
}

// once breaks all of f's components, waits and mends them, also when ctx ends meanwhile.
func (t *Timetable) once(ctx context.Context, f Fault) error {
	var members []Component
	for _, name := range f.On {
		found, err := t.in.Members(name)
		if err != nil {
			return err
		}
		members = append(members, found...)
	}
	mark := Mark{Do: f.Do, On: f.On, From: time.Since(t.start)}
	mend := context.WithoutCancel(ctx)
	err := each(members, func(c Component) error { return breakIt(mend, f.Do, c) })
	if f.Do != DoRestart {
		sleepUntil(ctx, t.start.Add(mark.From+f.For))
	}
	err = errors.Join(err, each(members, func(c Component) error { return mendIt(mend, f.Do, c) }))
	if err != nil {
		return fmt.Errorf("%s %s: %w", f.Do, strings.Join(f.On, ","), err)
	}
	mark.Healed = time.Since(t.start)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marks = append(t.marks, mark)
	return nil
}

func each(members []Component, do func(Component) error) error {
	var group errgroup.Group
	for _, c := range members {
		group.Go(func() error { return do(c) })
	}
	return group.Wait()
}

func breakIt(ctx context.Context, do string, c Component) error {
	switch do {
	case DoKill:
		return c.Kill()
	case DoHang:
		return c.Pause()
	}
	return c.Terminate(ctx)
}

func mendIt(ctx context.Context, do string, c Component) error {
	if do == DoHang {
		return c.Resume()
	}
	return c.Start(ctx)
}

// sleepUntil reports false when ctx ends first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
