-- +goose Up
-- outbox_superseded lives as long as the rows it speaks about: a range goes when no partition is left that could hold one
-- of its rows, or when its device is erased.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION keep_superseded() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO public.outbox_superseded (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, up_to)
    SELECT bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, up_to FROM gone WHERE reason = 'superseded'
    ON CONFLICT ON CONSTRAINT outbox_superseded_pkey DO NOTHING;
    -- A row is older than the range that supersedes it. Bounded: the caller is a relay in the middle of its work.
    DELETE FROM public.outbox_superseded WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM public.outbox_superseded
        WHERE created_at < (SELECT min(lower_at) FROM public.partition_ledger WHERE parent = 'outbox' AND phase <> 'dropped')
        ORDER BY created_at LIMIT 5000));
    RETURN NULL;
END
$$;

CREATE FUNCTION erase_superseded() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    DELETE FROM public.outbox_superseded WHERE bucket = NEW.bucket AND aggregate_id = NEW.device_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION erase_superseded() FROM PUBLIC;

-- erase_device deletes from outbox_skipped first, which hands ranges over to outbox_superseded, and records the erasure last.
CREATE TRIGGER erase_superseded AFTER INSERT ON erasure FOR EACH ROW EXECUTE FUNCTION erase_superseded();
