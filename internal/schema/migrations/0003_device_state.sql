-- +goose Up
-- The latest state of each (device, stream) and the numbers that devicestate.Next needs to judge the next report.
-- Only ingest writes it, under the outbox bucket lock of the device, so a plain read after the lock is current.
CREATE TABLE device_state (
    device_id        text        NOT NULL,
    stream           text        NOT NULL,
    hub_id           text        NOT NULL,
    bucket           smallint    NOT NULL,
    epoch            bigint      NOT NULL DEFAULT 1,
    sequence         bigint      NOT NULL DEFAULT 0,  -- last emitted, 0 = none yet
    counter          bigint,                          -- the device's own number, last applied
    boot             bigint,                          -- the device's own boot counter, last applied
    boot_started_at  timestamptz,                     -- device time of the boot's first report, when plausible
    boot_received_at timestamptz,                     -- our time of the boot's first report
    occurred_at      timestamptz,                     -- device time of the last applied report, when plausible
    received_at      timestamptz NOT NULL,            -- our time of the last applied live report
    clock_suspect    boolean     NOT NULL DEFAULT false,
    retained         boolean     NOT NULL DEFAULT false,
    clock_skew_ms    bigint,                          -- received - occurred when last live; null = never plausible
    state            bytea       NOT NULL,            -- compact JSON, byte for byte what the event carries
    state_hash       bytea       NOT NULL,            -- 16 bytes of sha256 over state
    emitted_hash     bytea,                           -- the same over what `emit: changed` compares, at the last event
    emitted_at       timestamptz,
    missed           bigint      NOT NULL DEFAULT 0,
    late             bigint      NOT NULL DEFAULT 0,
    duplicate        bigint      NOT NULL DEFAULT 0,
    quarantined      bigint      NOT NULL DEFAULT 0,
    reboot_pending   boolean     NOT NULL DEFAULT false,
    owed             boolean     NOT NULL DEFAULT false,
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT device_state_pkey PRIMARY KEY (device_id, stream)
) WITH (fillfactor = 70);  -- room for HOT updates: no indexed column ever changes

CREATE INDEX device_state_owed_idx ON device_state (bucket) WHERE owed;

-- What a device sent and we never got, by its own counter: one row a range, recorded once, closed by late arrivals.
CREATE TABLE stream_gap (
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    device_id    text        NOT NULL,
    stream       text        NOT NULL,
    boot         bigint,
    from_counter bigint      NOT NULL,
    to_counter   bigint      NOT NULL,
    arrived_late bigint      NOT NULL DEFAULT 0,
    detected_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at    timestamptz,
    CONSTRAINT stream_gap_pkey PRIMARY KEY (id),
    CONSTRAINT stream_gap_range_check CHECK (from_counter <= to_counter)
);
CREATE INDEX stream_gap_stream_idx ON stream_gap (device_id, stream, to_counter);

GRANT SELECT, INSERT, UPDATE ON device_state, stream_gap TO hubstate_ingest;
GRANT SELECT ON device_state, stream_gap TO hubstate_relay, hubstate_operator, hubstate_reader;
