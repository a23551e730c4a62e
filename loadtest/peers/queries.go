package peers

// The outbox is filled through COPY, as ingest does it, in the current partition.
const (
	sqlEnsurePartition = `SELECT /* peers.ensure_partition */ ensure_partition('outbox', clock_timestamp())`

	sqlPartitionCount = `SELECT /* peers.partition_count */ topic_partitions, buckets FROM hubstate_settings`

	sqlReservePositions = `SELECT /* peers.reserve_positions */ nextval('outbox_position_seq') FROM generate_series(1, $1)`

	sqlSlot = `SELECT /* peers.slot */ pg_create_logical_replication_slot('debezium', 'pgoutput')`
)

// sqlWatermillRows appends to watermill-sql's own table as its publisher does.
const sqlWatermillRows = `INSERT /* peers.watermill_rows */ INTO watermill_outbox (uuid, payload, metadata, transaction_id)
SELECT r.uuid, r.payload, r.metadata, pg_current_xact_id()
FROM unnest($1::text[], $2::bytea[], $3::json[]) WITH ORDINALITY AS r (uuid, payload, metadata, n) ORDER BY r.n`

// ddlPublication is what Debezium reads through: the root, so that partitions do not show.
const ddlPublication = `CREATE /* peers.publication */ PUBLICATION debezium FOR TABLE outbox WITH (publish_via_partition_root = true)`
