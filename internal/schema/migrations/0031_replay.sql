-- +goose Up
-- Deciding about dead letters: a plan says exactly what will be sent, another identity approves exactly that, then it runs.

-- True on a dead row behind which later rows of its device are parked (on_dead: hold). What becomes of such a row is
-- only marked by the operator; the bucket's owner publishes it, and what is parked behind it, before newer rows.
ALTER TABLE outbox_dead ADD COLUMN parks boolean NOT NULL DEFAULT false;

CREATE TABLE replay_plan (
    id             uuid        NOT NULL DEFAULT gen_random_uuid(),
    digest         text        NOT NULL,            -- sha256 over the items, in order: what is approved is what runs
    filter         jsonb       NOT NULL,            -- how the items were chosen
    items          integer     NOT NULL,
    reason         text        NOT NULL,
    state          text        NOT NULL DEFAULT 'planned',
    planned_by     text        NOT NULL,
    planned_login  text        NOT NULL DEFAULT session_user,
    planned_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    approved_by    text,
    approved_login text,
    approved_at    timestamptz,
    run_by         text,
    started_at     timestamptz,
    finished_at    timestamptz,
    CONSTRAINT replay_plan_pkey PRIMARY KEY (id),
    CONSTRAINT replay_plan_state_check CHECK (state IN ('planned', 'approved', 'running', 'done')),
    CONSTRAINT replay_plan_four_eyes_check CHECK (approved_by <> planned_by),
    CONSTRAINT replay_plan_approved_check CHECK (state = 'planned' OR approved_by IS NOT NULL)
);

-- One row an event, in the order in which it will be sent.
CREATE TABLE replay_item (
    plan_id  uuid        NOT NULL,
    ordinal  integer     NOT NULL,
    position bigint      NOT NULL,
    forecast text        NOT NULL,   -- what the gate of a consumer that has seen everything published will do
    outcome  text,
    error    text,
    at       timestamptz,
    CONSTRAINT replay_item_pkey PRIMARY KEY (plan_id, ordinal),
    CONSTRAINT replay_item_plan_fkey FOREIGN KEY (plan_id) REFERENCES replay_plan (id),
    CONSTRAINT replay_item_forecast_check CHECK (forecast IN ('applied', 'dropped', 'parked')),
    CONSTRAINT replay_item_outcome_check CHECK (outcome IN ('sent', 'releasing', 'changed', 'failed', 'skipped'))
);
CREATE INDEX replay_item_position_idx ON replay_item (position);

GRANT SELECT, INSERT ON replay_plan, replay_item TO hubstate_operator;
GRANT UPDATE (state, approved_by, approved_login, approved_at, run_by, started_at, finished_at) ON replay_plan TO hubstate_operator;
GRANT UPDATE (outcome, error, at) ON replay_item TO hubstate_operator;
GRANT SELECT ON replay_plan, replay_item TO hubstate_relay, hubstate_maintainer, hubstate_reader;
