package consumertest

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Handler is your code under test.
type Handler struct {
	// Config is what your program gives to consumer.New; Store and Handler (or the store's own effect) are what
	// matters. Poison, Retry, Logger and Kafka's settings are replaced.
	Config consumer.Config

	// Applied returns what your effect holds of a device: the positions it was applied for, in order. Read it from
	// where your handler writes: a table, a key, a field of a fake.
	Applied func(t *testing.T, device string) []devicestate.Position

	// AtLeastOnce: the handler's effect may repeat after a failure between handling and advancing. Leave it false when the effect
	// is in the handler's transaction or inside the Redis script: then a repetition fails the test.
	AtLeastOnce bool

	// Event shapes the events: the state your handler understands, its stream and hub. Optional.
	Event func(*devicestate.Event)

	// ToleratesAnyState: events whose state is of a kind your handler does not know (a number, null, an array) are
	// sent too, and must be applied. Otherwise they may fail, with consumer.Permanent.
	ToleratesAnyState bool
}

// TestHandler runs everything that a topic may bring against a handler: duplicates, replays, holes, new epochs, out-of-order
// copies, fields of a newer writer, older and newer schema versions, records that are no event, and being asked again
// after a failure. setup is called for each case and returns a handler without any effect yet.
func TestHandler(t *testing.T, setup func(t *testing.T) Handler) {
	for name, test := range map[string]func(*driver, *testing.T){
		"EachEventInOrder":                   (*driver).inOrder,
		"DuplicatesAndOutOfOrderCopies":      (*driver).copies,
		"ReplaysOfOldEvents":                 (*driver).replays,
		"HolesAreNotWaitedFor":               (*driver).holes,
		"NewEpochStartsAgain":                (*driver).epochs,
		"FieldsOfANewerWriter":               (*driver).newerFields,
		"OtherSchemaVersionsGoAside":         (*driver).otherVersions,
		"PoisonBlocksNobody":                 (*driver).poison,
		"TheSameBatchAgain":                  (*driver).again,
		"StreamsOfADeviceAreApart":           (*driver).streams,
		"StatesOfAnyKind":                    (*driver).anyState,
		"MissingTimesCountersAndMarks":       (*driver).bareEvents,
		"ManyDevicesInOneBatch":              (*driver).manyDevices,
		"CancelledInTheMiddleAndTriedAgain":  (*driver).cancelled,
		"RestatedRetainedAndHeartbeatEvents": (*driver).marks,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newDriver(t, setup(t)), t)
		})
	}
}

// driver feeds records of one partition to a handler.
type driver struct {
	h        Handler
	consumer *consumer.Consumer
	offset   int64
}

func newDriver(t *testing.T, h Handler) *driver {
	t.Helper()
	cfg := h.Config
	cfg.Brokers, cfg.Options = []string{"unused.invalid:9092"}, nil
	cfg.Group, cfg.Topic = "consumertest", topicName
	cfg.Poison = consumer.DeadLetterTo("dead-letters")
	cfg.Retry = consumer.Retry{MinDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, MaxAttempts: 2}
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &driver{h: h, consumer: c}
}

func (d *driver) event(device string, epoch, sequence int64, changes ...func(*kgo.Record)) *kgo.Record {
	e := Event(device, epoch, sequence)
	if d.h.Event != nil {
		d.h.Event(&e)
	}
	return Record(topicName, e, changes...)
}

// feed hands records on as the next of the partition and returns the dead letters.
func (d *driver) feed(t *testing.T, records ...*kgo.Record) []*kgo.Record {
	t.Helper()
	for _, r := range records {
		r.Offset = d.offset
		d.offset++
	}
	dead, err := d.consumer.Feed(t.Context(), records...)
	if err != nil {
		t.Fatal(err)
	}
	return dead
}

func (d *driver) want(t *testing.T, device string, want ...devicestate.Position) {
	t.Helper()
	got := d.h.Applied(t, device)
	if d.h.AtLeastOnce {
		got = firsts(got)
	}
	if !slices.Equal(got, want) {
		t.Errorf("applied of %s: %v, want %v", device, got, want)
	}
}

func noneDead(t *testing.T, dead []*kgo.Record) {
	t.Helper()
	for _, r := range dead {
		t.Errorf("in the dead-letter topic: %v", r.Headers[max(0, len(r.Headers)-6):])
	}
}
