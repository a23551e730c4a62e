-- One login user per daemon, each a member of exactly the group role that `relay migrate` makes for it.
-- Run once per server, as a superuser, after `relay migrate`:
--   psql -v ingest_password=… -v relay_password=… -v maintainer_password=… -v operator_password=… -v reader_password=… -f logins.sql
-- The daemons do SET ROLE to their group role, so objects and rights never hang on a login name.
CREATE ROLE hubstate_ingest_login     LOGIN PASSWORD :'ingest_password'     CONNECTION LIMIT 40;
CREATE ROLE hubstate_relay_login      LOGIN PASSWORD :'relay_password'      CONNECTION LIMIT 40;
CREATE ROLE hubstate_maintainer_login LOGIN PASSWORD :'maintainer_password' CONNECTION LIMIT 5;
CREATE ROLE hubstate_operator_login   LOGIN PASSWORD :'operator_password'   CONNECTION LIMIT 10;
CREATE ROLE hubstate_reader_login     LOGIN PASSWORD :'reader_password'     CONNECTION LIMIT 20;
GRANT hubstate_ingest     TO hubstate_ingest_login;
-- The relay also keeps the partitions (it runs the maintainer's loop under the maintainer's role).
GRANT hubstate_relay, hubstate_maintainer TO hubstate_relay_login;
GRANT hubstate_maintainer TO hubstate_maintainer_login;
GRANT hubstate_operator   TO hubstate_operator_login;
GRANT hubstate_reader     TO hubstate_reader_login;
