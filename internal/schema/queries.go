package schema

const (
	insertSettings = `INSERT /* schema.insert_settings */ INTO hubstate_settings (cell, buckets, topic, topic_partitions) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	selectSettings = `SELECT /* schema.settings */ cell, buckets, topic, topic_partitions FROM hubstate_settings`
	insertBuckets  = `INSERT /* schema.insert_buckets */ INTO outbox_bucket (bucket) SELECT generate_series(0, $1::int - 1) ON CONFLICT DO NOTHING`
	selectVersion  = `SELECT /* schema.version */ coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`
)
