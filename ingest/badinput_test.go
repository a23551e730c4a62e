package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
)

// badInput is every row of docs/architecture.md "Bad input": what is sent, and the reason that must be stored.
type badInput struct {
	name, topic, payload string
	reason               devicestate.Reason
}

func badInputs() []badInput {
	const good = "hubs/h/devices/bad/state"
	seq := func(counter string) string { return `{"seq":` + counter + `,"state":{}}` }
	return []badInput{
		{"null character", good, `{"seq":1,"state":{"a":"\u0000"}}`, devicestate.ReasonNullCharacter},
		{"null character in a key", good, `{"seq":1,"state":{"\u0000":1}}`, devicestate.ReasonNullCharacter},
		{"lone high surrogate", good, `{"seq":1,"state":{"a":"\ud800"}}`, devicestate.ReasonLoneSurrogate},
		{"lone low surrogate", good, `{"seq":1,"state":{"a":"\udc00"}}`, devicestate.ReasonLoneSurrogate},
		{"two high surrogates", good, `{"seq":1,"state":{"a":"\ud800\ud800"}}`, devicestate.ReasonLoneSurrogate},
		{"raw invalid UTF-8", good, "{\"seq\":1,\"state\":{\"a\":\"\xff\"}}", devicestate.ReasonInvalidUTF8},
		{"raw surrogate bytes", good, "{\"seq\":1,\"state\":{\"a\":\"\xed\xa0\x80\"}}", devicestate.ReasonInvalidUTF8},
		{"exponent", good, `{"seq":1,"state":{"a":1e200000}}`, devicestate.ReasonNumberRange},
		{"negative exponent", good, `{"seq":1,"state":{"a":1e-200000}}`, devicestate.ReasonNumberRange},
		{"duplicate key", good, `{"seq":1,"seq":2,"state":{}}`, devicestate.ReasonDuplicateKey},
		{"case-twin keys", good, `{"seq":1,"SEQ":2,"state":{}}`, devicestate.ReasonDuplicateKey},
		{"case-twin keys below", good, `{"seq":1,"state":{"a":1,"A":2}}`, devicestate.ReasonDuplicateKey},
		{"escaped twin", good, `{"seq":1,"state":{"a":1,"\u0061":2}}`, devicestate.ReasonDuplicateKey},
		{"depth 10,000", good, `{"seq":1,"state":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, devicestate.ReasonTooDeep},
		{"300 KiB", good, `{"seq":1,"state":"` + strings.Repeat("x", 300<<10) + `"}`, devicestate.ReasonTooLarge},
		{"empty", good, ``, devicestate.ReasonEmpty},
		{"white space", good, " \n", devicestate.ReasonEmpty},
		{"not JSON", good, `hello`, devicestate.ReasonNotJSON},
		{"cut off", good, `{"seq":1,"state":{"a":`, devicestate.ReasonNotJSON},
		{"text after it", good, `{"seq":1,"state":{}} {}`, devicestate.ReasonNotJSON},
		{"an array", good, `[1,2]`, devicestate.ReasonNotObject},
		{"counter missing", good, `{"state":{}}`, devicestate.ReasonCounterMissing},
		{"counter null", good, seq("null"), devicestate.ReasonCounterMissing},
		{"counter negative", good, seq("-1"), devicestate.ReasonCounterInvalid},
		{"counter minus zero", good, seq("-0"), devicestate.ReasonCounterInvalid},
		{"counter fraction", good, seq("1.5"), devicestate.ReasonCounterInvalid},
		{"counter exponent", good, seq("1e3"), devicestate.ReasonCounterInvalid},
		{"counter string", good, seq(`"1"`), devicestate.ReasonCounterInvalid},
		{"counter boolean", good, seq("true"), devicestate.ReasonCounterInvalid},
		{"counter object", good, seq("{}"), devicestate.ReasonCounterInvalid},
		{"counter above 2^63-1", good, seq("9223372036854775808"), devicestate.ReasonCounterInvalid},
		{"boot string", good, `{"seq":1,"boot":"x","state":{}}`, devicestate.ReasonBootInvalid},
		{"state missing", good, `{"seq":1}`, devicestate.ReasonStateMissing},
		{"state null", good, `{"seq":1,"state":null}`, devicestate.ReasonStateMissing},
		{"device id with a space", "hubs/h/devices/a b/state", seq("1"), devicestate.ReasonBadID},
		{"device id with a wildcard", "hubs/h/devices/a+/state", seq("1"), devicestate.ReasonBadID},
		{"device id of 200 bytes", "hubs/h/devices/" + strings.Repeat("x", 200) + "/state", seq("1"), devicestate.ReasonBadID},
		{"empty device id", "hubs/h/devices//state", seq("1"), devicestate.ReasonBadID},
		{"invalid UTF-8 in the topic", "hubs/h/devices/\xff/state", seq("1"), devicestate.ReasonBadID},
		{"null character in the topic", "hubs/h/devices/\x00/state", seq("1"), devicestate.ReasonBadID},
		{"no profile", "somewhere/else", seq("1"), devicestate.ReasonNoProfile},
		{"unknown stream", "uagv/v2/m/s/unheard", `{}`, devicestate.ReasonUnknownStream},
	}
}

// Each ends in ingest_reject with its reason, is acknowledged in its turn, and its 499 neighbours are applied.
func TestWriter_OneBadReportAmong500IsStoredAndItsNeighboursApplied_N1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, c := range badInputs() {
		var items []item
		for n := range 499 {
			items = append(items, b.message(fmt.Sprintf("hubs/h/devices/good-%d/state", n), fmt.Sprintf(`{"seq":%d,"state":{"n":%d}}`, i, n)))
		}
		bad := b.message(c.topic, c.payload)
		items = append(items[:250], append([]item{bad}, items[250:]...)...)
		b.wire.written = nil
		before := b.classes()
		b.store(items...)
		after := b.classes()
		if applied, rejected := after[devicestate.Applied]-before[devicestate.Applied], after[devicestate.Quarantined]-before[devicestate.Quarantined]; applied != 499 || rejected != 1 {
			t.Errorf("%s: %d applied, %d quarantined", c.name, applied, rejected)
		}
		if got := query[string](b, `SELECT reason FROM ingest_reject ORDER BY id DESC LIMIT 1`); got != string(c.reason) {
			t.Errorf("%s: reason %s, want %s", c.name, got, c.reason)
		}
		kept := query[[]byte](b, `SELECT payload FROM ingest_reject ORDER BY id DESC LIMIT 1`)
		if want := []byte(c.payload); string(kept) != string(want[:min(len(want), len(kept))]) || len(kept) < min(len(want), keptOfLarge) {
			t.Errorf("%s: %d bytes kept of %d", c.name, len(kept), len(c.payload))
		}
		if acked := b.acked(); len(acked) != 500 {
			t.Errorf("%s: %d acks, want 500", c.name, len(acked))
		}
	}
	if n := query[int](b, `SELECT count(*) FROM ingest_reject`); n != len(badInputs()) {
		t.Errorf("%d rejects, want %d", n, len(badInputs()))
	}
}

func TestWriter_RejectsAreCappedPerDeviceAndInAllAndTheRestCounted_N1(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.RejectsPerDevice, c.RejectsTotal = 10, 25 })
	for range 3 {
		var items []item
		for i := range 20 {
			items = append(items, b.message("hubs/h/devices/poison/state", "x"), b.message(fmt.Sprintf("hubs/h/devices/p%d/state", i), "x"), b.message("no/profile", "x"))
		}
		b.store(items...)
	}
	if n := query[int](b, `SELECT count(*) FROM ingest_reject WHERE device_id = 'poison'`); n > 10 || n < 5 {
		t.Errorf("%d rejects of one device stored, cap 10", n)
	}
	stored := query[int64](b, `SELECT count(*) FROM ingest_reject`)
	if stored != 25 {
		t.Errorf("%d rejects stored, cap 25", stored)
	}
	if counted := query[int64](b, `SELECT sum(rejected)::bigint FROM ingest_reject_overflow`); stored+counted != 180 {
		t.Errorf("%d stored + %d counted, want 180", stored, counted)
	}
	if got := b.classes(); got[devicestate.Quarantined] != 180 || len(got) != 1 {
		t.Errorf("classes %v", got)
	}
	if len(b.acked()) != 180 {
		t.Errorf("%d acks, want 180", len(b.acked()))
	}
	if _, err := b.admin.Exec(t.Context(), `UPDATE ingest_reject SET decided_at = now(), decision = 'discarded'`); err != nil {
		t.Fatal(err)
	}
	b.store(b.message("hubs/h/devices/poison/state", "x"))
	if n := query[int](b, `SELECT count(*) FROM ingest_reject WHERE decided_at IS NULL`); n != 1 {
		t.Errorf("decided rejects must make room, %d undecided", n)
	}
}

// A report that only the database refuses (here: a constraint) is found by halving; nothing else is touched.
func TestWriter_ReportRefusedByTheDatabaseIsIsolated_N1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.admin.Exec(t.Context(), `ALTER TABLE device_state ADD CONSTRAINT no_evil CHECK (state <> '{"evil":true}'::bytea)`); err != nil {
		t.Fatal(err)
	}
	var items []item
	for i := range 200 {
		state := "{}"
		if i == 77 || i == 78 || i == 199 {
			state = `{"evil":true}`
		}
		items = append(items, b.message(fmt.Sprintf("hubs/h/devices/d%d/state", i), `{"seq":1,"state":`+state+`}`))
	}
	b.store(items...)
	if got := b.classes(); got[devicestate.Applied] != 197 || got[devicestate.Quarantined] != 3 {
		t.Errorf("classes %v", got)
	}
	if n := query[int](b, `SELECT count(*) FROM ingest_reject WHERE reason = 'database' AND detail LIKE '%23514%' AND device_id IN ('d77','d78','d199')`); n != 3 {
		t.Errorf("%d rejects with the SQLSTATE, want 3", n)
	}
	acked := b.acked()
	for i, id := range acked {
		if id != uint16(i+1) {
			t.Fatalf("acks out of order: %v", acked)
		}
	}
	if len(acked) != 200 {
		t.Errorf("%d acks, want 200", len(acked))
	}
}
