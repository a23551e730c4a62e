package fleet

import (
	"math/rand/v2"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

// Mix is how often a device does something else than sending its next report. Each is a probability per report.
type Mix struct {
	Reboot    float64 `yaml:"reboot" json:"reboot,omitempty"`       // the counter starts again; with a higher boot when the device sends one
	Resend    float64 `yaml:"resend" json:"resend,omitempty"`       // the last report again, byte for byte
	Straggler float64 `yaml:"straggler" json:"straggler,omitempty"` // an older report of the same boot again
	Conflict  float64 `yaml:"conflict" json:"conflict,omitempty"`   // counter and time of the last report, other content
	Poison    float64 `yaml:"poison" json:"poison,omitempty"`       // bytes that cannot be read
	Jump      float64 `yaml:"jump" json:"jump,omitempty"`           // counters left out: a gap
	Bootless  float64 `yaml:"bootless" json:"bootless,omitempty"`   // share of devices that send no boot
}

// device is what one stream's sender remembers.
type device struct {
	stream   int
	bootless bool
	counter  int64
	boot     int32
	last     uint32 // number of the last report that moved the state
	lastDue  int64
	bootHead uint32 // number of the first report of this boot
}

// step makes the device's next report, due at due.
func (d *device) step(rng *rand.Rand, mix Mix, s *ledger.Stream, due int64, size uint16) uint32 {
	kind := d.choose(rng, mix)
	r := ledger.Report{Due: due, Size: size, Kind: kind, Boot: d.bootOrNone()}
	switch kind {
	case ledger.Next, ledger.Reboot:
		return d.move(rng, mix, s, r)
	case ledger.Resend:
		r.Of = d.last
	case ledger.Straggler:
		r.Of = d.straggler(rng, s)
	case ledger.Conflict:
		r.Counter, r.Due = d.counter, d.lastDue
	}
	return s.Append(r)
}

func (d *device) bootOrNone() int32 {
	if d.bootless {
		return 0
	}
	return d.boot
}

func (d *device) move(rng *rand.Rand, mix Mix, s *ledger.Stream, r ledger.Report) uint32 {
	d.counter++
	if r.Kind == ledger.Reboot {
		d.boot++
		d.counter = 1
	}
	if d.last > 0 && r.Kind == ledger.Next && rng.Float64() < mix.Jump {
		d.counter += 1 + rng.Int64N(20)
	}
	r.Counter, r.Boot = d.counter, d.bootOrNone()
	number := s.Append(r)
	if r.Kind == ledger.Reboot || d.last == 0 {
		d.bootHead = number
	}
	d.last, d.lastDue = number, r.Due
	return number
}

// choose draws a kind. A device starts with two ordinary reports of each boot, so that there is something to repeat.
func (d *device) choose(rng *rand.Rand, mix Mix) ledger.Kind {
	if d.last == 0 || d.counter < 2 {
		return ledger.Next
	}
	at := rng.Float64()
	for _, k := range [...]struct {
		kind ledger.Kind
		p    float64
	}{{ledger.Reboot, mix.Reboot}, {ledger.Resend, mix.Resend}, {ledger.Straggler, mix.Straggler}, {ledger.Conflict, mix.Conflict}, {ledger.Poison, mix.Poison}} {
		if at -= k.p; at < 0 {
			return k.kind
		}
	}
	return ledger.Next
}

// straggler picks an older report of this boot that moved the state, near the last one.
func (d *device) straggler(rng *rand.Rand, s *ledger.Stream) uint32 {
	for range 8 {
		back := d.last - 1 - uint32(rng.IntN(int(min(d.last-d.bootHead, 16))))
		if r, ok := s.Report(back); ok && r.Kind.Moves() {
			return back
		}
	}
	return d.bootHead
}
