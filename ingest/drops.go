package ingest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

// droppedTopic is where Mosquitto, and brokers that follow it, count the messages they threw away.
const droppedTopic = "$SYS/broker/publish/messages/dropped"

// drops watches the broker's own drop counter over a small connection of its own. A broker that drops is a loss before
// us: it becomes a possible_gap, a metric and an error in the log. The counter is the whole broker's, so it says that
// something was lost, not what; one lane per broker watches it.
type drops struct {
	session *session
	readAt  time.Time
}

// run reads the counter until ctx ends. The reading is kept in the lane's row, so that drops while no ingester was there
// are seen by the next one.
func (d *drops) run(ctx context.Context) error {
	readings := make(chan int64, 16)
	client, err := d.connect(ctx, readings)
	if err != nil {
		d.session.log.Warn("broker's drop counter not watched", "error", err)
		return nil
	}
	defer client.Disconnect(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-readings:
			if err := d.read(ctx, n); err != nil && ctx.Err() == nil {
				if errors.Is(err, errLaneLost) {
					return nil // the writer finds out too, and ends the session
				}
				d.session.log.Warn("broker's drop counter not recorded", "error", err)
			}
		}
	}
}

// connect subscribes with a clean session and lets the library reconnect: a reading that is missed is made up by the next.
func (d *drops) connect(ctx context.Context, readings chan<- int64) (mqtt.Client, error) {
	cfg := d.session.cfg
	opts, err := cfg.clientOptions(cfg.ClientID + "-sys")
	if err != nil {
		return nil, err
	}
	opts.SetCleanSession(true).SetAutoReconnect(true).SetConnectRetry(true).SetConnectRetryInterval(reconnectMax).SetMaxReconnectInterval(reconnectMax)
	opts.SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) { return cfg.dial(ctx) })
	opts.SetOnConnectHandler(func(c mqtt.Client) {
		c.Subscribe(droppedTopic, 0, func(_ mqtt.Client, m mqtt.Message) {
			if n, err := strconv.ParseInt(string(m.Payload()), 10, 64); err == nil {
				select {
				case readings <- n:
				default:
				}
			}
		})
	})
	client := mqtt.NewClient(opts)
	client.Connect()
	return client, nil
}

// read compares a reading with the last one. A smaller one means that the broker started anew: then it counts from zero.
func (d *drops) read(ctx context.Context, n int64) error {
	l := d.session.lane
	before, known, err := l.brokerDropped(ctx)
	if err != nil {
		return err
	}
	from := d.readAt
	if from.IsZero() {
		from = l.committedAt
	}
	d.readAt = time.Now()
	if known && n < before {
		before = 0
	}
	if !known || n == before {
		return l.setBrokerDropped(ctx, n, nil)
	}
	gap := possibleGap{cause: gapBrokerDropped, from: from, to: d.readAt, detail: fmt.Sprintf("%d messages", n-before)}
	if err := l.setBrokerDropped(ctx, n, &gap); err != nil {
		return err
	}
	m := d.session.service.metrics
	m.brokerDropped.Add(float64(n - before))
	m.possibleGaps.WithLabelValues(gapBrokerDropped).Inc()
	d.session.log.Error("the broker dropped messages; raise its queue limits", "dropped", n-before)
	return nil
}
