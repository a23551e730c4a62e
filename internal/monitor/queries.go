package monitor

// All statements run as hubstate_reader, take no lock that a writer waits for, and are bounded by statement_timeout.
const (
	// selectBacklog asks each bucket for the first rows after its cursor: outbox_bucket_position_idx serves it, one probe
	// a bucket and attached partition. $1 bounds the count of a bucket; the age is judged by the database's clock alone.
	selectBacklog = `SELECT /* monitor.backlog */
    coalesce(sum(w.waiting), 0)::bigint,
    coalesce(bool_or(w.waiting >= $1), false),
    coalesce(extract(epoch FROM clock_timestamp() - min(w.oldest)), 0)::float8,
    count(*) FILTER (WHERE b.owner IS NULL),
    count(*) FILTER (WHERE b.halted IS NOT NULL),
    count(*) FILTER (WHERE b.outage_attempts > 0),
    count(*),
    coalesce(max(b.last_error_code) FILTER (WHERE b.outage_attempts > 0), '')
FROM outbox_bucket b
LEFT JOIN LATERAL (
    SELECT count(*) AS waiting, min(r.created_at) AS oldest
    FROM (SELECT o.created_at FROM outbox o WHERE o.bucket = b.bucket AND o.position > b.cursor ORDER BY o.position LIMIT $1) r
) w ON true`

	// selectParts counts who is at work, by lease.
	selectParts = `SELECT /* monitor.parts */
    (SELECT count(*) FROM relay_instance WHERE lease_until > clock_timestamp()),
    (SELECT count(*) FROM ingest_lane),
    (SELECT count(*) FROM ingest_lane WHERE owner IS NOT NULL AND lease_until > clock_timestamp()),
    coalesce((SELECT string_agg(lane, ', ' ORDER BY lane) FROM ingest_lane WHERE owner IS NULL OR lease_until <= clock_timestamp()), '')`

	// selectUndecided counts what an operator has to decide. outbox_dead_open_idx serves it.
	selectUndecided = `SELECT /* monitor.undecided */
    count(*) FILTER (WHERE state = 'dead'),
    count(*) FILTER (WHERE state IN ('held', 'releasing')),
    coalesce(extract(epoch FROM clock_timestamp() - min(failed_at)), 0)::float8
FROM outbox_dead WHERE state IN ('dead', 'held', 'releasing')`

	// selectRejects counts the last hour's rejects by reason; ingest_reject_created_idx serves it.
	selectRejects = `SELECT /* monitor.rejects */ reason, sum(n)::bigint FROM (
    SELECT reason, count(*) AS n FROM ingest_reject WHERE created_at > clock_timestamp() - interval '1 hour' GROUP BY reason
    UNION ALL
    SELECT reason, sum(rejected) FROM ingest_reject_overflow WHERE hour > clock_timestamp() - interval '1 hour' GROUP BY reason
) r GROUP BY reason ORDER BY 2 DESC, 1 LIMIT 10`

	// selectPossibleGaps counts the last hour's windows in which reports may have been lost before us without a trace.
	selectPossibleGaps = `SELECT /* monitor.possible_gaps */ count(*) FROM possible_gap WHERE created_at > clock_timestamp() - interval '1 hour'`
)
