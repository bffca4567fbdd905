package postgres

// The statements that write. Each takes the rows of a whole batch, as arrays. They are carried out in the order of flush.

// Runs. Their rows are locked already (N2), but for new ones.
const (
	sqlInsertRuns = `INSERT INTO runs (id, env, app, workflow, run_key, replay_of, parent, root, event, event_id, root_restart, version, status, restart, epoch,
			call_id, call_token, call_nonce, call_node, call_begun_at, prior_id, prior_token, prior_nonce, prior_node, prior_begun_at, next_at, timeout_at, waits_at, woken_at, reason, ending_reason,
			ending_at, closing, ending_entries, closers, warning, invokes, attempts, cuts, yields, progress, created_at, started_at, ended_at, lease_ms,
			timer_at, ready_at, entries, bytes, lines, seq, events_after)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bigint[], $12::bigint[],
			$13::text[], $14::bigint[], $15::bigint[], $16::bytea[], $17::bytea[], $18::bytea[], $19::bytea[], $20::bigint[], $21::bytea[], $22::bytea[], $23::bytea[],
			$24::bytea[], $25::bigint[], $26::bigint[], $27::bigint[], $28::bigint[], $29::bigint[], $30::bytea[], $31::bytea[], $32::bigint[], $33::boolean[],
			$34::bigint[], $35::bigint[], $36::bytea[], $37::boolean[], $38::bigint[], $39::bigint[], $40::bigint[], $41::bigint[], $42::bigint[], $43::bigint[],
			$44::bigint[], $45::bigint[], $46::bigint[], $47::bigint[], $48::bigint[], $49::bigint[], $50::bigint[], $51::bigint[], $52::bigint[])`
	sqlUpdateRuns = `UPDATE runs SET version=u.version, status=u.status, restart=u.restart, epoch=u.epoch, call_id=u.call_id, call_token=u.call_token, call_nonce=u.call_nonce, call_node=u.call_node, call_begun_at=u.call_begun_at, prior_id=u.prior_id,
			prior_token=u.prior_token, prior_nonce=u.prior_nonce, prior_node=u.prior_node, prior_begun_at=u.prior_begun_at, next_at=u.next_at, timeout_at=u.timeout_at, waits_at=u.waits_at, woken_at=u.woken_at, reason=u.reason, ending_reason=u.ending_reason,
			ending_at=u.ending_at, closing=u.closing, ending_entries=u.ending_entries, closers=u.closers, warning=u.warning, invokes=u.invokes, attempts=u.attempts, cuts=u.cuts, yields=u.yields,
			progress=u.progress, created_at=u.created_at, started_at=u.started_at, ended_at=u.ended_at, lease_ms=u.lease_ms, timer_at=u.timer_at, ready_at=u.ready_at, entries=u.entries, bytes=u.bytes,
			lines=u.lines
		FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bigint[], $11::bytea[], $12::bytea[],
			$13::bytea[], $14::bytea[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bytea[], $21::bytea[], $22::bigint[], $23::boolean[],
			$24::bigint[], $25::bigint[], $26::bytea[], $27::boolean[], $28::bigint[], $29::bigint[], $30::bigint[], $31::bigint[], $32::bigint[], $33::bigint[],
			$34::bigint[], $35::bigint[], $36::bigint[], $37::bigint[], $38::bigint[], $39::bigint[], $40::bigint[])
			AS u(id, version, status, restart, epoch, call_id, call_token, call_nonce, call_node, call_begun_at, prior_id, prior_token, prior_nonce, prior_node, prior_begun_at, next_at,
			timeout_at, waits_at, woken_at, reason, ending_reason, ending_at, closing, ending_entries, closers, warning, invokes, attempts, cuts, yields,
			progress, created_at, started_at, ended_at, lease_ms, timer_at, ready_at, entries, bytes, lines)
		WHERE runs.id=u.id`
	// What a save changes of its run: no index knows of it.
	sqlUpdateHeads = `UPDATE runs SET version=u.version, call_nonce=CASE WHEN call_id IS NULL THEN NULL ELSE u.nonce END,
			entries=u.entries, bytes=u.bytes, lines=u.lines
		FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u(id, version, nonce, entries, bytes, lines)
		WHERE runs.id=u.id`
	sqlInsertValues = `INSERT INTO run_values (run, payload, output, error, trees)
		SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[])`
	sqlUpdateValues = `UPDATE run_values SET output=coalesce(u.output, run_values.output), error=coalesce(u.error, run_values.error), trees=coalesce(u.trees, run_values.trees)
		FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[])
			AS u(run, output, error, trees)
		WHERE run_values.run=u.run`
	// A run stays while a wait of it or on it is open. None can come to be: what has ended opens none, and the wait for a child is opened
	// with the child. Whoever else holds the run's row, a replay of it or the lines of its last call, has it another time. Subqueries, not
	// joins, for the reason that childLives gives.
	sqlDropRuns = `WITH ended AS MATERIALIZED (SELECT seq, id, status, ended_at, entries, bytes FROM runs WHERE ended_at > 0 AND ended_at <= $1::bigint
			AND NOT coalesce((SELECT true FROM waits WHERE waits.run=runs.seq LIMIT 1), false)
			AND NOT coalesce((SELECT true FROM waits WHERE waits.kind='invoke' AND waits.child=runs.id LIMIT 1), false)
			ORDER BY ended_at, id LIMIT $2::bigint FOR UPDATE OF runs SKIP LOCKED),
		sized AS (SELECT seq, id, status, ended_at, bytes, entries + coalesce((SELECT sum(chapters.entries) FROM chapters WHERE chapters.run=ended.seq), 0)
			+ (SELECT count(*) FROM logs WHERE logs.run=ended.seq) AS size FROM ended),
		old AS MATERIALIZED (SELECT seq, id, status, ended_at FROM (SELECT seq, id, status, ended_at, sum(size) OVER before AS rows, sum(bytes) OVER before AS bytes FROM sized
				WINDOW before AS (ORDER BY ended_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS summed
			WHERE ($3::bigint = 0 OR coalesce(rows, 0) < $3::bigint) AND ($4::bigint = 0 OR coalesce(bytes, 0) < $4::bigint)),
		claims AS MATERIALIZED (SELECT FROM keys WHERE kind='claim' AND owner = ANY(ARRAY(SELECT id FROM old)) ORDER BY env, scope, key FOR UPDATE),
		told AS (UPDATE keys SET (owner_status, owner_ended_at, expires_at) = (SELECT status, ended_at,
				CASE WHEN until_failed AND status = 'failed' THEN ended_at WHEN lasts_ms > 0 THEN ended_at + lasts_ms ELSE 0 END FROM old WHERE old.id=keys.owner)
			WHERE (SELECT count(*) FROM claims) > 0 AND kind='claim' AND owner = ANY(ARRAY(SELECT id FROM old))),
		old_steps AS (DELETE FROM steps USING old WHERE steps.run=old.seq),
		old_chapters AS (DELETE FROM chapters USING old WHERE chapters.run=old.seq),
		old_logs AS (DELETE FROM logs USING old WHERE logs.run=old.seq),
		old_attempts AS (DELETE FROM attempts USING old WHERE attempts.run=old.seq),
		old_callbacks AS (DELETE FROM callbacks USING old WHERE callbacks.run=old.seq),
		old_uses AS (DELETE FROM event_uses USING old WHERE event_uses.run=old.seq),
		old_values AS (DELETE FROM run_values USING old WHERE run_values.run=old.seq)
		DELETE FROM runs USING old WHERE runs.id=old.id`
)

// Histories and attempts.
const (
	sqlInsertSteps = `INSERT INTO steps (run, restart, entry, name, number, kind, status, output, error, attempts, started_at, ended_at)
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bytea[], $7::text[], $8::bytea[], $9::bytea[], $10::bigint[], $11::bigint[], $12::bigint[])`
	sqlCopySteps = `INSERT INTO steps (run, restart, entry, name, number, kind, status, output, error, attempts, started_at, ended_at)
		SELECT $1::bigint, $2::bigint, entry, name, number, kind, status, output, error, attempts, started_at, ended_at FROM steps
		WHERE run=$3::bigint AND restart=$4::bigint AND entry <= $5::bigint ORDER BY entry`
	sqlCountSteps = `UPDATE runs SET (entries, bytes) = (SELECT count(*), coalesce(sum(coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)), 0)
			FROM steps WHERE run=$2::bigint AND restart=$3::bigint)
		WHERE id=$1::bytea`
	sqlPutAttempts = `INSERT INTO attempts (run, name, number, attempt, call_id, error, started_at, ended_at, retry_at, again)
		SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bigint[], $8::bigint[], $9::bigint[], $10::boolean[])
		ON CONFLICT (run, name, number, attempt) DO UPDATE SET call_id=excluded.call_id, error=excluded.error, started_at=excluded.started_at, ended_at=excluded.ended_at, retry_at=excluded.retry_at, again=excluded.again`
	sqlDeleteAttempts = `DELETE FROM attempts USING unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[]) AS u(run, name, number, attempt)
		WHERE attempts.run=u.run AND attempts.name=u.name AND attempts.number=u.number AND attempts.attempt=u.attempt`
)

// Chapters and logs. What a chapter that is closed takes along goes by its run.
const (
	sqlInsertChapter = `INSERT INTO chapters (run, restart, payload, entries, closed_at)
		SELECT run, $2::bigint, payload, $3::bigint, $4::bigint FROM run_values WHERE run=$1::bigint`
	sqlUpdatePayload    = `UPDATE run_values SET payload=$2::bytea, trees=NULL WHERE run=$1::bigint`
	sqlDropAttempts     = `DELETE FROM attempts WHERE run=$1::bigint`
	sqlDropCallbacks    = `DELETE FROM callbacks WHERE run=$1::bigint`
	sqlDropOldUses      = `DELETE FROM event_uses WHERE run=$1::bigint AND position < (SELECT min(position) FROM events WHERE position > 0)` // of events that are gone
	sqlDropChapterSteps = `DELETE FROM steps WHERE run=$1::bigint AND restart=$2::bigint`
	sqlDropChapterLogs  = `DELETE FROM logs WHERE run=$1::bigint AND restart=$2::bigint`
	sqlDropChapter      = `DELETE FROM chapters WHERE run=$1::bigint AND restart=$2::bigint AND restart > 0`
	sqlEmptyChapter     = `UPDATE chapters SET entries=0 WHERE run=$1::bigint AND restart=$2::bigint`
	sqlInsertLogs       = `INSERT INTO logs (run, restart, call_id, name, number, entry, attempt, line, at, level, message, fields)
		SELECT run, restart, call_id, name, number, entry, attempt, line, at, level, message, fields FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[], $11::bytea[], $12::bytea[])
			WITH ORDINALITY AS u(run, restart, call_id, name, number, entry, attempt, line, at, level, message, fields, place) ORDER BY place`
)

// Waits.
const (
	// A child is inserted before its wait, and it or the wait's own run may have ended in this very batch.
	sqlInsertWaits = `INSERT INTO waits (id, run, run_id, env, name, number, kind, due_at, child, of_number, event, after, looked, orphan, come)
		SELECT u.*, u.kind = 'invoke' AND (coalesce((SELECT ended_at > 0 FROM runs WHERE runs.id=u.child), true) OR coalesce((SELECT ended_at > 0 FROM runs WHERE runs.id=u.run_id), true))
			OR u.kind = 'callback' AND coalesce((SELECT ended_at > 0 FROM callbacks WHERE callbacks.run=u.run AND callbacks.name=u.name AND callbacks.number=u.of_number), false)
		FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bigint[], $7::text[], $8::bigint[], $9::bytea[], $10::bigint[], $11::bytea[], $12::bigint[],
			$13::boolean[], $14::boolean[]) AS u(id, run, run_id, env, name, number, kind, due_at, child, of_number, event, after, looked, orphan)`
	sqlMarkParents = `UPDATE waits SET come=true WHERE kind='invoke' AND child = ANY($1::bytea[]) AND NOT come`
	sqlMarkInvokes = `UPDATE waits SET come=true WHERE run = ANY($1::bigint[]) AND kind='invoke' AND NOT come`
	sqlMarkPosted  = `UPDATE waits SET come=true FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS u(run, name, number)
		WHERE waits.run=u.run AND waits.name=u.name AND waits.kind='callback' AND waits.of_number=u.number AND NOT waits.come`
	sqlUpdateWaits = `UPDATE waits SET looked=u.looked, orphan=u.orphan
		FROM unnest($1::bigint[], $2::boolean[], $3::boolean[])
			AS u(id, looked, orphan)
		WHERE waits.id=u.id`
	sqlInsertWaitEvents = `INSERT INTO wait_events (env, event, paths, key, wait)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[]) ON CONFLICT DO NOTHING`
	sqlDeleteWaits      = `DELETE FROM waits WHERE id = ANY($1::bigint[])`
	sqlDeleteWaitEvents = `DELETE FROM wait_events WHERE wait = ANY($1::bigint[])`
	sqlInsertUses       = `INSERT INTO event_uses (run, position)
		SELECT * FROM unnest($1::bigint[], $2::bigint[])`
	sqlDeleteUses    = `DELETE FROM event_uses WHERE run = ANY($1::bigint[])`
	sqlInsertCursors = `INSERT INTO cursors (name, owner, position)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[])`
	sqlUpdateCursors = `UPDATE cursors SET owner=u.owner, position=u.position FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS u(name, owner, position)
		WHERE cursors.name=u.name`
	sqlPutNodes = `INSERT INTO nodes (id, beat, state)
		SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[])
		ON CONFLICT (id) DO UPDATE SET beat=excluded.beat, state=excluded.state`
	sqlDropNodes       = `DELETE FROM nodes WHERE id = ANY($1::bytea[])`
	sqlInsertCallbacks = `INSERT INTO callbacks (token_hash, env, run, run_id, name, number, due_at, ended_at, payload)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[])`
	sqlUpdateCallbacks = `UPDATE callbacks SET run=u.run, run_id=u.run_id, due_at=u.due_at, ended_at=u.ended_at, payload=u.payload
		FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[])
			AS u(token_hash, run, run_id, due_at, ended_at, payload)
		WHERE callbacks.token_hash=u.token_hash`
)

// Events and keys.
const (
	sqlInsertEvents = `INSERT INTO events (position, env, name, id, payload, created_at, runs)
		SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bigint[], $7::bigint[])`
	sqlUpdateLastEvent = `UPDATE counters SET value=$1::bigint WHERE name='events'`
	sqlInsertKeys      = `INSERT INTO keys (env, kind, scope, key, owner, hash, differs, answer, expires_at, owner_status, owner_ended_at, lasts_ms, until_failed)
		SELECT * FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::boolean[], $8::bytea[], $9::bigint[], $10::text[], $11::bigint[],
			$12::bigint[], $13::boolean[])`
	sqlUpdateKeys = `UPDATE keys SET owner=u.owner, hash=u.hash, differs=u.differs, answer=u.answer, expires_at=u.expires_at,
			owner_status=u.owner_status, owner_ended_at=u.owner_ended_at, lasts_ms=u.lasts_ms, until_failed=u.until_failed
		FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::boolean[], $8::bytea[], $9::bigint[], $10::text[], $11::bigint[],
				$12::bigint[], $13::boolean[])
			AS u(env, kind, scope, key, owner, hash, differs, answer, expires_at, owner_status, owner_ended_at, lasts_ms, until_failed)
		WHERE keys.env=u.env AND keys.kind=u.kind AND keys.scope=u.scope AND keys.key=u.key`
	sqlDeleteKeysOfScopes = `DELETE FROM keys USING unnest($1::bytea[], $2::text[], $3::bytea[]) AS u(env, kind, scope)
		WHERE keys.env=u.env AND keys.kind=u.kind AND keys.scope=u.scope`
	// Two nodes that clean up at once take different keys, and none waits for a key that is just being taken. What is chosen stands in a
	// WITH: as a condition it could be chosen anew for each row, and the limit would hold for none.
	sqlDeleteExpiredKeys = `WITH old AS MATERIALIZED (SELECT env, kind, scope, key FROM keys WHERE expires_at > 0 AND expires_at <= $1::bigint LIMIT $2::bigint FOR UPDATE SKIP LOCKED)
		DELETE FROM keys USING old WHERE keys.env=old.env AND keys.kind=old.kind AND keys.scope=old.scope AND keys.key=old.key`
)

// What is due later, apps, and deliveries.
const (
	sqlInsertSchedules = `INSERT INTO schedules (env, id, app, workflow, expression, timezone, catch_up, payload, declared, paused, version, cursor_at, next_at, created_at)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::boolean[], $10::boolean[], $11::bigint[], $12::bigint[],
			$13::bigint[], $14::bigint[])`
	sqlUpdateSchedules = `UPDATE schedules SET app=u.app, workflow=u.workflow, expression=u.expression, timezone=u.timezone, catch_up=u.catch_up, payload=u.payload, declared=u.declared, paused=u.paused, version=u.version,
			cursor_at=u.cursor_at, next_at=u.next_at, created_at=u.created_at
		FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::boolean[], $10::boolean[], $11::bigint[], $12::bigint[],
			$13::bigint[], $14::bigint[])
			AS u(env, id, app, workflow, expression, timezone, catch_up, payload, declared, paused, version, cursor_at, next_at, created_at)
		WHERE schedules.env=u.env AND schedules.id=u.id`
	sqlDropSchedules = `DELETE FROM schedules USING unnest($1::bytea[], $2::bytea[]) AS u(env, id) WHERE schedules.env=u.env AND schedules.id=u.id`
	sqlInsertLater   = `INSERT INTO later_events (env, name, id, payload, due_at)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[]) ON CONFLICT DO NOTHING`
	sqlDropLater = `DELETE FROM later_events USING unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS u(env, name, id)
		WHERE later_events.env=u.env AND later_events.name=u.name AND later_events.id=u.id`
	sqlInsertApps = `INSERT INTO apps (env, name, url, private, concurrency, manifest, hash, seen_at, gone, version)
		SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::boolean[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bigint[], $9::bytea[], $10::bigint[])`
	sqlUpdateApps = `UPDATE apps SET url=u.url, private=u.private, concurrency=u.concurrency, manifest=u.manifest, hash=u.hash, seen_at=u.seen_at, gone=u.gone, version=u.version
		FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::boolean[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bigint[], $9::bytea[], $10::bigint[])
			AS u(env, name, url, private, concurrency, manifest, hash, seen_at, gone, version)
		WHERE apps.env=u.env AND apps.name=u.name`
	sqlInsertDeliveries = `INSERT INTO deliveries (id, env, hook, provider, status, reason, provider_id, redelivery_of, events, bytes, received_at, request, body)
		SELECT id, env, hook, provider, status, reason, provider_id, redelivery_of, events, bytes, received_at, request, body FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bigint[], $11::bigint[], $12::bytea[],
			$13::bytea[])
			WITH ORDINALITY AS u(id, env, hook, provider, status, reason, provider_id, redelivery_of, events, bytes, received_at, request, body, place) ORDER BY place`
	// The newest that is past a bound of number or bytes, and all before it, are too many. It chooses in an index, and once, as above.
	sqlDropDeliveries = `WITH old AS MATERIALIZED (SELECT position FROM deliveries WHERE rejected=$1::boolean AND ($2::bigint > 0 AND received_at <= $2::bigint
			OR position <= (SELECT coalesce(max(position), 0) FROM (SELECT position FROM deliveries WHERE $3::bigint > 0 AND rejected=$1::boolean ORDER BY position DESC LIMIT 1 OFFSET $3::bigint) AS many)
			OR position <= (SELECT coalesce(max(position), 0) FROM (SELECT position, sum(bytes) OVER (ORDER BY position DESC) AS total FROM deliveries WHERE $4::bigint > 0 AND rejected=$1::boolean) AS large WHERE total > $4::bigint))
			ORDER BY position LIMIT $5::bigint FOR UPDATE SKIP LOCKED)
		DELETE FROM deliveries USING old WHERE deliveries.position=old.position`
	// Of the first ones only: those of higher positions may have an earlier time, from a clock that was set back, but must not be looked for
	// through the whole table.
	sqlDropEvents = `WITH old AS MATERIALIZED (SELECT position FROM events WHERE created_at <= $1::bigint AND position < (SELECT max(position) FROM events)
			AND position <= (SELECT max(position) FROM (
				SELECT position, sum(bytes) OVER (ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
				FROM (SELECT position, coalesce(octet_length(payload), 0) AS bytes FROM events ORDER BY position LIMIT $2::bigint) AS sized) AS front
				WHERE $3::bigint = 0 OR coalesce(before, 0) < $3::bigint)
			ORDER BY position FOR UPDATE SKIP LOCKED)
		DELETE FROM events USING old WHERE events.position=old.position`
)
