package monitor

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
)

//go:embed view.lua
var applySource string

//go:embed overview.lua
var overviewSource string

//go:embed expected.lua
var expectedSource string

// layout is the version of what view.lua stores. Another layout needs another number: then the keys differ, and the new
// view is built from the topic beside the old one, whose keys ({hubstate:TOPIC}:OLD:*) may be deleted afterwards.
const layout = "1"

// delayKept is how long the minutes of delays are kept: a little more than the hour that a page shows.
const delayKept = 70 * time.Minute

// View is the latest view of all devices, in Redis. It is a consumer.Store: gate, effect and offset move together in one
// script a batch, so an event has its effect on the view once (C1). It may be lost at any time; the consumer notices,
// reads the topic again from its start, and the same view comes back. Safe for concurrent use, also by several processes.
type View struct {
	rdb      redis.UniversalClient
	prefix   string
	expect   Expectations
	apply    *redis.Script
	sum      *redis.Script
	known    *redis.Script
	now      func() time.Time
	instance string
	calls    atomic.Uint64
	refused  atomic.Pointer[error]
}

// NewView uses rdb. All keys of a topic share one hash tag, so that a Redis Cluster keeps them on one node.
func NewView(rdb redis.UniversalClient, topic string, expect Expectations) *View {
	return &View{
		rdb: rdb, prefix: "{hubstate:" + topic + "}:" + layout + ":", expect: expect, now: time.Now, instance: rand.Text(),
		apply: redis.NewScript(applySource), sum: redis.NewScript(overviewSource), known: redis.NewScript(expectedSource),
	}
}

func (v *View) key(parts ...string) string { return v.prefix + strings.Join(parts, "") }

// Resume implements consumer.Store. The lower of both offsets is safe: the gate drops what is read again. A view that
// holds nothing although the group has committed was flushed, or is new: it is built from the start of the topic.
func (v *View) Resume(ctx context.Context, _ string, committed map[int32]int64) (map[int32]consumer.Resume, error) {
	stored, err := v.Offsets(ctx)
	if err != nil {
		return nil, err
	}
	resume := make(map[int32]consumer.Resume, len(committed))
	for partition, c := range committed {
		s, ok := stored[partition]
		switch {
		case !ok && c == consumer.Unknown:
			resume[partition] = consumer.Resume{Offset: consumer.Unknown, Confirmed: consumer.Unknown}
		case !ok:
			resume[partition] = consumer.Resume{Offset: consumer.Earliest, Confirmed: consumer.Unknown}
		case c == consumer.Unknown:
			resume[partition] = consumer.Resume{Offset: s, Confirmed: s}
		default:
			resume[partition] = consumer.Resume{Offset: min(s, c), Confirmed: s}
		}
	}
	return resume, nil
}

// Process implements consumer.Store. The view itself is the effect, in one round trip. A handler beside it, if there is
// one, is called before the view moves: at least once.
func (v *View) Process(ctx context.Context, b *consumer.Batch, handle consumer.Handler) error {
	if handle != nil {
		if err := v.handleFirst(ctx, b, handle); err != nil {
			return err
		}
	}
	answer, err := v.apply.Run(ctx, v.rdb, []string{v.prefix}, v.arguments(b)...).StringSlice()
	v.noteWrite(ctx, err)
	if err != nil {
		return fmt.Errorf("apply %d events to the view: %w", len(b.Deliveries), err)
	}
	if len(answer) != 3 {
		return fmt.Errorf("apply to the view: answer of %d parts, want 3", len(answer))
	}
	offset, err := strconv.ParseInt(answer[1], 10, 64)
	if err != nil {
		return fmt.Errorf("apply to the view: %q is no offset", answer[1])
	}
	if answer[0] == "behind" {
		return &consumer.BehindError{Confirmed: b.Confirmed, Stored: offset}
	}
	if err := judge(b, answer[2]); err != nil {
		return err
	}
	b.Confirmed = offset
	return nil
}

// noteWrite keeps why the last write was refused. A store without memory reads well and takes nothing; the consumer tries
// again until it does.
func (v *View) noteWrite(ctx context.Context, err error) {
	switch {
	case err == nil:
		v.refused.Store(nil)
	case ctx.Err() == nil:
		v.refused.Store(&err)
	}
}

// Refused is why the store did not take the last write of this process; nil when it did.
func (v *View) Refused() error {
	if err := v.refused.Load(); err != nil {
		return fmt.Errorf("write to the view: %w", *err)
	}
	return nil
}

// handleFirst gates with what the view holds and hands on what passes.
func (v *View) handleFirst(ctx context.Context, b *consumer.Batch, handle consumer.Handler) error {
	streams := b.Streams()
	pipe := v.rdb.Pipeline()
	offset := pipe.HGet(ctx, v.key("pos"), strconv.Itoa(int(b.Partition)))
	numbers := make([]*redis.StringCmd, len(streams))
	for i, s := range streams {
		numbers[i] = pipe.HGet(ctx, v.key("d:", s.Device), "p:"+s.Stream)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read positions of the view: %w", err)
	}
	stored, err := strconv.ParseInt(offset.Val(), 10, 64)
	if err != nil {
		stored = consumer.Unknown
	}
	if b.Confirmed >= 0 && stored < b.Confirmed {
		return &consumer.BehindError{Confirmed: b.Confirmed, Stored: stored}
	}
	positions := make([]devicestate.Position, len(streams))
	for i := range streams {
		position, _, _ := strings.Cut(numbers[i].Val(), ":")
		positions[i] = parsePosition(position)
	}
	b.Gate(positions)
	if accepted := b.Accepted(); len(accepted) > 0 {
		return handle(ctx, accepted)
	}
	return nil
}

// argumentsPerEvent and argumentsBefore are the layout of view.lua's ARGV.
const (
	argumentsBefore   = 5
	argumentsPerEvent = 9
)

func (v *View) arguments(b *consumer.Batch) []any {
	now := v.now()
	token := v.instance + strconv.FormatUint(v.calls.Add(1), 36) + "|"
	args := make([]any, 0, argumentsBefore+argumentsPerEvent*len(b.Deliveries))
	args = append(args, int(b.Partition), b.Next, b.Confirmed, token, millis(now))
	for _, d := range b.Deliveries {
		e, at := &d.Event, d.Position()
		predecessor := ""
		if !d.Compacted {
			predecessor = formatPosition(devicestate.Position{Epoch: at.Epoch, Sequence: at.Sequence - 1})
		}
		args = append(args, e.Device, e.Hub, e.Stream, formatPosition(at), predecessor,
			appendNumbers(nil, e, v.expect.Of(e.Stream), now), appendSkips(nil, d.Skips), appendInstants(nil, instantsOf(d, now)), d.Value)
	}
	return args
}

// judge sets the verdicts from what the script's gate saw: it compared the same numbers in the same order.
func judge(b *consumer.Batch, seen string) error {
	if len(seen) != positionSize*len(b.Deliveries) {
		return fmt.Errorf("apply to the view: positions of %d bytes for %d events", len(seen), len(b.Deliveries))
	}
	for i, d := range b.Deliveries {
		d.Verdict = parsePosition(seen[i*positionSize:(i+1)*positionSize]).Check(d.Position(), d.Skips)
		if d.Compacted {
			d.Verdict.Lost = nil
		}
	}
	return nil
}

// Offsets are the next offsets of the view, by partition. Empty: the view is new, or was flushed.
func (v *View) Offsets(ctx context.Context) (map[int32]int64, error) {
	raw, err := v.rdb.HGetAll(ctx, v.key("pos")).Result()
	if err != nil {
		return nil, fmt.Errorf("read the view's offsets: %w", err)
	}
	next := make(map[int32]int64, len(raw))
	for p, offset := range raw {
		partition, errP := strconv.ParseInt(p, 10, 32)
		n, errN := strconv.ParseInt(offset, 10, 64)
		if errP != nil || errN != nil {
			return nil, fmt.Errorf("read the view's offsets: %q = %q is no offset", p, offset)
		}
		next[int32(partition)] = n
	}
	return next, nil
}

// Delays is a bundle of counted delays by hub and stage, waiting to be added to the view.
type Delays map[DelayKey]*Histogram

// DelayKey names one histogram.
type DelayKey struct {
	Hub   string
	Stage Stage
}

// Observe counts the delays of one event of hub that say something about its way.
func (d Delays) Observe(hub string, i Instants, clockSuspect bool) {
	i.Delays(func(s Stage, delay time.Duration) {
		if !countable(s, delay, clockSuspect) {
			return
		}
		h := d[DelayKey{hub, s}]
		if h == nil {
			h = &Histogram{}
			d[DelayKey{hub, s}] = h
		}
		h.Add(Bin(delay), 1)
	})
}

// AddDelays adds d to the minute of now. Delays are statistics: a failed call may have added a part of them.
func (v *View) AddDelays(ctx context.Context, d Delays, now time.Time) error {
	key := v.minuteKey(now)
	pipe := v.rdb.Pipeline()
	for k, h := range d {
		for bin, n := range h.bins {
			if n > 0 {
				pipe.HIncrBy(ctx, key, k.Hub+"|"+string(k.Stage)+"|"+strconv.Itoa(bin), n)
			}
		}
	}
	pipe.Expire(ctx, key, delayKept)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("add delays to the view: %w", err)
	}
	return nil
}

func (v *View) minuteKey(at time.Time) string {
	return v.key("lat:", strconv.FormatInt(at.Unix()/60, 10))
}

// Minute returns the delays of the minute that holds at.
func (v *View) Minute(ctx context.Context, at time.Time) (Delays, error) {
	raw, err := v.rdb.HGetAll(ctx, v.minuteKey(at)).Result()
	if err != nil {
		return nil, fmt.Errorf("read delays: %w", err)
	}
	d := Delays{}
	for field, count := range raw {
		part := strings.Split(field, "|")
		if len(part) != 3 {
			continue
		}
		bin, errB := strconv.Atoi(part[2])
		n, errN := strconv.ParseInt(count, 10, 64)
		if errB != nil || errN != nil {
			continue
		}
		k := DelayKey{part[0], Stage(part[1])}
		if d[k] == nil {
			d[k] = &Histogram{}
		}
		d[k].Add(bin, n)
	}
	return d, nil
}
