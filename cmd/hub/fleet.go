package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"golang.org/x/sync/errgroup"
)

const (
	hubs        = 3
	ackTimeout  = 10 * time.Second
	reconnectIn = time.Second
)

// fleet is the simulated devices, each with an MQTT connection of its own.
type fleet struct {
	broker  string
	every   time.Duration
	devices []*device

	online, acknowledged atomic.Int64
}

func newFleet(broker string, count int, every time.Duration, now time.Time) *fleet {
	f := &fleet{broker: broker, every: every}
	for i := range count {
		hub := fmt.Sprintf("hub-%d", i%hubs+1)
		id := fmt.Sprintf("agv-%03d", i+1)
		// The boot counter of a device that starts now is higher than any it had in an earlier run of ours.
		f.devices = append(f.devices, newDevice(i, hub, id, now.Unix()))
	}
	return f
}

func (h *hub) startFleet(ctx context.Context) error {
	h.fleet = newFleet(h.servers.mqtt.url, h.cfg.Devices, h.cfg.Every, time.Now())
	h.launch(ctx, "fleet", h.fleet.run)
	return nil
}

// run lets all devices live until ctx ends; they then say goodbye.
func (f *fleet) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, d := range f.devices {
		// Spread over one interval, or all report in the same millisecond.
		delay := f.every * time.Duration(i) / time.Duration(len(f.devices))
		group.Go(func() error {
			pause(ctx, delay)
			f.live(ctx, d)
			return nil
		})
	}
	<-ctx.Done()
	return group.Wait()
}

// live connects a device again and again. What it could not send waits in its memory.
func (f *fleet) live(ctx context.Context, d *device) {
	var memory [][]byte
	for ctx.Err() == nil {
		link, err := f.connect(d)
		if err != nil {
			pause(ctx, reconnectIn)
			continue
		}
		f.online.Add(1)
		away := f.session(ctx, d, link, &memory)
		f.online.Add(-1)
		link.close(ctx.Err() != nil)
		for begin := time.Now(); time.Since(begin) < away && ctx.Err() == nil; pause(ctx, f.every) {
			memory = append(memory, d.report(time.Now()))
		}
	}
}

// session publishes until the device loses its connection, for how long it returns.
func (f *fleet) session(ctx context.Context, d *device, link *link, memory *[][]byte) (away time.Duration) {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	if link.publish(d.topic("connection"), []byte(`{"state":{"online":true}}`)) != nil {
		return 0
	}
	for ctx.Err() == nil {
		for len(*memory) > 0 {
			if link.publish(d.topic("state"), (*memory)[0]) != nil {
				return 0
			}
			f.acknowledged.Add(1)
			*memory = (*memory)[1:]
		}
		act := d.turn(time.Now())
		if act.offline > 0 {
			return act.offline
		}
		*memory = append(*memory, act.payloads...)
		pause(ctx, act.quiet)
		if len(act.payloads) == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return 0
}

func (d *device) topic(stream string) string {
	return "hubs/" + d.hub + "/devices/" + d.id + "/" + stream
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// link is a device's connection, which can be cut as a radio link is cut.
type link struct {
	client mqtt.Client
	device *device
	mu     sync.Mutex
	conn   net.Conn
}

func (f *fleet) connect(d *device) (*link, error) {
	l := &link{device: d}
	opts := mqtt.NewClientOptions().AddBroker(f.broker).SetClientID(d.id).SetCleanSession(true).SetAutoReconnect(false).
		SetKeepAlive(20*time.Second).SetConnectTimeout(5*time.Second).SetWriteTimeout(ackTimeout).
		SetWill(d.topic("connection"), `{"state":{"online":false}}`, 1, false).
		SetCustomOpenConnectionFn(l.open)
	l.client = mqtt.NewClient(opts)
	return l, await(l.client.Connect())
}

func (l *link) open(u *url.URL, opts mqtt.ClientOptions) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", u.Host, opts.ConnectTimeout) //nolint:noctx // bounded by its time-out
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return conn, err
}

// publish returns when the broker has acknowledged.
func (l *link) publish(topic string, payload []byte) error {
	return await(l.client.Publish(topic, 1, false, payload))
}

func await(token mqtt.Token) error {
	if !token.WaitTimeout(ackTimeout) {
		return errors.New("no answer from the broker")
	}
	return token.Error()
}

// close says goodbye in order, or cuts the connection, so that the broker sends the will.
func (l *link) close(orderly bool) {
	if orderly {
		_ = l.publish(l.device.topic("connection"), []byte(`{"state":{"online":false}}`)) // best effort: we are leaving
		l.client.Disconnect(100)
		return
	}
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	l.client.Disconnect(0)
}
