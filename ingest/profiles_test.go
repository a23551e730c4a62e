package ingest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

func TestProfiles_BuiltinOnesSurviveBeingPrinted(t *testing.T) {
	t.Parallel()
	for _, p := range devicestate.Builtin() {
		text, err := WriteProfile(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseProfile(text)
		if err != nil {
			t.Errorf("%s: %v\n%s", p.Name, err, text)
			continue
		}
		again, err := WriteProfile(back)
		if err != nil || string(again) != string(text) {
			t.Errorf("%s: printed differently: %v\n%s\n%s", p.Name, err, text, again)
		}
	}
}

func TestProfiles_MistakesAreNamedAllAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":      {"name: x\ntopics: [{pattern: 'a/{device}/{stream}'}]\nsteams: {}\n", "steams"},
		"unknown policy":   {"name: x\ntopics: [{pattern: 'a/{device}/{stream}'}]\nstreams: {s: {emit: sometimes, counter: none}}\n", `emit: "sometimes"`},
		"two at once":      {"name: x\ntopics: [{pattern: 'a/{device}/{stream}'}]\nstreams: {s: {emit: sometimes, counter: perhaps}}\n", `counter: "perhaps"`},
		"no counter field": {"name: x\ntopics: [{pattern: 'a/{device}/{stream}'}]\nstreams: {s: {}}\n", "fields.counter"},
		"no topics":        {"name: x\nstreams: {s: {counter: none}}\n", "topics must not be empty"},
		"no placeholder":   {"name: x\ntopics: [{pattern: 'a/b/c'}]\nstreams: {s: {counter: none}}\n", "{device}"},
		"slow heartbeat":   {"name: x\ntopics: [{pattern: 'a/{device}/{stream}'}]\nstreams: {s: {counter: none, emit: changed, heartbeat: 50s, expect: 60s}}\n", "heartbeat"},
	} {
		if _, err := ParseProfile([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not name %q", name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte("name: vda5050\ntopics: [{pattern: 'a/{device}/{stream}'}]\nstreams: {s: {counter: none}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadProfiles([]string{path, "vda5050", "missing.yaml"}); err == nil || !strings.Contains(err.Error(), "stands twice") || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("%v", err)
	}
}

// A profile is data that operators write: whatever it says, it is refused with a message or it works on any message.
func FuzzProfile(f *testing.F) {
	for _, p := range devicestate.Builtin() {
		text, err := WriteProfile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "hubs/h/devices/d/state", `{"seq":1,"headerId":1,"state":{"a":[{"b":1}]}}`)
	}
	f.Add([]byte("name: x\ntopics: [{pattern: '{a}/+/{b}/#', device: 'x{a}-{b}', stream: s, hub: '{b}'}]\nstreams: {s: {counter: none, drop: [a.b, '.'], mask: [a], fields: {state: '..', time: a}}}\n"), "a/b/c/d", `{"a":{"b":1}}`)
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte, topic, payload string) {
		p, err := ParseProfile(text)
		if err != nil {
			return
		}
		m, err := devicestate.NewMatcher([]devicestate.Profile{p}, devicestate.Limits{})
		if err != nil {
			t.Fatalf("a validated profile does not compile: %v", err)
		}
		for _, rule := range p.Topics {
			if !validFilter(rule.Filter()) {
				t.Fatalf("pattern %q makes the filter %q", rule.Pattern, rule.Filter())
			}
		}
		d := newDecoder(m, devicestate.Limits{}, "hub")
		g := newGeneration(1)
		for range 2 {
			it := d.decode(g, publish{topic: []byte(topic), payload: []byte(payload), size: len(payload)}, at)
			if it.policy == nil {
				continue
			}
			ds := devicestate.Fold(nil, []devicestate.Report{it.report}, at, it.policy)
			e := devicestate.EventOf([16]byte{1}, &it.report, &ds[0])
			if ds[0].Emit {
				if _, err := devicestate.DecodeEvent(devicestate.AppendEvent(nil, &e)); err != nil {
					t.Fatalf("event cannot be read: %v", err)
				}
			}
		}
	})
}
