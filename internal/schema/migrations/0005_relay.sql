-- +goose Up
-- A relay's one lease. Renewed on a connection of its own; buckets name the instance and their term.
CREATE TABLE relay_instance (
    instance    text        NOT NULL,
    lease_until timestamptz NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT relay_instance_pkey PRIMARY KEY (instance)
) WITH (fillfactor = 50);

-- One row a bucket, made by `relay migrate`. Every write of cursor carries owner and term (O3).
CREATE TABLE outbox_bucket (
    bucket            smallint    NOT NULL,
    cursor            bigint      NOT NULL DEFAULT 0,
    cursor_message_id uuid,
    cursor_at         timestamptz,
    owner             text,
    term              bigint      NOT NULL DEFAULT 0,
    claimed_at        timestamptz,
    published         bigint      NOT NULL DEFAULT 0,
    row_attempts      integer     NOT NULL DEFAULT 0,
    outage_attempts   bigint      NOT NULL DEFAULT 0,
    last_error_code   text,
    last_error        text,
    next_attempt_at   timestamptz,
    halted            text,       -- why the tail check stopped this bucket; `relay rebase` clears it
    CONSTRAINT outbox_bucket_pkey PRIMARY KEY (bucket)
) WITH (fillfactor = 20);  -- hot rows: keep updates HOT and on few pages

-- Ranges of a stream's sequence that policy or death left out, until an event carrying ce_skipped is behind the cursor.
CREATE TABLE outbox_skipped (
    bucket        smallint    NOT NULL,
    aggregate_id  text        NOT NULL,
    stream        text        NOT NULL,
    epoch         bigint      NOT NULL,
    from_sequence bigint      NOT NULL,
    to_sequence   bigint      NOT NULL,
    reason        text        NOT NULL,
    up_to         bigint      NOT NULL,  -- position of the last skipped row
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_skipped_pkey PRIMARY KEY (bucket, aggregate_id, stream, epoch, from_sequence),
    CONSTRAINT outbox_skipped_range_check CHECK (from_sequence <= to_sequence),
    CONSTRAINT outbox_skipped_reason_check CHECK (reason IN ('superseded', 'dead'))
);

-- Rows that left the ordered path: the whole row, so that no partition is held by it (P2).
CREATE TABLE outbox_dead (
    position       bigint      NOT NULL,
    bucket         smallint    NOT NULL,
    message_id     uuid        NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    schema_version smallint    NOT NULL,
    stream         text        NOT NULL,
    epoch          bigint      NOT NULL,
    sequence       bigint      NOT NULL,
    source         text        NOT NULL,
    traceparent    text,
    correlation_id text,
    causation_id   text,
    payload        bytea       NOT NULL,
    occurred_at    timestamptz,
    created_at     timestamptz NOT NULL,
    state          text        NOT NULL,
    row_attempts   integer     NOT NULL DEFAULT 0,
    error_code     text        NOT NULL,
    error          text        NOT NULL,
    failed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    decided_by     text,
    decided_at     timestamptz,
    decision       text,
    CONSTRAINT outbox_dead_pkey PRIMARY KEY (position),
    CONSTRAINT outbox_dead_state_check CHECK (state IN ('dead', 'held', 'releasing', 'replayed', 'discarded', 'published'))
);
CREATE INDEX outbox_dead_open_idx ON outbox_dead (bucket, aggregate_id, position) WHERE state IN ('dead', 'held', 'releasing');

GRANT SELECT, INSERT, UPDATE, DELETE ON relay_instance, outbox_skipped TO hubstate_relay;
GRANT SELECT, UPDATE ON outbox_bucket TO hubstate_relay;
GRANT SELECT, INSERT, UPDATE ON outbox_dead TO hubstate_relay;
GRANT SELECT ON relay_instance, outbox_bucket, outbox_skipped, outbox_dead TO hubstate_operator, hubstate_maintainer, hubstate_reader;
GRANT UPDATE (state, decided_by, decided_at, decision) ON outbox_dead TO hubstate_operator;
GRANT SELECT ON outbox_bucket TO hubstate_ingest;
