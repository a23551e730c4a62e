-- +goose Up
-- Who decided what. Insert-only for everybody.
CREATE TABLE audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text        NOT NULL,
    db_user    text        NOT NULL DEFAULT session_user,
    action     text        NOT NULL,
    subject    text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    detail     jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT audit_pkey PRIMARY KEY (id)
);
CREATE INDEX audit_subject_idx ON audit (subject, id);
GRANT INSERT, SELECT ON audit TO hubstate_ingest, hubstate_relay, hubstate_maintainer, hubstate_operator;
GRANT SELECT ON audit TO hubstate_reader;
