package outbox

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// longBacklog is how many rows a two-hour outage leaves; HUBSTATE_TEST_BACKLOG changes it.
func longBacklog(t *testing.T) (rows, devices int) {
	t.Helper()
	rows, devices = 40_000, 2_000
	if os.Getenv("HUBSTATE_TEST_LONG") != "" {
		rows, devices = 5_000_000, 20_000
	}
	if n, err := strconv.Atoi(os.Getenv("HUBSTATE_TEST_BACKLOG")); err == nil && n > 0 {
		rows, devices = n, min(n, 20_000)
	}
	return rows - rows%devices, devices
}

// tally follows the topic record by record, without keeping any: each device's first deliveries must increase, and every
// hole be named by the event behind it.
type tally struct {
	last    map[string]int64
	skipped int64
	wrong   error
}

func newTally() *tally { return &tally{last: make(map[string]int64)} }

func (y *tally) add(d delivery) {
	at := y.last[d.device]
	if d.sequence <= at {
		return // a repeat
	}
	for seq := at + 1; seq < d.sequence; seq++ {
		if !covers(d.skipped, seq) && y.wrong == nil {
			y.wrong = fmt.Errorf("%s: %d is missing before %d and ce_skipped %q does not name it", d.device, seq, d.sequence, d.skipped)
		}
		y.skipped++
	}
	y.last[d.device] = d.sequence
}

func (y *tally) complete(devices int, sequence int64) bool {
	if len(y.last) < devices {
		return false
	}
	for _, at := range y.last {
		if at < sequence {
			return false
		}
	}
	return true
}

// follow reads the topic from its beginning until every device's sequence was seen.
func (b *bundle) follow(within time.Duration, devices int, sequence int64) *tally {
	b.t.Helper()
	client := b.reader()
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), within)
	defer cancel()
	y := newTally()
	for !y.complete(devices, sequence) {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			b.t.Fatalf("not within %s: %d devices were seen", within, len(y.last))
		}
		fetches.EachRecord(func(r *kgo.Record) { y.add(deliveryOf(r)) })
	}
	if y.wrong != nil {
		b.t.Error(y.wrong)
	}
	return y
}

// The return from a long outage under both policies: with `latest` every device's newest state is on the topic in seconds,
// with `all` the backlog drains in bounded memory; no consumer sees a hole that nothing explains (C2), in either.
func TestRelay_ReturnsFromALongOutage_O2_C2(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills a backlog")
	}
	b := setup(t)
	rows, devices := longBacklog(t)
	b.copyRows(rows, devices)
	newest := int64(rows / devices)

	started := time.Now()
	r := b.start(func(c *Config) { c.Backlog, c.BacklogAge = BacklogLatest, time.Millisecond })
	y := b.follow(10*time.Minute, devices, newest)
	took := time.Since(started)
	t.Logf("latest: %d rows of %d devices, every newest state on the topic after %s, %d superseded", rows, devices, took.Round(10*time.Millisecond), y.skipped)
	if y.skipped == 0 {
		t.Error("nothing was superseded")
	}
	if os.Getenv("HUBSTATE_TEST_STRICT") != "" && took > 20*time.Second {
		t.Errorf("the newest states took %s, want at most 20s", took)
	}
	r.stop()

	b.rewind()
	drained := b.drain(rows)
	peak := b.cost.peakMiB
	t.Logf("all: %d rows in %s, %.0f a second, peak of the relay %.0f MiB", rows, drained.Round(10*time.Millisecond), float64(rows)/drained.Seconds(), peak)
	if peak > 256 {
		t.Errorf("peak %.0f MiB, want at most 256", peak)
	}
	if y := b.follow(10*time.Minute, devices, newest); y.skipped != 0 {
		t.Errorf("%d sequences are missing", y.skipped)
	}
}
