package ingest

// The two round trips of a batch. Row locks and bucket locks are taken in the first, always lane before buckets.
const (
	begin    = `BEGIN /* ingest.begin */ ISOLATION LEVEL READ COMMITTED`
	commit   = `COMMIT /* ingest.commit */`
	rollback = `ROLLBACK /* ingest.rollback */`

	// No row: the lane belongs to another term. The row stays locked to the end, so a takeover waits for this batch and
	// then judges the lease that the batch has just renewed.
	lockLane = `SELECT /* ingest.lock_lane */ batch FROM ingest_lane WHERE lane = $1 AND term = $2 FOR NO KEY UPDATE`

	// After the bucket locks, as its own statement: its snapshot sees everything that the last holder committed.
	// Served by the primary key, one probe a stream. The content is not read: nothing is decided by it. Streams that the
	// lane wrote last are not read again (known.go).
	readStreams = `SELECT /* ingest.read_streams */ u.ord, d.hub_id, d.epoch, d.sequence, d.counter, d.boot, d.boot_started_at, d.boot_received_at,
  d.occurred_at, d.received_at, d.clock_suspect, d.retained, d.clock_skew_ms, d.state_hash, d.emitted_hash, d.emitted_at,
  d.missed, d.late, d.duplicate, d.quarantined, d.reboot_pending, d.owed, d.xmin
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (device_id, stream, ord)
JOIN device_state d ON d.device_id = u.device_id AND d.stream = u.stream`

	// One row a stream, the last of the batch. Under the bucket lock nobody else writes the row, so no conflict is to be
	// resolved: unlike with ON CONFLICT, no tuple lock is logged. xmin, the transaction that wrote it, names the version
	// that the batch was decided on. Should another one stand there, fewer rows than given are found and the division by
	// zero aborts before COMMIT; the next try reads all rows again. Served by the primary key, and not by ctid: only an
	// index scan prunes the page, without which no update stays HOT.
	// An empty state means: the content did not move. The answer is the number of this transaction.
	updateStreams = `WITH /* ingest.update_streams */ moved AS (
UPDATE device_state d SET
 sequence = u.sequence, counter = u.counter, boot = u.boot, boot_started_at = u.boot_started, boot_received_at = u.boot_received,
 occurred_at = u.occurred, received_at = u.received, clock_suspect = u.flags & 1 <> 0, retained = u.flags & 2 <> 0,
 reboot_pending = u.flags & 4 <> 0, owed = u.flags & 8 <> 0, clock_skew_ms = u.skew,
 state = CASE WHEN u.state = ''::bytea THEN d.state ELSE u.state END, state_hash = u.hash, emitted_hash = u.emitted,
 emitted_at = u.emitted_at, missed = u.missed, late = u.late, duplicate = u.duplicate, quarantined = u.quarantined,
 updated_at = clock_timestamp()
FROM (SELECT unnest($1::text[]) AS device, unnest($2::text[]) AS stream, unnest($3::bigint[]) AS sequence, unnest($4::smallint[]) AS flags,
 unnest($5::bigint[]) AS counter, unnest($6::bigint[]) AS boot, unnest($7::bigint[]) AS skew, unnest($8::timestamptz[]) AS boot_started,
 unnest($9::timestamptz[]) AS boot_received, unnest($10::timestamptz[]) AS occurred, unnest($11::timestamptz[]) AS received, unnest($12::timestamptz[]) AS emitted_at,
 unnest($13::bytea[]) AS state, unnest($14::bytea[]) AS hash, unnest($15::bytea[]) AS emitted, unnest($16::bigint[]) AS missed,
 unnest($17::bigint[]) AS late, unnest($18::bigint[]) AS duplicate, unnest($19::bigint[]) AS quarantined, unnest($20::xid[]) AS xmin) AS u
WHERE d.device_id = u.device AND d.stream = u.stream AND d.xmin = u.xmin RETURNING 1)
SELECT 1 / (count(*) = cardinality($20::xid[]))::int, pg_current_xact_id()::xid FROM moved`

	// The same for the usual batch: no boot, mark or total moves. What stays as it is, is not sent.
	updateSteady = `WITH /* ingest.update_steady */ moved AS (
UPDATE device_state d SET
 sequence = u.sequence, counter = u.counter, occurred_at = u.occurred, received_at = u.received, clock_skew_ms = u.skew,
 state = CASE WHEN u.state = ''::bytea THEN d.state ELSE u.state END, state_hash = u.hash, emitted_hash = u.emitted,
 emitted_at = u.emitted_at, updated_at = clock_timestamp()
FROM (SELECT unnest($1::text[]) AS device, unnest($2::text[]) AS stream, unnest($3::bigint[]) AS sequence, unnest($4::bigint[]) AS counter,
 unnest($5::bigint[]) AS skew, unnest($6::timestamptz[]) AS occurred, unnest($7::timestamptz[]) AS received, unnest($8::timestamptz[]) AS emitted_at,
 unnest($9::bytea[]) AS state, unnest($10::bytea[]) AS hash, unnest($11::bytea[]) AS emitted, unnest($12::xid[]) AS xmin) AS u
WHERE d.device_id = u.device AND d.stream = u.stream AND d.xmin = u.xmin RETURNING 1)
SELECT 1 / (count(*) = cardinality($12::xid[]))::int, pg_current_xact_id()::xid FROM moved`

	// A stream's first row.
	insertStreams = `INSERT /* ingest.insert_streams */ INTO device_state
(device_id, stream, bucket, hub_id, epoch, sequence, counter, boot, boot_started_at, boot_received_at, occurred_at, received_at,
 clock_suspect, retained, reboot_pending, owed, clock_skew_ms, state, state_hash, emitted_hash, emitted_at, missed, late, duplicate, quarantined)
SELECT device, stream, bucket, hub, epoch, sequence, counter, boot, boot_started, boot_received, occurred, received,
 flags & 1 <> 0, flags & 2 <> 0, flags & 4 <> 0, flags & 8 <> 0, skew, state, hash, emitted, emitted_at, missed, late, duplicate, quarantined
FROM (SELECT unnest($1::text[]) AS device, unnest($2::text[]) AS stream, unnest($3::bigint[]) AS sequence, unnest($4::smallint[]) AS flags,
 unnest($5::bigint[]) AS counter, unnest($6::bigint[]) AS boot, unnest($7::bigint[]) AS skew, unnest($8::timestamptz[]) AS boot_started,
 unnest($9::timestamptz[]) AS boot_received, unnest($10::timestamptz[]) AS occurred, unnest($11::timestamptz[]) AS received, unnest($12::timestamptz[]) AS emitted_at,
 unnest($13::bytea[]) AS state, unnest($14::bytea[]) AS hash, unnest($15::bytea[]) AS emitted, unnest($16::bigint[]) AS missed,
 unnest($17::bigint[]) AS late, unnest($18::bigint[]) AS duplicate, unnest($19::bigint[]) AS quarantined, unnest($20::smallint[]) AS bucket,
 unnest($21::text[]) AS hub, unnest($22::bigint[]) AS epoch) AS u`

	insertGaps = `INSERT /* ingest.insert_gaps */ INTO stream_gap (device_id, stream, boot, from_counter, to_counter, missing)
SELECT d, s, b, f, t, int8multirange(int8range(f, t, '[]'))
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS u (d, s, b, f, t)`

	// The newest open gap that still misses the counter; of another boot only when one side has none. A second late copy
	// finds nothing. Served by stream_gap_stream_idx.
	fillGaps = `WITH /* ingest.fill_gaps */ late AS (
  SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS u (device_id, stream, boot, counter)
), hit AS (
  SELECT g.id, range_agg(int8range(l.counter, l.counter, '[]')) AS filled, count(*) AS n
  FROM late l CROSS JOIN LATERAL (
    SELECT id FROM stream_gap g
    WHERE g.device_id = l.device_id AND g.stream = l.stream AND g.to_counter >= l.counter AND g.from_counter <= l.counter
      AND g.closed_at IS NULL AND g.missing @> l.counter AND (g.boot IS NULL OR l.boot IS NULL OR g.boot = l.boot)
    ORDER BY id DESC LIMIT 1) g
  GROUP BY g.id
)
UPDATE stream_gap g SET missing = g.missing - h.filled, arrived_late = g.arrived_late + h.n,
  closed_at = CASE WHEN isempty(g.missing - h.filled) THEN clock_timestamp() END
FROM hit h WHERE g.id = h.id`

	// Room per device and in all is what undecided rejects leave of the caps; what finds none is counted. Two lanes may
	// overshoot a cap by a batch each: it bounds the disk, nothing depends on the exact number.
	insertRejects = `WITH /* ingest.insert_rejects */ given AS (
  SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::boolean[], $9::timestamptz[])
    WITH ORDINALITY AS u (topic, device_id, stream, reason, detail, payload, retained, received_at, ord)
), device_room AS (
  SELECT d.device_id, $10::bigint - (CASE WHEN d.device_id IS NULL
      THEN (SELECT count(*) FROM (SELECT FROM ingest_reject r WHERE r.device_id IS NULL AND r.decided_at IS NULL LIMIT $10::bigint) x)
      ELSE (SELECT count(*) FROM (SELECT FROM ingest_reject r WHERE r.device_id = d.device_id AND r.decided_at IS NULL LIMIT $10::bigint) x) END) AS room
  FROM (SELECT DISTINCT device_id FROM given) d
), fits AS (
  SELECT g.*, row_number() OVER (PARTITION BY g.device_id ORDER BY g.ord) <= d.room AS fits
  FROM given g JOIN device_room d ON d.device_id IS NOT DISTINCT FROM g.device_id
), total_room AS MATERIALIZED (
  SELECT CASE WHEN EXISTS (SELECT FROM fits WHERE fits)
    THEN $11::bigint - (SELECT count(*) FROM (SELECT FROM ingest_reject r WHERE r.decided_at IS NULL LIMIT $11::bigint) x) ELSE 0 END AS room
), judged AS (
  SELECT f.*, f.fits AND count(*) FILTER (WHERE f.fits) OVER (ORDER BY f.ord) <= t.room AS stored FROM fits f CROSS JOIN total_room t
), stored AS (
  INSERT INTO ingest_reject (lane, topic, device_id, stream, reason, detail, payload, retained, received_at)
  SELECT $1, topic, device_id, stream, reason, detail, payload, retained, received_at FROM judged WHERE stored ORDER BY ord
)
INSERT INTO ingest_reject_overflow AS o (lane, reason, hour, rejected)
SELECT $1, reason, date_trunc('hour', clock_timestamp(), 'UTC'), count(*) FROM judged WHERE NOT stored GROUP BY reason
ON CONFLICT (lane, reason, hour) DO UPDATE SET rejected = o.rejected + excluded.rejected`

	// The batch number tells a later attempt that this one committed although its answer was lost.
	updateLane = `UPDATE /* ingest.update_lane */ ingest_lane SET batch = $3, tail = $4, lease_until = clock_timestamp() + $5::bigint * interval '1 microsecond',
  committed_at = clock_timestamp(), applied = applied + $6, duplicate = duplicate + $7, late = late + $8, coalesced = coalesced + $9,
  discarded = discarded + $10, ignored = ignored + $11, quarantined = quarantined + $12
WHERE lane = $1 AND term = $2`

	ensurePartition = `SELECT /* ingest.ensure_partition */ ensure_partition('outbox', $1)`

	// The old row is locked first, so that its owner can be told from ours. A takeover waits for an open batch of the
	// owner and then sees the lease it renewed.
	claimLane = `WITH /* ingest.claim_lane */ before AS (
  SELECT owner FROM ingest_lane WHERE lane = $1 FOR UPDATE
)
INSERT INTO ingest_lane AS l (lane, owner, term, lease_until)
VALUES ($1, $2, 1, clock_timestamp() + $3::bigint * interval '1 microsecond')
ON CONFLICT (lane) DO UPDATE SET owner = excluded.owner, term = l.term + 1, lease_until = excluded.lease_until
WHERE l.owner IS NULL OR l.lease_until < clock_timestamp() OR ($4::boolean AND l.owner = excluded.owner)
RETURNING l.term, l.batch, l.tail, l.filters, l.session_seen, l.committed_at, (SELECT owner FROM before)`

	renewLane = `UPDATE /* ingest.renew_lane */ ingest_lane SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE lane = $1 AND term = $2`

	releaseLane = `UPDATE /* ingest.release_lane */ ingest_lane SET owner = NULL, lease_until = clock_timestamp() WHERE lane = $1 AND term = $2`

	subscribeLane = `UPDATE /* ingest.subscribe_lane */ ingest_lane SET filters = $3, session_seen = $4 WHERE lane = $1 AND term = $2`

	insertPossibleGap = `INSERT /* ingest.insert_possible_gap */ INTO possible_gap (lane, cause, from_at, to_at, detail) VALUES ($1, $2, $3, $4, $5)`

	readFsync = `SELECT /* ingest.read_fsync */ current_setting('fsync')`

	// A transaction that writes a record of a few bytes to the log and nothing else; nobody reads it.
	probeCommit = `SELECT /* ingest.probe_commit */ pg_logical_emit_message(true, 'hubstate', '')`

	readSettings = `SELECT /* ingest.read_settings */ buckets FROM hubstate_settings`

	// Unpublished bytes, estimated: per bucket the rows above its cursor, counted to 500 and beyond that by how densely
	// those lie in the positions, times the bytes that a position takes. Served by outbox_bucket_position_idx.
	readBacklog = `WITH /* ingest.read_backlog */ head AS (
  SELECT max(p.position) AS position FROM outbox_bucket b
  CROSS JOIN LATERAL (SELECT position FROM outbox o WHERE o.bucket = b.bucket ORDER BY position DESC LIMIT 1) p
), attached AS (
  SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) AS bytes FROM pg_inherits WHERE inhparent = 'outbox'::regclass
), first AS (
  SELECT min(p.position) AS position FROM outbox_bucket b
  CROSS JOIN LATERAL (SELECT position FROM outbox o WHERE o.bucket = b.bucket ORDER BY position LIMIT 1) p
), behind AS (
  SELECT sum(CASE WHEN s.n < 500 THEN s.n ELSE s.n::numeric * (h.position - s.low + 1) / (s.high - s.low + 1) END) AS rows
  FROM outbox_bucket b CROSS JOIN head h CROSS JOIN LATERAL (
    SELECT count(*) AS n, min(position) AS low, max(position) AS high
    FROM (SELECT position FROM outbox o WHERE o.bucket = b.bucket AND o.position > b.cursor ORDER BY position LIMIT 500) x) s
)
SELECT coalesce(behind.rows * attached.bytes / greatest(head.position - first.position + 1, 1), 0)::bigint
FROM behind, attached, head, first`

	readOwed = `SELECT /* ingest.read_owed */ DISTINCT device_id FROM device_state WHERE owed LIMIT $1`

	// After the bucket locks. Served by the primary key.
	readStates = `SELECT /* ingest.read_states */ device_id, stream, hub_id, epoch, sequence, counter, boot, occurred_at, received_at, clock_suspect,
  retained, state, missed, late, duplicate, quarantined
FROM device_state WHERE device_id = ANY ($1) AND ($2 = '' OR stream = $2) AND (owed OR NOT $3::boolean) ORDER BY device_id, stream`

	moveStates = `UPDATE /* ingest.move_states */ device_state d SET hub_id = u.hub, sequence = u.sequence, emitted_at = $5, owed = false, updated_at = clock_timestamp()
FROM (SELECT unnest($1::text[]) AS device_id, unnest($2::text[]) AS stream, unnest($3::text[]) AS hub, unnest($4::bigint[]) AS sequence) u
WHERE d.device_id = u.device_id AND d.stream = u.stream`

	markReboot = `UPDATE /* ingest.mark_reboot */ device_state SET reboot_pending = true, updated_at = clock_timestamp() WHERE device_id = $1 AND stream = $2`

	insertAudit = `INSERT /* ingest.insert_audit */ INTO audit (actor, action, subject, reason, detail) VALUES ($1, $2, $3, $4, coalesce($5::jsonb, '{}'))`

	listGaps = `SELECT /* ingest.list_gaps */ id, device_id, stream, boot, from_counter, to_counter, arrived_late, missing::text, detected_at, closed_at
FROM stream_gap WHERE ($1 = '' OR device_id = $1) AND (closed_at IS NULL OR $2) ORDER BY id DESC LIMIT $3`

	listPossibleGaps = `SELECT /* ingest.list_possible_gaps */ id, lane, cause, from_at, to_at, detail FROM possible_gap ORDER BY id DESC LIMIT $1`

	listLanes = `SELECT /* ingest.list_lanes */ lane, owner, term, extract(epoch FROM lease_until - clock_timestamp())::float8, batch,
  greatest(coalesce(octet_length(tail), 0) - 2, 0) / $1::bigint, committed_at, session_seen, filters,
  applied, duplicate, late, coalesced, discarded, ignored, quarantined,
  (SELECT count(*) FROM possible_gap g WHERE g.lane = l.lane AND g.cause = 'broker_dropped')
FROM ingest_lane l ORDER BY lane`

	readTotals = `SELECT /* ingest.read_totals */ (SELECT count(*) FROM stream_gap WHERE closed_at IS NULL),
  (SELECT count(*) FROM ingest_reject WHERE decided_at IS NULL), (SELECT coalesce(sum(rejected), 0)::bigint FROM ingest_reject_overflow),
  (SELECT count(*) FROM device_state WHERE owed)`

	listRejects = `SELECT /* ingest.list_rejects */ id, lane, topic, device_id, stream, reason, detail, octet_length(payload)::bigint, retained, received_at,
  decided_by, decided_at, decision
FROM ingest_reject WHERE ($1 = '' OR device_id = $1) AND ($2 = '' OR reason = $2) AND (decided_at IS NULL OR $3) ORDER BY id LIMIT $4`

	readReject = `SELECT /* ingest.read_reject */ id, lane, topic, device_id, stream, reason, detail, octet_length(payload)::bigint, retained, received_at,
  decided_by, decided_at, decision, payload
FROM ingest_reject WHERE id = $1`

	decideRejects = `UPDATE /* ingest.decide_rejects */ ingest_reject SET decided_by = $2, decided_at = clock_timestamp(), decision = $3
WHERE id = ANY ($1) AND decided_at IS NULL`

	readDropped = `SELECT /* ingest.read_dropped */ broker_dropped FROM ingest_lane WHERE lane = $1`

	writeDropped = `UPDATE /* ingest.write_dropped */ ingest_lane SET broker_dropped = $3 WHERE lane = $1 AND term = $2`
)
