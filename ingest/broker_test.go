package ingest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/faultnet"
	"github.com/hubstate/hubstate/internal/testenv"
)

// startBroker starts a Mosquitto of this test's own, with the shipped settings changed as told.
func startBroker(t *testing.T, settings ...string) *embedded.Mosquitto {
	t.Helper()
	testenv.MQTT(t) // skips, or fails in CI, where there is no Mosquitto
	text, err := os.ReadFile("../deploy/mosquitto/hubstate.conf")
	if err != nil {
		t.Fatal(err)
	}
	settings = append(settings, "sys_interval 1")
	var lines []string
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, " ")
		keep := true
		for _, s := range settings {
			k, _, _ := strings.Cut(s, " ")
			keep = keep && k != key
		}
		if keep {
			lines = append(lines, line)
		}
	}
	config := filepath.Join(t.TempDir(), "changed.conf")
	if err := os.WriteFile(config, []byte(strings.Join(lines, "")+strings.Join(settings, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := embedded.StartMosquitto(t.Context(), embedded.MosquittoOptions{Dir: t.TempDir(), ConfigFile: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop(context.WithoutCancel(t.Context())) })
	return m
}

// ledger publishes for a fleet and remembers what the broker acknowledged.
type ledger struct {
	t      *testing.T
	client mqtt.Client
	hub    string
	sent   []int // per device: the last acknowledged counter
}

func newLedger(t *testing.T, broker, hub string, devices int) *ledger {
	return &ledger{t: t, client: device(t, broker, hub+"-fleet"), hub: hub, sent: make([]int, devices)}
}

// publish sends n more reports per device; each is acknowledged by the broker when it returns.
func (l *ledger) publish(qos byte, n int) {
	l.t.Helper()
	for d := range l.sent {
		publishAll(l.t, l.client, fmt.Sprintf("hubs/%s/devices/d%d/state", l.hub, d), qos, seqs(l.sent[d]+1, l.sent[d]+n)...)
		l.sent[d] += n
	}
}

func (l *ledger) total() int64 {
	var n int64
	for _, s := range l.sent {
		n += int64(s)
	}
	return n
}

// settles waits until every device's closing report is in, and then until what is recorded as missing is exactly what was
// acknowledged by the broker and not received.
func (r *rig) settles(l *ledger) (missing int64) {
	r.t.Helper()
	for d, last := range l.sent {
		r.count(1, `SELECT count(*) FROM device_state WHERE device_id = $1 AND counter = $2`, fmt.Sprintf("d%d", d), last)
	}
	const recorded = `SELECT coalesce(sum(upper(x) - lower(x)), 0)::bigint FROM stream_gap, unnest(missing) AS x`
	received := scalar(r.t, r.admin, `SELECT (SELECT count(DISTINCT (aggregate_id, convert_from(payload, 'UTF8')::jsonb->'counter')) FROM outbox)
		+ (SELECT coalesce(sum(arrived_late), 0)::bigint FROM stream_gap)`) // copies do not count
	r.count(l.total()-received, recorded)
	return l.total() - received
}

// drained waits until nothing has come in for a while: a closing report must not find a full queue.
func (r *rig) drained() {
	r.t.Helper()
	last, since := int64(-1), time.Now()
	eventually(r.t, waitLong, func() error {
		if now := scalar(r.t, r.admin, `SELECT batch FROM ingest_lane`); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 500*time.Millisecond {
			return fmt.Errorf("still at work")
		}
		return nil
	})
}

func TestBroker_OrderlyRestartLosesNothing_N1(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	r := startRig(t, testenv.Postgres(t), broker.URL())
	r.waitReady()
	l := newLedger(t, broker.URL(), name(t), 10)
	l.publish(1, 20)
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitLong, func() error {
		if !l.client.IsConnectionOpen() {
			return fmt.Errorf("the fleet is not connected")
		}
		return nil
	})
	l.publish(1, 20)
	if missing := r.settles(l); missing != 0 {
		t.Errorf("%d missing", missing)
	}
	r.count(0, `SELECT count(*) FROM possible_gap`)
}

// A broker that is killed forgets what it had acknowledged since its last snapshot. The devices' counters show how much,
// exactly, and the lost session is recorded with its window.
func TestBroker_KilledBrokersLossIsRecordedExactly(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	url := testenv.Postgres(t)
	first := startRig(t, url, broker.URL())
	first.waitReady()
	l := newLedger(t, broker.URL(), name(t), 10)
	l.publish(1, 20)
	first.settles(l)
	first.stop()
	l.publish(1, 30) // queued for the lane, in the broker's memory only
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := startRig(t, url, broker.URL())
	second.waitReady()
	l.client.Disconnect(0)
	l.client = device(t, broker.URL(), name(t)+"-fleet2")
	l.publish(1, 1) // the closing report
	if missing := second.settles(l); missing != 300 {
		t.Errorf("%d missing, want the 300 that only the killed broker had", missing)
	}
	second.count(1, `SELECT count(*) FROM possible_gap WHERE cause = 'session_lost' AND from_at < to_at`)
}

func TestBroker_ExpiredSessionsLossIsRecordedExactly(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	first := startRig(t, url, broker)
	first.waitReady()
	l := newLedger(t, broker, name(t), 5)
	l.publish(1, 10)
	first.settles(l)
	first.stop()
	forgetSession(t, broker, name(t))
	l.publish(1, 15) // for nobody
	second := startRig(t, url, broker)
	second.waitReady()
	l.publish(1, 1)
	if missing := second.settles(l); missing != 75 {
		t.Errorf("%d missing, want 75", missing)
	}
	second.count(1, `SELECT count(*) FROM possible_gap WHERE cause = 'session_lost'`)
}

// A queue that overflows: the gaps are exact, and the broker's own drop counter agrees.
func TestBroker_OverflowIsRecordedExactlyAndTheBrokerAgrees(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, "max_queued_messages 100", "max_inflight_messages 20")
	url := testenv.Postgres(t)
	first := startRig(t, url, broker.URL())
	first.waitReady()
	l := newLedger(t, broker.URL(), name(t), 10)
	l.publish(1, 5)
	first.settles(l)
	first.count(1, `SELECT count(*) FROM ingest_lane WHERE broker_dropped IS NOT NULL`)
	dropped := scalar(t, first.admin, `SELECT broker_dropped FROM ingest_lane`)
	first.stop()
	l.publish(1, 40)
	second := startRig(t, url, broker.URL())
	second.waitReady()
	second.drained()
	l.publish(1, 1)
	missing := second.settles(l)
	if missing < 100 {
		t.Errorf("%d missing: the queue did not overflow", missing)
	}
	second.count(dropped+missing, `SELECT broker_dropped FROM ingest_lane`)
	second.count(missing, `SELECT sum(split_part(detail, ' ', 1)::bigint)::bigint FROM possible_gap WHERE cause = 'broker_dropped'`)
}

// QoS 0: what was read before an orderly stop is stored, and what comes while nobody is there is queued by the broker.
func TestBroker_QoS0IsKeptThroughAnOrderlyStop(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	first := startRig(t, url, broker)
	first.waitReady()
	l := newLedger(t, broker, name(t), 5)
	l.publish(0, 100)
	first.stop()
	l.publish(0, 100)
	second := startRig(t, url, broker)
	second.waitReady()
	l.publish(0, 1)
	if missing := second.settles(l); missing != 0 {
		t.Errorf("%d missing", missing)
	}
	second.count(0, `SELECT count(*) FROM possible_gap`)
}

// QoS 0 on a connection that breaks may be lost on the way: the window is recorded.
func TestBroker_QoS0OnABrokenConnectionIsAPossibleGap(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	proxy, through := proxied(t, broker)
	r := startRig(t, testenv.Postgres(t), through)
	r.waitReady()
	l := newLedger(t, broker, name(t), 2)
	l.publish(0, 10)
	r.count(20, `SELECT applied FROM ingest_lane`)
	proxy.Mute(faultnet.Down)
	l.publish(0, 10) // swallowed between broker and ingester
	time.Sleep(100 * time.Millisecond)
	proxy.Reset()
	proxy.Heal()
	r.count(1, `SELECT count(*) FROM possible_gap WHERE cause = 'qos0_connection_lost' AND from_at < to_at`)
	r.waitReady()
	l.publish(0, 1)
	if missing := r.settles(l); missing != 20 {
		t.Errorf("%d missing, want 20", missing)
	}
}
