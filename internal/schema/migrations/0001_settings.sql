-- +goose Up
-- One row: what this cell promised its topic. Written once by `relay migrate`; every daemon checks it at start.
-- Changing buckets or topic_partitions would move devices between buckets and break order, so nothing updates them.
CREATE TABLE hubstate_settings (
    singleton        boolean     NOT NULL DEFAULT true,
    cell             text        NOT NULL,
    buckets          integer     NOT NULL,
    topic            text        NOT NULL,
    topic_partitions integer     NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT hubstate_settings_pkey PRIMARY KEY (singleton),
    CONSTRAINT hubstate_settings_singleton_check CHECK (singleton),
    CONSTRAINT hubstate_settings_cell_check CHECK (cell ~ '^[A-Za-z0-9._-]{1,64}$'),
    CONSTRAINT hubstate_settings_buckets_check CHECK (buckets BETWEEN 1 AND 4096),
    CONSTRAINT hubstate_settings_topic_partitions_check CHECK (topic_partitions BETWEEN 1 AND 4096 AND buckets % topic_partitions = 0)
);
