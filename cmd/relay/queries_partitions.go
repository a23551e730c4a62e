package main

const (
	auditUpkeep = `INSERT /* relay.audit_upkeep */ INTO audit (actor, action, subject, reason, detail) VALUES ($1, $2, $3, $4, $5)`

	eraseDevice = `SELECT /* relay.erase_device */ erasure_id, erased FROM erase_device($1, $2, $3, $4)`
	// One sealed table a call, by its index on (aggregate_id, created_at): each holds its locks for milliseconds.
	erasePartition = `SELECT /* relay.erase_partition */ erase_partition($1, $2)`
	selectSealed   = `SELECT /* relay.sealed */ name FROM partition_ledger WHERE parent = 'outbox' AND phase IN ('sealed', 'archived') ORDER BY lower_at`
	selectErasure  = `SELECT /* relay.erasure */ CASE WHEN finished_at IS NULL THEN until_at END FROM erasure WHERE id = $1`
	countSealed    = `SELECT /* relay.count_sealed */ count(*) FROM outbox_history WHERE aggregate_id = $1`
	// Archives that outlive their table.
	selectBeyond = `SELECT /* relay.beyond */ count(*), min(lower_at), max(upper_at) FROM partition_ledger WHERE parent = 'outbox' AND phase = 'dropped' AND archive IS NOT NULL AND rows > 0`
)
