package devicestate

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelDevice is a device as it really behaves: it counts, reboots, and buffers nothing. What it sent is kept, so that the
// network between can lose, repeat and delay it.
type modelDevice struct {
	sendsBoot, sendsTime bool

	now     time.Time
	counter int64
	boot    int64
	sent    []sentReport
	fresh   int // reports since the last reboot
}

type sentReport struct {
	Report
	boot int64
}

func (m *modelDevice) send(content string) Report {
	r := Report{Device: "d", Stream: "state", Hub: "h", Counter: Some(m.counter), State: fmt.Appendf(nil, "%q", content)}
	if m.sendsBoot {
		r.Boot = Some(m.boot)
	}
	if m.sendsTime {
		r.Time = m.now
	}
	r.Hash = HashOf(r.State)
	r.EmitHash = r.Hash
	m.sent = append(m.sent, sentReport{r, m.boot})
	m.counter++
	m.fresh++
	return r
}

// reboot starts the counter again. Without boot and time only a long silence tells it from an old copy, so a device that
// sends neither is off for that long.
func (m *modelDevice) reboot(p *StreamPolicy) {
	off := 3 * time.Second
	if !m.sendsBoot && !m.sendsTime {
		off = p.ResetQuiet + time.Second
	}
	m.now = m.now.Add(off)
	m.counter, m.fresh = 0, 0
	m.boot++
}

// copyOf says whether the network may deliver an old copy now: where a device sends neither boot nor time, a copy from
// before a reboot cannot be told, and where it sends time only, for the straggler window.
func (m *modelDevice) copyOf(r sentReport, p *StreamPolicy, bootedAt time.Time) bool {
	switch {
	case r.boot == m.boot, m.sendsBoot:
		return true
	case m.sendsTime && m.fresh > 0:
		return m.now.Sub(bootedAt) <= p.StragglerWindow
	}
	return false
}

// history is what arrives, in order, and what must come of it.
type history struct {
	device   *modelDevice
	arrivals []Report
	newest   Report
	reboots  int
	foreign  int // copies from before the last reboot
	bootedAt time.Time
}

func drawHistory(t *rapid.T, p *StreamPolicy) *history {
	h := &history{device: &modelDevice{
		sendsBoot: rapid.Bool().Draw(t, "sends boot"), sendsTime: rapid.Bool().Draw(t, "sends time"), now: t0, counter: rapid.Int64Range(0, 1000).Draw(t, "start"),
	}}
	h.deliver(h.device.send("start"))
	for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
		h.device.now = h.device.now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
		switch rapid.SampledFrom([]string{"report", "report", "report", "lose", "copy", "copy", "reboot"}).Draw(t, "step") {
		case "report":
			h.deliver(h.device.send(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "content"))))
		case "lose":
			if h.device.fresh < 50 || i%2 == 0 { // after a reboot fewer than reset_window are lost in a row
				h.device.send("lost")
			}
		case "copy":
			old := rapid.SampledFrom(h.device.sent).Draw(t, "copy of")
			if h.arrived(old.Report) && h.device.copyOf(old, p, h.bootedAt) {
				h.arrive(old.Report)
				if old.boot != h.device.boot {
					h.foreign++
				}
			}
		case "reboot":
			if h.newest.Counter.V == 0 && !h.device.sendsBoot && !h.device.sendsTime {
				continue // 0 again: no rule can tell it from a conflict (row 12)
			}
			h.device.reboot(p)
			h.reboots++
			h.deliver(h.device.send("booted"))
			h.bootedAt = h.device.now
		}
	}
	return h
}

func (h *history) arrived(r Report) bool {
	for _, a := range h.arrivals {
		if a.Counter == r.Counter && a.Boot == r.Boot && a.Time.Equal(r.Time) && a.Hash == r.Hash {
			return true
		}
	}
	return false
}

// deliver is a new report's arrival: from then on it is the truth.
func (h *history) deliver(r Report) {
	h.arrive(r)
	h.newest = r
}

func (h *history) arrive(r Report) {
	r.ReceivedAt = h.device.now
	h.arrivals = append(h.arrivals, r)
}

// Whatever the network repeats, delays and loses: the stream ends in the device's state, every arrival has one class (N4),
// the sequence is dense (D2), however the arrivals are cut into batches.
func TestFold_AnyHistoryEndsInTheModelsState_D1_D2_N4(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := StreamPolicy{Emit: rapid.SampledFrom([]Emit{EmitEvery, EmitChanged, EmitNone}).Draw(t, "emit")}.WithDefaults()
		h := drawHistory(t, &p)
		var prev *State
		classes := map[Class]int{}
		events := int64(0)
		for rest := h.arrivals; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			ds := Fold(prev, rest[:n], rest[n-1].ReceivedAt, &p)
			for i := range ds {
				classes[ds[i].Class]++
				if ds[i].Emit {
					events++
				}
				if ds[i].State.Sequence != events {
					t.Fatalf("sequence %d after %d events", ds[i].State.Sequence, events)
				}
			}
			prev = &ds[len(ds)-1].State
			rest = rest[n:]
		}
		h.check(t, prev, classes)
	})
}

func (h *history) check(t *rapid.T, s *State, classes map[Class]int) {
	t.Helper()
	if string(s.Content) != string(h.newest.State) || s.Counter != h.newest.Counter {
		t.Fatalf("ends at %v %s, the device is at %v %s", s.Counter, s.Content, h.newest.Counter, h.newest.State)
	}
	total := classes[Applied] + classes[Duplicate] + classes[Late] + classes[Quarantined]
	if total != len(h.arrivals) {
		t.Fatalf("classes %v for %d arrivals", classes, len(h.arrivals))
	}
	if int64(classes[Late]) != s.Late || int64(classes[Duplicate]) != s.Duplicate || int64(classes[Quarantined]) != s.Quarantined {
		t.Fatalf("totals %d late %d duplicate %d quarantined, classes %v", s.Late, s.Duplicate, s.Quarantined, classes)
	}
	if classes[Quarantined] > h.foreign { // row 12: a copy from before a reboot may have the counter of today
		t.Fatalf("%d quarantined, %d copies from before a reboot", classes[Quarantined], h.foreign)
	}
	if h.reboots == 0 {
		first := h.arrivals[0].Counter.V
		if want := h.newest.Counter.V - first + 1 - int64(classes[Applied]); s.Missed != want {
			t.Fatalf("missed %d, want %d", s.Missed, want)
		}
	}
}
