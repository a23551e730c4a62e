package partitions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a model of the database: it applies plans to itself as the maintainer would, and writes down what was done.
type world struct {
	t            *testing.T
	state        State
	now          time.Time
	spec         Spec
	archiveFails bool
	undrained    map[string]string
	log          strings.Builder
}

func newWorld(t *testing.T, start string, spec Spec) *world {
	return &world{t: t, now: at(t, start), spec: spec, undrained: map[string]string{}}
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func (w *world) note(format string, args ...any) { fmt.Fprintf(&w.log, "# "+format+"\n", args...) }

// tick is one turn of the maintainer at the current time: plans until a plan has nothing but waits.
func (w *world) tick() {
	w.t.Helper()
	fmt.Fprintf(&w.log, "at %s\n", w.now.Format("2006-01-02 15:04 MST"))
	for round := 1; w.round(); round++ {
		if round == maxRounds {
			w.t.Fatalf("at %s: no end after %d rounds:\n%s", stamp(w.now), round, w.log.String())
		}
	}
	w.state.SteadySince = w.state.Steady(w.now, w.spec)
	w.state.TickedAt = w.now
	w.check()
}

func (w *world) round() (progress bool) {
	w.see()
	actions := Plan(w.state, w.now, w.spec)
	for _, a := range actions {
		if a.Kind != Wait {
			progress = true
		}
	}
	for _, a := range actions {
		if a.Kind != Wait || !progress {
			fmt.Fprintf(&w.log, "  %s\n", a)
		}
		w.apply(a)
	}
	return progress
}

// run ticks every step for as long as until.
func (w *world) run(until, step time.Duration) {
	w.t.Helper()
	for end := w.now.Add(until); w.now.Before(end); w.now = w.now.Add(step) {
		w.tick()
	}
}

func (w *world) see() {
	for i := range w.state.Partitions {
		w.state.Partitions[i].Undrained = w.undrained[w.state.Partitions[i].Name]
	}
}

func (w *world) apply(a Action) {
	w.t.Helper()
	part := w.find(a.Partition)
	switch a.Kind {
	case Create:
		w.state.Partitions = append(w.state.Partitions, Partition{Name: a.Partition, From: a.From, To: a.To, Phase: Ahead, Place: Alone})
	case Attach:
		part.Place = Attached
		if part.Phase == Ahead {
			part.Phase = Live
		}
	case Seal, Shelve:
		w.state.Floor = later(w.state.Floor, part.To)
		part.Place = History
		if part.Phase != Archived {
			part.Phase = Sealed
		}
	case Archive:
		w.archive(part)
	case Discard, Drop, Forget:
		w.state.Partitions = slices.DeleteFunc(w.state.Partitions, func(p Partition) bool { return p.Name == a.Partition })
	case Adopt:
		part.Phase = Live
	case Finalize:
		part.Place = Alone
	case Expire:
		w.state.ExpiredAt = w.now
	}
}

func (w *world) archive(part *Partition) {
	if !w.archiveFails {
		part.Phase, part.Attempts, part.LastError, part.NextAttemptAt = Archived, 0, "", time.Time{}
		return
	}
	part.Attempts++
	part.LastError = "no space left on device"
	part.NextAttemptAt = w.now.Add(pause(part.Attempts))
}

func (w *world) find(name string) *Partition {
	i := slices.IndexFunc(w.state.Partitions, func(p Partition) bool { return p.Name == name })
	if i < 0 {
		return &Partition{}
	}
	return &w.state.Partitions[i]
}

// check holds what is true of every state that a turn leaves behind.
func (w *world) check() {
	w.t.Helper()
	at := later(w.now, w.state.Floor)
	all := w.state.Partitions
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.span().overlaps(b.span()) {
				w.t.Errorf("at %s: %s %s overlaps %s %s", stamp(w.now), a.Name, a.span(), b.Name, b.span())
			}
		}
		if a.Place != Attached && a.Phase != Ahead && a.To.After(w.state.Floor) {
			w.t.Errorf("at %s: %s is %s but reaches above the floor", stamp(w.now), a.Name, a.Phase)
		}
	}
	for range attachAhead + 1 {
		i := slices.IndexFunc(all, func(p Partition) bool { return p.Place == Attached && p.span().covers(at) })
		if i < 0 {
			w.t.Fatalf("at %s: a row created at %s has no partition", stamp(w.now), stamp(at))
		}
		at = all[i].To
	}
}
