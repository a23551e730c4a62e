package rig

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a component that writes down what is done to it.
type fake struct {
	mu   sync.Mutex
	did  []string
	fail error
}

func (f *fake) note(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.did = append(f.did, what)
	return f.fail
}
func (f *fake) Kill() error                     { return f.note("kill") }
func (f *fake) Terminate(context.Context) error { return f.note("terminate") }
func (f *fake) Start(context.Context) error     { return f.note("start") }
func (f *fake) Pause() error                    { return f.note("pause") }
func (f *fake) Resume() error                   { return f.note("resume") }
func (f *fake) PID() int                        { return 0 }

func TestTimetable_BreaksAndMendsOnTime(t *testing.T) {
	t.Parallel()
	for do, want := range map[string]string{
		DoKill: "kill start", DoStop: "terminate start", DoHang: "pause resume", DoRestart: "terminate start",
	} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &fake{}
				in := &Installation{}
				in.add(Relay, c)
				table := NewTimetable(in, time.Now())
				if err := table.Run(t.Context(), []Fault{{At: 2 * time.Second, Do: do, On: []string{Relay}, For: 3 * time.Second}}, time.Minute); err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(c.did, " "); got != want {
					t.Errorf("did %q, want %q", got, want)
				}
				healed := 5 * time.Second
				if do == DoRestart {
					healed = 2 * time.Second
				}
				if m := table.Marks(); len(m) != 1 || m[0].From != 2*time.Second || m[0].Healed != healed {
					t.Errorf("marks %+v, want healed at %s", m, healed)
				}
			})
		})
	}
}

func TestTimetable_RepeatsUntilTheLoadEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{}, &fake{}
		in := &Installation{}
		in.add(Ingest, a)
		in.add(Relay, b)
		table := NewTimetable(in, time.Now())
		fault := Fault{At: 3 * time.Second, Every: 3 * time.Second, Do: DoKill, On: []string{Ingest, Relay}, For: time.Second}
		if err := table.Run(t.Context(), []Fault{fault}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if n := len(table.Marks()); n != 3 || len(a.did) != 6 || len(b.did) != 6 {
			t.Errorf("%d faults, %d and %d deeds; want 3 at 3, 6 and 9 s", n, len(a.did), len(b.did))
		}
	})
}

func TestTimetable_MendsWhatIsBrokenWhenItIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &fake{}
		in := &Installation{}
		in.add(Kafka, c)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		table := NewTimetable(in, time.Now())
		if err := table.Run(ctx, []Fault{{At: time.Second, Do: DoHang, On: []string{Kafka}, For: time.Hour}}, time.Hour); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.did, []string{"pause", "resume"}) {
			t.Errorf("did %v", c.did)
		}
	})
}

func TestTimetable_SaysWhatItCouldNotBreak(t *testing.T) {
	t.Parallel()
	in := &Installation{}
	in.add(Redis, &fake{fail: errors.New("stuck")})
	table := NewTimetable(in, time.Now())
	err := table.Run(t.Context(), []Fault{{Do: DoKill, On: []string{Redis}}}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "kill redis: stuck") {
		t.Errorf("error %v", err)
	}
	err = table.Run(t.Context(), []Fault{{Do: DoKill, On: []string{"toaster"}}}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "toaster") {
		t.Errorf("error %v", err)
	}
}

func TestFault_ValidateNamesAllProblems(t *testing.T) {
	t.Parallel()
	err := Fault{At: -1, Do: "tickle"}.Validate()
	for _, want := range []string{"tickle", "on:", "negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %q", err, want)
		}
	}
	if err := (Fault{Do: DoKill, On: []string{Relay}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestFault_OnlyAKilledBrokerForgets(t *testing.T) {
	t.Parallel()
	for _, f := range []Fault{{Do: DoHang, On: []string{Mosquitto}}, {Do: DoStop, On: []string{Mosquitto}}, {Do: DoKill, On: []string{Kafka}}} {
		if f.Hurts() {
			t.Errorf("%s %v hurts the broker", f.Do, f.On)
		}
	}
	if !(Fault{Do: DoKill, On: []string{Redis, Mosquitto}}).Hurts() {
		t.Error("killing Mosquitto does not hurt it")
	}
}
