package main

// Rebase: every statement runs in one transaction that holds all bucket locks, except in a dry run.
const (
	// In ascending order, as every writer takes them.
	lockAllBuckets = `SELECT /* relay.lock_all_buckets */ pg_advisory_xact_lock($1, b) FROM generate_series(0, $2::int - 1) AS b`

	// What the database knows of each bucket: its cursor, the last row it has (attached or sealed by the cursor's own record).
	selectEnds = `SELECT /* relay.bucket_ends */ b.bucket, b.cursor, b.cursor_message_id, b.halted, coalesce(o.position, 0), o.message_id, p.pending
FROM outbox_bucket b
LEFT JOIN LATERAL (SELECT x.position, x.message_id FROM outbox x WHERE x.bucket = b.bucket ORDER BY x.position DESC LIMIT 1) o ON true
CROSS JOIN LATERAL (SELECT count(*) AS pending FROM outbox x WHERE x.bucket = b.bucket AND x.position > b.cursor) p
ORDER BY b.bucket`

	selectEpoch = `SELECT /* relay.epoch */ greatest((SELECT max(epoch) FROM device_state), (SELECT epoch FROM hubstate_settings), 1), extract(epoch FROM clock_timestamp())::bigint`

	countStreams = `SELECT /* relay.count_streams */ count(*), count(*) FILTER (WHERE sequence > 0 OR owed) FROM device_state`

	countParked = `SELECT /* relay.count_parked */ count(*) FROM outbox_dead WHERE state IN ('held', 'releasing')`

	countLive = `SELECT /* relay.count_live */ count(*) FROM relay_instance WHERE lease_until > clock_timestamp()`

	// What was committed and will never be published, by stream. Sequences of a stream are dense.
	supersedeRows = `INSERT /* relay.supersede */ INTO outbox_superseded (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, up_to)
SELECT o.bucket, o.aggregate_id, o.stream, o.epoch, min(o.sequence), max(o.sequence), max(o.position)
FROM outbox o JOIN outbox_bucket b ON b.bucket = o.bucket AND o.position > b.cursor
GROUP BY o.bucket, o.aggregate_id, o.stream, o.epoch
ON CONFLICT ON CONSTRAINT outbox_superseded_pkey DO UPDATE SET to_sequence = greatest(outbox_superseded.to_sequence, excluded.to_sequence), up_to = excluded.up_to`

	// Ranges of the old epoch wait for an event that will never come; keep_superseded keeps what they say.
	forgetSkipped = `DELETE /* relay.forget_skipped */ FROM outbox_skipped`

	// What waits behind a dead head would be dropped by every gate after the rebase; the heads stay to be decided, and
	// nothing waits for them any more.
	discardParked = `UPDATE /* relay.discard_parked */ outbox_dead SET state = 'discarded', decided_by = $1, decided_at = clock_timestamp(), decision = 'rebase'
WHERE state IN ('held', 'releasing')`

	releaseHeads = `UPDATE /* relay.release_heads */ outbox_dead SET parks = false WHERE parks AND state = 'dead'`

	// A higher term: whoever owns a bucket now changes nothing any more (O3).
	rebaseBuckets = `UPDATE /* relay.rebase_buckets */ outbox_bucket b
SET cursor = w.cursor, cursor_message_id = w.id, cursor_at = CASE WHEN w.on_topic THEN clock_timestamp() END, owner = NULL, term = b.term + 1, halted = NULL,
    row_attempts = 0, outage_attempts = 0, last_error_code = NULL, last_error = NULL, next_attempt_at = NULL
FROM unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::boolean[]) AS w (bucket, cursor, id, on_topic)
WHERE b.bucket = w.bucket`

	// New rows must lie above everything on the topic.
	raisePosition = `SELECT /* relay.raise_position */ setval('outbox_position_seq', greatest($1::bigint, nextval('outbox_position_seq')))`

	raiseEpoch = `UPDATE /* relay.raise_epoch */ hubstate_settings SET epoch = $1, topic = $2, topic_partitions = $3`

	selectStreams = `SELECT /* relay.streams */ device_id, stream, hub_id, sequence, counter, boot, occurred_at, received_at, clock_suspect, retained, state, missed, late, duplicate, quarantined, owed
FROM device_state WHERE (device_id, stream) > ($1, $2) ORDER BY device_id, stream LIMIT $3`

	moveStreams = `UPDATE /* relay.move_streams */ device_state d
SET epoch = $1, sequence = w.sequence, emitted_at = coalesce(w.emitted_at, d.emitted_at), owed = d.owed AND w.emitted_at IS NULL, updated_at = clock_timestamp()
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::timestamptz[]) AS w (device_id, stream, sequence, emitted_at)
WHERE d.device_id = w.device_id AND d.stream = w.stream`

	auditRebase = `INSERT /* relay.audit_rebase */ INTO audit (actor, action, subject, reason, detail) VALUES ($1, $2, $3, $4, $5)`

	// Reconcile: the newest event of each stream that is still in the attached partitions, against the stored state.
	selectMismatches = `SELECT /* relay.mismatches */ n.aggregate_id, n.stream, n.epoch, n.sequence, d.epoch, d.sequence
FROM (SELECT DISTINCT ON (o.bucket, o.aggregate_id, o.stream) o.aggregate_id, o.stream, o.epoch, o.sequence
      FROM outbox o ORDER BY o.bucket, o.aggregate_id, o.stream, o.position DESC) n
LEFT JOIN device_state d ON d.device_id = n.aggregate_id AND d.stream = n.stream
WHERE (d.epoch, d.sequence) IS DISTINCT FROM (n.epoch, n.sequence)
ORDER BY n.aggregate_id, n.stream LIMIT $1`

	// Streams whose rows in the attached partitions are not dense within an epoch (D2).
	selectHoles = `SELECT /* relay.holes */ aggregate_id, stream, epoch, min(sequence), max(sequence), count(*)
FROM outbox GROUP BY bucket, aggregate_id, stream, epoch HAVING count(*) <> max(sequence) - min(sequence) + 1
ORDER BY aggregate_id, stream, epoch LIMIT $1`

	selectStates = `SELECT /* relay.states */ u.ord, d.epoch, d.sequence FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (device_id, stream, ord)
JOIN device_state d ON d.device_id = u.device_id AND d.stream = u.stream`

	// Attached partitions first, then the sealed ones by device.
	selectRowAt = `SELECT /* relay.row_at */ message_id FROM outbox WHERE bucket = $1 AND position = $2
UNION ALL SELECT message_id FROM outbox_history WHERE aggregate_id = $3 AND position = $2 LIMIT 1`
)
