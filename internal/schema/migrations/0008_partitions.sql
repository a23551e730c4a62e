-- +goose Up
-- What the partitions of a parent look like, readable by ensure_partition, and the life of each one.
CREATE TABLE partition_spec (
    parent           text        NOT NULL,
    interval_seconds bigint      NOT NULL,
    floor            timestamptz NOT NULL DEFAULT '-infinity',  -- no row is created before it: see partitions/doc.go
    CONSTRAINT partition_spec_pkey PRIMARY KEY (parent),
    CONSTRAINT partition_spec_interval_check CHECK (interval_seconds BETWEEN 60 AND 2678400)
);
INSERT INTO partition_spec (parent, interval_seconds) VALUES ('outbox', 3600);

CREATE TABLE partition_ledger (
    name        text        NOT NULL,
    parent      text        NOT NULL,
    lower_at    timestamptz NOT NULL,
    upper_at    timestamptz NOT NULL,
    phase       text        NOT NULL,
    rows        bigint,
    bytes       bigint,
    archive     text,
    sha256      text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    attached_at timestamptz,
    sealed_at   timestamptz,
    archived_at timestamptz,
    dropped_at  timestamptz,
    CONSTRAINT partition_ledger_pkey PRIMARY KEY (name),
    CONSTRAINT partition_ledger_phase_check CHECK (phase IN ('ahead', 'live', 'sealing', 'sealed', 'archived', 'dropped')),
    CONSTRAINT partition_ledger_range_check CHECK (lower_at < upper_at)
);

-- A writer that met "no partition of relation found for row" calls this in a transaction of its own and retries its
-- batch. Stand-alone CREATE + ATTACH with a matching CHECK: no ACCESS EXCLUSIVE on the parent. Safe when many call at once.
-- +goose StatementBegin
CREATE FUNCTION ensure_partition(p_parent text, p_at timestamptz) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_interval bigint;
    v_lower    timestamptz;
    v_upper    timestamptz;
    v_name     text;
BEGIN
    SELECT interval_seconds INTO v_interval FROM public.partition_spec WHERE parent = p_parent;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'ensure_partition: % is not a partitioned parent of hubstate', p_parent USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time per parent; released at commit. lock_timeout bounds the wait for ATTACH's SHARE UPDATE EXCLUSIVE.
    PERFORM set_config('lock_timeout', '2s', true);
    PERFORM pg_advisory_xact_lock(1346458196, hashtext(p_parent));
    v_lower := to_timestamp(floor(extract(epoch FROM p_at) / v_interval) * v_interval);
    v_upper := v_lower + make_interval(secs => v_interval);
    v_name := p_parent || to_char(v_lower AT TIME ZONE 'UTC', '"_p"YYYYMMDD"_"HH24MI');
    IF EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = format('public.%I', p_parent)::regclass AND c.relname = v_name) THEN
        RETURN v_name;
    END IF;
    IF to_regclass(format('public.%I', v_name)) IS NULL THEN
        EXECUTE format('CREATE TABLE public.%I (LIKE public.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', v_name, p_parent);
        EXECUTE format('ALTER TABLE public.%I ADD CONSTRAINT %I CHECK (created_at >= %L AND created_at < %L)',
            v_name, v_name || '_range_check', v_lower, v_upper);
    END IF;
    EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)', p_parent, v_name, v_lower, v_upper);
    INSERT INTO public.partition_ledger (name, parent, lower_at, upper_at, phase, attached_at)
    VALUES (v_name, p_parent, v_lower, v_upper, 'live', clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET phase = 'live', attached_at = clock_timestamp();
    RETURN v_name;
END
$$;
-- +goose StatementEnd

-- ATTACH and DETACH need the owner of the parent: that is the maintainer, and ensure_partition runs as it.
ALTER TABLE outbox OWNER TO hubstate_maintainer;
ALTER TABLE partition_spec OWNER TO hubstate_maintainer;
ALTER TABLE partition_ledger OWNER TO hubstate_maintainer;
ALTER FUNCTION ensure_partition(text, timestamptz) OWNER TO hubstate_maintainer;
REVOKE ALL ON FUNCTION ensure_partition(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ensure_partition(text, timestamptz) TO hubstate_ingest;
GRANT SELECT ON partition_spec, partition_ledger TO hubstate_ingest, hubstate_relay, hubstate_operator, hubstate_reader;
