package devicestate

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// recorded is one line of a recording made by mosquitto_sub -F %j, as in testdata.
type recorded struct {
	At      string          `json:"tst"`
	Topic   string          `json:"topic"`
	Retain  int             `json:"retain"`
	Payload json.RawMessage `json:"payload"`
}

func readRecording(t *testing.T, path string) []recorded {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []recorded
	for s := bufio.NewScanner(f); s.Scan(); {
		var r recorded
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, r)
	}
	return lines
}

// outcome is what a replay counted of one stream, and its state at the end.
type outcome struct {
	Classes map[Class]int
	Reboots int
	Gaps    int
	Events  int
	State   State
}

// replay feeds a recording through Match, Parse and Fold, each message as a batch of its own.
func replay(t *testing.T, path string) (streams map[string]*outcome, ignored int) {
	t.Helper()
	m, err := NewMatcher(Builtin(), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	streams = map[string]*outcome{}
	var parser Parser
	for _, line := range readRecording(t, path) {
		route, err := m.Match(line.Topic, "hall")
		if err != nil {
			t.Fatalf("%s: %v", line.Topic, err)
		}
		if route.Ignore {
			ignored++
			continue
		}
		r, err := parser.Parse(&route, line.Payload)
		if err != nil {
			t.Fatalf("%s: %v", line.Topic, err)
		}
		if r.ReceivedAt, err = time.Parse("2006-01-02T15:04:05.999999Z-0700", line.At); err != nil {
			t.Fatal(err)
		}
		r.Retained = line.Retain == 1
		key := route.Device + " " + route.Stream
		o := streams[key]
		var prev *State
		if o == nil {
			o = &outcome{Classes: map[Class]int{}}
			streams[key] = o
		} else {
			prev = &o.State
		}
		o.add(Fold(prev, []Report{r}, r.ReceivedAt, route.Policy)[0])
	}
	return streams, ignored
}

func (o *outcome) add(d Decision) {
	o.Classes[d.Class]++
	o.Gaps += len(d.Gaps)
	if d.Marks.Has(MarkReboot) {
		o.Reboots++
	}
	if d.Emit {
		o.Events++
	}
	if d.Changed {
		o.State = d.State
	}
}

// The outcome is the one written beside the recording: two vehicles, one of them killed and back.
func TestReplay_RecordingOfTwoVehiclesEndsAsWritten(t *testing.T) {
	t.Parallel()
	streams, ignored := replay(t, "testdata/vda5050-two-vehicles.ndjson")
	if ignored != 1 {
		t.Errorf("ignored %d messages, want the one order", ignored)
	}
	want := []struct {
		key              string
		applied, reboots int
	}{
		{"HubWorks/A-001 state", 31, 1}, {"HubWorks/A-002 state", 26, 0},
		{"HubWorks/A-001 visualization", 24, 1}, {"HubWorks/A-002 visualization", 24, 0},
		{"HubWorks/A-001 connection", 4, 0}, {"HubWorks/A-002 connection", 2, 0},
	}
	if len(streams) != len(want) {
		t.Errorf("%d streams, want %d", len(streams), len(want))
	}
	for _, w := range want {
		o := streams[w.key]
		if o == nil {
			t.Errorf("%s: no report", w.key)
			continue
		}
		if o.Classes[Applied] != w.applied || len(o.Classes) != 1 || o.Reboots != w.reboots || o.Gaps != 0 || o.State.Missed != 0 {
			t.Errorf("%s: classes %v, %d reboots, %d gaps; want %d applied, %d reboots, no gap", w.key, o.Classes, o.Reboots, o.Gaps, w.applied, w.reboots)
		}
		if o.State.Sequence != int64(o.Events) {
			t.Errorf("%s: sequence %d after %d events", w.key, o.State.Sequence, o.Events)
		}
	}
}

// A will carries headerId 0 and the time of connecting, and is the truth; so is what comes after it.
func TestReplay_ConnectionFollowsArrival(t *testing.T) {
	t.Parallel()
	streams, _ := replay(t, "testdata/vda5050-two-vehicles.ndjson")
	var last struct{ ConnectionState string }
	if err := json.Unmarshal(streams["HubWorks/A-001 connection"].State.Content, &last); err != nil {
		t.Fatal(err)
	}
	if last.ConnectionState != "OFFLINE" {
		t.Errorf("A-001 ends %s, want OFFLINE", last.ConnectionState)
	}
}

// A recording of our own making with the topics of version 3: robot R-10's counter wraps at 2^32, 7 and 8 do not arrive, 7
// comes late, 3 twice; a retained factsheet comes twice; R-11 is killed and starts again at 0. order, zoneSet and responses
// go to the robots.
func TestReplay_RecordingOfVersion3EndsAsWritten(t *testing.T) {
	t.Parallel()
	streams, ignored := replay(t, "testdata/vda5050-v3-two-robots.ndjson")
	if ignored != 3 {
		t.Errorf("ignored %d messages, want 3", ignored)
	}
	for _, w := range []struct {
		key                                             string
		applied, duplicate, late, reboots, gaps, events int
		counter, missed                                 int64
	}{
		{"Acme/R-10 state", 24, 1, 1, 0, 1, 24, 19, 2}, {"Acme/R-11 state", 15, 0, 0, 1, 0, 15, 5, 0},
		{"Acme/R-10 connection", 2, 0, 0, 0, 0, 2, 2, 0}, {"Acme/R-11 connection", 4, 0, 0, 0, 0, 4, 2, 0},
		{"Acme/R-10 factsheet", 1, 1, 0, 0, 0, 1, 0, 0}, {"Acme/R-11 visualization", 15, 0, 0, 1, 0, 6, 5, 0},
	} {
		o := streams[w.key]
		if o == nil {
			t.Errorf("%s: no report", w.key)
			continue
		}
		if o.Classes[Applied] != w.applied || o.Classes[Duplicate] != w.duplicate || o.Classes[Late] != w.late || o.Reboots != w.reboots ||
			o.Gaps != w.gaps || o.Events != w.events || o.State.Counter != Some(w.counter) || o.State.Missed != w.missed {
			t.Errorf("%s: classes %v, %d reboots, %d gaps, %d events, counter %v, missed %d", w.key, o.Classes, o.Reboots, o.Gaps, o.Events, o.State.Counter, o.State.Missed)
		}
	}
}
