package ingest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// rig is a running service between a real broker and a real database.
type rig struct {
	t       testing.TB
	admin   *pgxpool.Pool
	service *Service
	stop    func() // stops the service in order and waits
}

// name is unique to a test and fits a lane, a client id and a topic level.
func name(t testing.TB) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name()))[:min(len(t.Name()), 40)] + fmt.Sprint(os.Getpid())
}

func startRig(t testing.TB, url, broker string, change ...func(*Config)) *rig {
	t.Helper()
	cfg := Config{Instance: "test", MQTTURL: broker, Sessions: []SessionConfig{{Lane: name(t), Filters: []string{"hubs/" + name(t) + "/devices/+/+"}}}}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg, openPool(t, url), prometheus.NewRegistry(), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, admin: openAdmin(t, url), service: s}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }() // stop waits for it
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("service: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

func (r *rig) waitReady() {
	r.t.Helper()
	eventually(r.t, 20*time.Second, func() error { return r.service.Ready() })
}

// eventually polls until check is nil or the time is up.
func eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", limit, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *rig) count(want int64, sql string, args ...any) {
	r.t.Helper()
	eventually(r.t, 20*time.Second, func() error {
		var n int64
		if err := r.admin.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("%s: %d, want %d", sql, n, want)
		}
		return nil
	})
}

// device is a publisher, connected until the test ends.
func device(t testing.TB, broker, id string) mqtt.Client {
	t.Helper()
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker(strings.Replace(broker, "mqtt://", "tcp://", 1)).SetClientID(id).SetAutoReconnect(true).SetConnectTimeout(5 * time.Second))
	token := c.Connect()
	if !token.WaitTimeout(10*time.Second) || token.Error() != nil {
		t.Fatalf("publisher: %v", token.Error())
	}
	t.Cleanup(func() { c.Disconnect(50) })
	return c
}

func publishAll(t testing.TB, c mqtt.Client, topic string, qos byte, payloads ...string) {
	t.Helper()
	var tokens []mqtt.Token
	for _, p := range payloads {
		tokens = append(tokens, c.Publish(topic, qos, false, p))
	}
	for _, token := range tokens {
		if !token.WaitTimeout(20*time.Second) || token.Error() != nil {
			t.Fatalf("publish: %v", token.Error())
		}
	}
}

const (
	waitLong  = 20 * time.Second
	testCheck = 100 * time.Millisecond
)

// stays checks for half a second that nothing changes.
func stays(t testing.TB, check func() error) {
	t.Helper()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
}

func scalar(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// large are reports of 8 KB.
func large(from, to int) []string {
	var list []string
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprintf(`{"seq":%d,"state":{"n":%d,"x":%q}}`, i, i, strings.Repeat("x", 8000)))
	}
	return list
}

func seqs(from, to int) []string {
	var list []string
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprintf(`{"seq":%d,"state":{"n":%d}}`, i, i))
	}
	return list
}

func TestSession_ReportsTravelFromTheBrokerIntoTheDatabase_N1(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	r := startRig(t, testenv.Postgres(t), broker)
	r.waitReady()
	c := device(t, broker, name(t)+"-device")
	for d := range 5 {
		publishAll(t, c, fmt.Sprintf("hubs/%s/devices/d%d/state", name(t), d), 1, seqs(1, 40)...)
	}
	r.count(200, `SELECT applied FROM ingest_lane`)
	r.count(200, `SELECT count(*) FROM outbox`)
	r.count(5, `SELECT count(*) FROM device_state WHERE counter = 40 AND sequence = 40 AND missed = 0`)
}

func TestSession_WhatWasPublishedWhileStoppedArrivesAfterwards_N1(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	first := startRig(t, url, broker)
	first.waitReady()
	c := device(t, broker, name(t)+"-device")
	topic := "hubs/" + name(t) + "/devices/d/state"
	publishAll(t, c, topic, 1, seqs(1, 10)...)
	first.count(10, `SELECT applied FROM ingest_lane`)
	first.stop()
	publishAll(t, c, topic, 1, seqs(11, 2500)...)
	second := startRig(t, url, broker)
	second.count(2500, `SELECT applied FROM ingest_lane`)
	second.count(0, `SELECT count(*) FROM stream_gap`)
	second.count(0, `SELECT count(*) FROM possible_gap`)
}

// The recording of the two vehicles, published as it was recorded, ends in the outcome written beside it.
func TestSession_RecordingOfTwoVehiclesEndsAsWritten(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	r := startRig(t, testenv.Postgres(t), broker, func(c *Config) {
		c.Profiles = []string{"vda5050"}
		c.Sessions[0].Filters = []string{"uagv/v2/HubWorks/+/+"}
		c.Sessions[0].Hub = "hall"
	})
	r.waitReady()
	c := device(t, broker, name(t)+"-device")
	replayFile(t, c, "../devicestate/testdata/vda5050-two-vehicles.ndjson")
	r.count(1, `SELECT ignored FROM ingest_lane`)
	r.count(111, `SELECT applied FROM ingest_lane`)
	r.count(0, `SELECT duplicate + late + coalesced + discarded + quarantined FROM ingest_lane`)
	r.count(0, `SELECT count(*) FROM stream_gap`)
	for _, w := range []struct {
		device, stream           string
		events, reboots, counter int64
	}{
		{"HubWorks/A-001", "state", 31, 1, -1}, {"HubWorks/A-002", "state", 26, 0, 25},
		{"HubWorks/A-001", "connection", 4, 0, -1}, {"HubWorks/A-002", "connection", 2, 0, 2},
	} {
		r.count(w.events, `SELECT count(*) FROM outbox WHERE aggregate_id = $1 AND stream = $2`, w.device, w.stream)
		r.count(w.reboots, `SELECT count(*) FROM outbox WHERE aggregate_id = $1 AND stream = $2 AND convert_from(payload, 'UTF8')::jsonb->'marks' ? 'reboot'`, w.device, w.stream)
		r.count(w.events, `SELECT sequence FROM device_state WHERE device_id = $1 AND stream = $2`, w.device, w.stream)
		if w.counter >= 0 {
			r.count(w.counter, `SELECT counter FROM device_state WHERE device_id = $1 AND stream = $2`, w.device, w.stream)
		}
	}
	r.count(2, `SELECT count(*) FROM device_state WHERE stream = 'connection' AND convert_from(state, 'UTF8')::jsonb->>'connectionState' = 'OFFLINE'`)
}

// The second recording, of version 3: a wrapped counter, a gap that is half filled, a reboot, a retained copy.
func TestSession_RecordingOfVersion3EndsAsWritten(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	r := startRig(t, testenv.Postgres(t), broker, func(c *Config) {
		c.Profiles = []string{"vda5050"}
		c.Sessions[0].Filters = []string{"uagv/v3/Acme/+/+"}
	})
	r.waitReady()
	replayFile(t, device(t, broker, name(t)+"-device"), "../devicestate/testdata/vda5050-v3-two-robots.ndjson")
	r.count(3, `SELECT ignored FROM ingest_lane`)
	r.count(61, `SELECT applied FROM ingest_lane`)
	r.count(1, `SELECT late FROM ingest_lane`)
	r.count(2, `SELECT duplicate FROM ingest_lane`)
	r.count(1, `SELECT count(*) FROM stream_gap WHERE device_id = 'Acme/R-10' AND from_counter = 7 AND to_counter = 8 AND arrived_late = 1 AND missing = '{[8,9)}' AND closed_at IS NULL`)
	r.count(24, `SELECT sequence FROM device_state WHERE device_id = 'Acme/R-10' AND stream = 'state' AND counter = 19`)
	r.count(1, `SELECT count(*) FROM outbox WHERE convert_from(payload, 'UTF8')::jsonb->'marks' ? 'wrap'`)
	r.count(2, `SELECT count(*) FROM outbox WHERE convert_from(payload, 'UTF8')::jsonb->'marks' ? 'reboot'`)
}

func replayFile(t testing.TB, c mqtt.Client, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var line struct {
			Topic   string
			QoS     byte
			Payload json.RawMessage
		}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		publishAll(t, c, line.Topic, line.QoS, string(line.Payload))
	}
}
