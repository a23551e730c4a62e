-- +goose Up
-- What the partitions of a parent look like, what the maintainer last saw, and the life of each partition.
-- The partition key of every parent is created_at; ranges are spans of interval_seconds on the UTC epoch grid, so that no
-- time zone or daylight saving can move a border. See partitions/doc.go.
CREATE TABLE partition_spec (
    parent           text        NOT NULL,
    interval_seconds bigint      NOT NULL,
    floor            timestamptz NOT NULL DEFAULT '-infinity',  -- no row is created before it; only ever raised
    ticked_at        timestamptz,   -- the maintainer's last complete turn, by this server's clock
    steady_since     timestamptz,   -- since when that clock has run without a jump: nothing is sealed or dropped on a fresh one
    expired_at       timestamptz,   -- the last time that rows past their keeping were deleted
    CONSTRAINT partition_spec_pkey PRIMARY KEY (parent),
    CONSTRAINT partition_spec_interval_check CHECK (interval_seconds BETWEEN 60 AND 2678400 AND interval_seconds % 60 = 0)
);
INSERT INTO partition_spec (parent, interval_seconds) VALUES ('outbox', 3600);

CREATE TABLE partition_ledger (
    name            text        NOT NULL,
    parent          text        NOT NULL,
    lower_at        timestamptz NOT NULL,
    upper_at        timestamptz NOT NULL,
    phase           text        NOT NULL,
    rows            bigint,              -- counted when sealed
    bytes           bigint,              -- table, indexes and TOAST, when sealed
    archive         text,                -- name of the archive in its store
    sha256          text,                -- of the archive file
    revision        bigint      NOT NULL DEFAULT 0,  -- raised when rows of a sealed table are erased: an archive of before is void
    attempts        integer     NOT NULL DEFAULT 0,  -- failed steps since the last one that succeeded
    last_error      text,
    next_attempt_at timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    attached_at     timestamptz,
    sealed_at       timestamptz,
    archived_at     timestamptz,
    dropped_at      timestamptz,
    CONSTRAINT partition_ledger_pkey PRIMARY KEY (name),
    CONSTRAINT partition_ledger_phase_check CHECK (phase IN ('ahead', 'live', 'sealing', 'sealed', 'archived', 'dropped')),
    CONSTRAINT partition_ledger_range_check CHECK (lower_at < upper_at)
);
CREATE INDEX partition_ledger_range_idx ON partition_ledger (parent, lower_at);

-- Everything that changes the set of partitions or the floor holds this lock to its commit: writers that miss a
-- partition and the maintainer never judge a range that the other is just changing.
-- +goose StatementBegin
CREATE FUNCTION partition_lock(p_parent text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_advisory_xact_lock(1346458196, hashtext(p_parent))
$$;
-- +goose StatementEnd

-- A stand-alone table for the range with a CHECK that repeats it (ATTACH then scans nothing) and the parent's indexes
-- (ATTACH then builds nothing). The caller holds partition_lock and has made sure that the range is free.
-- No defaults: rows enter through the parent, and a sealed table must not depend on its sequence.
-- +goose StatementBegin
CREATE FUNCTION prepare_partition(p_parent text, p_lower timestamptz, p_upper timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    v_name text := p_parent || to_char(p_lower, '"_p"YYYYMMDD"_"HH24MI');
BEGIN
    IF EXISTS (SELECT 1 FROM public.partition_ledger WHERE parent = p_parent AND phase <> 'dropped' AND lower_at < p_upper AND p_lower < upper_at) THEN
        RAISE EXCEPTION 'prepare_partition: [%, %) of % overlaps a partition', p_lower, p_upper, p_parent USING ERRCODE = 'invalid_object_definition';
    END IF;
    IF to_regclass(format('public.%I', v_name)) IS NOT NULL THEN
        RAISE EXCEPTION 'prepare_partition: table % stands in the way', v_name
            USING ERRCODE = 'duplicate_table', HINT = 'partition_ledger does not know it; rename it or move it to another schema';
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.%I INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE)', v_name, p_parent);
    EXECUTE format('ALTER TABLE public.%I ADD CONSTRAINT %I CHECK (created_at >= %L AND created_at < %L)',
        v_name, v_name || '_range_check', p_lower, p_upper);
    INSERT INTO public.partition_ledger (name, parent, lower_at, upper_at, phase) VALUES (v_name, p_parent, p_lower, p_upper, 'ahead');
    RETURN v_name;
END
$$;
-- +goose StatementEnd

-- ATTACH takes SHARE UPDATE EXCLUSIVE on the parent: readers and writers go on. Attached already: nothing to do.
-- +goose StatementBegin
CREATE FUNCTION attach_partition(p_parent text, p_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    v_row public.partition_ledger;
BEGIN
    IF EXISTS (SELECT 1 FROM pg_inherits WHERE inhparent = format('public.%I', p_parent)::regclass AND inhrelid = to_regclass(format('public.%I', p_name))) THEN
        RETURN;
    END IF;
    SELECT * INTO STRICT v_row FROM public.partition_ledger WHERE name = p_name AND parent = p_parent;
    EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)', p_parent, p_name, v_row.lower_at, v_row.upper_at);
    UPDATE public.partition_ledger
    SET phase = CASE phase WHEN 'ahead' THEN 'live' ELSE phase END, attached_at = coalesce(attached_at, clock_timestamp())
    WHERE name = p_name;
END
$$;
-- +goose StatementEnd

-- A writer that met "no partition of relation found for row" (23514) calls this in a transaction of its own, READ
-- COMMITTED, and retries its batch. It returns the attached partition for p_at, or for the floor when p_at lies below it
-- (the retry reads the raised floor and lands there). Safe when many call at once.
-- +goose StatementBegin
CREATE FUNCTION ensure_partition(p_parent text, p_at timestamptz) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET lock_timeout = '3s' AS $$
DECLARE
    v_spec  public.partition_spec;
    v_at    timestamptz;
    v_lower timestamptz;
    v_upper timestamptz;
    v_name  text;
BEGIN
    PERFORM public.partition_lock(p_parent);
    SELECT * INTO v_spec FROM public.partition_spec WHERE parent = p_parent;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'ensure_partition: % is not a partitioned parent of hubstate', p_parent USING ERRCODE = 'invalid_parameter_value';
    END IF;
    v_at := greatest(p_at, v_spec.floor);
    IF NOT isfinite(v_at) THEN
        RAISE EXCEPTION 'ensure_partition: % is not a time', p_at USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT name INTO v_name FROM public.partition_ledger
    WHERE parent = p_parent AND phase IN ('ahead', 'live') AND lower_at <= v_at AND v_at < upper_at;
    IF NOT FOUND THEN
        -- The slot of the grid, cut where a neighbour made under another interval, or the floor, reaches into it.
        v_lower := to_timestamp(floor(extract(epoch FROM v_at) / v_spec.interval_seconds) * v_spec.interval_seconds);
        v_upper := v_lower + make_interval(secs => v_spec.interval_seconds);
        SELECT greatest(v_lower, v_spec.floor, max(upper_at)) INTO v_lower
        FROM public.partition_ledger WHERE parent = p_parent AND upper_at <= v_at AND phase <> 'dropped';
        SELECT least(v_upper, min(lower_at)) INTO v_upper
        FROM public.partition_ledger WHERE parent = p_parent AND lower_at > v_at AND phase <> 'dropped';
        v_name := public.prepare_partition(p_parent, v_lower, v_upper);
    END IF;
    PERFORM public.attach_partition(p_parent, v_name);
    RETURN v_name;
END
$$;
-- +goose StatementEnd

-- From PostgreSQL 16 on the creator of a role is a member that may not become it, and then cannot hand objects over.
-- +goose StatementBegin
DO $$
BEGIN
    IF current_setting('server_version_num')::integer >= 160000 THEN
        IF NOT pg_has_role(current_user, 'hubstate_maintainer', 'SET') THEN
            GRANT hubstate_maintainer TO CURRENT_USER;
        END IF;
    END IF;
END
$$;
-- +goose StatementEnd

-- ATTACH and DETACH need the owner of the parent: that is the maintainer, and ensure_partition runs as it.
ALTER TABLE outbox OWNER TO hubstate_maintainer;
ALTER TABLE partition_spec OWNER TO hubstate_maintainer;
ALTER TABLE partition_ledger OWNER TO hubstate_maintainer;
ALTER FUNCTION partition_lock(text) OWNER TO hubstate_maintainer;
ALTER FUNCTION prepare_partition(text, timestamptz, timestamptz) OWNER TO hubstate_maintainer;
ALTER FUNCTION attach_partition(text, text) OWNER TO hubstate_maintainer;
ALTER FUNCTION ensure_partition(text, timestamptz) OWNER TO hubstate_maintainer;
REVOKE ALL ON FUNCTION partition_lock(text), prepare_partition(text, timestamptz, timestamptz), attach_partition(text, text),
    ensure_partition(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ensure_partition(text, timestamptz) TO hubstate_ingest;
GRANT SELECT ON partition_spec, partition_ledger TO hubstate_ingest, hubstate_relay, hubstate_operator, hubstate_reader;
