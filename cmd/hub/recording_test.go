package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	mqttLine  = regexp.MustCompile(`(?m)^MQTT +(\S+)`)
	kafkaLine = regexp.MustCompile(`(?m)^Kafka +(\S+)`)
)

// The recording of two vehicles goes the whole way on real servers: Mosquitto, one transaction, Kafka, the page. What the
// page says of the last event is the outcome written beside the recording.
func TestHub_RecordingOfTwoVehiclesReachesTopicAndPage_D2_O2(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a Java server")
	}
	needReal(t)
	cfg := testConfig(t)
	cfg.Real = true
	h := startHub(t, cfg)
	h.awaitDevice("agv-001", 1)
	replayRecording(t, mqttLine.FindStringSubmatch(h.out.String())[1])

	want := map[string]int64{"HubWorks/A-001 state": 31, "HubWorks/A-002 state": 26, "HubWorks/A-001 connection": 4, "HubWorks/A-002 connection": 2}
	for key, sequence := range want {
		device, stream, _ := strings.Cut(key, " ")
		h.eventually(fmt.Sprintf("the page shows %s at %d", key, sequence), func() bool { return h.shownSequence(device, stream) == sequence })
	}
	events, reboots := readRecording(t, strings.Split(kafkaLine.FindStringSubmatch(h.out.String())[1], ","))
	for key, sequence := range want {
		if int64(events[key]) != sequence {
			t.Errorf("%d events of %s on the topic, want %d", events[key], key, sequence)
		}
	}
	for key, n := range map[string]int{"HubWorks/A-001 state": 1, "HubWorks/A-001 visualization": 1, "HubWorks/A-002 state": 0, "HubWorks/A-002 visualization": 0} {
		if reboots[key] != n {
			t.Errorf("%d reboots of %s on the topic, want %d", reboots[key], key, n)
		}
	}
	h.stop()
}

func (r *running) shownSequence(device, stream string) int64 {
	response, err := http.Get(r.page + "api/v1/devices/" + device)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	var page struct{ Device struct{ Streams []shown } }
	if json.NewDecoder(response.Body).Decode(&page) != nil {
		return 0
	}
	for _, s := range page.Device.Streams {
		if s.Stream == stream {
			return s.Sequence
		}
	}
	return 0
}

func replayRecording(t *testing.T, broker string) {
	t.Helper()
	client := mqtt.NewClient(mqtt.NewClientOptions().AddBroker(strings.Replace(broker, "mqtt://", "tcp://", 1)).SetClientID("recording"))
	if token := client.Connect(); !token.WaitTimeout(10*time.Second) || token.Error() != nil {
		t.Fatalf("connect: %v", token.Error())
	}
	defer client.Disconnect(250)
	f, err := os.Open("../../devicestate/testdata/vda5050-two-vehicles.ndjson")
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
		if token := client.Publish(line.Topic, line.QoS, false, []byte(line.Payload)); !token.WaitTimeout(10*time.Second) || token.Error() != nil {
			t.Fatalf("publish: %v", token.Error())
		}
	}
}

// readRecording counts the vehicles' events and reboots per device and stream, and fails when a stream is not dense.
func readRecording(t *testing.T, brokers []string) (events, reboots map[string]int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("device-state"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	events, reboots = map[string]int{}, map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the page has shown the last ones, so all are there
	defer cancel()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { countEvent(t, r, events, reboots) })
	}
	return events, reboots
}

func countEvent(t *testing.T, r *kgo.Record, events, reboots map[string]int) {
	t.Helper()
	if !strings.HasPrefix(string(r.Key), "HubWorks/") {
		return
	}
	var e struct {
		Stream   string
		Sequence int
		Marks    []string
	}
	if err := json.Unmarshal(r.Value, &e); err != nil {
		t.Error(err)
		return
	}
	key := string(r.Key) + " " + e.Stream
	if events[key]++; e.Sequence != events[key] {
		t.Errorf("%s: sequence %d is the %d. on the topic", key, e.Sequence, events[key])
	}
	for _, mark := range e.Marks {
		if mark == "reboot" {
			reboots[key]++
		}
	}
}
