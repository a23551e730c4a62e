package outbox

// The appending side. No statement here or below updates or deletes a row of outbox.
const (
	// Takes each lock in the order of the array, which is sorted: function scans are read in order.
	lockBuckets = `SELECT /* outbox.lock_buckets */ pg_advisory_xact_lock($1, b) FROM unnest($2::int[]) AS b`

	// Read after the locks: sealing raises the floor first and then passes each lock once, so a writer that did not see
	// the floor is waited for (partitions/doc.go).
	readCreatedAt = `SELECT /* outbox.created_at */ greatest(clock_timestamp(), floor) FROM partition_spec WHERE parent = 'outbox'`

	// Rows are inserted in array order, so position follows the order of Append.
	insertMessages = `INSERT /* outbox.append */ INTO outbox
(bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at)
SELECT b, id, aty, aid, ety, ver, st, ep, sq, src, nullif(tp, ''), nullif(cor, ''), nullif(cau, ''), pl, oc, $16
FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::bigint[], $9::bigint[],
            $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::timestamptz[])
  AS t (b, id, aty, aid, ety, ver, st, ep, sq, src, tp, cor, cau, pl, oc)`
)
