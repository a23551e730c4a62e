-- +goose Up
-- What of a gap is still missing. A late report that comes twice must not count twice, so the counters themselves are
-- kept, not their number; arrived_late and closed_at follow from it.
ALTER TABLE stream_gap ADD COLUMN missing int8multirange NOT NULL DEFAULT '{}';
