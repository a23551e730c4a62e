package partitions

const (
	setSetting = `SELECT /* partitions.setting */ set_config($1, $2, false)`

	// Two sessions never act on one parent: the lock lives and dies with the session connection that does the work.
	tryLead = `SELECT /* partitions.lead */ pg_try_advisory_lock(1346458197, hashtext($1))`
	unlead  = `SELECT /* partitions.unlead */ pg_advisory_unlock_all()`

	// partition_spec_pkey. Every writer reads the floor of this row in each batch; the maintainer updates it a few times
	// a minute, so the row stays hot and tiny.
	upsertSpec = `INSERT /* partitions.set_interval */ INTO partition_spec AS s (parent, interval_seconds) VALUES ($1, $2)
		ON CONFLICT (parent) DO UPDATE SET interval_seconds = excluded.interval_seconds WHERE s.interval_seconds <> excluded.interval_seconds`
	selectSpec = `SELECT /* partitions.spec */ clock_timestamp(), CASE WHEN isfinite(floor) THEN floor END, ticked_at, steady_since, expired_at
		FROM partition_spec WHERE parent = $1`
	recordTick = `UPDATE /* partitions.record_tick */ partition_spec SET ticked_at = $2, steady_since = $3, expired_at = coalesce($4, expired_at) WHERE parent = $1`
	raiseFloor = `UPDATE /* partitions.raise_floor */ partition_spec SET floor = $2 WHERE parent = $1 AND floor < $2`
	takeLock   = `SELECT /* partitions.lock */ partition_lock($1)`

	// The children of the parent ($1) and of the history ($2), with the range as the catalogue has it.
	selectChildren = `SELECT /* partitions.children */ c.relname, i.inhparent = to_regclass('public.' || quote_ident($1)), i.inhdetachpending,
			(b.bound)[1]::timestamptz, (b.bound)[2]::timestamptz, coalesce(pg_total_relation_size(c.oid), 0)
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
			LATERAL (SELECT regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\) TO \(''([^'']+)''\)') AS bound) b
		WHERE i.inhparent IN (to_regclass('public.' || quote_ident($1)), to_regclass('public.' || quote_ident($2))) AND c.relkind = 'r'`
	// partition_ledger_range_idx. A table is looked up by name: dropped by hand it is gone whatever the ledger says.
	selectLedger = `SELECT /* partitions.ledger */ name, lower_at, upper_at, phase, rows, bytes, coalesce(archive, ''), coalesce(sha256, ''),
			attempts, coalesce(last_error, ''), next_attempt_at, sealed_at, archived_at, dropped_at, to_regclass('public.' || quote_ident(name)) IS NOT NULL
		FROM partition_ledger WHERE parent = $1 AND (phase <> 'dropped' OR $2) ORDER BY lower_at, name`

	createTable = `SELECT /* partitions.create */ prepare_partition($1, $2, $3)`
	attachTable = `SELECT /* partitions.attach */ attach_partition($1, $2)`
	detachState = `SELECT /* partitions.detach_state */ i.inhparent::regclass::text, i.inhdetachpending FROM pg_inherits i WHERE i.inhrelid = to_regclass('public.' || quote_ident($1))`

	recordAdopted = `INSERT /* partitions.record_adopted */ INTO partition_ledger (name, parent, lower_at, upper_at, phase, attached_at) VALUES ($1, $2, $3, $4, 'live', clock_timestamp())
		ON CONFLICT (name) DO UPDATE SET phase = 'live', lower_at = excluded.lower_at, upper_at = excluded.upper_at`
	deleteAhead   = `DELETE /* partitions.delete_ahead */ FROM partition_ledger WHERE name = $1 AND phase = 'ahead'`
	lockAhead     = `SELECT /* partitions.lock_ahead */ true FROM partition_ledger WHERE name = $1 AND phase = 'ahead' FOR UPDATE`
	recordSealing = `UPDATE /* partitions.record_sealing */ partition_ledger SET phase = 'sealing' WHERE name = $1 AND phase = 'live'`
	recordSealed  = `UPDATE /* partitions.record_sealed */ partition_ledger SET phase = 'sealed', rows = $2, bytes = $3, sealed_at = coalesce(sealed_at, clock_timestamp()),
		attempts = 0, last_error = NULL, next_attempt_at = NULL WHERE name = $1 AND phase IN ('live', 'sealing')`
	recordArchived = `UPDATE /* partitions.record_archived */ partition_ledger SET phase = 'archived', archive = $2, sha256 = $3, rows = $4, archived_at = clock_timestamp(),
		attempts = 0, last_error = NULL, next_attempt_at = NULL WHERE name = $1 AND phase = 'sealed' AND revision = $5`
	recordDamaged = `UPDATE /* partitions.record_damaged */ partition_ledger SET phase = 'sealed', archived_at = NULL, attempts = attempts + 1, last_error = $2 WHERE name = $1 AND phase = 'archived'`
	// Asked for after the DROP, in its transaction: an erase that was deleting from the table has ended and voided the archive.
	recordDropped     = `UPDATE /* partitions.record_dropped */ partition_ledger SET phase = 'dropped', dropped_at = clock_timestamp(), last_error = NULL WHERE name = $1 AND (phase = 'archived' OR phase = 'sealed' AND NOT $2)`
	recordGone        = `UPDATE /* partitions.record_gone */ partition_ledger SET phase = 'dropped', dropped_at = clock_timestamp(), last_error = $2 WHERE name = $1`
	recordFailure     = `UPDATE /* partitions.record_failure */ partition_ledger SET attempts = attempts + 1, last_error = $2 WHERE name = $1 RETURNING attempts`
	recordNextAttempt = `UPDATE /* partitions.record_next_attempt */ partition_ledger SET next_attempt_at = $2 WHERE name = $1`

	// Those with %s take a quoted table name; the tables stand alone or are sealed, nobody writes them.
	countRows = `SELECT /* partitions.count */ count(*) FROM public.%s`
	hasRows   = `SELECT /* partitions.has_rows */ EXISTS (SELECT FROM public.%s)`
	lockTable = `LOCK /* partitions.lock_table */ TABLE public.%s IN ACCESS EXCLUSIVE MODE`
	readTable = `SELECT /* partitions.read_table */ %s FROM public.%s`

	copyInto   = `COPY /* partitions.copy */ public.%s FROM STDIN (FORMAT binary)`
	revisionOf = `SELECT /* partitions.revision */ revision FROM partition_ledger WHERE name = $1`
	sealedHook = `SELECT /* partitions.sealed_hook */ partition_sealed($1, $2)`
	archiveSHA = `SELECT /* partitions.archive_sha */ sha256 FROM partition_ledger WHERE name = $1`

	tableSize   = `SELECT /* partitions.size */ pg_total_relation_size(to_regclass('public.' || quote_ident($1)))`
	expireRows  = `SELECT /* partitions.expire */ retain_rows($1, $2, $3)`
	readColumns = `SELECT /* partitions.columns */ a.attname, format_type(a.atttypid, NULL), a.attnotnull FROM pg_attribute a
		WHERE a.attrelid = to_regclass('public.' || quote_ident($1)) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

	// Who stands in the way of a DDL on the tables $1: holders of locks on them, and, for a FINALIZE, the oldest snapshots.
	// Without pg_read_all_stats the times of other users' sessions are null and sort last.
	selectBlockers = `SELECT /* partitions.blockers */ a.pid, coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(a.state, ''), a.xact_start
		FROM pg_stat_activity a
		WHERE a.pid <> pg_backend_pid() AND a.datname = current_database() AND a.backend_type = 'client backend'
			AND (a.backend_xmin IS NOT NULL OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND l.relation = ANY (
				SELECT to_regclass('public.' || quote_ident(n)) FROM unnest($1::text[]) n)))
		ORDER BY a.xact_start NULLS LAST LIMIT 3`
)
