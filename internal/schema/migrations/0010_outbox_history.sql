-- +goose Up
-- Where sealed partitions live until they are dropped: out of the relay's way, one query away for people. A partitioned
-- parent, not a UNION ALL view: a query for last Tuesday opens that day's tables only, and a new column is added once.
-- A migration that adds a column to outbox adds it to outbox_sealed in the same transaction, in the same order.
CREATE TABLE outbox_sealed (LIKE outbox INCLUDING STORAGE) PARTITION BY RANGE (created_at);

-- Serves "what did we send for device X last Tuesday".
CREATE INDEX outbox_sealed_device_idx ON outbox_sealed (aggregate_id, created_at);
ALTER TABLE outbox_sealed OWNER TO hubstate_maintainer;

-- Every row here is published, superseded or dead: nothing is sealed before. dead_state tells the dead ones apart.
-- Rows that are still in an attached partition are in outbox.
CREATE VIEW outbox_history AS
SELECT s.tableoid::regclass AS partition, s.*, d.state AS dead_state
FROM outbox_sealed s LEFT JOIN outbox_dead d ON d.position = s.position;
ALTER VIEW outbox_history OWNER TO hubstate_maintainer;

GRANT SELECT ON outbox_history TO hubstate_relay, hubstate_operator, hubstate_reader;
