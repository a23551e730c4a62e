-- +goose Up
-- A lane has one owner. Updated in every batch WHERE term = mine: an ingester that slept cannot commit anything old (N1, N4).
-- The class columns count committed reports, in the batch's own transaction, so N4 can be checked from the database alone.
CREATE TABLE ingest_lane (
    lane         text        NOT NULL,
    owner        text,
    term         bigint      NOT NULL DEFAULT 0,
    lease_until  timestamptz,
    batch        bigint      NOT NULL DEFAULT 0,   -- decides a COMMIT whose answer was lost
    tail         bytea,                            -- committed but perhaps unacknowledged: see ingest/tail.go
    filters      text,                             -- what the broker's session is subscribed to
    session_seen boolean     NOT NULL DEFAULT false,
    applied      bigint      NOT NULL DEFAULT 0,
    duplicate    bigint      NOT NULL DEFAULT 0,
    late         bigint      NOT NULL DEFAULT 0,
    coalesced    bigint      NOT NULL DEFAULT 0,
    discarded    bigint      NOT NULL DEFAULT 0,
    ignored      bigint      NOT NULL DEFAULT 0,
    quarantined  bigint      NOT NULL DEFAULT 0,
    committed_at timestamptz,
    CONSTRAINT ingest_lane_pkey PRIMARY KEY (lane)
) WITH (fillfactor = 30);

-- Reports that could not be applied, with their raw bytes; capped per device and in total.
CREATE TABLE ingest_reject (
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    lane        text        NOT NULL,
    topic       text        NOT NULL,
    device_id   text,
    stream      text,
    reason      text        NOT NULL,
    detail      text        NOT NULL,
    payload     bytea       NOT NULL,
    retained    boolean     NOT NULL DEFAULT false,
    received_at timestamptz NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    decided_by  text,
    decided_at  timestamptz,
    decision    text,
    CONSTRAINT ingest_reject_pkey PRIMARY KEY (id)
);
CREATE INDEX ingest_reject_device_idx ON ingest_reject (device_id, id);
CREATE INDEX ingest_reject_created_idx ON ingest_reject (created_at);

-- Beyond the caps rejects are counted here, in the same transaction, and then acked (N1).
CREATE TABLE ingest_reject_overflow (
    lane     text   NOT NULL,
    reason   text   NOT NULL,
    hour     timestamptz NOT NULL,
    rejected bigint NOT NULL,
    CONSTRAINT ingest_reject_overflow_pkey PRIMARY KEY (lane, reason, hour)
);

-- Windows in which reports may have been lost before us without a counter to show it.
CREATE TABLE possible_gap (
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    lane       text        NOT NULL,
    cause      text        NOT NULL,   -- session_lost, qos0_connection_lost, broker_dropped
    from_at    timestamptz,
    to_at      timestamptz NOT NULL,
    detail     text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT possible_gap_pkey PRIMARY KEY (id)
);

GRANT SELECT, INSERT, UPDATE ON ingest_lane, ingest_reject, ingest_reject_overflow, possible_gap TO hubstate_ingest;
GRANT SELECT ON ingest_lane, ingest_reject, ingest_reject_overflow, possible_gap TO hubstate_operator, hubstate_reader;
