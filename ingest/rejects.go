package ingest

import (
	"strings"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// rejectRows are the arrays of insertRejects: reports that could not be applied, with their bytes.
type rejectRows struct {
	topic          []string
	device, stream []pgtype.Text
	reason, detail []string
	payload        [][]byte
	retained       []bool
	received       []time.Time
}

func (r *rejectRows) reset() {
	clear(r.payload)
	*r = rejectRows{
		topic: r.topic[:0], device: r.device[:0], stream: r.stream[:0], reason: r.reason[:0], detail: r.detail[:0],
		payload: r.payload[:0], retained: r.retained[:0], received: r.received[:0],
	}
}

func (r *rejectRows) add(it *item, why *devicestate.Reject) {
	r.topic = append(r.topic, storable(it.topic))
	r.device = append(r.device, pgtype.Text{String: it.report.Device, Valid: it.report.Device != ""})
	r.stream = append(r.stream, pgtype.Text{String: it.report.Stream, Valid: it.report.Stream != ""})
	r.reason = append(r.reason, string(why.Reason))
	r.detail = append(r.detail, storable(describe(why)))
	r.payload = append(r.payload, orEmpty(it.payload))
	r.retained = append(r.retained, it.report.Retained)
	r.received = append(r.received, it.report.ReceivedAt)
}

func describe(why *devicestate.Reject) string {
	if why.Field == "" {
		return why.Detail
	}
	return why.Field + ": " + why.Detail
}

// storable makes any bytes text that PostgreSQL takes: a topic may hold what no profile matches.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// queue stores the rejects, up to the caps; what is beyond them is counted by reason and hour (N1).
func (r *rejectRows) queue(b *pgx.Batch, lane string, caps RejectCaps) {
	if len(r.topic) == 0 {
		return
	}
	b.Queue(insertRejects, lane, r.topic, r.device, r.stream, r.reason, r.detail, r.payload, r.retained, r.received, caps.PerDevice, caps.Total)
}
