package consumertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (d *driver) inOrder(t *testing.T) {
	noneDead(t, d.feed(t, d.event("a", 1, 1), d.event("b", 1, 41), d.event("a", 1, 2), d.event("a", 1, 3), d.event("b", 1, 42)))
	d.want(t, "a", at(1, 1), at(1, 2), at(1, 3))
	d.want(t, "b", at(1, 41), at(1, 42))
}

func (d *driver) copies(t *testing.T) {
	for range 3 {
		noneDead(t, d.feed(t, d.event("a", 1, 1), d.event("a", 1, 1), d.event("a", 1, 3), d.event("a", 1, 2), d.event("a", 1, 3)))
	}
	d.want(t, "a", at(1, 1), at(1, 3))
}

func (d *driver) replays(t *testing.T) {
	noneDead(t, d.feed(t, d.event("a", 1, 1), d.event("a", 1, 2), d.event("a", 1, 3)))
	noneDead(t, d.feed(t, d.event("a", 1, 1, Replayed("7")), d.event("a", 1, 2, Replayed("7")), d.event("new", 1, 9, Replayed("7"))))
	d.want(t, "a", at(1, 1), at(1, 2), at(1, 3))
	d.want(t, "new", at(1, 9))
}

func (d *driver) holes(t *testing.T) {
	noneDead(t, d.feed(t, d.event("a", 1, 1), d.event("a", 1, 5), d.event("a", 1, 9, Skipped("6-8:superseded")), d.event("a", 1, 11, Skipped("10:dead"))))
	d.want(t, "a", at(1, 1), at(1, 5), at(1, 9), at(1, 11))
}

func (d *driver) epochs(t *testing.T) {
	noneDead(t, d.feed(t, d.event("a", 1, 900), d.event("a", 2, 1), d.event("a", 1, 901), d.event("a", 2, 2), d.event("a", 1767225600, 1)))
	d.want(t, "a", at(1, 900), at(2, 1), at(2, 2), at(1767225600, 1))
}

func (d *driver) newerFields(t *testing.T) {
	r := d.event("a", 1, 1)
	r.Value = []byte(strings.Replace(string(r.Value), `"epoch":`, `"added_later":{"nested":[true,null]},"epoch":`, 1))
	Header("ce_addedlater", "x")(r)
	noneDead(t, d.feed(t, r))
	d.want(t, "a", at(1, 1))
}

func (d *driver) otherVersions(t *testing.T) {
	dead := d.feed(t, d.event("a", 1, 1), d.event("a", 1, 2, Header("ce_schemaversion", "2")), d.event("a", 1, 3, Header("ce_schemaversion", "0")), d.event("a", 1, 4))
	if len(dead) != 2 {
		t.Errorf("%d dead letters, want the two of versions 2 and 0", len(dead))
	}
	d.want(t, "a", at(1, 1), at(1, 4))
}

func (d *driver) poison(t *testing.T) {
	dead := d.feed(t, d.event("a", 1, 1), d.event("a", 1, 2, Value([]byte("not JSON"))), d.event("a", 1, 3, Value(nil)),
		d.event("a", 1, 4, Header("ce_type", "SomethingElse")), d.event("b", 1, 1), d.event("a", 1, 5))
	if len(dead) != 2 {
		t.Errorf("%d dead letters, want 2", len(dead))
	}
	d.want(t, "a", at(1, 1), at(1, 5))
	d.want(t, "b", at(1, 1))
}

// again is what a crash after the effect and before the commit of the offset does.
func (d *driver) again(t *testing.T) {
	for range 2 {
		d.offset = 0
		noneDead(t, d.feed(t, d.event("a", 1, 1), d.event("b", 1, 1), d.event("a", 1, 2)))
	}
	d.offset = 1
	noneDead(t, d.feed(t, d.event("b", 1, 1), d.event("a", 1, 2), d.event("a", 1, 3)))
	d.want(t, "a", at(1, 1), at(1, 2), at(1, 3))
	d.want(t, "b", at(1, 1))
}

func (d *driver) streams(t *testing.T) {
	first := d.event("a", 1, 7)
	e, err := devicestate.DecodeEvent(first.Value)
	if err != nil {
		t.Fatal(err)
	}
	e.Stream += "-2"
	noneDead(t, d.feed(t, first, Record(topicName, e), d.event("a", 1, 8)))
	if got := d.h.Applied(t, "a"); len(got) != 3 && !d.h.AtLeastOnce {
		t.Errorf("applied %v, want three events: the gate is per stream, not per device", got)
	}
}

func (d *driver) anyState(t *testing.T) {
	if !d.h.ToleratesAnyState {
		t.Skip("the handler does not claim to")
	}
	var want []devicestate.Position
	for i, state := range []string{`null`, `7`, `-0.5e-300`, `""`, `"x"`, `[]`, `[[[]]]`, `true`, `{}`, `{"":{"":1}}`, `{"a":"\"\\\n雪😀"}`} {
		r := d.event("a", 1, int64(i)+1)
		e, err := devicestate.DecodeEvent(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		e.State = []byte(state)
		noneDead(t, d.feed(t, Record(topicName, e)))
		want = append(want, at(1, int64(i)+1))
	}
	d.want(t, "a", want...)
}

func (d *driver) bareEvents(t *testing.T) {
	e := Event("a", 1, 1)
	if d.h.Event != nil {
		d.h.Event(&e)
	}
	e.OccurredAt, e.Counter, e.Boot, e.Marks = time.Time{}, devicestate.Number{}, devicestate.Number{}, 0
	r := Record(topicName, e)
	for _, name := range []string{"ce_traceparent", "ce_correlationid", "ce_causationid", "ce_cell", "ce_bucket", "ce_position", "ce_committedat"} {
		Header(name, "")(r)
	}
	noneDead(t, d.feed(t, r))
	d.want(t, "a", at(1, 1))
}

func (d *driver) manyDevices(t *testing.T) {
	var records []*kgo.Record
	for n := int64(1); n <= 2; n++ {
		for i := range 600 { // more than one batch
			records = append(records, d.event(fmt.Sprintf("device-%d", i), 1, n))
		}
	}
	noneDead(t, d.feed(t, records...))
	for _, i := range []int{0, 1, 299, 599} {
		d.want(t, fmt.Sprintf("device-%d", i), at(1, 1), at(1, 2))
	}
}

func (d *driver) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	records := []*kgo.Record{d.event("a", 1, 1), d.event("a", 1, 2)}
	for i, r := range records {
		r.Offset = int64(i)
	}
	if _, err := d.consumer.Feed(ctx, records...); err == nil {
		t.Error("nothing was said about a cancelled context")
	}
	noneDead(t, d.feed(t, records...))
	d.want(t, "a", at(1, 1), at(1, 2))
}

func (d *driver) marks(t *testing.T) {
	var records []*kgo.Record
	var want []devicestate.Position
	for i, marks := range []devicestate.Marks{devicestate.MarkRestated, devicestate.MarkRetained, devicestate.MarkHeartbeat,
		devicestate.MarkReboot | devicestate.MarkClockSuspect, devicestate.MarkWrap} {
		e := Event("a", 1, int64(i)+1)
		if d.h.Event != nil {
			d.h.Event(&e)
		}
		e.Marks = marks
		records = append(records, Record(topicName, e))
		want = append(want, at(1, int64(i)+1))
	}
	noneDead(t, d.feed(t, records...))
	d.want(t, "a", want...)
}
