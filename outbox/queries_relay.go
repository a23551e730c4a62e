package outbox

// The relay's statements. All that write a bucket carry owner and term (O3). None writes outbox.
const (
	registerInstance = `INSERT /* outbox.register */ INTO relay_instance (instance, lease_until)
VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (instance) DO UPDATE SET lease_until = EXCLUDED.lease_until`

	// Zero rows = somebody removed us: the lease is gone.
	renewLease = `UPDATE /* outbox.renew */ relay_instance SET lease_until = clock_timestamp() + $2::interval WHERE instance = $1`

	liveInstances = `SELECT /* outbox.live */ instance FROM relay_instance WHERE lease_until > clock_timestamp() ORDER BY instance`

	ownedBuckets = `SELECT /* outbox.owned */ bucket, term FROM outbox_bucket WHERE owner = $1`

	// One claimer at a time, as a statement before the claim: a claim that waits for another's row lock would judge the
	// owner's lease by a snapshot from before that claim, and steal from a live relay.
	claimLock = `SELECT /* outbox.claim_lock */ pg_advisory_xact_lock(1868723577, 0)`

	// A bucket is free when nobody owns it or its owner's lease ran out.
	claimBuckets = `UPDATE /* outbox.claim */ outbox_bucket SET owner = $1, term = term + 1, claimed_at = clock_timestamp()
WHERE bucket IN (
    SELECT b.bucket FROM outbox_bucket b LEFT JOIN relay_instance i ON i.instance = b.owner AND i.lease_until > clock_timestamp()
    WHERE i.instance IS NULL AND b.halted IS NULL
    ORDER BY b.bucket LIMIT $2 FOR UPDATE OF b SKIP LOCKED)
RETURNING bucket, term, cursor, cursor_message_id, cursor_at`

	releaseBucket = `UPDATE /* outbox.release */ outbox_bucket SET owner = NULL WHERE bucket = $1 AND owner = $2 AND term = $3`

	// Long-gone instances are swept by whoever renews; their buckets are free already.
	sweepInstances = `DELETE /* outbox.sweep_instances */ FROM relay_instance WHERE lease_until < clock_timestamp() - interval '1 hour'`

	removeInstance = `DELETE /* outbox.unregister */ FROM relay_instance WHERE instance = $1`

	// One statement for all buckets with room; (bucket, position) of each attached partition serves it. The limit is the
	// same for all: LATERAL's LIMIT cannot be a column.
	sweepRows = `SELECT /* outbox.sweep */ r.bucket, r.position, r.message_id, r.aggregate_id, r.event_type, r.schema_version, r.stream, r.epoch, r.sequence,
       r.source, r.traceparent, r.correlation_id, r.causation_id, r.payload, r.occurred_at, r.created_at
FROM unnest($1::smallint[], $2::bigint[]) AS w (bucket, after)
CROSS JOIN LATERAL (
    SELECT * FROM outbox o WHERE o.bucket = w.bucket AND o.position > w.after ORDER BY o.position LIMIT $3) r`

	// The rows of a plan (Backlog latest): few among many, one index descent each.
	sweepPlanned = `SELECT /* outbox.sweep_planned */ r.bucket, r.position, r.message_id, r.aggregate_id, r.event_type, r.schema_version, r.stream, r.epoch, r.sequence,
       r.source, r.traceparent, r.correlation_id, r.causation_id, r.payload, r.occurred_at, r.created_at
FROM unnest($1::smallint[], $2::bigint[]) AS w (bucket, position)
CROSS JOIN LATERAL (SELECT * FROM outbox o WHERE o.bucket = w.bucket AND o.position = w.position) r
ORDER BY r.bucket, r.position`

	// Holds the bucket's row, so that a plan is written by its owner or by nobody (O3).
	ownBucket = `SELECT /* outbox.own_bucket */ cursor FROM outbox_bucket WHERE bucket = $1 AND owner = $2 AND term = $3 FOR UPDATE`

	// The same for all buckets that are planned together, in ascending order.
	ownBuckets = `SELECT /* outbox.own_buckets */ b.bucket, b.cursor FROM unnest($1::smallint[], $2::bigint[]) AS w (bucket, term)
JOIN outbox_bucket b ON b.bucket = w.bucket AND b.owner = $3 AND b.term = w.term ORDER BY b.bucket FOR UPDATE OF b`

	// The whole backlog of some buckets by stream and epoch, without payloads: one pass, in parallel where the server can.
	backlogGroups = `SELECT /* outbox.backlog_groups */ o.bucket, o.aggregate_id, o.stream, o.epoch, min(o.sequence), max(o.sequence), max(o.position)
FROM unnest($1::smallint[], $2::bigint[]) AS w (bucket, after) JOIN outbox o ON o.bucket = w.bucket AND o.position > w.after
GROUP BY 1, 2, 3, 4`

	// The prefix that the broker acknowledged. Rows missing from RETURNING are lost leases.
	advanceCursors = `UPDATE /* outbox.advance */ outbox_bucket b
SET cursor = w.cursor, cursor_message_id = w.id, cursor_at = clock_timestamp(), published = b.published + CASE WHEN b.cursor < w.cursor THEN w.n ELSE 0 END,
    row_attempts = 0, outage_attempts = 0, last_error_code = NULL, last_error = NULL, next_attempt_at = NULL
FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::bigint[]) AS w (bucket, term, cursor, id, n)
WHERE b.bucket = w.bucket AND b.owner = $6 AND b.term = w.term
RETURNING b.bucket`

	recordFailure = `UPDATE /* outbox.record_failure */ outbox_bucket
SET row_attempts = $4, outage_attempts = $5, last_error_code = $6, last_error = $7, next_attempt_at = clock_timestamp() + $8::interval
WHERE bucket = $1 AND owner = $2 AND term = $3`

	haltBucket = `UPDATE /* outbox.halt */ outbox_bucket SET halted = $4, owner = NULL, last_error_code = 'HALTED', last_error = $4
WHERE bucket = $1 AND owner = $2 AND term = $3`

	moveCursor = `UPDATE /* outbox.move_cursor */ outbox_bucket SET cursor = $4, cursor_message_id = $5, cursor_at = clock_timestamp(), published = published + $6
WHERE bucket = $1 AND owner = $2 AND term = $3`

	insertDead = `INSERT /* outbox.insert_dead */ INTO outbox_dead
(position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, traceparent, correlation_id, causation_id,
 payload, occurred_at, created_at, state, row_attempts, error_code, error, parks)
SELECT position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, traceparent, correlation_id, causation_id,
       payload, occurred_at, created_at, $3, $4, $5, $6, $7
FROM outbox WHERE bucket = $1 AND position = ANY ($2)
ON CONFLICT (position) DO NOTHING`

	insertSkipped = `INSERT /* outbox.insert_skipped */ INTO outbox_skipped (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, reason, up_to)
SELECT bucket, aggregate_id, stream, epoch, sequence, sequence, $3, position FROM outbox WHERE bucket = $1 AND position = ANY ($2)
ON CONFLICT DO NOTHING`

	parkedKeys = `SELECT /* outbox.parked_keys */ aggregate_id, stream, epoch, sequence FROM outbox WHERE bucket = $1 AND position = ANY ($2) ORDER BY position`

	loadSkipped = `SELECT /* outbox.load_skipped */ bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, reason, up_to
FROM outbox_skipped WHERE bucket = ANY ($1) ORDER BY bucket, aggregate_id, stream, epoch, from_sequence`

	// Only ranges that a published event has carried.
	// Under our own term: a stale owner whose event was acknowledged late would else clear what the next owner has to obey.
	clearSkipped = `DELETE /* outbox.clear_skipped */ FROM outbox_skipped s
USING unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS w (bucket, aggregate_id, stream, epoch, below, term)
JOIN outbox_bucket b ON b.bucket = w.bucket AND b.owner = $7 AND b.term = w.term
WHERE s.bucket = w.bucket AND s.aggregate_id = w.aggregate_id AND s.stream = w.stream AND s.epoch = w.epoch AND s.to_sequence < w.below`

	// Rows up to the tail that have no other fate: superseded ranges and dead rows are not expected on the topic.
	rowsBetween = `SELECT /* outbox.rows_between */ o.position FROM outbox o
WHERE o.bucket = $1 AND o.position > $2 AND o.position <= $3
  AND NOT EXISTS (SELECT 1 FROM outbox_dead d WHERE d.position = o.position)
  AND NOT EXISTS (SELECT 1 FROM outbox_skipped s WHERE s.bucket = o.bucket AND s.aggregate_id = o.aggregate_id AND s.stream = o.stream
                  AND s.epoch = o.epoch AND o.sequence BETWEEN s.from_sequence AND s.to_sequence)
ORDER BY o.position`

	// Held whatever the policy of the new owner: what an earlier owner parked has to leave first.
	loadHeld = `SELECT /* outbox.load_held */ DISTINCT bucket, aggregate_id FROM outbox_dead
WHERE bucket = ANY ($1) AND state IN ('dead', 'held', 'releasing') AND (parks OR state = 'held')`

	// Keys whose parked rows may leave: a head of theirs was decided, or a release of theirs was interrupted (a crash, a
	// hand-over, an outage) after its head was marked. An undecided head keeps them. Served by outbox_dead_open_idx.
	decidedHeads = `SELECT /* outbox.decided_heads */ d.bucket, d.aggregate_id, bool_or(d.state = 'releasing' AND d.decision = 'discard')
FROM outbox_dead d JOIN outbox_bucket b ON b.bucket = d.bucket
WHERE b.owner = $1 AND d.state IN ('held', 'releasing') AND NOT EXISTS (
    SELECT FROM outbox_dead h WHERE h.bucket = d.bucket AND h.aggregate_id = d.aggregate_id AND h.state = 'dead' AND h.parks)
GROUP BY 1, 2`

	// A decided head that is sent again, and what is parked behind it, in order.
	sweepHeld = `SELECT /* outbox.sweep_held */ bucket, position, message_id, aggregate_id, event_type, schema_version, stream, epoch, sequence,
       source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at
FROM outbox_dead WHERE bucket = $1 AND aggregate_id = $2 AND (state = 'held' OR (state = 'releasing' AND decision = 'replay'))
ORDER BY position LIMIT $3`

	// The discarded heads become skipped ranges before anything behind them is sent.
	skipDiscarded = `INSERT /* outbox.skip_discarded */ INTO outbox_skipped (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, reason, up_to)
SELECT bucket, aggregate_id, stream, epoch, sequence, sequence, 'dead', position FROM outbox_dead
WHERE bucket = $1 AND aggregate_id = $2 AND state = 'releasing' AND decision = 'discard' ON CONFLICT DO NOTHING`

	discardHeads = `UPDATE /* outbox.discard_heads */ outbox_dead SET state = 'discarded'
WHERE bucket = $1 AND aggregate_id = $2 AND state = 'releasing' AND decision = 'discard'`

	markReleased = `UPDATE /* outbox.mark_released */ outbox_dead SET state = CASE state WHEN 'held' THEN 'published' ELSE 'replayed' END
WHERE bucket = $1 AND position = ANY ($2)`

	reviveDead = `UPDATE /* outbox.revive_dead */ outbox_dead SET state = 'dead', parks = true, decision = NULL, decided_by = NULL, decided_at = NULL, error_code = $3, error = $4
WHERE bucket = $1 AND position = $2`

	stillHeld = `SELECT /* outbox.still_held */ count(*) FROM outbox_dead WHERE bucket = $1 AND aggregate_id = $2
AND state IN ('dead', 'held', 'releasing') AND (parks OR state = 'held')`

	rowAt = `SELECT /* outbox.row_at */ message_id FROM outbox WHERE bucket = $1 AND position = $2`

	// Age and size of what the owned buckets have not published; the count stops at 10000 a bucket.
	// $2 is 1 for the age alone, one descent a bucket, or 10000 for the size too, which a backlog makes dear.
	measureBacklog = `SELECT /* outbox.measure */ coalesce(extract(epoch FROM clock_timestamp() - min(o.oldest)), 0)::float8, coalesce(sum(o.pending), 0)::bigint
FROM outbox_bucket b CROSS JOIN LATERAL (
    SELECT min(created_at) AS oldest, count(*) AS pending FROM (
        SELECT created_at FROM outbox WHERE bucket = b.bucket AND position > b.cursor ORDER BY position LIMIT $2) r) o
WHERE b.owner = $1`

	// Is served by the partition's own (bucket, position) index: one descent per bucket.
	undecidedRow = `SELECT /* outbox.undecided */ b.bucket, r.position, b.cursor FROM outbox_bucket b
CROSS JOIN LATERAL (SELECT position FROM %s WHERE bucket = b.bucket AND position > b.cursor ORDER BY position LIMIT 1) r
LIMIT 1`

	// Covers every commit that a snapshot taken before can show.
	logPosition = `SELECT /* outbox.log_position */ pg_current_wal_insert_lsn()::text`

	// Positions of other sessions are NULL without the rights of pg_read_all_stats.
	standbyFlushed = `SELECT /* outbox.standby_flushed */ count(*)::int, count(flush_lsn)::int, coalesce(bool_or(flush_lsn >= $2::text::pg_lsn), false)
FROM pg_stat_replication WHERE application_name = $1`

	lockOneBucket = `SELECT /* outbox.lock_one */ pg_advisory_xact_lock($1, $2)`
)
