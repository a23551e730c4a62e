package devicestate

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// seedPayloads are the corpus: the rows of docs/architecture.md "Bad input" and good ones beside them.
func seedPayloads() []string {
	return []string{
		`{"seq":1,"boot":2,"ts":"2026-05-04T12:00:00.123456789Z","state":{"a":[1,2.5e10,"x\u00e4\ud83d\ude00"],"b":null}}`,
		`{"seq":1,"ts":1714824000,"state":true}`, `{"seq":1,"ts":1714824000123.5,"state":"x"}`, ` { "seq" : 1 , "state" : [ ] } `,
		`{"seq":1,"state":{"a":"\u0000"}}`, `{"seq":1,"state":"\ud800"}`, "{\"seq\":1,\"state\":\"\xff\"}", `{"seq":1,"state":1e200000}`,
		`{"seq":1,"state":9e308}`, `{"seq":1,"SEQ":2,"state":{}}`, `{"seq":1,"state":{"\u0061":1,"a":2}}`, strings.Repeat("[", 200), ``, `nul`,
		`{"seq":9223372036854775808,"state":{}}`, `{"seq":-0,"state":{}}`, `{"seq":1.0,"state":{}}`, `{"seq":"1","state":{}}`, `[1]`,
		`{"headerId":4294967295,"timestamp":"2026-05-04T12:00:00Z","secret":"x","n":{"secret":1,"keep":2}}`,
	}
}

// fuzzPolicies are the ways a payload is read: a state member, the whole payload without some fields, text.
func fuzzPolicies() []StreamPolicy {
	hub := Builtin()[0].Streams["*"]
	whole := StreamPolicy{Fields: Fields{Counter: "headerId", Time: "timestamp"}, Counter: CounterOptional, Drop: []string{"secret"}, Mask: []string{"n.secret"}, IgnoreFields: []string{"n"}}
	return []StreamPolicy{hub.WithDefaults(), whole.WithDefaults(), StreamPolicy{Counter: CounterNone, Format: FormatText}.WithDefaults()}
}

// What the strict parser takes, every other reader must be able to read, and read as the same.
func FuzzParse(f *testing.F) {
	for _, p := range seedPayloads() {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var parser Parser
		before := bytes.Clone(payload)
		for _, policy := range fuzzPolicies() {
			r, err := parser.Parse(&Route{Device: "d", Stream: "s", Hub: "h", Policy: &policy}, payload)
			if !bytes.Equal(payload, before) {
				t.Fatal("Parse changed the payload")
			}
			if err != nil {
				if reject := (*Reject)(nil); !errors.As(err, &reject) {
					t.Fatalf("error is a %T", err)
				}
				continue
			}
			checkParsed(t, &policy, payload, &r)
		}
	})
}

func checkParsed(t *testing.T, policy *StreamPolicy, payload []byte, r *Report) {
	t.Helper()
	if policy.Format == FormatJSON && !json.Valid(payload) {
		t.Fatalf("took invalid JSON %q", payload)
	}
	var state any
	if err := json.Unmarshal(r.State, &state); err != nil {
		t.Fatalf("state %q: %v", r.State, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, r.State); err != nil || compact.Len() != len(r.State) {
		t.Fatalf("state %q is not compact", r.State)
	}
	if bytes.Contains(r.State, []byte(`"secret":`)) && policy.Drop != nil {
		checkNoSecret(t, state)
	}
	if r.Counter.OK && r.Counter.V < 0 || r.Boot.OK && r.Boot.V < 0 || r.Time.Nanosecond()%1000 != 0 {
		t.Fatalf("counter %v boot %v time %v", r.Counter, r.Boot, r.Time)
	}
	r.ReceivedAt = time.UnixMicro(1)
	p := policy.WithDefaults()
	d := Fold(nil, []Report{*r}, r.ReceivedAt, &p)[0]
	e := EventOf([16]byte{1}, r, &d)
	back, err := DecodeEvent(AppendEvent(nil, &e))
	if err != nil || !bytes.Equal(back.State, r.State) || back.Counter != r.Counter {
		t.Fatalf("event does not come back: %v %+v", err, back)
	}
}

func checkNoSecret(t *testing.T, state any) {
	t.Helper()
	m, ok := state.(map[string]any)
	if !ok {
		return
	}
	if _, there := m["secret"]; there {
		t.Fatal("a dropped field was kept")
	}
	if n, ok := m["n"].(map[string]any); ok {
		if v, there := n["secret"]; there && v != "***" {
			t.Fatalf("a masked field shows %v", v)
		}
	}
}

// Whatever the topic, the ids that come out of it can be carried by every part; the same topic leads to the same route.
func FuzzMatch(f *testing.F) {
	for _, topic := range []string{
		"hubs/h/devices/d/state", "uagv/v2/man/ser/state", "uagv/v3/a/b/order", "tele/x/STATE", "", "/", "hubs//devices//", "hubs/h/devices/a b/state",
		"hubs/h/devices/\x00/state", "hubs/h/devices/\xff/state", "hubs/+/devices/#/state", strings.Repeat("a/", 500), "hubs/h/devices/" + strings.Repeat("x", 200) + "/state",
	} {
		f.Add(topic, "hub")
	}
	id := regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)
	device := regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}(/[A-Za-z0-9._:-]{1,128})*$`)
	m, err := NewMatcher(Builtin(), Limits{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, topic, hub string) {
		r, err := m.Match(topic, hub)
		again, errAgain := m.Match(topic, hub)
		if r != again || (err == nil) != (errAgain == nil) {
			t.Fatal("the same topic leads elsewhere")
		}
		if err != nil {
			if reject := (*Reject)(nil); !errors.As(err, &reject) {
				t.Fatalf("error is a %T", err)
			}
			return
		}
		if !id.MatchString(r.Stream) || !device.MatchString(r.Device) || r.Policy == nil {
			t.Fatalf("%q leads to %+v", topic, r)
		}
		if r.Hub != hub && !id.MatchString(r.Hub) {
			t.Fatalf("%q leads to hub %q", topic, r.Hub)
		}
	})
}
