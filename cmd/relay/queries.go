package main

const (
	// The partition that covers the instant $1 intervals from now; made and attached when it is missing.
	ensurePartition = `SELECT /* relay.ensure_partition */ ensure_partition(parent, clock_timestamp() + make_interval(secs => $1::int * interval_seconds))
FROM partition_spec WHERE parent = 'outbox'`

	// One row a bucket with its backlog, counted up to $1 rows; (bucket, position) serves both look-ups.
	selectBuckets = `SELECT /* relay.buckets */ s.bucket, s.owner, s.owner_alive, s.working, s.term, s.cursor, s.cursor_at, s.published, p.pending, o.created_at, o.aggregate_id, o.stream,
       s.row_attempts, s.outage_attempts, s.last_error_code, s.last_error, s.next_attempt_at, s.halted, clock_timestamp()
FROM outbox_bucket_status s
CROSS JOIN LATERAL (SELECT count(*) AS pending FROM (SELECT FROM outbox x WHERE x.bucket = s.bucket AND x.position > s.cursor LIMIT $1) c) p
LEFT JOIN LATERAL (SELECT x.created_at, x.aggregate_id, x.stream FROM outbox x WHERE x.bucket = s.bucket AND x.position > s.cursor ORDER BY x.position LIMIT 1) o ON true
ORDER BY s.bucket`

	selectPublished = `SELECT /* relay.published */ bucket, published, clock_timestamp() FROM outbox_bucket`

	selectInstances = `SELECT /* relay.instances */ i.instance, i.started_at, i.lease_until, i.lease_until > clock_timestamp(), count(b.bucket)
FROM relay_instance i LEFT JOIN outbox_bucket b ON b.owner = i.instance
GROUP BY i.instance ORDER BY i.instance`

	// outbox_dead_open_idx serves it.
	selectDeadCounts = `SELECT /* relay.dead_counts */ state, error_code, count(*), min(failed_at)
FROM outbox_dead WHERE state IN ('dead', 'held', 'releasing') GROUP BY state, error_code ORDER BY state, error_code`

	selectLogin = `SELECT /* relay.login */ session_user`

	selectClaimed = `SELECT /* relay.claimed */ count(*) FILTER (WHERE owner = $1), count(*) FILTER (WHERE NOT owner_alive AND halted IS NULL) FROM outbox_bucket_status`
)
