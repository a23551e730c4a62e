-- +goose Up
-- The broker's own count of dropped messages, as the lane last read it: what it drops while no ingester is there must
-- still be seen. Null = never read.
ALTER TABLE ingest_lane ADD COLUMN broker_dropped bigint;
