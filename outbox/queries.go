package outbox

// The appending side. No statement here or below updates or deletes a row of outbox.
const (
	// Takes each lock in the order of the array, which is sorted: function scans are read in order.
	lockBuckets = `SELECT /* outbox.lock_buckets */ pg_advisory_xact_lock($1, b) FROM unnest($2::int[]) AS b`

	// Read after the locks: sealing raises the floor first and then passes each lock once, so a writer that did not see
	// the floor is waited for (partitions/doc.go).
	readCreatedAt = `SELECT /* outbox.created_at */ greatest(clock_timestamp(), p.floor), s.epoch FROM partition_spec p, hubstate_settings s WHERE p.parent = 'outbox'`

	// Outside of every transaction that appends (bell.go).
	ringBell  = `SELECT /* outbox.ring */ pg_notify('hubstate_outbox', '')`
	hearBell  = `LISTEN hubstate_outbox`
	proveBell = `SELECT /* outbox.prove_bell */ pg_notify('hubstate_outbox', 'proof')` // nobody polls for it

	// Rows are inserted in array order, so position follows the order of Append. The arrays are unnested in the target list:
	// in FROM each of them would be materialised first (measured: a fifth of the server's time of a batch).
	insertMessages = `INSERT /* outbox.append */ INTO outbox
(bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at)
SELECT unnest($1::smallint[]), unnest($2::uuid[]), unnest($3::text[]), unnest($4::text[]), unnest($5::text[]), unnest($6::smallint[]), unnest($7::text[]),
       unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::text[]), nullif(unnest($11::text[]), ''), nullif(unnest($12::text[]), ''),
       nullif(unnest($13::text[]), ''), unnest($14::bytea[]), unnest($15::timestamptz[]), $16`

	// The same for the usual batch: one type of event, no trace or correlation. What is equal in all rows is sent once.
	insertUniform = `INSERT /* outbox.append_uniform */ INTO outbox
(bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, occurred_at, created_at)
SELECT unnest($1::smallint[]), unnest($2::uuid[]), $3::text, unnest($4::text[]), $5::text, $6::smallint, unnest($7::text[]),
       unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::text[]), unnest($11::bytea[]), unnest($12::timestamptz[]), $13`

	// The same for a large batch; position follows the order of the rows here too.
	copyMessages = `COPY /* outbox.copy */ outbox
(bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at)
FROM STDIN (FORMAT binary)`
)
