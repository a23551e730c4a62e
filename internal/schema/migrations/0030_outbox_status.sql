-- +goose Up
-- What became of each outbox row, in one place. The outbox itself has no status: it is derived from the bucket's cursor,
-- from outbox_dead and from what was superseded.

-- Superseded rows for good: outbox_skipped forgets a range once an event that carries it is behind the cursor, and then
-- nothing else would tell such a row from a published one.
CREATE TABLE outbox_superseded (
    bucket        smallint    NOT NULL,
    aggregate_id  text        NOT NULL,
    stream        text        NOT NULL,
    epoch         bigint      NOT NULL,
    from_sequence bigint      NOT NULL,
    to_sequence   bigint      NOT NULL,
    up_to         bigint      NOT NULL,  -- position of the last superseded row
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_superseded_pkey PRIMARY KEY (bucket, aggregate_id, stream, epoch, from_sequence),
    CONSTRAINT outbox_superseded_range_check CHECK (from_sequence <= to_sequence)
);
CREATE INDEX outbox_superseded_created_idx ON outbox_superseded (created_at);

-- +goose StatementBegin
CREATE FUNCTION keep_superseded() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO public.outbox_superseded (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, up_to)
    SELECT bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, up_to FROM gone WHERE reason = 'superseded'
    ON CONFLICT ON CONSTRAINT outbox_superseded_pkey DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION keep_superseded() FROM PUBLIC;
CREATE TRIGGER keep_superseded AFTER DELETE ON outbox_skipped
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION keep_superseded();

-- One row a bucket: who works on it and how it goes. `working` says that a living relay owns it and is not waiting.
CREATE VIEW outbox_bucket_status AS
SELECT b.bucket, b.cursor, b.cursor_at, b.published, b.owner, b.term, b.claimed_at,
       i.instance IS NOT NULL AS owner_alive, i.lease_until,
       i.instance IS NOT NULL AND b.halted IS NULL AND coalesce(b.next_attempt_at <= clock_timestamp(), true) AS working,
       b.row_attempts, b.outage_attempts, b.last_error_code, b.last_error, b.next_attempt_at, b.halted
FROM outbox_bucket b LEFT JOIN relay_instance i ON i.instance = b.owner AND i.lease_until > clock_timestamp();

-- Every row that the database still has: attached, sealed, and dead ones whose partition is gone. Statuses:
--   pending      committed, behind the cursor of a bucket that nobody works on (no living owner, halted, or backing off)
--   processing   the same, in a bucket that a living relay works on
--   sent         acknowledged by Kafka (also a dead row that was replayed)
--   superseded   left out because a newer event of its stream stood in the backlog, or by a rebase
--   held         parked behind a dead row of its device
--   dead         given up; `decision` says what an operator made of it
-- Attempts, error and owner of a waiting row are its bucket's: a bucket publishes in order, so its first row decides.
-- Ask it with a bucket and a position, or with aggregate_id and created_at: then indexes serve it.
CREATE VIEW outbox_status AS
SELECT r.position, r.bucket, r.message_id, r.aggregate_id, r.stream, r.epoch, r.sequence, r.event_type, r.created_at,
       CASE
           WHEN d.state IN ('held', 'releasing') THEN 'held'
           WHEN d.state IN ('replayed', 'published') THEN 'sent'
           WHEN d.state IS NOT NULL THEN 'dead'
           WHEN s.superseded THEN 'superseded'
           WHEN r.position <= b.cursor THEN 'sent'
           WHEN b.working THEN 'processing'
           ELSE 'pending'
       END AS status,
       CASE WHEN d.position IS NOT NULL THEN d.row_attempts WHEN waits THEN b.row_attempts ELSE 0 END AS row_attempts,
       CASE WHEN d.position IS NULL AND waits THEN b.outage_attempts ELSE 0 END AS outage_attempts,
       CASE WHEN d.position IS NOT NULL THEN d.error_code WHEN waits THEN b.last_error_code END AS last_error_code,
       CASE WHEN d.position IS NOT NULL THEN d.error WHEN waits THEN b.last_error END AS last_error,
       CASE WHEN d.position IS NULL AND waits THEN b.next_attempt_at END AS next_attempt_at,
       CASE WHEN waits THEN b.owner END AS owner,
       d.decision
FROM (
    SELECT position, bucket, message_id, aggregate_id, stream, epoch, sequence, event_type, created_at FROM outbox
    UNION ALL
    SELECT position, bucket, message_id, aggregate_id, stream, epoch, sequence, event_type, created_at FROM outbox_sealed
    UNION ALL
    SELECT x.position, x.bucket, x.message_id, x.aggregate_id, x.stream, x.epoch, x.sequence, x.event_type, x.created_at FROM outbox_dead x
    WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.bucket = x.bucket AND o.position = x.position)
      AND NOT EXISTS (SELECT FROM outbox_sealed o WHERE o.aggregate_id = x.aggregate_id AND o.created_at = x.created_at AND o.position = x.position)
) r
JOIN outbox_bucket_status b ON b.bucket = r.bucket
LEFT JOIN outbox_dead d ON d.position = r.position
CROSS JOIN LATERAL (SELECT r.position > b.cursor AS waits) w
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM outbox_skipped k
        WHERE k.bucket = r.bucket AND k.aggregate_id = r.aggregate_id AND k.stream = r.stream AND k.epoch = r.epoch
          AND r.sequence BETWEEN k.from_sequence AND k.to_sequence AND k.reason = 'superseded'
    ) OR EXISTS (
        SELECT FROM outbox_superseded k
        WHERE k.bucket = r.bucket AND k.aggregate_id = r.aggregate_id AND k.stream = r.stream AND k.epoch = r.epoch
          AND r.sequence BETWEEN k.from_sequence AND k.to_sequence
    ) AS superseded
) s;

GRANT SELECT ON outbox_superseded TO hubstate_relay, hubstate_maintainer, hubstate_operator, hubstate_reader;
ALTER VIEW outbox_bucket_status OWNER TO hubstate_maintainer;
ALTER VIEW outbox_status OWNER TO hubstate_maintainer;
GRANT SELECT ON outbox_bucket_status, outbox_status TO hubstate_relay, hubstate_operator, hubstate_reader;
