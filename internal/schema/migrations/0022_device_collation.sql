-- +goose Up
-- Ids are compared byte by byte, whatever the language of the cluster: a language's rules cost ingest a microsecond a
-- report in the index of device_state, and a changed C library would corrupt it silently.
ALTER TABLE device_state ALTER COLUMN device_id TYPE text COLLATE "C", ALTER COLUMN stream TYPE text COLLATE "C";
