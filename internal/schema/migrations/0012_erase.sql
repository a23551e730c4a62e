-- +goose Up
-- Erasing a device. What can go at once goes in one transaction; rows in partitions that are still attached to outbox go
-- at the moment their partition is sealed, because nothing ever deletes from outbox. This table remembers them.
CREATE TABLE erasure (
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    device_id    text        NOT NULL,
    bucket       smallint    NOT NULL,
    up_to        bigint      NOT NULL,  -- position: the device's next life lies above it
    until_at     timestamptz NOT NULL,  -- partitions that begin before it may hold rows; all sealed = finished
    requested_by text        NOT NULL,
    reason       text        NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    rows         bigint      NOT NULL DEFAULT 0,  -- of events, deleted so far
    finished_at  timestamptz,
    CONSTRAINT erasure_pkey PRIMARY KEY (id)
);
CREATE INDEX erasure_open_idx ON erasure (until_at) WHERE finished_at IS NULL;

-- Whoever erases and whoever seals exclude each other: a table between outbox and outbox_sealed is seen by neither.
-- +goose StatementBegin
CREATE FUNCTION erase_lock() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_advisory_xact_lock(1346458198, 0)
$$;
-- +goose StatementEnd

-- Deletes a device's rows from one sealed table and voids its archive.
-- +goose StatementBegin
CREATE FUNCTION erase_partition(p_erasure bigint, p_partition text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v       public.erasure;
    v_rows  bigint;
BEGIN
    SELECT * INTO STRICT v FROM public.erasure WHERE id = p_erasure;
    IF NOT EXISTS (SELECT FROM public.partition_ledger WHERE name = p_partition AND phase IN ('sealing', 'sealed', 'archived'))
        OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass(format('public.%I', p_partition)) AND inhparent = 'public.outbox'::regclass) THEN
        RAISE EXCEPTION 'erase_partition: % is not sealed', p_partition USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    EXECUTE format('DELETE FROM public.%I WHERE aggregate_id = $1 AND bucket = $2 AND position <= $3', p_partition) USING v.device_id, v.bucket, v.up_to;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows > 0 THEN
        UPDATE public.partition_ledger
        SET revision = revision + 1, phase = CASE phase WHEN 'archived' THEN 'sealed' ELSE phase END, rows = rows - v_rows, next_attempt_at = NULL
        WHERE name = p_partition;
        UPDATE public.erasure SET rows = rows + v_rows WHERE id = p_erasure;
    END IF;
    RETURN v_rows;
END
$$;
-- +goose StatementEnd

-- What the schema does with a partition when it is sealed: called by the maintainer in the transaction that records it,
-- while the table stands alone. The hook of other packages into a maintainer that knows no outbox.
-- +goose StatementBegin
CREATE FUNCTION partition_sealed(p_parent text, p_partition text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_erasure bigint;
BEGIN
    IF p_parent <> 'outbox' THEN
        RETURN;
    END IF;
    PERFORM public.erase_lock();
    FOR v_erasure IN
        SELECT e.id FROM public.erasure e JOIN public.partition_ledger l ON l.name = p_partition
        WHERE e.finished_at IS NULL AND l.lower_at < e.until_at
    LOOP
        PERFORM public.erase_partition(v_erasure, p_partition);
    END LOOP;
    UPDATE public.erasure e SET finished_at = clock_timestamp()
    WHERE finished_at IS NULL AND NOT EXISTS (
        SELECT FROM public.partition_ledger l
        WHERE l.parent = 'outbox' AND l.phase IN ('live', 'sealing') AND l.name <> p_partition AND l.lower_at < e.until_at);
END
$$;
-- +goose StatementEnd

-- Begins to erase a device: everything but its rows in partitions. Under its bucket lock, so that no report is being
-- applied meanwhile; p_bucket is the device's bucket (the caller knows the hash). It refuses while an event of the device
-- is not published or a dead letter of it not decided. What the device sends afterwards starts a new life in a higher
-- epoch, which every consumer takes. Rows go table by table and are counted by name.
-- +goose StatementBegin
CREATE FUNCTION erase_device(p_device text, p_bucket smallint, p_actor text, p_reason text, OUT erasure_id bigint, OUT erased jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    v_cursor bigint;
    v_epoch  bigint;
    v_until  timestamptz;
    n        bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1868723576, p_bucket);  -- outbox.LockClass
    PERFORM public.erase_lock();
    IF EXISTS (SELECT FROM public.device_state WHERE device_id = p_device AND bucket <> p_bucket) THEN
        RAISE EXCEPTION 'erase_device: % is not in bucket %', p_device, p_bucket USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT cursor INTO STRICT v_cursor FROM public.outbox_bucket WHERE bucket = p_bucket;
    IF EXISTS (SELECT FROM public.outbox WHERE bucket = p_bucket AND position > v_cursor AND aggregate_id = p_device)
        OR EXISTS (SELECT FROM public.device_state WHERE device_id = p_device AND owed) THEN
        RAISE EXCEPTION 'erase_device: an event of % is not published yet', p_device
            USING ERRCODE = 'object_in_use', HINT = 'stop the device, wait until relay status shows its bucket drained, then erase again';
    END IF;
    IF EXISTS (SELECT FROM public.outbox_dead WHERE bucket = p_bucket AND aggregate_id = p_device AND state IN ('dead', 'held', 'releasing')) THEN
        RAISE EXCEPTION 'erase_device: a dead letter of % is not decided', p_device
            USING ERRCODE = 'object_in_use', HINT = 'decide it with relay discard or relay replay, then erase again';
    END IF;

    erased := '{}';
    SELECT max(e) INTO v_epoch FROM (
        SELECT max(epoch) FROM public.device_state WHERE device_id = p_device
        UNION ALL SELECT max(epoch) FROM public.outbox_sealed WHERE aggregate_id = p_device
        UNION ALL SELECT max(epoch) FROM public.outbox_dead WHERE bucket = p_bucket AND aggregate_id = p_device) AS u (e);
    -- Ingest gives a stream without state at least this epoch; read under the bucket lock that we hold.
    UPDATE public.hubstate_settings SET epoch = greatest(epoch, coalesce(v_epoch, 0) + 1);

    DELETE FROM public.device_state WHERE device_id = p_device;
    GET DIAGNOSTICS n = ROW_COUNT;
    erased := erased || jsonb_build_object('device_state', n);
    DELETE FROM public.stream_gap WHERE device_id = p_device;
    GET DIAGNOSTICS n = ROW_COUNT;
    erased := erased || jsonb_build_object('stream_gap', n);
    DELETE FROM public.ingest_reject WHERE device_id = p_device;
    GET DIAGNOSTICS n = ROW_COUNT;
    erased := erased || jsonb_build_object('ingest_reject', n);
    DELETE FROM public.outbox_dead WHERE bucket = p_bucket AND aggregate_id = p_device;
    GET DIAGNOSTICS n = ROW_COUNT;
    erased := erased || jsonb_build_object('outbox_dead', n);
    DELETE FROM public.outbox_skipped WHERE bucket = p_bucket AND aggregate_id = p_device;
    GET DIAGNOSTICS n = ROW_COUNT;
    erased := erased || jsonb_build_object('outbox_skipped', n);

    SELECT coalesce(max(upper_at), '-infinity') INTO v_until FROM public.partition_ledger
    WHERE parent = 'outbox' AND phase IN ('live', 'sealing') AND lower_at <= (SELECT greatest(clock_timestamp(), floor) FROM public.partition_spec WHERE parent = 'outbox');
    INSERT INTO public.erasure (device_id, bucket, up_to, until_at, requested_by, reason, finished_at)
    VALUES (p_device, p_bucket, v_cursor, v_until, p_actor, p_reason, CASE WHEN v_until = '-infinity' THEN clock_timestamp() END)
    RETURNING id INTO erasure_id;
    INSERT INTO public.audit (actor, action, subject, reason, detail)
    VALUES (p_actor, 'erase', p_device, p_reason, jsonb_build_object('erasure', erasure_id, 'until', v_until, 'erased', erased));
END
$$;
-- +goose StatementEnd

ALTER FUNCTION partition_sealed(text, text) OWNER TO hubstate_maintainer;
ALTER FUNCTION erase_lock() OWNER TO hubstate_maintainer;
ALTER FUNCTION erase_partition(bigint, text) OWNER TO hubstate_maintainer;
ALTER TABLE erasure OWNER TO hubstate_maintainer;
REVOKE ALL ON FUNCTION erase_lock(), erase_partition(bigint, text), partition_sealed(text, text), erase_device(text, smallint, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erase_partition(bigint, text), erase_device(text, smallint, text, text) TO hubstate_operator;
GRANT SELECT ON erasure TO hubstate_operator, hubstate_reader;
