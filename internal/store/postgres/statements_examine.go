package postgres

// The statements by which people look at a database (examine.go). They read, and need no privilege but to connect.

const (
	// One row of what the server is and how it is set. Settings that a version does not have are empty.
	sqlExamineServer = `SELECT current_setting('server_version_num')::bigint, current_setting('server_version'), pg_backend_pid()::bigint,
		pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
		current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'), current_setting('autovacuum'),
		current_setting('synchronous_standby_names'),
		(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')), pg_has_role('pg_read_all_stats', 'USAGE'),
		current_setting('max_connections')::bigint, current_setting('superuser_reserved_connections')::bigint + coalesce(current_setting('reserved_connections', true), '0')::bigint,
		(SELECT sum(numbackends) FROM pg_stat_database)::bigint,
		(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
		has_schema_privilege(current_schema(), 'CREATE'), to_regclass('nelkap_schema') IS NOT NULL`
	// Who holds the oldest snapshot, and since when: no row that has changed since then can be removed.
	sqlExamineOldest = `SELECT holder, (extract(epoch FROM clock_timestamp() - since) * 1000)::bigint FROM (
			SELECT 'session ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '') AS holder, xact_start AS since
				FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND coalesce(backend_xmin, backend_xid) IS NOT NULL AND xact_start IS NOT NULL
			UNION ALL SELECT 'the prepared transaction ' || gid, prepared FROM pg_prepared_xacts WHERE database = current_database()) AS open
		ORDER BY since LIMIT 1`
	// Whether a server may do to its tables what it does.
	sqlExamineRights = `SELECT coalesce(bool_and(has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT')
		AND has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE')), false) FROM unnest(ARRAY['runs', 'steps', 'waits', 'events', 'keys']) AS name`
)
