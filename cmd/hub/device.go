package main

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

// trait is what a simulated device does wrong. Most do nothing wrong.
type trait int

const (
	steady     trait = iota
	rebooting        // starts again now and then: its counter begins at 1, its boot grows
	roaming          // loses its connection, goes on reporting into its own memory, and sends it late
	lying            // its clock is hours ahead, or has never been set
	stuttering       // sends reports twice, old ones again, and loses some
	mumbling         // now and then sends what is no report
	dozing           // stays connected and says nothing for a while
)

// traitOf gives the traits out in turn: half of a fleet is steady.
func traitOf(i int) trait {
	return []trait{steady, rebooting, steady, roaming, steady, lying, steady, stuttering, steady, mumbling, steady, dozing}[i%12]
}

// device is a simulated vehicle: what it knows and what it would send. It does no I/O and takes the time as an argument.
type device struct {
	hub, id string
	trait   trait
	rng     *rand.Rand

	boot, counter int64
	skew          time.Duration
	battery       float64
	charging      bool
	x, y          float64
	sent          int    // reports made
	last          []byte // the report before
	older         []byte // and the one before that
}

// newDevice makes the i-th device; boot must be higher than in any earlier life of it.
func newDevice(i int, hub, id string, boot int64) *device {
	d := &device{hub: hub, id: id, trait: traitOf(i / hubs), rng: rand.New(rand.NewPCG(uint64(boot), uint64(i))), boot: boot}
	d.battery, d.x, d.y = 40+60*d.rng.Float64(), 100*d.rng.Float64(), 60*d.rng.Float64()
	if d.trait == lying {
		d.skew = 3 * time.Hour
		if i/hubs%24 >= 12 {
			d.skew = -20 * 365 * 24 * time.Hour // 2006: plausible, and wrong
		}
	}
	return d
}

// action is what a device does in one turn: what it publishes, or that it goes away.
type action struct {
	payloads [][]byte
	offline  time.Duration // lose the connection for this long, without a word
	quiet    time.Duration // stay connected and say nothing
}

// turn makes one step at now.
func (d *device) turn(now time.Time) action {
	switch {
	case d.trait == roaming && d.chance(30):
		return action{offline: d.between(10*time.Second, 25*time.Second)}
	case d.trait == dozing && d.chance(25):
		return action{quiet: d.between(12*time.Second, 20*time.Second)}
	case d.trait == mumbling && d.chance(20):
		return action{payloads: [][]byte{[]byte(`{"seq": 1, "state": {`)}}
	case d.trait == rebooting && d.chance(30):
		d.boot, d.counter = d.boot+1, 0
	case d.trait == stuttering && d.chance(10):
		d.counter += 1 + d.rng.Int64N(3) // some never arrive: a gap
	}
	payloads := [][]byte{d.report(now)}
	if d.trait == stuttering && d.chance(4) {
		payloads = append(payloads, payloads[0])
		if d.older != nil {
			payloads = append(payloads, d.older)
		}
	}
	return action{payloads: payloads}
}

// chance is true once in n turns.
func (d *device) chance(n int) bool { return d.rng.IntN(n) == 0 }

func (d *device) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.rng.Int64N(int64(most-least)))
}

// report moves the device and says where it is.
func (d *device) report(now time.Time) []byte {
	d.move()
	d.counter++
	d.sent++
	payload, err := json.Marshal(map[string]any{
		"seq": d.counter, "boot": d.boot, "ts": now.Add(d.skew).UTC().Format(time.RFC3339Nano),
		"state": map[string]any{
			"battery": round(d.battery), "charging": d.charging, "activity": d.activity(),
			"position": map[string]any{"x": round(d.x), "y": round(d.y)},
		},
	})
	if err != nil { // numbers, strings and booleans only
		return nil
	}
	d.older, d.last = d.last, payload
	return payload
}

func (d *device) move() {
	if d.charging = d.battery < 15 || d.charging && d.battery < 95; d.charging {
		d.battery = min(100, d.battery+1.5)
		return
	}
	d.battery -= 0.1 + 0.2*d.rng.Float64()
	d.x = min(100, max(0, d.x+2*d.rng.NormFloat64()))
	d.y = min(60, max(0, d.y+2*d.rng.NormFloat64()))
}

func (d *device) activity() string {
	if d.charging {
		return "charging"
	}
	return []string{"driving", "driving", "loading", "waiting"}[d.rng.IntN(4)]
}

func round(v float64) float64 { return float64(int(v*10)) / 10 }
