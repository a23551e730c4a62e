package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Single is how long single rows took, from just before their transaction until a consumer had them.
type Single struct {
	Peer string  `json:"peer"`
	Rows int     `json:"rows"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
}

const (
	singlePace = 10 * time.Millisecond // 100 rows a second
	warmRows   = 200                   // rows that do not count
	patience   = time.Minute           // for a peer that starts or recovers
)

// underLightLoad appends single rows at a steady pace to a running peer.
func (r *runner) underLightLoad(ctx context.Context, p *peer) (s Single, err error) {
	s.Peer, s.Rows = p.name, r.opts.Singles
	run, err := p.start(ctx)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, run.Terminate(context.WithoutCancel(ctx))) }()
	if err := p.topic.open(ctx); err != nil {
		return s, err
	}
	defer p.topic.close()
	if err := p.topic.until(ctx, p.fill.total, patience, nil); err != nil {
		return s, fmt.Errorf("light load on %s: its backlog: %w", p.name, err)
	}
	l := &lightLoad{fill: p.fill, due: map[row]time.Time{}}
	if err := l.run(ctx, p.topic, warmRows); err != nil {
		return s, fmt.Errorf("light load on %s: %w", p.name, err)
	}
	l.delays = nil
	if err := l.run(ctx, p.topic, r.opts.Singles); err != nil {
		return s, fmt.Errorf("light load on %s: %w", p.name, err)
	}
	slices.Sort(l.delays)
	s.P50, s.P99 = l.percentile(50), l.percentile(99)
	fmt.Fprintf(r.opts.Out, "%-9s single rows: p50 %.1f ms, p99 %.1f ms\n", p.name, s.P50, s.P99)
	return s, nil
}

// lightLoad remembers when each row was written.
type lightLoad struct {
	fill   *filler
	mu     sync.Mutex
	due    map[row]time.Time
	delays []time.Duration
}

func (l *lightLoad) run(ctx context.Context, topic *reader, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	enough := l.fill.total + int64(n)
	// Ends with its last row or with ctx; run waits for it.
	go func() {
		err := l.write(ctx, n)
		if err != nil {
			cancel()
		}
		failed <- err
	}()
	err := topic.until(ctx, enough, patience, l.arrived)
	cancel()
	if writeErr := <-failed; writeErr != nil && err != nil {
		return errors.Join(writeErr, err)
	}
	return err
}

// write appends rows one by one, each when it is due; a slow transaction makes the next ones late, not fewer.
func (l *lightLoad) write(ctx context.Context, n int) error {
	tick := time.NewTicker(singlePace)
	defer tick.Stop()
	for range n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		l.mu.Lock()
		l.due[l.fill.upcoming()] = time.Now()
		l.mu.Unlock()
		if err := l.fill.add(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

func (l *lightLoad) arrived(device string, sequence int64) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, known := l.due[row{device, sequence}]; known {
		l.delays = append(l.delays, now.Sub(at))
	}
}

func (l *lightLoad) percentile(n int) float64 {
	if len(l.delays) == 0 {
		return 0
	}
	return float64(l.delays[len(l.delays)*n/100].Microseconds()) / 1000
}
