package partitions

import (
	"testing"
	"time"
)

// TestExpire_DeletesByAgeAndNeverWhatIsUndecided_P2 fills each subject with old rows.
func TestExpire_DeletesByAgeAndNeverWhatIsUndecided_P2(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i, state := range []string{"dead", "held", "releasing", "replayed", "discarded", "published"} {
		f.exec(`INSERT INTO outbox_dead (position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, created_at, state, error_code, error, failed_at)
			VALUES ($1, 1, gen_random_uuid(), 'device', 'd', 'e', 1, 's', 1, 1, '/', '', now(), $2, 'X', 'x', now() - interval '400 days')`, i, state)
	}
	f.exec(`INSERT INTO ingest_reject (lane, topic, reason, detail, payload, received_at, created_at) SELECT 'l', 't', 'r', '', '', now(), now() - make_interval(days => d) FROM unnest(ARRAY[1, 40, 50]) d`)
	f.exec(`INSERT INTO stream_gap (device_id, stream, from_counter, to_counter, detected_at) SELECT 'd', 's', d, d, now() - make_interval(days => d) FROM unnest(ARRAY[1, 40]) d`)
	f.exec(`INSERT INTO audit (actor, action, subject, at) SELECT 'a', 'b', 'c', now() - make_interval(days => d) FROM generate_series(1, 12000) d`)

	cfg := f.config()
	keep := 30 * 24 * time.Hour
	cfg.Retain = []Retention{{"dead", keep}, {"rejects", keep}, {"gaps", keep}, {"audit", keep}, {"dead", 0}}
	f.turn(cfg)
	for table, want := range map[string]int64{"outbox_dead": 3, "ingest_reject": 1, "stream_gap": 1, "audit": 29} {
		if got := f.query(`SELECT count(*) FROM ` + table); got != want && got != want+1 { // a row of exactly 30 days may go or stay
			t.Errorf("%d rows left in %s, want %d", got, table, want)
		}
	}
	if n := f.query(`SELECT count(*) FROM outbox_dead WHERE state IN ('dead', 'held', 'releasing')`); n != 3 {
		t.Errorf("%d undecided dead letters left, want all 3", n)
	}
	cfg.Retain = []Retention{{"dead", time.Hour}}
	f.exec(`UPDATE partition_spec SET expired_at = NULL`)
	if err := f.tryTurn(cfg); err == nil {
		t.Error("rows less than a day old were deleted")
	}
	if _, err := f.connect("hubstate_maintainer").Exec(t.Context(), `DELETE FROM outbox_dead`); err == nil {
		t.Error("the maintainer may delete dead letters past the rule")
	}
}
