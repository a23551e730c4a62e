-- +goose Up
-- The append-only outbox. No status column and no UPDATE or DELETE, ever: what became of a row is told by its bucket's
-- cursor, outbox_skipped and outbox_dead. No default partition: it would forbid DETACH CONCURRENTLY.
-- CACHE 1: a cached sequence would hand a later writer lower positions and break O1.
CREATE SEQUENCE outbox_position_seq AS bigint CACHE 1;

CREATE TABLE outbox (
    position       bigint      NOT NULL DEFAULT nextval('outbox_position_seq'),
    bucket         smallint    NOT NULL,
    message_id     uuid        NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,  -- the Kafka key
    event_type     text        NOT NULL,
    schema_version smallint    NOT NULL,
    stream         text        NOT NULL,
    epoch          bigint      NOT NULL,
    sequence       bigint      NOT NULL,
    source         text        NOT NULL,  -- CloudEvents source
    traceparent    text,
    correlation_id text,
    causation_id   text,
    payload        bytea       NOT NULL,
    occurred_at    timestamptz,
    created_at     timestamptz NOT NULL
) PARTITION BY RANGE (created_at);
ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL;

-- Serves the sweep: all rows of a bucket after its cursor, in position order.
CREATE INDEX outbox_bucket_position_idx ON outbox (bucket, position);

GRANT SELECT, INSERT ON outbox TO hubstate_ingest;
GRANT USAGE ON SEQUENCE outbox_position_seq TO hubstate_ingest;
GRANT SELECT ON outbox TO hubstate_relay, hubstate_operator, hubstate_reader;
