package ingest

import (
	"github.com/hubstate/hubstate/devicestate"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// gapRows are the arrays of insertGaps: ranges of device counters that were passed over.
type gapRows struct {
	device, stream []string
	boot           []pgtype.Int8
	from, to       []int64
}

func (g *gapRows) reset() {
	*g = gapRows{device: g.device[:0], stream: g.stream[:0], boot: g.boot[:0], from: g.from[:0], to: g.to[:0]}
}

func (g *gapRows) add(r *devicestate.Report, d *devicestate.Decision, gap devicestate.Range) {
	g.device = append(g.device, r.Device)
	g.stream = append(g.stream, r.Stream)
	g.boot = append(g.boot, nullable(d.State.Boot))
	g.from = append(g.from, gap.From)
	g.to = append(g.to, gap.To)
}

func (g *gapRows) queue(b *pgx.Batch) {
	if len(g.device) > 0 {
		b.Queue(insertGaps, g.device, g.stream, g.boot, g.from, g.to)
	}
}

// fillRows are the arrays of fillGaps: counters that arrived late.
type fillRows struct {
	device, stream []string
	boot           []pgtype.Int8
	counter        []int64
}

func (f *fillRows) reset() {
	*f = fillRows{device: f.device[:0], stream: f.stream[:0], boot: f.boot[:0], counter: f.counter[:0]}
}

func (f *fillRows) add(r *devicestate.Report, counter int64) {
	f.device = append(f.device, r.Device)
	f.stream = append(f.stream, r.Stream)
	f.boot = append(f.boot, nullable(r.Boot))
	f.counter = append(f.counter, counter)
}

// queue must come after gapRows.queue: a gap and the report that fills it may be in one batch.
func (f *fillRows) queue(b *pgx.Batch) {
	if len(f.device) > 0 {
		b.Queue(fillGaps, f.device, f.stream, f.boot, f.counter)
	}
}
