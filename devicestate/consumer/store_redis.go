package consumer

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/redis/go-redis/v9"
)

// RedisConfig says how a RedisStore works.
type RedisConfig struct {
	// Client talks to a server, a sentinel group or a cluster. Redis 6 or newer. Required.
	Client redis.UniversalClient

	// Name is the consumer's; all keys begin with {Name}: so that they share a slot of a cluster. Required.
	Name string

	// Effects says what the script writes for a delivery that passes the gate. Optional. See the package documentation.
	Effects func(*Effects, *Delivery)

	// HoleLimit is how many holes the script keeps, newest first. Default: 0, none.
	HoleLimit int
}

// RedisStore keeps positions, offsets and effects in Redis and moves them together, in one atomic script per batch.
// It may be lost at any time: a consumer notices and rebuilds it from the topic.
type RedisStore struct {
	client  redis.UniversalClient
	effects func(*Effects, *Delivery)
	limit   int

	positions string
	holes     string
	instance  string
	batches   atomic.Uint64
}

//go:embed apply.lua
var applySource string

var applyScript = redis.NewScript(applySource)

// NewRedisStore returns a store. It does not connect.
func NewRedisStore(cfg RedisConfig) *RedisStore {
	return &RedisStore{
		client: cfg.Client, effects: cfg.Effects, limit: cfg.HoleLimit,
		positions: "{" + cfg.Name + "}:positions", holes: "{" + cfg.Name + "}:holes", instance: rand.Text(),
	}
}

// validate is asked by New.
func (s *RedisStore) validate() error {
	if s.client == nil || s.positions == "{}:positions" {
		return errors.New("consumer config: RedisStore: Client and Name are required")
	}
	return nil
}

// Fields of the positions hash. NUL cannot occur in a JSON string, so no two names collide.
func streamField(k StreamKey) string { return k.Device + "\x00" + k.Stream }
func offsetField(topic string, partition int32) string {
	return "\x00offset\x00" + topic + "\x00" + strconv.Itoa(int(partition))
}
func answerField(topic string, partition int32) string {
	return "\x00answer\x00" + topic + "\x00" + strconv.Itoa(int(partition))
}

// Resume implements Store.
func (s *RedisStore) Resume(ctx context.Context, topic string, committed map[int32]int64) (map[int32]Resume, error) {
	fields, partitions := make([]string, 0, len(committed)), make([]int32, 0, len(committed))
	for partition := range committed {
		partitions = append(partitions, partition)
		fields = append(fields, offsetField(topic, partition))
	}
	resume := make(map[int32]Resume, len(committed))
	if len(fields) == 0 {
		return resume, nil
	}
	values, err := s.client.HMGet(ctx, s.positions, fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("read offsets from redis: %w", err)
	}
	for i, partition := range partitions {
		stored := Unknown
		if text, ok := values[i].(string); ok {
			if stored, err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, fmt.Errorf("read offset of partition %d from redis: %w", partition, err)
			}
		}
		resume[partition] = resumeAt(committed[partition], stored)
	}
	return resume, nil
}

// Process implements Store.
func (s *RedisStore) Process(ctx context.Context, b *Batch, handle Handler) error {
	if err := s.handle(ctx, b, handle); err != nil {
		return err
	}
	keys, args := s.arguments(b)
	answer, err := applyScript.Run(ctx, s.client, keys, args...).StringSlice()
	if err != nil {
		return fmt.Errorf("apply batch in redis: %w", err)
	}
	return b.take(answer)
}

// handle calls an outside handler before the script moves anything: at least once. Without one the positions
// need not be read.
func (s *RedisStore) handle(ctx context.Context, b *Batch, handle Handler) error {
	keys := b.Streams()
	if handle == nil || len(keys) == 0 {
		return nil
	}
	fields := make([]string, 0, len(keys)+1)
	for _, key := range keys {
		fields = append(fields, streamField(key))
	}
	values, err := s.client.HMGet(ctx, s.positions, append(fields, offsetField(b.Topic, b.Partition))...).Result()
	if err != nil {
		return fmt.Errorf("read positions from redis: %w", err)
	}
	// A store that lost its positions would let everything pass.
	last, _ := values[len(keys)].(string)
	if err := behind(b.Confirmed, parseOffset(last)); err != nil {
		return err
	}
	stored := make([]devicestate.Position, len(keys))
	for i := range keys {
		text, _ := values[i].(string)
		stored[i] = parsePosition(text)
	}
	b.Gate(stored)
	return b.handleAccepted(ctx, handle)
}

// arguments lays the batch out as apply.lua reads it.
func (s *RedisStore) arguments(b *Batch) (keys []string, args []any) {
	streams := b.Streams()
	fx, events := s.collect(b)
	keys = make([]string, 0, len(fx.groups)+2)
	keys = append(keys, s.positions, s.holes)
	if b.token == "" {
		b.token = s.instance + strconv.FormatUint(s.batches.Add(1), 36) + "|"
	}
	args = make([]any, 0, len(streams)+2*len(fx.groups)+len(events)+10)
	args = append(args, offsetField(b.Topic, b.Partition), answerField(b.Topic, b.Partition), b.token,
		b.Confirmed, b.Next, s.limit, len(streams))
	for _, key := range streams {
		args = append(args, streamField(key))
	}
	args = append(args, len(fx.groups))
	for _, g := range fx.groups {
		keys = append(keys, g.key)
		args = append(args, g.command, g.variadic)
	}
	return keys, append(append(args, len(b.Deliveries)), events...)
}

func (s *RedisStore) collect(b *Batch) (*Effects, []any) {
	fx := &Effects{latest: map[string]int{}}
	events := make([]any, 0, 12*len(b.Deliveries))
	for i, d := range b.Deliveries {
		fx.args = fx.args[:0]
		if s.effects != nil && !d.parked {
			s.effects(fx, d)
		}
		at := d.Position()
		before := devicestate.Position{Epoch: at.Epoch, Sequence: at.Sequence - 1}
		events = append(events, b.of[i]+1, formatPosition(at), formatPosition(before), s.holeRecord(d), len(fx.args))
		events = append(events, fx.args...)
	}
	return fx, events
}

// take reads the answer of apply.lua: the positions before the batch, from which the verdicts follow exactly as the
// script decided, since both compare the same numbers in the same order.
func (b *Batch) take(answer []string) error {
	if len(answer) != 3 {
		return fmt.Errorf("apply batch in redis: answer of %d parts, want 3", len(answer))
	}
	offset := parseOffset(answer[1])
	if answer[0] == "behind" {
		return &BehindError{Confirmed: b.Confirmed, Stored: offset}
	}
	streams := b.Streams()
	if len(answer[2]) != positionSize*len(streams) {
		return fmt.Errorf("apply batch in redis: positions of %d bytes for %d streams", len(answer[2]), len(streams))
	}
	stored := make([]devicestate.Position, len(streams))
	for i := range streams {
		stored[i] = parsePosition(answer[2][i*positionSize : (i+1)*positionSize])
	}
	b.Gate(stored)
	b.Confirmed = offset
	return nil
}

const positionSize = 39

// formatPosition pads to 19 digits, as many as an int64 has.
func formatPosition(p devicestate.Position) string {
	buf := [positionSize]byte{19: '.'}
	putDigits(buf[:19], p.Epoch)
	putDigits(buf[20:], p.Sequence)
	return string(buf[:])
}

func putDigits(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// parsePosition returns the zero position for anything that is none.
func parsePosition(text string) devicestate.Position {
	epoch, sequence, _ := strings.Cut(text, ".")
	e, errE := strconv.ParseInt(epoch, 10, 64)
	n, errN := strconv.ParseInt(sequence, 10, 64)
	if errE != nil || errN != nil {
		return devicestate.Position{}
	}
	return devicestate.Position{Epoch: e, Sequence: n}
}

func parseOffset(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Unknown
	}
	return n
}

// Position returns the last (epoch, sequence) seen of a stream; zero when none.
func (s *RedisStore) Position(ctx context.Context, device, stream string) (devicestate.Position, error) {
	text, err := s.client.HGet(ctx, s.positions, streamField(StreamKey{device, stream})).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return devicestate.Position{}, fmt.Errorf("read position from redis: %w", err)
	}
	return parsePosition(text), nil
}
