// Package fleet is a great many devices that report through few or many MQTT connections, as fast as a small machine
// allows. It writes each report into the ledger before it sends it, and marks it there when the broker acknowledges.
//
// A connection is a device gateway: it sends the reports of its devices with QoS 1, keeps what is unacknowledged, and
// after a reconnect sends that again, marked DUP, oldest first, before anything newer. So the reports of one device
// reach the broker in the order the device made them, whatever breaks.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

// Load says what a fleet sends.
type Load struct {
	Devices     int           `yaml:"devices" json:"devices"`
	Hubs        int           `yaml:"hubs" json:"hubs"`                           // devices are spread over them; default 4
	Connections int           `yaml:"connections" json:"connections"`             // default 8; as many as devices = one each
	Rate        float64       `yaml:"rate" json:"rate"`                           // reports per second of the whole fleet
	Duration    time.Duration `yaml:"duration" json:"duration"`                   // how long reports are due
	Shape       Shape         `yaml:"shape" json:"shape,omitempty"`               // default steady
	PayloadMin  int           `yaml:"payload_min" json:"payload_min"`             // bytes of padding in a state; default 100
	PayloadMax  int           `yaml:"payload_max" json:"payload_max"`             // default payload_min
	Window      int           `yaml:"window" json:"window,omitempty"`             // unacknowledged publishes per connection; default 1000
	Mix         Mix           `yaml:"mix" json:"mix"`                             // what devices do besides
	Offline     Offline       `yaml:"offline" json:"offline,omitempty"`           // devices that come back with a backlog
	Prefix      string        `yaml:"prefix" json:"prefix,omitempty"`             // in front of hub and device ids; default "d"
	ClosingWait time.Duration `yaml:"closing_wait" json:"closing_wait,omitempty"` // how long the last acknowledgements may take; default 5m
}

// Offline keeps the first Share of the connections from sending between From and To. Their devices go on making reports
// and send them all at once afterwards.
type Offline struct {
	Share float64       `yaml:"share" json:"share,omitempty"`
	From  time.Duration `yaml:"from" json:"from,omitempty"`
	To    time.Duration `yaml:"to" json:"to,omitempty"`
}

// WithDefaults returns l with every zero replaced by its default.
func (l Load) WithDefaults() Load {
	l.Hubs = orDefault(l.Hubs, 4)
	l.Connections = min(orDefault(l.Connections, 8), l.Devices)
	l.Shape = orDefault(l.Shape, Steady)
	l.PayloadMin = orDefault(l.PayloadMin, 100)
	l.PayloadMax = max(l.PayloadMax, l.PayloadMin)
	l.Window = orDefault(l.Window, 1000)
	l.Prefix = orDefault(l.Prefix, "d")
	l.ClosingWait = orDefault(l.ClosingWait, 5*time.Minute)
	return l
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Validate returns all problems joined.
func (l Load) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("load."+format, args...)) }
	if l.Devices < 1 {
		bad("devices: %d must be at least 1", l.Devices)
	}
	if l.Rate <= 0 {
		bad("rate: %g must be positive", l.Rate)
	}
	if l.Duration <= 0 {
		bad("duration: %s must be positive", l.Duration)
	}
	if l.PayloadMax > 65_000 {
		bad("payload_max: %d is above 65000", l.PayloadMax)
	}
	if l.Window > 60_000 {
		bad("window: %d is above 60000", l.Window)
	}
	if s := l.Shape; s != "" && s != Steady && s != Burst && s != Diurnal {
		bad("shape: %q is none of steady, burst, diurnal", s)
	}
	return errors.Join(errs...)
}

// Fleet sends a load. Make one with New, run it once with Run.
type Fleet struct {
	load   Load
	book   *ledger.Ledger
	addr   string
	auth   login
	log    *slog.Logger
	links  []*link
	Sent   atomic.Int64 // reports written at least once
	Acked  atomic.Int64 // reports acknowledged
	Dups   atomic.Int64 // publishes repeated after a reconnect
	Broken atomic.Int64 // connections lost
}

// New prepares the devices of load and their ledger. The broker is mqtt://[user:password@]host:port.
func New(load Load, scenario string, seed uint64, broker string, log *slog.Logger) (*Fleet, error) {
	load = load.WithDefaults()
	if err := load.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(broker)
	if err != nil || u.Scheme != "mqtt" || u.Host == "" {
		return nil, fmt.Errorf("broker: want mqtt://host:port")
	}
	f := &Fleet{load: load, addr: u.Host, log: log}
	f.auth.user = u.User.Username()
	f.auth.password, _ = u.User.Password()
	f.book = ledger.New(scenario, seed, time.Now(), makeStreams(load))
	f.makeLinks(seed)
	return f, nil
}

func makeStreams(load Load) []*ledger.Stream {
	streams := make([]*ledger.Stream, load.Devices)
	expect := int(load.Rate*load.Duration.Seconds()/float64(load.Devices)) + 4
	for i := range streams {
		streams[i] = &ledger.Stream{
			Device:  fmt.Sprintf("%s-%06d", load.Prefix, i),
			Hub:     fmt.Sprintf("hub-%d", i%load.Hubs+1),
			Name:    "state",
			Reports: make([]ledger.Report, 0, expect),
		}
	}
	return streams
}

// makeLinks deals the devices out to the connections.
func (f *Fleet) makeLinks(seed uint64) {
	n := f.load.Connections
	for c := range n {
		rng := rand.New(rand.NewPCG(seed, uint64(c)))
		l := &link{fleet: f, id: fmt.Sprintf("loadtest-%s-%d", f.load.Prefix, c), rng: rng}
		for i := c; i < f.load.Devices; i += n {
			l.devices = append(l.devices, device{stream: i, boot: 1, bootless: rng.Float64() < f.load.Mix.Bootless})
		}
		// A link with few devices never has much on its way; twenty thousand of them must stay small.
		l.window = newWindow(min(f.load.Window, 64*len(l.devices)))
		share := float64(len(l.devices)) / float64(f.load.Devices)
		l.plan = newSchedule(rng, f.load.Shape, f.load.Rate*share, f.load.Duration)
		l.offline = float64(c) < f.load.Offline.Share*float64(n)
		f.links = append(f.links, l)
	}
}

// Ledger is what the fleet writes down.
func (f *Fleet) Ledger() *ledger.Ledger { return f.book }

// Run sends the whole load and returns when every report is acknowledged, or with an error when that does not happen
// within ClosingWait after the last one was due. The ledger's clock starts here.
func (f *Fleet) Run(ctx context.Context) error {
	f.book.Start = time.Now()
	return f.each(ctx, f.load.Duration+f.load.ClosingWait, (*link).run)
}

// Close sends one closing report of each stream, so that what was lost before it becomes visible to the pipeline, and
// returns when all are acknowledged.
func (f *Fleet) Close(ctx context.Context) error {
	return f.each(ctx, f.load.ClosingWait, (*link).runClosing)
}

func (f *Fleet) each(ctx context.Context, limit time.Duration, run func(*link, context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range f.links {
		group.Go(func() error { return run(l, ctx) })
	}
	return group.Wait()
}

// Disconnect cuts all connections at once; they come back at once.
func (f *Fleet) Disconnect() {
	for _, l := range f.links {
		l.cut()
	}
}
