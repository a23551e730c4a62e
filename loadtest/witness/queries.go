package witness

// All statements read with the rights of hubstate_reader. $1 is the prefix of the fleet's device ids.
const (
	sqlOutbox = `SELECT /* witness.outbox */ position, bucket, payload FROM outbox WHERE starts_with(aggregate_id, $1)
UNION ALL SELECT position, bucket, payload FROM outbox_sealed WHERE starts_with(aggregate_id, $1)
ORDER BY position`

	sqlStates = `SELECT /* witness.states */ device_id, stream, epoch, sequence, missed, late, duplicate, quarantined, received_at, state
FROM device_state WHERE starts_with(device_id, $1)`

	sqlGaps = `SELECT /* witness.gaps */ device_id, stream, from_counter, to_counter FROM stream_gap
WHERE starts_with(device_id, $1) ORDER BY id`

	sqlRejects = `SELECT /* witness.rejects */ topic, payload FROM ingest_reject WHERE strpos(topic, '/' || $1) > 0`

	sqlRejectCounts = `SELECT /* witness.reject_counts */ (SELECT count(*) FROM ingest_reject),
	(SELECT coalesce(sum(rejected), 0)::bigint FROM ingest_reject_overflow)`

	sqlDead = `SELECT /* witness.dead */ position, bucket, payload FROM outbox_dead
WHERE starts_with(aggregate_id, $1) AND state IN ('dead', 'held', 'releasing') ORDER BY position`

	sqlSkipped = `SELECT /* witness.skipped */ aggregate_id, stream, epoch, from_sequence, to_sequence FROM outbox_skipped
WHERE starts_with(aggregate_id, $1)`

	sqlPending = `SELECT /* witness.pending */ count(*) FROM outbox o JOIN outbox_bucket b USING (bucket) WHERE o.position > b.cursor`

	sqlHalted = `SELECT /* witness.halted */ bucket, halted FROM outbox_bucket WHERE halted IS NOT NULL`

	sqlClasses = `SELECT /* witness.classes */ coalesce(sum(applied), 0)::bigint, coalesce(sum(duplicate), 0)::bigint,
	coalesce(sum(late), 0)::bigint, coalesce(sum(coalesced), 0)::bigint, coalesce(sum(discarded), 0)::bigint,
	coalesce(sum(ignored), 0)::bigint, coalesce(sum(quarantined), 0)::bigint FROM ingest_lane`

	sqlStreamTotals = `SELECT /* witness.stream_totals */ coalesce(sum(late), 0)::bigint, coalesce(sum(duplicate), 0)::bigint FROM device_state`

	sqlPossibleGaps = `SELECT /* witness.possible_gaps */ count(*) FROM possible_gap`

	// Reads three small tables and one index condition per bucket: cheap enough for once a second. A bucket with rows
	// above its cursor counts as one pending row at least; how many there are is told by the difference of the sums.
	sqlProgress = `SELECT /* witness.progress */ l.applied, l.total, b.published, b.behind, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint
FROM (SELECT coalesce(sum(applied), 0)::bigint AS applied,
	coalesce(sum(applied + duplicate + late + coalesced + discarded + ignored + quarantined), 0)::bigint AS total FROM ingest_lane) l,
	(SELECT coalesce(sum(published), 0)::bigint AS published,
		count(*) FILTER (WHERE EXISTS (SELECT FROM outbox o WHERE o.bucket = c.bucket AND o.position > c.cursor)) AS behind
	FROM outbox_bucket c) b`
)
