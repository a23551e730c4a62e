package consumer

// PostgresSchema makes the tables of PostgresStore; run it with your migrations. They belong into the database (and the
// schema on the search_path) in which your effects happen, since they commit together. The role of the consumer
// needs SELECT, INSERT and UPDATE on both. Safe to repeat.
const PostgresSchema = `CREATE /* consumer.schema */ TABLE IF NOT EXISTS consumer_position (
    consumer text   NOT NULL,
    device   text   NOT NULL,
    stream   text   NOT NULL,
    epoch    bigint NOT NULL,
    sequence bigint NOT NULL,
    CONSTRAINT consumer_position_pkey PRIMARY KEY (consumer, device, stream)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS consumer_offset (
    consumer    text        NOT NULL,
    topic       text        NOT NULL,
    partition   integer     NOT NULL,
    next_offset bigint      NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT consumer_offset_pkey PRIMARY KEY (consumer, topic, partition)
) WITH (fillfactor = 20);`

const (
	sqlResume = `SELECT /* consumer.resume */ partition, next_offset FROM consumer_offset
		WHERE consumer = $1 AND topic = $2 AND partition = ANY($3)`

	// Two owners of a partition (one of them deposed and not yet aware of it) take turns here.
	sqlLockOffset = `SELECT /* consumer.lock_offset */ next_offset FROM consumer_offset
		WHERE consumer = $1 AND topic = $2 AND partition = $3 FOR UPDATE`

	sqlBeginOffset = `INSERT /* consumer.begin_offset */ INTO consumer_offset (consumer, topic, partition, next_offset)
		VALUES ($1, $2, $3, 0) ON CONFLICT DO NOTHING`

	// A statement of its own after the lock: its snapshot is younger than the wait. Served by the primary key.
	sqlReadPositions = `SELECT /* consumer.read_positions */ wanted.at, p.epoch, p.sequence
		FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS wanted (device, stream, at)
		JOIN consumer_position p ON p.consumer = $1 AND p.device = wanted.device AND p.stream = wanted.stream`

	// The condition is a second fence: no row may go back (C1), and fewer rows than sent means that someone else moved.
	sqlMovePositions = `INSERT /* consumer.move_positions */ INTO consumer_position AS p (consumer, device, stream, epoch, sequence)
		SELECT $1, device, stream, epoch, sequence
		FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS moved (device, stream, epoch, sequence)
		ON CONFLICT (consumer, device, stream) DO UPDATE SET epoch = excluded.epoch, sequence = excluded.sequence
		WHERE (p.epoch, p.sequence) < (excluded.epoch, excluded.sequence)`

	sqlMoveOffset = `UPDATE /* consumer.move_offset */ consumer_offset
		SET next_offset = greatest(next_offset, $4), updated_at = clock_timestamp()
		WHERE consumer = $1 AND topic = $2 AND partition = $3 RETURNING next_offset`

	sqlPosition = `SELECT /* consumer.position */ epoch, sequence FROM consumer_position
		WHERE consumer = $1 AND device = $2 AND stream = $3`
)
