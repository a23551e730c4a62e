package main

const (
	// The partition that covers the instant $1 intervals from now; made and attached when it is missing.
	ensurePartition = `SELECT /* relay.ensure_partition */ ensure_partition(parent, clock_timestamp() + make_interval(secs => $1::int * interval_seconds))
FROM partition_spec WHERE parent = 'outbox'`
)
