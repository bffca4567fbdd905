package postgres

// The statements that read, for a batch of changes and for the Reader; statements_write.go has those that write. Each is prepared by a test
// against a freshly migrated database.
//
// Those of lists are planned anew each time, with their parameters known (bind.go): a condition that an empty parameter switches off costs
// nothing. Of the others a connection may keep one plan (prepared.go).

// What rows are read as, in the order in which the scan functions know them.
const (
	runColumns = `id, env, app, workflow, run_key, replay_of, parent, root, event, event_id, root_restart, version, status,
		restart, epoch, call_id, call_token, call_nonce, call_node, call_begun_at, prior_id, prior_token, prior_nonce, prior_node, prior_begun_at, next_at, timeout_at,
		waits_at, woken_at, reason, ending_reason, ending_at, closing, ending_entries, closers, warning, invokes, attempts, cuts,
		yields, progress, created_at, started_at, ended_at, lease_ms`
	recordColumns   = runColumns + `, payload, output, error, trees FROM runs JOIN run_values ON run_values.run = runs.seq`
	attemptColumns  = `attempts.name, attempts.number, attempts.attempt, attempts.call_id, attempts.error, attempts.started_at, attempts.ended_at, attempts.retry_at, attempts.again`
	callbackColumns = `callbacks.token_hash, callbacks.env, callbacks.run_id, callbacks.name, callbacks.number, callbacks.due_at, callbacks.ended_at, callbacks.payload`
	waitColumns     = `waits.id, waits.run_id, waits.env, waits.name, waits.number, waits.kind, waits.due_at, waits.child, waits.of_number,
		waits.event, waits.after, waits.looked, waits.orphan`
	// A subquery, not a join: whatever the planner believes of a table that it has no statistics of, it looks up these rows alone.
	childLives      = `, coalesce((SELECT ended_at = 0 FROM runs AS child WHERE child.id=waits.child), false)`
	eventColumns    = `position, env, name, id, payload, created_at, runs`
	keyColumns      = `keys.env, keys.kind, keys.scope, keys.key, keys.owner, keys.hash, keys.differs, keys.answer, keys.expires_at, keys.owner_status, keys.owner_ended_at, keys.lasts_ms, keys.until_failed`
	scheduleColumns = `env, id, app, workflow, expression, timezone, catch_up, payload, declared, paused, version, cursor_at, next_at, created_at`
	deliveryColumns = `id, env, hook, provider, status, reason, provider_id, redelivery_of, events, received_at, bytes, position`
)

// Transactions.
const (
	// Whatever the database's default is. Each statement sees what was committed before it began: those after sqlLockRuns see all that the
	// changes before have done to those runs.
	sqlBegin = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`
	// A node that stops in the middle of a transaction holds its locks until the server ends it: one that is idle, or that waits for the node to
	// take its answer, which only Linux bounds; other servers would write a line to their log each time. A commit must be on disk before it is
	// acknowledged (W6), whatever the database's default is; stronger settings stay. And a batch finds a few rows of large tables through
	// their indexes: what the planner believes of a table of which it has no statistics yet must not make it read
	// the whole, compile a statement that is carried out once, or plan one anew that the connection keeps. The last column is the
	// store's phase: a server that was there before it is moved to, or held, must stop writing (N5).
	sqlBounds = `SELECT set_config('lock_timeout', $1::bigint::text, true), set_config('idle_in_transaction_session_timeout', $2::bigint::text, true),
		CASE WHEN current_setting('tcp_user_timeout', true) IS NOT NULL AND version() LIKE '%linux%' THEN set_config('tcp_user_timeout', $2::bigint::text, true) END,
		set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true),
		CASE WHEN current_setting('enable_hashjoin', true) IS NOT NULL THEN set_config('enable_hashjoin', 'off', true) END,
		CASE WHEN current_setting('enable_mergejoin', true) IS NOT NULL THEN set_config('enable_mergejoin', 'off', true) END,
		CASE WHEN current_setting('enable_seqscan', true) IS NOT NULL THEN set_config('enable_seqscan', 'off', true) END,
		CASE WHEN current_setting('plan_cache_mode', true) IS NOT NULL THEN set_config('plan_cache_mode', 'force_generic_plan', true) END,
		CASE WHEN current_setting('jit', true) IS NOT NULL THEN set_config('jit', 'off', true) END,
		coalesce((SELECT phase FROM phase), '')`
	// Reads have no such transaction. A connection that keeps their plans keeps these settings too: a plan that was made while a table was
	// small stands until somebody analyzes the table, however large it has grown.
	sqlPlanning = `SELECT
		CASE WHEN current_setting('enable_hashjoin', true) IS NOT NULL THEN set_config('enable_hashjoin', 'off', false) END,
		CASE WHEN current_setting('enable_mergejoin', true) IS NOT NULL THEN set_config('enable_mergejoin', 'off', false) END,
		CASE WHEN current_setting('enable_seqscan', true) IS NOT NULL THEN set_config('enable_seqscan', 'off', false) END,
		CASE WHEN current_setting('jit', true) IS NOT NULL THEN set_config('jit', 'off', false) END`
	sqlBeginRead = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	sqlCommit    = `COMMIT`
	sqlRollback  = `ROLLBACK`
)

// What a batch has to know before it writes.
//
// What is looked for in a large table by several columns stands in a LATERAL with OFFSET 0. So the planner looks for it with all of them: as
// a join it may, of a table that it believes to be small, read by one column all that a run has and leave the others for later.
const (
	// In the order of ids, so that no two batches wait for each other (N2).
	sqlLockRuns = `SELECT id, seq, env, version, coalesce(call_id, ''::bytea), coalesce(call_nonce, ''::bytea), restart, ended_at > 0, entries, bytes, lines, events_after
		FROM runs WHERE id = ANY($1::bytea[]) ORDER BY id FOR UPDATE`
	namedKeys = `FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bytea[]) AS u(env, kind, scope, key)
		JOIN keys ON keys.env=u.env AND keys.kind=u.kind AND keys.scope=u.scope AND keys.key=u.key`
	sqlLockKeys = `SELECT ` + keyColumns + ` ` + namedKeys + `
		ORDER BY keys.env, keys.kind, keys.scope, keys.key FOR UPDATE OF keys`
	// Those that are there, and those of them that nobody else has locked: it waits for none.
	sqlRunsThere = `SELECT id FROM runs WHERE id = ANY($1::bytea[])`
	sqlRunsFree  = sqlRunsThere + ` FOR UPDATE SKIP LOCKED`
	sqlKeysThere = `SELECT keys.env, keys.kind, keys.scope, keys.key ` + namedKeys
	sqlKeysFree  = sqlKeysThere + ` FOR UPDATE OF keys SKIP LOCKED`

	sqlDrawSeqs    = `SELECT nextval('run_seqs') FROM generate_series(1, $1::bigint)`
	sqlDrawWaits   = `SELECT nextval('wait_ids') FROM generate_series(1, $1::bigint)`
	sqlGatherSteps = `SELECT u.place, steps.entry, steps.status, steps.output, steps.error
		FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS u(id, name, number, place) JOIN runs ON runs.id=u.id,
		LATERAL (SELECT * FROM steps WHERE steps.run=runs.seq AND steps.restart=runs.restart AND steps.name=u.name AND steps.number=u.number OFFSET 0) AS steps`
	sqlGatherAttempts = `SELECT u.id, ` + attemptColumns + ` FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS u(id, name, number) JOIN runs ON runs.id=u.id,
		LATERAL (SELECT * FROM attempts WHERE attempts.run=runs.seq AND attempts.name=u.name AND attempts.number=u.number OFFSET 0) AS attempts`
	sqlGatherOpenAttempts = `SELECT u.id, ` + attemptColumns + ` FROM unnest($1::bytea[]) AS u(id)
		JOIN runs ON runs.id=u.id JOIN attempts ON attempts.run=runs.seq AND (attempts.ended_at = 0 OR attempts.retry_at > 0)`
	sqlGatherWaits = `SELECT ` + waitColumns + childLives + ` FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS u(id, name, number) JOIN runs ON runs.id=u.id,
		LATERAL (SELECT * FROM waits WHERE waits.run=runs.seq AND waits.name=u.name AND waits.number=u.number OFFSET 0) AS waits`
	sqlGatherWaitsOfRuns = `SELECT ` + waitColumns + childLives + ` FROM unnest($1::bytea[]) AS u(id)
		JOIN runs ON runs.id=u.id JOIN waits ON waits.run=runs.seq`
	sqlGatherInvokes = `SELECT ` + waitColumns + childLives + ` FROM unnest($1::bytea[], $2::bytea[]) AS u(id, child) JOIN runs ON runs.id=u.id,
		LATERAL (SELECT * FROM waits WHERE waits.run=runs.seq AND waits.child=u.child AND waits.kind='invoke' OFFSET 0) AS waits`
	sqlGatherUses = `SELECT u.id, event_uses.position FROM unnest($1::bytea[], $2::bigint[]) AS u(id, position) JOIN runs ON runs.id=u.id,
		LATERAL (SELECT * FROM event_uses WHERE event_uses.run=runs.seq AND event_uses.position=u.position OFFSET 0) AS event_uses`
	sqlGatherEvents = `SELECT events.env, events.name, events.id FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS u(env, name, id),
		LATERAL (SELECT * FROM events WHERE events.env=u.env AND events.name=u.name AND events.id=u.id OFFSET 0) AS events`
	sqlLastEvent = `SELECT value FROM counters WHERE name='events'`
	// Who stores events is alone in that until the commit: see counters in the schema.
	sqlLockLastEvent   = sqlLastEvent + ` FOR UPDATE`
	sqlGatherCallbacks = `SELECT ` + callbackColumns + `, callbacks.run FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS u(id, name, number) JOIN runs ON runs.id=u.id,
		LATERAL (SELECT * FROM callbacks WHERE callbacks.run=runs.seq AND callbacks.name=u.name AND callbacks.number=u.number OFFSET 0) AS callbacks`
	// Those of the second to the fourth are waited for: whether they have been posted to is known to both who posts and who waits.
	sqlLockCallbacks = `SELECT ` + callbackColumns + `, callbacks.run FROM callbacks WHERE token_hash = ANY($1::bytea[] || ARRAY(
			SELECT waited.token_hash FROM unnest($2::bytea[], $3::bytea[], $4::bigint[]) AS u(id, name, number) JOIN runs ON runs.id=u.id,
			LATERAL (SELECT * FROM callbacks WHERE callbacks.run=runs.seq AND callbacks.name=u.name AND callbacks.number=u.number OFFSET 0) AS waited))
		ORDER BY token_hash FOR UPDATE`
	sqlLockSchedules = `SELECT schedules.env, schedules.id, schedules.version, schedules.created_at FROM unnest($1::bytea[], $2::bytea[]) AS u(env, id)
		JOIN schedules ON schedules.env=u.env AND schedules.id=u.id ORDER BY schedules.env, schedules.id FOR UPDATE OF schedules`
	sqlLockApps = `SELECT apps.env, apps.name, apps.version FROM unnest($1::bytea[], $2::bytea[]) AS u(env, name)
		JOIN apps ON apps.env=u.env AND apps.name=u.name ORDER BY apps.env, apps.name FOR UPDATE OF apps`
	sqlLockLater = `SELECT later_events.env, later_events.name, later_events.id FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS u(env, name, id)
		JOIN later_events ON later_events.env=u.env AND later_events.name=u.name AND later_events.id=u.id
		ORDER BY later_events.env, later_events.name, later_events.id FOR UPDATE OF later_events`
	sqlGatherDeliveries = `SELECT id FROM deliveries WHERE id = ANY($1::bytea[])`
	sqlGatherLines      = `SELECT u.place FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[])
			WITH ORDINALITY AS u(id, restart, entry, name, number, attempt, line, call_id, place) JOIN runs ON runs.id=u.id,
		LATERAL (SELECT FROM logs WHERE logs.run=runs.seq AND logs.restart=u.restart AND logs.entry=u.entry AND logs.name=u.name AND logs.number=u.number
			AND logs.attempt=u.attempt AND logs.line=u.line AND logs.call_id=u.call_id OFFSET 0) AS logs`
	// Of the current chapter the run's row has the number.
	sqlGatherLineCounts = `SELECT u.id, u.restart, (SELECT count(*) FROM logs WHERE logs.run=runs.seq AND logs.restart=u.restart)
		FROM unnest($1::bytea[], $2::bigint[]) AS u(id, restart) JOIN runs ON runs.id=u.id WHERE runs.restart <> u.restart`
)

// Runs. Due work is only looked at here: who begins a call writes the run's next version, and of two nodes that saw it one is refused
// (N1). The engine divides it beforehand (docs/decisions/0006-the-holder-of-a-call-judges-it.md).
const (
	sqlSelectRun     = `SELECT entries, bytes, ` + runColumns + ` FROM runs WHERE id=$1::bytea`
	sqlSelectRecord  = `SELECT ` + recordColumns + ` WHERE id=$1::bytea AND env=$2::bytea`
	sqlSelectState   = `SELECT entries, bytes, ` + recordColumns + ` WHERE id=$1::bytea`
	sqlSelectRecords = `SELECT ` + recordColumns + ` WHERE env=$1::bytea AND ($2::bytea = '' OR app=$2::bytea) AND ($3::bytea = '' OR workflow=$3::bytea)
		AND ($4::text = '' OR status=$4::text) AND ($5::bytea = '' OR run_key=$5::bytea) AND ($6::bytea = '' OR id < $6::bytea) AND (NOT $7::boolean OR ended_at = 0)
		ORDER BY id DESC LIMIT $8::bigint`
	sqlSelectTimers    = `SELECT ` + runColumns + ` FROM runs WHERE timer_at > 0 AND timer_at <= $1::bigint AND (timer_at, id) > ($2::bigint, $3::bytea) ORDER BY timer_at, id LIMIT $4::bigint`
	sqlSelectNextTimer = `SELECT coalesce(min(timer_at), 0) FROM runs WHERE timer_at > 0`
	sqlSelectReady     = `SELECT id, ready_at FROM runs WHERE env=$1::bytea AND app=$2::bytea AND ready_at > 0 AND ready_at <= $3::bigint ORDER BY ready_at, id LIMIT $4::bigint`
	sqlSelectRunExists = `SELECT env FROM runs WHERE id=$1::bytea`
	// W5: what has not ended has a time, or waits for something that is open.
	sqlStranded = `SELECT id FROM runs WHERE ended_at = 0 AND timer_at = 0 AND ready_at = 0
		AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.run = runs.seq AND kind <> 'cancel' AND NOT orphan) ORDER BY id LIMIT $1::bigint`
)

// Who answers.
const sqlSelectProcess = `SELECT pg_backend_pid()`

// Nodes, and what they hold.
const (
	sqlSelectInCall = `SELECT ` + runColumns + ` FROM runs WHERE status = 'running' AND call_node=$1::bytea AND id > $2::bytea ORDER BY id LIMIT $3::bigint`
	// Past its own calls by the index: a node that is alone reads nothing.
	sqlSelectCallCounts = `SELECT call_node, env, app, count(*) FROM (
			(SELECT call_node, env, app FROM runs WHERE status = 'running' AND call_node < $1::bytea ORDER BY call_node OFFSET 0)
			UNION ALL (SELECT call_node, env, app FROM runs WHERE status = 'running' AND call_node > $1::bytea ORDER BY call_node OFFSET 0)) AS theirs
		GROUP BY call_node, env, app ORDER BY call_node, env, app`
	sqlSelectHeads = `SELECT entries, bytes, ` + runColumns + ` FROM runs WHERE id = ANY($1::bytea[])`
	sqlSelectNodes = `SELECT id, beat, state FROM nodes ORDER BY id`
	sqlSelectClock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	// Whoever goes by a cursor is alone in that until the commit.
	sqlLockCursors = `SELECT name, owner, position FROM cursors WHERE name = ANY($1::bytea[]) ORDER BY name FOR UPDATE`
)

// Histories, chapters, logs.
const (
	// The page's rows are chosen in the index, by their numbers; of those, as many as the bytes allow. Sizes are read from the rows' headers:
	// results that don't travel are not touched. A negative restart is the current one.
	sqlSelectEntries = `WITH page AS MATERIALIZED (SELECT steps.run, steps.restart, steps.name, steps.number, steps.entry FROM steps JOIN runs ON runs.seq=steps.run
			WHERE runs.id=$1::bytea AND steps.restart=CASE WHEN $2::bigint < 0 THEN runs.restart ELSE $2::bigint END AND steps.entry > $3::bigint
			ORDER BY steps.entry LIMIT $4::bigint)
		SELECT entry, name, number, kind, status, output, error, attempts, started_at, ended_at FROM (
			SELECT steps.*, row_number() OVER in_order AS place,
				sum(coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)) OVER in_order AS total
			FROM page JOIN steps USING (run, restart, name, number) WINDOW in_order AS (ORDER BY steps.entry)) AS sized
		WHERE place = 1 OR total <= $5::bigint ORDER BY entry`
	sqlSelectAttempts = `SELECT ` + attemptColumns + ` FROM attempts WHERE run=(SELECT seq FROM runs WHERE id=$1::bytea) ORDER BY name, number, attempt`
	sqlSelectChapters = `SELECT restart, payload, entries, closed_at FROM chapters WHERE run=(SELECT seq FROM runs WHERE id=$1::bytea) ORDER BY restart`
	sqlSelectLogs     = `SELECT position, restart, name, number, entry, attempt, line, at, level, message, fields FROM logs
		WHERE run=(SELECT seq FROM runs WHERE id=$1::bytea) AND position > $2::bigint ORDER BY position LIMIT $3::bigint`
)

// What an event does not know is whether its wait has looked back: until then the wait looks for it.
const (
	// A page of the waits that name an event, for each pair as many from the index as the page may have: a join would go through all of
	// them once for each page.
	sqlWaitsNaming = `SELECT named.wait FROM unnest($3::bytea[], $4::bytea[]) AS u(paths, key), LATERAL (SELECT wait FROM wait_events
			WHERE wait_events.env=$1::bytea AND wait_events.event=$2::bytea AND wait_events.paths=u.paths AND wait_events.key=u.key AND wait > $5::bigint ORDER BY wait LIMIT $6::bigint) AS named
		ORDER BY named.wait LIMIT $6::bigint`
	sqlWaitsForEvent = `SELECT ` + waitColumns + ` FROM waits WHERE waits.id = ANY($1::bigint[]) AND looked AND after < $2::bigint
		AND NOT EXISTS (SELECT 1 FROM event_uses WHERE event_uses.run = waits.run AND position = $2::bigint) ORDER BY waits.id`
	sqlWaitsOfRun    = `SELECT ` + waitColumns + ` FROM waits WHERE waits.run=(SELECT seq FROM runs WHERE id=$1::bytea) AND waits.id > $2::bigint ORDER BY waits.id LIMIT $3::bigint`
	sqlWaitsUnlooked = `SELECT ` + waitColumns + ` FROM waits WHERE NOT looked AND waits.id > $1::bigint ORDER BY waits.id LIMIT $2::bigint`
	sqlWaitsOfKin    = `SELECT ` + waitColumns + ` FROM waits WHERE waits.kind = 'invoke' AND (come OR orphan) AND waits.id > $1::bigint
			AND (orphan OR (SELECT ended_at > 0 FROM runs WHERE runs.id=waits.run_id) OR coalesce((SELECT ended_at > 0 FROM runs AS child WHERE child.id=waits.child), true))
		ORDER BY waits.id LIMIT $2::bigint`
	sqlWaitsFulfilled = `SELECT ` + waitColumns + ` FROM waits JOIN callbacks ON callbacks.run = waits.run AND callbacks.name = waits.name AND callbacks.number = waits.of_number
		WHERE waits.kind = 'callback' AND come AND callbacks.ended_at > 0 AND waits.id > $1::bigint ORDER BY waits.id LIMIT $2::bigint`
	// From each to the next by the index, not through all the waits that have it.
	sqlSelectMatchPaths = `WITH RECURSIVE each AS (
			(SELECT paths FROM wait_events WHERE env=$1::bytea AND event=$2::bytea AND paths > '' ORDER BY paths LIMIT 1)
			UNION ALL SELECT (SELECT next.paths FROM wait_events AS next WHERE next.env=$1::bytea AND next.event=$2::bytea AND next.paths > each.paths ORDER BY next.paths LIMIT 1)
				FROM each WHERE each.paths IS NOT NULL)
		SELECT paths FROM each WHERE paths IS NOT NULL`
	sqlSelectCallback       = `SELECT ` + callbackColumns + ` FROM callbacks WHERE token_hash=$1::bytea`
	sqlSelectCallbackOfStep = `SELECT ` + callbackColumns + ` FROM callbacks WHERE run=(SELECT seq FROM runs WHERE id=$1::bytea) AND name=$2::bytea AND number=$3::bigint`
	sqlSelectPosition       = `SELECT position FROM cursors WHERE name=$1::bytea`
)

// Events, keys, and what is due later.
const (
	sqlSelectEvent  = `SELECT ` + eventColumns + ` FROM events WHERE env=$1::bytea AND name=$2::bytea AND id=$3::bytea`
	sqlSelectEvents = `SELECT ` + eventColumns + ` FROM events WHERE env=$1::bytea AND ($2::bytea = '' OR name=$2::bytea) AND position > 0 AND ($3::bigint = 0 OR position < $3::bigint)
		ORDER BY position DESC LIMIT $4::bigint`
	// As many as the bytes allow: see sqlSelectEntries.
	sqlEventsForward = `SELECT ` + eventColumns + ` FROM (
			SELECT *, row_number() OVER in_order AS place, sum(coalesce(octet_length(payload), 0)) OVER in_order AS total FROM (
				SELECT * FROM events WHERE position > 0 AND position > $3::bigint AND ($4::bigint = 0 OR position <= $4::bigint)
				AND ($1::bytea = '' OR env=$1::bytea) AND ($2::bytea = '' OR name=$2::bytea)
				AND ($5::bytea = '' OR NOT EXISTS (SELECT 1 FROM event_uses WHERE event_uses.run=(SELECT seq FROM runs WHERE runs.id=$5::bytea) AND event_uses.position=events.position))
				ORDER BY position LIMIT $6::bigint) AS page
			WINDOW in_order AS (ORDER BY position)) AS sized
		WHERE place = 1 OR $7::bigint = 0 OR total <= $7::bigint ORDER BY position`
	sqlSelectKeys      = `SELECT ` + keyColumns + ` FROM keys WHERE env=$1::bytea AND kind=$2::text AND scope=$3::bytea AND key >= $4::bytea AND key < $5::bytea AND (expires_at = 0 OR expires_at > $6::bigint) ORDER BY key`
	sqlSelectKeyBeside = `SELECT ` + keyColumns + ` FROM keys WHERE env=$1::bytea AND kind=$2::text AND scope=$3::bytea AND key=$7::bytea AND key >= $4::bytea AND key < $5::bytea
			AND (expires_at = 0 OR expires_at > $6::bigint)
		UNION ALL SELECT ` + keyColumns + ` FROM keys WHERE env=$1::bytea AND kind=$2::text AND scope=$3::bytea AND key >= $4::bytea AND key < $5::bytea
			AND (expires_at = 0 OR expires_at > $6::bigint) AND differs AND key <> $7::bytea ORDER BY key`
	sqlSchedules = `SELECT ` + scheduleColumns + ` FROM (
			SELECT *, row_number() OVER in_order AS place, sum(coalesce(octet_length(payload), 0)) OVER in_order AS total FROM (
				SELECT ` + scheduleColumns + ` FROM schedules WHERE ($1::bytea = '' OR env=$1::bytea) AND ($2::bytea = '' OR id=$2::bytea) AND ($3::bytea = '' OR app=$3::bytea)
				AND id > $4::bytea AND ($5::bigint = 0 OR (next_at > 0 AND NOT paused AND next_at <= $5::bigint)) ORDER BY id, env LIMIT $6::bigint) AS page
			WINDOW in_order AS (ORDER BY id, env)) AS sized
		WHERE place = 1 OR $7::bigint = 0 OR total <= $7::bigint ORDER BY id, env`
	sqlLaterDue = `SELECT env, id, name, payload, due_at FROM (
			SELECT *, row_number() OVER in_order AS place, sum(coalesce(octet_length(payload), 0)) OVER in_order AS total FROM (
				SELECT * FROM later_events WHERE due_at <= $1::bigint ORDER BY due_at, id LIMIT $2::bigint) AS page
			WINDOW in_order AS (ORDER BY due_at, id, env, name)) AS sized
		WHERE place = 1 OR $3::bigint = 0 OR total <= $3::bigint ORDER BY place`
	sqlNextDue = `SELECT coalesce(min(at), 0) FROM (SELECT min(next_at) AS at FROM schedules WHERE next_at > 0 AND NOT paused UNION ALL SELECT min(due_at) FROM later_events) AS due`
)

// Apps and deliveries.
const (
	sqlSelectApps       = `SELECT env, name, url, private, concurrency, manifest, hash, seen_at, gone, version FROM apps ORDER BY env, name`
	sqlSelectDelivery   = `SELECT ` + deliveryColumns + `, request, body FROM deliveries WHERE id=$1::bytea AND env=$2::bytea`
	sqlSelectDeliveries = `SELECT ` + deliveryColumns + ` FROM deliveries WHERE env=$1::bytea AND ($2::bytea = '' OR hook=$2::bytea) AND ($3::text = '' OR status=$3::text)
		AND ($4::bigint = 0 OR position < $4::bigint) ORDER BY position DESC LIMIT $5::bigint`
)

// The schema's own record: one row, which is also the lock that whoever brings the schema up to date holds.
const (
	sqlMakeVersions = `CREATE TABLE IF NOT EXISTS nelkap_schema (one BOOLEAN PRIMARY KEY CHECK (one), version BIGINT NOT NULL, works_from BIGINT NOT NULL)`
	sqlMakeVersion  = `INSERT INTO nelkap_schema (one, version, works_from) VALUES (true, 0, 0) ON CONFLICT DO NOTHING`
	sqlSelectSchema = `SELECT version, works_from FROM nelkap_schema`
	sqlLockSchema   = `SELECT version, works_from FROM nelkap_schema FOR UPDATE`
	sqlSetLockTime  = `SELECT set_config('lock_timeout', $1::bigint::text, true)`
	sqlSetSchema    = `UPDATE nelkap_schema SET version=$1::bigint, works_from=$2::bigint`
)

// Whether the store was restored (N5).
const (
	// homePlace is the database that a statement is carried out in, and the table there, by numbers that a dump does not restore.
	homePlace = `(SELECT oid FROM pg_database WHERE datname=current_database())::text || '/' || 'home'::regclass::oid::text`
	homeNow   = homePlace + `, pg_current_xact_id()::xid::text, $1::text`

	sqlSelectSystem = `SELECT system_identifier::text FROM pg_control_system()`
	sqlMakeHome     = `INSERT INTO home (one, place, written, system) SELECT true, ` + homeNow + ` ON CONFLICT (one) DO NOTHING`
	// The rows were restored, or are a copy, where their table is another one, or where the row was written by another transaction than it
	// says, in another cluster than it says. The one without the other is no sign: what repacks a table writes its rows anew, and an upgrade
	// makes a cluster of another one's files. $1 is empty where the cluster does not tell its identifier.
	sqlGoHome = `WITH was AS (SELECT place, written, system, xmin::text AS writer FROM home FOR UPDATE),
		held AS (INSERT INTO phase (one, phase, move) SELECT true, 'held', '' FROM was
			WHERE place <> ` + homePlace + ` OR (written <> writer AND system <> $1::text AND system <> '' AND $1::text <> '')
			ON CONFLICT (one) DO UPDATE SET phase='held' WHERE phase.phase='active')
		UPDATE home SET (place, written, system) = (SELECT ` + homeNow + `) FROM was
		WHERE was.place <> ` + homePlace + ` OR was.written <> was.writer OR was.system <> $1::text`
	sqlHold = `INSERT INTO phase (one, phase, move) VALUES (true, 'held', '') ON CONFLICT (one) DO UPDATE SET phase='held' WHERE phase.phase <> 'incoming' RETURNING 1`
	sqlGoOn = `UPDATE phase SET phase='active' WHERE phase='held'`

	// All that have not ended, through the indexes that have them.
	sqlCountLive = `SELECT count(*) FROM (SELECT id FROM runs WHERE timer_at > 0 UNION SELECT id FROM runs WHERE ready_at > 0
		UNION SELECT id FROM runs WHERE ended_at = 0 AND timer_at = 0 AND ready_at = 0) AS live`
)

// A move into this store (N5): the phase, what a table's columns are, whether one has rows, and the last numbers that were drawn.
const (
	sqlSelectPhase = `SELECT phase, move FROM phase`
	sqlHoldPhase   = `LOCK TABLE phase IN ACCESS EXCLUSIVE MODE`
	sqlReceive     = `INSERT INTO phase (one, phase, move) VALUES (true, 'incoming', $1::bytea) ON CONFLICT (one) DO UPDATE SET phase='incoming', move=excluded.move WHERE phase.phase='incoming' AND phase.move=excluded.move RETURNING 1`
	sqlActivate    = `UPDATE phase SET phase='active' WHERE move=$1::bytea AND phase='incoming' RETURNING 1`
	// A table, or a version of the schema, may take an hour, whatever the database's bounds are for others. What is copied must be on disk before the old store is given up.
	sqlLongBounds = `SELECT set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
		CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL THEN set_config('transaction_timeout', '0', true) END,
		set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`
	sqlSelectColumns = `SELECT attname::text, atttypid::bigint FROM pg_attribute WHERE attrelid=to_regclass($1::text) AND attnum > 0 AND NOT attisdropped AND attgenerated=''`
	sqlSelectNumbers = `SELECT 'events', value FROM counters WHERE name='events'
		UNION ALL SELECT 'runs', CASE WHEN is_called THEN last_value ELSE 0 END FROM run_seqs
		UNION ALL SELECT 'waits', CASE WHEN is_called THEN last_value ELSE 0 END FROM wait_ids
		UNION ALL SELECT 'logs', CASE WHEN is_called THEN last_value ELSE 0 END FROM logs_position_seq
		UNION ALL SELECT 'deliveries', CASE WHEN is_called THEN last_value ELSE 0 END FROM deliveries_position_seq`
	sqlSetNumber = `SELECT setval(to_regclass($1::text), greatest($2::bigint, 1), $2::bigint > 0)`
)

// Statements over tables that a source names. The names are quoted by who puts them in.
func rowsOfTable(columns, table string) string { return "SELECT " + columns + " FROM " + table }
func anyOfTable(table string) string           { return "SELECT 1 FROM " + table + " LIMIT 1" }
func copyTable(table, columns string) string {
	return "COPY " + table + " (" + columns + ") FROM STDIN (FORMAT binary)"
}
func emptyTables(tables string) string { return "TRUNCATE " + tables }
func analyzeTable(table string) string { return "ANALYZE " + table }
