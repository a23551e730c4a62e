package outbox

// Dead letters and their replay: the operator's side. Nothing here touches outbox or a cursor.
const (
	letterColumns = `position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source,
       traceparent, correlation_id, causation_id, length(payload), encode(sha256(payload), 'hex'), occurred_at, created_at, state, parks,
       row_attempts, error_code, error, failed_at, decided_by, decided_at, decision`

	// outbox_dead is small, or its open rows are: outbox_dead_open_idx serves the usual question.
	selectLetters = `SELECT /* outbox.letters */ ` + letterColumns + ` FROM outbox_dead
WHERE state = ANY ($1) AND ($2 = '' OR aggregate_id = $2) AND ($3 = '' OR error_code = $3) AND ($4::timestamptz IS NULL OR failed_at >= $4)
  AND ($5::timestamptz IS NULL OR failed_at < $5) AND ($6::bigint[] IS NULL OR position = ANY ($6))
ORDER BY bucket, aggregate_id, position LIMIT $7`

	selectPayload = `SELECT /* outbox.letter_payload */ payload FROM outbox_dead WHERE position = $1`

	// Positions of a stream ascend with (epoch, sequence), so the newest published row is the last at or below the cursor
	// that is not itself a dead letter. The index is read backwards: a device that lives is found at once.
	selectNewest = `SELECT /* outbox.newest_published */ o.epoch, o.sequence FROM outbox o JOIN outbox_bucket b ON b.bucket = $1
WHERE o.bucket = $1 AND o.position > $4 AND o.position <= b.cursor AND o.aggregate_id = $2 AND o.stream = $3
  AND NOT EXISTS (SELECT FROM outbox_dead d WHERE d.position = o.position AND d.state NOT IN ('replayed', 'published'))
ORDER BY o.position DESC LIMIT 1`

	// The same among sealed partitions.
	selectNewestSealed = `SELECT /* outbox.newest_sealed */ epoch, sequence FROM outbox_history
WHERE aggregate_id = $1 AND stream = $2 AND created_at >= $3 AND position > $4 AND coalesce(dead_state IN ('replayed', 'published'), true)
ORDER BY position DESC LIMIT 1`

	insertPlan = `INSERT /* outbox.insert_plan */ INTO replay_plan (digest, filter, items, reason, planned_by) VALUES ($1, $2, $3, $4, $5) RETURNING id, planned_at, planned_login`

	insertItems = `INSERT /* outbox.insert_items */ INTO replay_item (plan_id, ordinal, position, forecast)
SELECT $1, i.ordinal, i.position, i.forecast FROM unnest($2::int[], $3::bigint[], $4::text[]) AS i (ordinal, position, forecast)`

	planColumns = `id, digest, filter, items, reason, state, planned_by, planned_login, planned_at, approved_by, approved_login, approved_at, run_by, started_at, finished_at`

	selectPlan = `SELECT /* outbox.plan */ ` + planColumns + ` FROM replay_plan WHERE id = $1`

	selectPlans = `SELECT /* outbox.plans */ ` + planColumns + ` FROM replay_plan ORDER BY planned_at DESC LIMIT $1`

	selectItems = `SELECT /* outbox.plan_items */ i.ordinal, i.position, d.message_id, d.bucket, d.aggregate_id, d.stream, d.epoch, d.sequence, d.error_code,
       d.state, d.parks, encode(sha256(d.payload), 'hex'), i.forecast, i.outcome, i.error, i.at
FROM replay_item i LEFT JOIN outbox_dead d ON d.position = i.position
WHERE i.plan_id = $1 ORDER BY i.ordinal`

	approvePlan = `UPDATE /* outbox.approve_plan */ replay_plan SET state = 'approved', approved_by = $2, approved_login = session_user, approved_at = clock_timestamp()
WHERE id = $1 AND state = 'planned'`

	startPlan = `UPDATE /* outbox.start_plan */ replay_plan SET state = 'running', run_by = $2, started_at = coalesce(started_at, clock_timestamp())
WHERE id = $1 AND state IN ('approved', 'running')`

	finishPlan = `UPDATE /* outbox.finish_plan */ replay_plan SET state = 'done', finished_at = clock_timestamp() WHERE id = $1 AND state = 'running'`

	// One run of a plan at a time; the lock ends with the session.
	lockPlan = `SELECT /* outbox.lock_plan */ pg_try_advisory_lock(hashtextextended('replay ' || $1, 0))`

	// The row as it is now, kept from everybody else until the transaction ends.
	lockLetter = `SELECT /* outbox.lock_letter */ ` + letterColumns + `, payload FROM outbox_dead WHERE position = $1 FOR UPDATE`

	decideLetter = `UPDATE /* outbox.decide_letter */ outbox_dead SET state = $2, decided_by = $3, decided_at = clock_timestamp(), decision = $4 WHERE position = $1`

	recordOutcome = `UPDATE /* outbox.record_outcome */ replay_item SET outcome = $3, error = nullif($4, ''), at = clock_timestamp() WHERE plan_id = $1 AND ordinal = $2`

	// Only an undecided head can be decided; held rows follow their head.
	discardLetters = `UPDATE /* outbox.discard_letters */ outbox_dead
SET state = CASE WHEN parks THEN 'releasing' ELSE 'discarded' END, decided_by = $2, decided_at = clock_timestamp(), decision = 'discard'
WHERE position = ANY ($1) AND state = 'dead' RETURNING position`

	insertAudit = `INSERT /* outbox.audit */ INTO audit (actor, action, subject, reason, detail) VALUES ($1, $2, $3, $4, $5)`
)
