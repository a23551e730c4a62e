package monitor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestReadExpected_NamesBadLines(t *testing.T) {
	t.Parallel()
	list, err := readExpected(strings.NewReader("# hall 3\nhub-1 acme/agv-1\n\n  hub-2\tb:2  \n"))
	if err != nil || !slices.Equal(list, []Expected{{"hub-1", "acme/agv-1"}, {"hub-2", "b:2"}}) {
		t.Errorf("%v %v", list, err)
	}
	_, err = readExpected(strings.NewReader("hub-1 a b\nhub-1 ok\nhub|1 x\nhub-1\n"))
	if err == nil || strings.Count(err.Error(), "must be a hub") != 3 || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("%v", err)
	}
	if _, err := LoadExpected("/nonexistent"); err == nil || !strings.Contains(err.Error(), "expected_devices") {
		t.Errorf("%v", err)
	}
}

func TestView_ExpectedDevicesAreNeverSeenUntilTheyReport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(event(1, ago(1), device("here")))
	list := []Expected{{"h1", "here"}, {"h1", "missing"}, {"h2", "elsewhere"}}
	for want := range 2 {
		if n, err := b.Expect(t.Context(), list); err != nil || n != 2-2*want {
			t.Fatalf("%d new, %v", n, err)
		}
	}
	if h := b.hub("h1", noon); h.Counts != (Counts{Devices: 2, Fresh: 1, NeverSeen: 1}) {
		t.Errorf("%+v", h.Counts)
	}
	if d := b.device("missing"); d.Status != NeverSeen || d.Hub != "h1" {
		t.Errorf("%+v", d.Row)
	}
	// One reports after all, another from a hub where nobody expected it.
	b.apply(event(1, ago(1), device("missing")), event(1, ago(1), device("elsewhere")))
	if h := b.hub("h1", noon); h.Counts != (Counts{Devices: 3, Fresh: 3}) {
		t.Errorf("%+v", h.Counts)
	}
	if h := b.hub("h2", noon); h.Counts.Devices != 0 {
		t.Errorf("%+v", h.Counts)
	}
}

func TestService_ExpectedDevicesComeBackAfterAFlush(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	file := filepath.Join(t.TempDir(), "expected")
	if err := os.WriteFile(file, []byte("hub-1 acme/agv-99999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := s.monitor(func(c *Config) { c.ExpectedDevices = file })
	s.publish(fleet(s, 3, 0)...)
	known := func(o *Overview) bool {
		h := o.hub("hub-1")
		return h.Counts.NeverSeen == 1 && h.Counts.Devices == 4
	}
	m.until("one was never seen", known)
	opts, err := redis.ParseURL(s.redis)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	if err := rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	m.until("it is gone", func(o *Overview) bool { return !known(o) })
	m.until("one was never seen again", known)
}
