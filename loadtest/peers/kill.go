package peers

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kill is what a backlog looked like on the topic although the peer was killed with SIGKILL amid it.
type Kill struct {
	Peer      string  `json:"peer"`
	Rows      int     `json:"rows"`
	Kills     int     `json:"kills"`
	Lost      int64   `json:"lost"` // not there a minute after the last arrival
	Repeated  int64   `json:"repeated"`
	Reordered int64   `json:"reordered"` // first deliveries behind a later one of their device
	Seconds   float64 `json:"seconds"`   // from the first start to the last record
}

// kills is how often a peer is killed, at equal shares of the backlog.
const kills = 3

// underKill fills the table, and kills and starts the peer again while it empties it.
func (r *runner) underKill(ctx context.Context, p *peer) (k Kill, err error) {
	k.Peer, k.Rows = p.name, p.killRows
	if err := p.fill.fill(ctx, p.killRows); err != nil {
		return k, err
	}
	if err := p.topic.open(ctx); err != nil {
		return k, err
	}
	defer p.topic.close()
	before := *p.topic.tally
	outstanding := p.fill.total - before.Distinct
	began := time.Now()
	run, err := p.start(ctx)
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, run.Terminate(context.WithoutCancel(ctx))) }()
	for n := range int64(kills) {
		if err := p.topic.until(ctx, before.Distinct+outstanding*(n+1)/(kills+1), patience, nil); err != nil {
			return k, fmt.Errorf("kill %s: %w", p.name, err)
		}
		if err := run.Kill(); err != nil {
			return k, err
		}
		if p.topic.tally.Distinct < p.fill.total {
			k.Kills++ // else it had finished
		}
		next, err := p.start(ctx)
		if err != nil {
			return k, err
		}
		run = next
	}
	err = p.topic.until(ctx, p.fill.total, patience, nil)
	if err != nil && !errors.Is(err, errQuiet) {
		return k, err
	}
	after := p.topic.tally
	k.Seconds = time.Since(began).Seconds()
	k.Lost, k.Repeated, k.Reordered = p.fill.total-after.Distinct, after.Repeated-before.Repeated, after.Reordered-before.Reordered
	fmt.Fprintf(r.opts.Out, "%-9s killed %d times: %d lost, %d repeated, %d reordered, %.1f s\n", p.name, k.Kills, k.Lost, k.Repeated, k.Reordered, k.Seconds)
	return k, nil
}
