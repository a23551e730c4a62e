package devicestate_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

// frozenSample is a published sample of the contract: NAME.json holds the value and NAME.headers the headers, both byte for
// byte as they stand on the topic.
type frozenSample struct {
	event   devicestate.Event
	value   string // sha256 of NAME.json
	headers string // sha256 of NAME.headers
}

// frozen is the contract of version 1. The rule: a sample that is here never changes. A reader of version 1 that exists
// somewhere relies on each of these bytes, and a later writer may only add members and headers, which add samples
// here; anything else is version 2, with its own header value and its own samples, and is published beside this one.
func frozen() map[string]frozenSample {
	return map[string]frozenSample{
		"minimal": {
			event: devicestate.Event{
				MessageID: [16]byte{0x01, 0x9b, 0x76, 0xda, 0xa8, 0x00, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1},
				Device:    "d", Hub: "h", Stream: "s", Epoch: 1, Sequence: 1,
				ReceivedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), State: []byte(`{}`),
			},
			value: "ccf9377a975a1b084e4858d46477a35bf283273a9a16355842e2b29e8d082cb0", headers: "f74487981d1a52ba8083ba87b7a89593d355a4c285697d08055c5308ef2f3040",
		},
		"full": {
			event: devicestate.Event{
				MessageID: [16]byte{0x01, 0x9d, 0x37, 0x2b, 0x3a, 0x7b, 0x7d, 0xef, 0xbf, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32},
				Device:    "acme/A-001", Hub: "dock-1", Stream: "state", Epoch: 3, Sequence: 4711,
				OccurredAt: time.Date(2026, 3, 29, 0, 59, 59, 900_000_000, time.UTC),
				ReceivedAt: time.Date(2026, 3, 29, 1, 0, 0, 123_456_000, time.UTC),
				Counter:    devicestate.Some(17), Boot: devicestate.Some(2),
				Marks:  devicestate.MarkReboot | devicestate.MarkWrap | devicestate.MarkClockSuspect | devicestate.MarkRetained | devicestate.MarkHeartbeat | devicestate.MarkRestated,
				Missed: 1, Late: 2, Duplicate: 3, Rejected: 4,
				State: []byte(`{"battery":87.5,"mode":"AUTOMATIC","note":"Straße \"7\" \\ 雪","position":{"x":-1.25,"y":1e-7},"errors":[],"load":null,"driving":true}`),
			},
			value: "919c5ae86ce2817ffcba16f72f343c41a0229096664ee56db666c791e5b136a6", headers: "abf8fd8c4471a60754191cf037c033b14d817eeee5e4f19f6773a70fa3707704",
		},
		"largest": {
			event: devicestate.Event{
				MessageID: [16]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
				Device:    strings.Repeat("d", 128), Hub: "hub.1:a_b-c", Stream: "connection", Epoch: math.MaxInt64, Sequence: math.MaxInt64,
				OccurredAt: time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
				ReceivedAt: time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
				Counter:    devicestate.Some(math.MaxInt64), Boot: devicestate.Some(0),
				Missed: math.MaxInt64, State: []byte(`"OFFLINE"`),
			},
			value: "a86a7e68113c0e862bd99311ed4d06a755057b4a298ef6808a6f35844876cedf", headers: "652173525a84fb002400ff069c95bc889664b217bc65154d9a3356ccb9cd68d8",
		},
		"skipped": {
			event: devicestate.Event{
				MessageID: [16]byte{0x01, 0x9b, 0x76, 0xda, 0xa8, 0x01, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 2},
				Device:    "acme/A-001", Hub: "dock-1", Stream: "state", Epoch: 1, Sequence: 59,
				OccurredAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
				ReceivedAt: time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC),
				Counter:    devicestate.Some(0), Late: 1, State: []byte(`[1,2,3]`),
			},
			value: "4c84b5613fa103f742666f58a0466dd156b2c5da984eb2524712ff1d669f81c0", headers: "3442262adf2ccb640cab81fd93fe2467a6104b37a6ea13776147d2f28daaf073",
		},
		"replayed": {
			event: devicestate.Event{
				MessageID: [16]byte{0x01, 0x9b, 0x76, 0xda, 0xa8, 0x02, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 3},
				Device:    "acme/A-001", Hub: "dock-1", Stream: "state", Epoch: 1, Sequence: 58,
				ReceivedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
				Marks:      devicestate.MarkClockSuspect, State: []byte(`null`),
			},
			value: "83356b1b263184d5985387f10b4c7c2f5d9efcf7c699e327070e23063367f481", headers: "ba5bfa9d56a24c96e40bf4b2361ec75835e919d4dbfd830acef7bffe36978a6e",
		},
	}
}

func sample(t testing.TB, name string) []byte {
	t.Helper()
	return eventFile(t, name+".json")
}

func eventFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "events", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

func TestEvent_ContractIsFrozen(t *testing.T) {
	t.Parallel()
	for name, s := range frozen() {
		value, headers := sample(t, name), eventFile(t, name+".headers")
		if got := sum(value); got != s.value {
			t.Errorf("%s.json has changed: sha256 %s. A published sample never changes; see frozen", name, got)
		}
		if got := sum(headers); got != s.headers {
			t.Errorf("%s.headers has changed: sha256 %s. A published sample never changes; see frozen", name, got)
		}
		if got := devicestate.AppendEvent(nil, &s.event); !bytes.Equal(got, value) {
			t.Errorf("%s is no longer written as published:\n got %s\nwant %s", name, got, value)
		}
		decoded, err := devicestate.DecodeEvent(value)
		if err != nil {
			t.Errorf("%s can no longer be read: %v", name, err)
		}
		if !reflect.DeepEqual(decoded, s.event) {
			t.Errorf("%s is read as something else:\n got %+v\nwant %+v", name, decoded, s.event)
		}
	}
}

// TestEvent_EverySampleIsFrozen: a file that no sum guards would be a sample that may change.
func TestEvent_EverySampleIsFrozen(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(filepath.Join("testdata", "events"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), filepath.Ext(f.Name()))
		if _, ok := frozen()[name]; !ok {
			t.Errorf("%s is not in frozen", f.Name())
		}
	}
	if len(files) != 2*len(frozen()) {
		t.Errorf("%d files for %d samples, want a .json and a .headers each", len(files), len(frozen()))
	}
}

// TestEvent_HeadersAgreeWithTheValue: what a router reads in the headers is what a consumer reads in the value.
func TestEvent_HeadersAgreeWithTheValue(t *testing.T) {
	t.Parallel()
	for name, s := range frozen() {
		headers := map[string]string{}
		for line := range strings.Lines(string(eventFile(t, name+".headers"))) {
			key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			if !ok || headers[key] != "" {
				t.Errorf("%s: header line %q", name, line)
			}
			headers[key] = value
		}
		var value struct {
			MessageID string `json:"message_id"`
			Device    string `json:"device_id"`
			Hub       string `json:"hub_id"`
			Stream    string `json:"stream"`
			Epoch     json.Number
			Sequence  json.Number
			Occurred  string `json:"occurred_at"`
		}
		if err := json.Unmarshal(sample(t, name), &value); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{
			"ce_specversion": "1.0", "ce_type": devicestate.EventType, "ce_schemaversion": "1", "content-type": devicestate.ContentType,
			"ce_id": value.MessageID, "ce_source": devicestate.Source(value.Hub), "ce_subject": value.Device, "ce_partitionkey": value.Device,
			"ce_stream": value.Stream, "ce_epoch": value.Epoch.String(), "ce_time": value.Occurred,
			"ce_sequence": strings.Repeat("0", 19-len(value.Sequence)) + value.Sequence.String(),
		} {
			if headers[key] != want {
				t.Errorf("%s: %s is %q, the value says %q", name, key, headers[key], want)
			}
		}
		if _, err := devicestate.ParseSkips(headers["ce_skipped"]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.event.OccurredAt.IsZero() != (headers["ce_time"] == "") {
			t.Errorf("%s: ce_time is %q", name, headers["ce_time"])
		}
	}
}

func TestAppendEvent_AppendsAndTruncatesToMicroseconds(t *testing.T) {
	t.Parallel()
	e := frozen()["minimal"].event
	e.ReceivedAt = time.Date(2026, 1, 1, 1, 0, 0, 999, time.FixedZone("CET", 3600))
	got := devicestate.AppendEvent([]byte("before "), &e)
	if want := "before " + string(sample(t, "minimal")); string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestEventOf_CarriesTheStateAndItsTotals(t *testing.T) {
	t.Parallel()
	received := time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC)
	r := devicestate.Report{Device: "a", Stream: "state", ReceivedAt: received}
	d := devicestate.Decision{Marks: devicestate.MarkReboot, State: devicestate.State{
		Hub: "h", Epoch: 2, Sequence: 9, OccurredAt: received.Add(-time.Second), ReceivedAt: received.Add(-time.Hour),
		Counter: devicestate.Some(3), Boot: devicestate.Some(4), Content: []byte(`{"a":1}`), Missed: 5, Late: 6, Duplicate: 7, Quarantined: 8,
	}}
	want := devicestate.Event{
		MessageID: [16]byte{1}, Device: "a", Hub: "h", Stream: "state", Epoch: 2, Sequence: 9,
		OccurredAt: received.Add(-time.Second), ReceivedAt: received, Counter: devicestate.Some(3), Boot: devicestate.Some(4),
		Marks: devicestate.MarkReboot, Missed: 5, Late: 6, Duplicate: 7, Rejected: 8, State: []byte(`{"a":1}`),
	}
	if got := devicestate.EventOf([16]byte{1}, &r, &d); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestRestate_TakesTheNextSequenceAndFreshensNothing(t *testing.T) {
	t.Parallel()
	received := time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC)
	now := received.Add(time.Hour)
	stored := devicestate.State{Hub: "h", Epoch: 2, Sequence: 9, ReceivedAt: received, ClockSuspect: true, Retained: true, Owed: true, Content: []byte(`1`)}
	e, moved := devicestate.Restate([16]byte{1}, "a", "state", stored, now)
	if e.Sequence != 10 || e.Epoch != 2 || !e.ReceivedAt.Equal(received) ||
		e.Marks != devicestate.MarkRestated|devicestate.MarkClockSuspect|devicestate.MarkRetained {
		t.Errorf("event: %+v", e)
	}
	if moved.Sequence != 10 || moved.Owed || !moved.EmittedAt.Equal(now) || !moved.ReceivedAt.Equal(received) {
		t.Errorf("state: %+v", moved)
	}
}
