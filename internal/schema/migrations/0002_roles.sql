-- +goose Up
-- Group roles without login. A deployment grants them to its login users; each daemon does SET ROLE to its own,
-- so one over-privileged URL still runs with the rights of the part that uses it.
-- Roles belong to the whole cluster: two databases may migrate at once, hence the exception handler.
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['hubstate_ingest', 'hubstate_relay', 'hubstate_maintainer', 'hubstate_operator', 'hubstate_reader'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
        -- A migrating user that is not a superuser must be a member to hand objects over (PostgreSQL 16+).
        IF NOT pg_has_role(current_user, r, 'MEMBER') THEN
            EXECUTE format('GRANT %I TO %I', r, current_user);
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd
GRANT USAGE ON SCHEMA public TO hubstate_ingest, hubstate_relay, hubstate_maintainer, hubstate_operator, hubstate_reader;
GRANT CREATE ON SCHEMA public TO hubstate_maintainer;
GRANT SELECT ON hubstate_settings TO hubstate_ingest, hubstate_relay, hubstate_maintainer, hubstate_operator, hubstate_reader;
-- Daemons compare the schema version at start.
GRANT SELECT ON goose_db_version TO hubstate_ingest, hubstate_relay, hubstate_maintainer, hubstate_operator, hubstate_reader;
