package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/monitor"
	"github.com/hubstate/hubstate/internal/testenv"
)

const (
	loadDevices = 100_000
	loadRate    = 15_000 // events a second
	loadTick    = 50 * time.Millisecond
)

// TestLoad_MonitorAtFullRate measures the monitor's own process, with a page open, at 15,000 events/s of 100,000 devices:
// HUBSTATE_MONITOR_LOAD=60s go test ./cmd/monitor/ -run Load -v. Goals: below 256 MiB and below one core.
func TestLoad_MonitorAtFullRate(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("HUBSTATE_MONITOR_LOAD"))
	if err != nil {
		t.Skip("HUBSTATE_MONITOR_LOAD is not set")
	}
	topic := "device-state-load"
	kafka := testenv.FakeKafka(t, kfake.SeedTopics(16, topic))
	m := startMonitor(t, kafka.ListenAddrs()[0], topic)
	producer, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(20*time.Millisecond), kgo.MaxBufferedRecords(200_000))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	go m.watch(t) // ends with the test

	sequence := make([]int64, loadDevices)
	at := 0
	publish := func(n int) {
		now := time.Now()
		for range n {
			sequence[at]++
			producer.Produce(t.Context(), loadRecord(at, sequence[at], now), nil)
			at = (at + 1) % loadDevices
		}
	}
	publish(loadDevices) // every device once
	m.seen(t, loadDevices)
	start, cpu := time.Now(), m.cpu(t)
	sent := 0
	for time.Since(start) < length {
		due := int(time.Since(start).Seconds() * loadRate)
		publish(due - sent)
		sent = due
		time.Sleep(loadTick) // the pace of the load, not a wait for a state
	}
	took := time.Since(start)
	age := m.seen(t, int64(loadDevices+sent))
	used := m.cpu(t) - cpu // for all of them, also what was late
	t.Logf("%d events in %v (%.0f/s): %.2f cores, resident at most %d MiB, caught up %v after the last event",
		sent, took.Round(time.Millisecond), float64(sent)/took.Seconds(), used.Seconds()/took.Seconds(), m.peak(t)>>20, age.Round(time.Millisecond))
	if used > took {
		t.Errorf("%.2f cores, want below 1", used.Seconds()/took.Seconds())
	}
	if m.peak(t) > 256<<20 {
		t.Errorf("%d MiB, want below 256", m.peak(t)>>20)
	}
}

func loadRecord(i int, sequence int64, now time.Time) *kgo.Record {
	e := devicestate.Event{
		MessageID: uuid.New(), Device: fmt.Sprintf("acme/agv-%06d", i), Hub: "hub-" + strconv.Itoa(i%10), Stream: "state", Epoch: 1, Sequence: sequence,
		OccurredAt: now.Add(-30 * time.Millisecond), ReceivedAt: now.Add(-10 * time.Millisecond), Counter: devicestate.Some(sequence),
		State: []byte(`{"battery":{"charge":81.5,"voltage":48.1,"charging":false},"driving":true,"position":{"x":12.5,"y":7.25,"theta":1.57,"map":"hall-3"},"errors":[],"load":null}`),
	}
	return &kgo.Record{Key: []byte(e.Device), Value: devicestate.AppendEvent(nil, &e), Timestamp: now, Headers: []kgo.RecordHeader{
		{Key: "ce_type", Value: []byte(devicestate.EventType)}, {Key: "ce_schemaversion", Value: []byte("1")},
		{Key: "ce_committedat", Value: []byte(now.Add(-5 * time.Millisecond).UTC().Format(time.RFC3339Nano))},
	}}
}

// process is a monitor of its own.
type process struct {
	pid  int
	page string
}

func startMonitor(t *testing.T, broker, topic string) process {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "monitor")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := process{page: testenv.FreeAddr(t)}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, binary, "run", "--kafka-brokers", broker, "--kafka-topic", topic, "--redis-url", testenv.Redis(t),
		"--page-addr", p.page, "--admin-addr", "", "--log-level", "warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	p.pid = cmd.Process.Pid
	return p
}

// watch keeps a page open.
func (p process) watch(t *testing.T) {
	for t.Context().Err() == nil {
		if resp, err := http.Get("http://" + p.page + "/api/v1/live"); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
}

// seen waits until the view has n events and returns how long that took.
func (p process) seen(t *testing.T, n int64) time.Duration {
	t.Helper()
	start := time.Now()
	for time.Since(start) < 2*time.Minute {
		resp, err := http.Get("http://" + p.page + "/api/v1/overview")
		if err == nil {
			var o monitor.Overview
			err = json.NewDecoder(resp.Body).Decode(&o)
			_ = resp.Body.Close()
			var events int64
			for _, h := range o.Hubs {
				events += h.Totals.Events
			}
			if err == nil && events >= n {
				return time.Since(start)
			}
		}
		time.Sleep(50 * time.Millisecond) // a poll, not a wait for a state
	}
	t.Fatalf("never saw %d events", n)
	return 0
}

// cpu is what the process has used, user and system, in ticks of 10 ms.
func (p process) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		t.Skip(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// peak is the most memory that was resident, in bytes.
func (p process) peak(t *testing.T) int {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if kb, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, _ := strconv.Atoi(strings.Fields(kb)[0])
			return n << 10
		}
	}
	return 0
}
