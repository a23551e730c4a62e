-- +goose Up
CREATE INDEX audit_at_idx ON audit (at);
CREATE INDEX stream_gap_detected_idx ON stream_gap (detected_at);
CREATE INDEX outbox_dead_decided_idx ON outbox_dead (coalesce(decided_at, failed_at)) WHERE state IN ('replayed', 'discarded', 'published');

-- Deletes at most p_limit rows of a subject that are older than p_before and returns how many. Nobody else may delete
-- these rows, and what must never go is not in these statements: a dead letter that is not decided stays whatever its
-- age (P2). Nothing younger than a day goes, so that one wrong number cannot empty a table.
-- +goose StatementBegin
CREATE FUNCTION retain_rows(p_subject text, p_before timestamptz, p_limit integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_deleted bigint := 0;
    v_more    bigint := 0;
BEGIN
    IF p_before > clock_timestamp() - interval '1 day' THEN
        RAISE EXCEPTION 'retain_rows: % is less than a day ago', p_before USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE p_subject
    WHEN 'dead' THEN
        DELETE FROM public.outbox_dead WHERE position IN (
            SELECT position FROM public.outbox_dead
            WHERE state IN ('replayed', 'discarded', 'published') AND coalesce(decided_at, failed_at) < p_before LIMIT p_limit);
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
    WHEN 'rejects' THEN
        DELETE FROM public.ingest_reject WHERE id IN (SELECT id FROM public.ingest_reject WHERE created_at < p_before LIMIT p_limit);
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
        DELETE FROM public.ingest_reject_overflow WHERE hour < p_before;
        GET DIAGNOSTICS v_more = ROW_COUNT;
    WHEN 'gaps' THEN
        DELETE FROM public.stream_gap WHERE id IN (SELECT id FROM public.stream_gap WHERE detected_at < p_before LIMIT p_limit);
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
        DELETE FROM public.possible_gap WHERE id IN (SELECT id FROM public.possible_gap WHERE created_at < p_before LIMIT p_limit);
        GET DIAGNOSTICS v_more = ROW_COUNT;
    WHEN 'audit' THEN
        DELETE FROM public.audit WHERE id IN (SELECT id FROM public.audit WHERE at < p_before LIMIT p_limit);
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
    ELSE
        RAISE EXCEPTION 'retain_rows: unknown subject %', p_subject USING ERRCODE = 'invalid_parameter_value', HINT = 'dead, rejects, gaps or audit';
    END CASE;
    RETURN v_deleted + v_more;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION retain_rows(text, timestamptz, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION retain_rows(text, timestamptz, integer) TO hubstate_maintainer;

-- So that a step that waits can name whom it waits for. A convenience: a migrating user without the right to grant it
-- goes on without.
-- +goose StatementBegin
DO $$
BEGIN
    IF NOT pg_has_role('hubstate_maintainer', 'pg_read_all_stats', 'MEMBER') THEN
        GRANT pg_read_all_stats TO hubstate_maintainer;
    END IF;
EXCEPTION WHEN insufficient_privilege OR internal_error THEN  -- internal_error: another database of the server grants it just now
    RAISE NOTICE 'hubstate_maintainer may not read pg_stat_activity of others: grant pg_read_all_stats to it by hand';
END
$$;
-- +goose StatementEnd
