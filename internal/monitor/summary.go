package monitor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Counts are the devices of a hub by status. The clock is another question: ClockSuspect counts devices of any status.
type Counts struct {
	Devices         int64 `json:"devices"`
	Fresh           int64 `json:"fresh"`
	Silent          int64 `json:"silent"`
	ConnectedSilent int64 `json:"connected_silent"`
	NeverSeen       int64 `json:"never_seen"`
	Unknown         int64 `json:"unknown"`
	ClockSuspect    int64 `json:"clock_suspect"`
}

// Totals are running totals of a hub since its devices were first seen.
type Totals struct {
	Missed      int64 `json:"missed"` // gaps: device counters that never reached us
	Late        int64 `json:"late"`
	Duplicate   int64 `json:"duplicate"`
	Quarantined int64 `json:"quarantined"`
	Lost        int64 `json:"lost"` // holes that nothing explains: loss inside the pipeline
	Events      int64 `json:"events"`
}

// Hub is what one hub looks like at one instant.
type Hub struct {
	ID             string    `json:"id"`
	Counts         Counts    `json:"counts"`
	Totals         Totals    `json:"totals"`
	LiveAt         time.Time `json:"live_at,omitzero"`          // last live report of any device
	FirstSilentAt  time.Time `json:"first_silent_at,omitzero"`  // since when the longest silent device is silent
	SilentSince    time.Time `json:"silent_since,omitzero"`     // since when so many are silent that the hub is
	ClockSuspectAt time.Time `json:"clock_suspect_at,omitzero"` // since when the first clock is suspect
	Strip          []Cell    `json:"strip"`                     // devices in order of urgency, most overdue first
	Delays         []Delay   `json:"delays"`                    // of the last two minutes
}

// Cell stands for an equal share of a hub's devices, shown by the most urgent of them.
type Cell struct {
	Device string    `json:"device"`
	DueAt  time.Time `json:"due_at,omitzero"`  // when it becomes, or became, silent; absent: never seen
	LiveAt time.Time `json:"live_at,omitzero"` // its last live report
}

// Delay is the percentiles of one stage, in milliseconds.
type Delay struct {
	Stage Stage   `json:"stage"`
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	Count int64   `json:"count"`
}

// Hubs lists the hubs with their last live report, in order of their ids.
func (v *View) Hubs(ctx context.Context) ([]Hub, error) {
	raw, err := v.rdb.ZRangeWithScores(ctx, v.key("hubs"), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list hubs: %w", err)
	}
	hubs := make([]Hub, 0, len(raw))
	for _, z := range raw {
		id, _ := z.Member.(string)
		hubs = append(hubs, Hub{ID: id, LiveAt: fromScore(z.Score)})
	}
	slices.SortFunc(hubs, func(a, b Hub) int { return compareNatural(a.ID, b.ID) })
	return hubs, nil
}

// Question is at which instants, and in how much detail, a hub is looked at.
type Question struct {
	AsOf, Now     time.Time
	Cells         int
	SilentPercent int // so many devices silent make the hub silent
}

// Summarize fills the counts, totals and strip of hubs, in one round trip.
func (v *View) Summarize(ctx context.Context, hubs []Hub, q Question) error {
	pipe := v.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(hubs))
	for i := range hubs {
		cmds[i] = v.sum.Eval(ctx, pipe, []string{v.prefix}, hubs[i].ID, millis(q.AsOf), millis(q.Now), q.Cells, q.SilentPercent)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("summarize %d hubs: %w", len(hubs), err)
	}
	for i := range hubs {
		fields, err := cmds[i].StringSlice()
		if err != nil {
			return fmt.Errorf("summarize hub %s: %w", hubs[i].ID, err)
		}
		hubs[i].read(fields)
	}
	return nil
}

// summaryFields is how many values overview.lua returns before the cells.
const summaryFields = 15

func (h *Hub) read(f []string) {
	if len(f) < summaryFields {
		return
	}
	n := func(i int) int64 { return parseInt(f[i]) }
	h.Counts = Counts{Devices: n(0), NeverSeen: n(1), Silent: n(2), ConnectedSilent: n(3), Unknown: n(4), ClockSuspect: n(7)}
	c := &h.Counts
	c.Fresh = c.Devices - c.NeverSeen - c.Silent - c.ConnectedSilent - c.Unknown
	h.FirstSilentAt, h.SilentSince, h.ClockSuspectAt = fromMillis(f[5]), fromMillis(f[6]), fromMillis(f[8])
	h.Totals = Totals{Missed: n(9), Late: n(10), Duplicate: n(11), Quarantined: n(12), Lost: n(13), Events: n(14)}
	h.Strip = make([]Cell, 0, (len(f)-summaryFields)/3)
	for f := f[summaryFields:]; len(f) >= 3; f = f[3:] {
		h.Strip = append(h.Strip, Cell{Device: f[0], DueAt: fromMillis(f[1]), LiveAt: fromMillis(f[2])})
	}
}

// parseInt reads a count; Redis writes large ones as floats.
func parseInt(text string) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	f, _ := strconv.ParseFloat(text, 64)
	return int64(f)
}

func fromScore(score float64) time.Time {
	if score <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(score)).UTC()
}

// compareNatural orders hub-2 before hub-10.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		na, nb := leadingDigits(a), leadingDigits(b)
		if na > 0 && nb > 0 {
			x, y := parseInt(a[:na]), parseInt(b[:nb])
			if x != y {
				return int(min(max(x-y, -1), 1))
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func leadingDigits(s string) int {
	n := 0
	for n < len(s) && n < 18 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// Percentiles lists the stages of d that have a count for hub; "" merges all hubs.
func (d Delays) Percentiles(hub string) []Delay {
	var list []Delay
	for _, s := range Stages() {
		var h Histogram
		for k, one := range d {
			if k.Stage == s && (hub == "" || k.Hub == hub) {
				h.Merge(one)
			}
		}
		if h.Count() > 0 {
			list = append(list, h.delay(s))
		}
	}
	return list
}

func (h *Histogram) delay(s Stage) Delay {
	at := func(q float64) float64 {
		d, _ := h.Quantile(q)
		return float64(d.Microseconds()) / 1000
	}
	return Delay{Stage: s, P50: at(0.50), P95: at(0.95), P99: at(0.99), Count: h.total}
}
