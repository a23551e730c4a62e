-- +goose Up
-- The least epoch of a stream that has no state yet. `relay rebase` raises it together with the epoch of all known streams:
-- a device that a restored database has never heard of would otherwise start at epoch 1, and every consumer that saw it
-- before would drop it as late. Read after the bucket locks; the rebase holds them all.
ALTER TABLE hubstate_settings ADD COLUMN epoch bigint NOT NULL DEFAULT 1;
ALTER TABLE hubstate_settings ADD CONSTRAINT hubstate_settings_epoch_check CHECK (epoch >= 1);
