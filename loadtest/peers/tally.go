package peers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/loadtest/witness"
)

// Tally is what a topic's readers have met: each device's sequence is dense from 1, so nothing else needs to be known.
type Tally struct {
	Distinct  int64 `json:"distinct"`
	Repeated  int64 `json:"repeated"`  // seen before
	Reordered int64 `json:"reordered"` // first deliveries behind a later one of their device

	streams map[string]*stream
}

type stream struct {
	last    int64
	missing map[int64]struct{} // below last
}

func newTally() *Tally { return &Tally{streams: map[string]*stream{}} }

// add judges one record and reports whether it is a first delivery.
func (t *Tally) add(device string, sequence int64) bool {
	s := t.streams[device]
	if s == nil {
		s = &stream{missing: map[int64]struct{}{}}
		t.streams[device] = s
	}
	if sequence > s.last {
		for n := s.last + 1; n < sequence; n++ {
			s.missing[n] = struct{}{}
		}
		s.last = sequence
		t.Distinct++
		return true
	}
	if _, missed := s.missing[sequence]; missed {
		delete(s.missing, sequence)
		t.Distinct++
		t.Reordered++
		return true
	}
	t.Repeated++
	return false
}

// reader follows one topic from where it stopped last; between two uses it costs nothing.
type reader struct {
	brokers []string
	topic   string
	next    map[int32]kgo.Offset
	client  *kgo.Client
	tally   *Tally
}

// open starts following; close ends it.
func (r *reader) open(ctx context.Context) error {
	if r.next == nil {
		r.next = map[int32]kgo.Offset{}
		ends, err := witness.EndOffsets(ctx, r.brokers, r.topic)
		if err != nil {
			return err
		}
		for p := range ends {
			r.next[p] = kgo.NewOffset().At(0)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: r.next}))
	if err != nil {
		return fmt.Errorf("read topic: %w", err)
	}
	r.client = client
	return nil
}

func (r *reader) close() { r.client.Close() }

// errQuiet says that nothing new came for as long as one was ready to wait.
var errQuiet = errors.New("the topic is quiet")

// until reads until enough first deliveries were met in total, each is called for each. It gives up with errQuiet when
// none came for patience.
func (r *reader) until(ctx context.Context, enough int64, patience time.Duration, each func(device string, sequence int64)) error {
	quiet := time.Now()
	for r.tally.Distinct < enough {
		poll, cancel := context.WithTimeout(ctx, time.Second)
		fetches := r.client.PollFetches(poll)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("read topic: %w", err)
		}
		before := r.tally.Distinct
		fetches.EachRecord(func(rec *kgo.Record) {
			r.next[rec.Partition] = kgo.NewOffset().At(rec.Offset + 1)
			if sequence := sequenceOf(rec); r.tally.add(string(rec.Key), sequence) && each != nil {
				each(string(rec.Key), sequence)
			}
		})
		if r.tally.Distinct > before {
			quiet = time.Now()
		}
		if time.Since(quiet) > patience {
			return errQuiet
		}
	}
	return nil
}

func sequenceOf(r *kgo.Record) int64 {
	for _, h := range r.Headers {
		if h.Key == "ce_sequence" {
			n, _ := strconv.ParseInt(string(h.Value), 10, 64)
			return n // what cannot be read is 0 and counts as repeated: then something is missing, too
		}
	}
	return 0
}
