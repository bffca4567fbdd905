package sqlite

// The statements, each of which a test prepares against a freshly migrated database. Only the list of runs adds to its own: the
// filters that were asked for.
//
// +? where a parameter limits rows or is compared beside a partial index: SQLite plans a statement anew whenever another value is
// bound to a bare parameter that its planner looked at (sqlite3ExprIsInteger, exprCompareVariable), at several times the cost of
// carrying it out. It does not look behind a plus, which changes nothing else.

// What rows are read as, in the order in which the scan functions know them.
const (
	runColumns = `id, env, app, workflow, run_key, replay_of, parent, root, event, event_id, root_restart, version, status, restart, epoch,
		call_id, call_token, call_nonce, call_node, call_begun_at, prior_id, prior_token, prior_nonce, prior_node, prior_begun_at,
		next_at, timeout_at, waits_at, woken_at, reason, ending_reason, ending_at, closing, ending_entries, closers, warning, invokes, attempts, cuts, yields, progress,
		created_at, started_at, ended_at, lease_ms`
	recordColumns   = runColumns + `, payload, output, error, trees FROM runs JOIN run_values ON run_values.run = runs.seq`
	callbackColumns = `token_hash, callbacks.env, runs.id, name, number, due_at, callbacks.ended_at, payload FROM callbacks JOIN runs ON runs.seq = callbacks.run`
	waitColumns     = `waits.id, runs.id, runs.env, waits.name, waits.number, waits.kind, waits.due_at, waits.child, waits.of_number,
		waits.event, waits.after, waits.looked, waits.orphan FROM waits JOIN runs ON runs.seq = waits.run`
	eventColumns = `position, env, name, id, payload, created_at, runs`
	keyColumns   = `env, kind, scope, key, owner, hash, differs, answer, expires_at, owner_status, owner_ended_at, lasts_ms, until_failed`
)

// Runs.
const (
	sqlInsertRun = `INSERT INTO runs (` + runColumns + `, timer_at, ready_at, events_after)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?, (SELECT coalesce(max(position), 0) FROM events))`
	// What changes in a run's life; its identity does not.
	sqlUpdateRun = `UPDATE runs SET version=?, status=?, restart=?, epoch=?,
		call_id=?, call_token=?, call_nonce=?, call_node=?, call_begun_at=?, prior_id=?, prior_token=?, prior_nonce=?, prior_node=?, prior_begun_at=?,
		next_at=?, timeout_at=?, waits_at=?, woken_at=?, reason=?, ending_reason=?, ending_at=?, closing=?, ending_entries=?, closers=?, warning=?, invokes=?, attempts=?, cuts=?, yields=?, progress=?,
		created_at=?, started_at=?, ended_at=?, lease_ms=?, timer_at=?, ready_at=? WHERE seq=?`
	sqlSelectRecord  = `SELECT ` + recordColumns + ` WHERE id=+? AND env=+?`
	sqlSelectState   = `SELECT seq, ` + recordColumns + ` WHERE id=+?`
	sqlSelectRecords = `SELECT ` + recordColumns + ` WHERE env=+?`
	// From the newest on. The plus keeps an index out that begins with the environment: it would read and sort all of an environment's runs.
	sqlSelectNewest = `SELECT ` + recordColumns + ` WHERE +env=+?`
	sqlSelectTimers = `SELECT ` + runColumns + ` FROM runs WHERE timer_at > 0 AND timer_at <= +?1 AND timer_at >= +?2 AND (timer_at > +?2 OR id > +?3) ORDER BY timer_at, id LIMIT +?4`
	// One statement, since each that stands alone takes and gives the file's locks anew.
	sqlSelectRun = `SELECT ` + runColumns + `, h.entries, h.bytes FROM runs,
		(SELECT count(*) AS entries, coalesce(sum(coalesce(length(output), 0) + coalesce(length(error), 0)), 0) AS bytes FROM steps
			WHERE (run, restart) = (SELECT seq, restart FROM runs WHERE id=+?1)) AS h WHERE runs.id=+?1`
	sqlSelectRunExists = `SELECT 1 FROM runs WHERE id=?`
	sqlSelectHead      = `SELECT seq, version, coalesce(call_id, ''), coalesce(call_nonce, ''), restart,
		EXISTS (SELECT 1 FROM attempts WHERE run = seq), EXISTS (SELECT 1 FROM waits WHERE run = seq) OR EXISTS (SELECT 1 FROM event_uses WHERE run = seq)
		FROM runs WHERE id=?`
	sqlSelectSeq       = `SELECT seq, restart FROM runs WHERE id=?`
	sqlSelectSeqEnv    = `SELECT seq, env FROM runs WHERE id=?`
	sqlSelectNextTimer = `SELECT coalesce(min(timer_at), 0) FROM runs WHERE timer_at > 0`
	sqlSelectReady     = `SELECT id, ready_at FROM runs WHERE env=+? AND app=+? AND ready_at > 0 AND ready_at <= +? ORDER BY ready_at, id LIMIT +?`
	sqlBindNonce       = `UPDATE runs SET call_nonce=?, version=? WHERE seq=?`
	sqlInsertValues    = `INSERT INTO run_values (run, payload) VALUES (?, ?)`
	sqlUpdateValues    = `UPDATE run_values SET output=coalesce(?, output), error=coalesce(?, error) WHERE run=?`
	sqlUpdatePayload   = `UPDATE run_values SET payload=?, trees=NULL WHERE run=?`
	sqlUpdateTrees     = `UPDATE run_values SET trees=? WHERE run=?`
	// A run stays while a wait of it or on it is open.
	sqlSelectOldRuns = `SELECT seq, id, (SELECT coalesce(sum(coalesce(length(output), 0) + coalesce(length(error), 0)), 0) FROM steps WHERE steps.run=runs.seq AND steps.restart=runs.restart)
		FROM runs WHERE ended_at > 0 AND ended_at <= +? AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.run = runs.seq)
		AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.kind = 'invoke' AND waits.child = runs.id) ORDER BY ended_at, id LIMIT +?`
	sqlTellClaims = `UPDATE keys SET (owner_status, owner_ended_at, expires_at) = (SELECT status, ended_at,
		CASE WHEN until_failed AND status = 'failed' THEN ended_at WHEN lasts_ms > 0 THEN ended_at + lasts_ms ELSE 0 END FROM runs WHERE runs.seq=?1)
		WHERE kind = 'claim' AND owner = (SELECT id FROM runs WHERE runs.seq=?1)`
	sqlDropRun       = `DELETE FROM runs WHERE seq=?`
	sqlDropRunValues = `DELETE FROM run_values WHERE run=?`
	sqlDropSteps     = `DELETE FROM steps WHERE run=?`
	sqlDropChapters  = `DELETE FROM chapters WHERE run=?`
	sqlDropLogs      = `DELETE FROM logs WHERE run=?`
)

// Nodes, and what they hold.
const (
	sqlSelectInCall     = `SELECT ` + runColumns + ` FROM runs WHERE status = 'running' AND call_node=+? AND id > +? ORDER BY id LIMIT +?`
	sqlSelectCallCounts = `SELECT call_node, env, app, count(*) FROM runs WHERE status = 'running' AND call_node <> ? GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`
	sqlSelectNodes      = `SELECT id, beat, state FROM nodes ORDER BY id`
	sqlPutNode          = `INSERT OR REPLACE INTO nodes (id, beat, state) VALUES (?,?,?)`
	sqlDropNode         = `DELETE FROM nodes WHERE id=?`
	sqlSelectOwner      = `SELECT owner FROM cursors WHERE name=?`
	sqlTakeCursor       = `INSERT INTO cursors (name, owner, position) VALUES (?,?,0) ON CONFLICT (name) DO UPDATE SET owner=excluded.owner`
	sqlAdvance          = `INSERT INTO cursors (name, owner, position) VALUES (?,?,?) ON CONFLICT (name) DO UPDATE SET position=max(position, excluded.position)`
)

// Histories.
const (
	sqlInsertStep = `INSERT INTO steps (run, entry, restart, name, number, kind, status, output, error, attempts, started_at, ended_at)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`
	sqlCopySteps = `INSERT INTO steps (run, entry, restart, name, number, kind, status, output, error, attempts, started_at, ended_at)
		SELECT ?1, entry, ?2, name, number, kind, status, output, error, attempts, started_at, ended_at FROM steps WHERE run=+?3 AND restart=+?5 AND entry <= +?4 ORDER BY id`
	sqlCopyEventsAfter = `UPDATE runs SET events_after=(SELECT events_after FROM runs WHERE seq=?1) WHERE seq=?2`
	sqlSelectStanding  = `SELECT entry, status, output, error FROM steps WHERE run=? AND restart=? AND name=? AND number=?`
	sqlSelectHistory   = `SELECT count(*), coalesce(sum(coalesce(length(output), 0) + coalesce(length(error), 0)), 0) FROM steps WHERE run=? AND restart=?`
	// Rows are chosen in the index alone: entries have no gaps (W9), so that a page starts at a known place.
	sqlSelectEntries = `SELECT entry, name, number, kind, status, output, error, attempts, started_at, ended_at FROM steps
		WHERE id IN (SELECT id FROM steps WHERE run=+? AND restart=+? ORDER BY id LIMIT +? OFFSET +?) ORDER BY id`
)

// Chapters and logs.
const (
	sqlInsertChapter    = `INSERT INTO chapters (run, restart, payload, entries, closed_at) SELECT run, ?1, payload, ?2, ?3 FROM run_values WHERE run=?4`
	sqlSelectChapters   = `SELECT restart, payload, entries, closed_at FROM chapters WHERE run=+? ORDER BY restart`
	sqlDropChapter      = `DELETE FROM chapters WHERE run=? AND restart=? AND restart > 0`
	sqlEmptyChapter     = `UPDATE chapters SET entries=0 WHERE run=? AND restart=?`
	sqlDropChapterSteps = `DELETE FROM steps WHERE run=? AND restart=?`
	sqlDropChapterLogs  = `DELETE FROM logs WHERE run=? AND restart=?`
	sqlDeleteAttempts   = `DELETE FROM attempts WHERE run=?`
	sqlDeleteCallbacks  = `DELETE FROM callbacks WHERE run=?`
	sqlInsertLog        = `INSERT INTO logs (run, restart, call_id, name, number, entry, attempt, line, at, level, message, fields)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`
	sqlCountLogs  = `SELECT count(*) FROM logs WHERE run=? AND restart=?`
	sqlSelectLogs = `SELECT id, restart, name, number, entry, attempt, line, at, level, message, fields FROM logs
		WHERE id IN (SELECT id FROM logs WHERE run=+? AND id > +? ORDER BY id LIMIT +?) ORDER BY id`
)

// Attempts that did not save their step.
const (
	sqlPutAttempt       = `INSERT OR REPLACE INTO attempts (run, name, number, attempt, call_id, error, started_at, ended_at, retry_at, again) VALUES (?,?,?,?,?,?,?,?,?,?)`
	sqlSelectAttempts   = `SELECT name, number, attempt, call_id, error, started_at, ended_at, retry_at, again FROM attempts WHERE run=+? ORDER BY name, number, attempt`
	sqlSelectStarts     = `SELECT attempt, call_id, ended_at, again FROM attempts WHERE run=+? AND name=+? AND number=+?`
	sqlSelectThrow      = `SELECT retry_at FROM attempts WHERE run=? AND name=? AND number=? AND attempt=? AND call_id='' AND started_at=? AND ended_at=? AND ended_at>0`
	sqlSettleRetries    = `UPDATE attempts SET retry_at=0 WHERE run=? AND name=? AND number=? AND retry_at>0`
	sqlSettleAllRetries = `UPDATE attempts SET retry_at=0 WHERE run=? AND retry_at>0`
	sqlDeleteStarts     = `DELETE FROM attempts WHERE run=? AND name=? AND number=? AND ended_at=0`
	sqlCutAttempts      = `UPDATE attempts SET ended_at=?, error=? WHERE run=? AND call_id=? AND ended_at=0`
)

// Events and keys.
const (
	sqlInsertEvent       = `INSERT INTO events (env, name, id, payload, created_at, runs) VALUES (?,?,?,?,?,?)`
	sqlSelectEvent       = `SELECT ` + eventColumns + ` FROM events WHERE env=? AND name=? AND id=?`
	sqlSelectEventExists = `SELECT 1 FROM events WHERE env=? AND name=? AND id=?`
	sqlSelectEvents      = `SELECT ` + eventColumns + ` FROM events WHERE +env=+?1 AND position < +?2 ORDER BY position DESC LIMIT +?3` // as with sqlSelectNewest
	sqlSelectEventsNamed = `SELECT ` + eventColumns + ` FROM events WHERE env=+?1 AND name=+?4 AND position < +?2 ORDER BY position DESC LIMIT +?3`
	// Of the first ones only: their times grow with their positions but for steps of the clock, and the whole table must not be looked through.
	sqlDropEvents = `DELETE FROM events WHERE position IN (
		SELECT position FROM (SELECT position, created_at, sum(bytes) OVER (ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM (SELECT position, created_at, coalesce(length(payload), 0) AS bytes FROM events ORDER BY position LIMIT +?2))
		WHERE (+?3=0 OR coalesce(before, 0) < +?3) AND created_at <= +?1 AND position < (SELECT max(position) FROM events))`
	sqlPutKey          = `INSERT OR REPLACE INTO keys (env, kind, scope, key, owner, hash, differs, answer, expires_at, owner_status, owner_ended_at, lasts_ms, until_failed) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)`
	sqlSelectKey       = `SELECT ` + keyColumns + ` FROM keys WHERE env=+? AND kind=+? AND scope=+? AND key=+? AND (expires_at=0 OR expires_at>+?)`
	sqlSelectKeys      = `SELECT ` + keyColumns + ` FROM keys WHERE env=+? AND kind=+? AND scope=+? AND key >= +? AND key < +? AND (expires_at=0 OR expires_at>+?) ORDER BY key`
	sqlSelectKeyBeside = `SELECT ` + keyColumns + ` FROM keys WHERE env=+?1 AND kind=+?2 AND scope=+?3 AND key=+?7 AND key >= +?4 AND key < +?5 AND (expires_at=0 OR expires_at>+?6)
		UNION ALL SELECT ` + keyColumns + ` FROM keys INDEXED BY keys_differing WHERE env=+?1 AND kind=+?2 AND scope=+?3 AND key >= +?4 AND key < +?5 AND (expires_at=0 OR expires_at>+?6) AND differs=1 AND key <> +?7
		ORDER BY key`
	sqlMarkKeyDiffers    = `UPDATE keys SET differs=1 WHERE env=+? AND kind=+? AND scope=+? AND key=+?`
	sqlDeleteKeysOfScope = `DELETE FROM keys WHERE env=+? AND kind=+? AND scope=+?`
	sqlDeleteExpiredKeys = `DELETE FROM keys WHERE (env, kind, scope, key) IN
		(SELECT env, kind, scope, key FROM keys WHERE expires_at > 0 AND expires_at <= +? LIMIT +?)`
)

// Waits. What they list comes in the order in which they were opened.
const (
	sqlInsertWait = `INSERT INTO waits (id, run, name, number, kind, due_at, child, of_number, event, looked, orphan, come, after)
		VALUES (?12,?1,?2,?3,?4,?5,?6,?7,?8,?9,0,?11, CASE ?10 WHEN 0 THEN 0 WHEN 1 THEN (SELECT events_after FROM runs WHERE seq=?1) ELSE (SELECT coalesce(max(position), 0) FROM events) END)
		ON CONFLICT DO NOTHING`
	sqlSelectLastWait       = `SELECT coalesce(max(id), 0) FROM waits`
	sqlInsertWaitEvent      = `INSERT OR IGNORE INTO wait_events (env, event, paths, key, wait) VALUES (?,?,?,?,?)`
	sqlSelectWait           = `SELECT id, child FROM waits WHERE run=? AND name=? AND number=? AND orphan = 0`
	sqlSelectInvoke         = `SELECT id, child FROM waits WHERE run=(SELECT seq FROM runs WHERE id=?) AND child=? AND kind='invoke'`
	sqlSelectLives          = `SELECT 1 FROM runs WHERE id=? AND ended_at = 0`
	sqlMarkParents          = `UPDATE waits SET come=1 WHERE kind = 'invoke' AND child=? AND come = 0`
	sqlMarkInvokes          = `UPDATE waits SET come=1 WHERE run=? AND kind = 'invoke' AND come = 0`
	sqlMarkPosted           = `UPDATE waits SET come=1 WHERE (run, name, of_number) = (SELECT run, name, number FROM callbacks WHERE token_hash=?) AND kind = 'callback'`
	sqlSelectPosted         = `SELECT 1 FROM callbacks WHERE run=? AND name=? AND number=? AND ended_at > 0`
	sqlOrphanWait           = `UPDATE waits SET orphan=id WHERE id=?`
	sqlDeleteWait           = `DELETE FROM waits WHERE id=?`
	sqlDeleteWaitEvents     = `DELETE FROM wait_events WHERE wait=?`
	sqlSelectWaitIDs        = `SELECT id, child FROM waits WHERE run=?`
	sqlSelectLeftWaitIDs    = `SELECT id, child FROM waits WHERE run=?1 AND (?2=0 OR kind <> 'cancel')`
	sqlDeleteUses           = `DELETE FROM event_uses WHERE run=?`
	sqlDropOldUses          = `DELETE FROM event_uses WHERE run=? AND position < (SELECT min(position) FROM events)` // of events that are gone
	sqlLookedBack           = `UPDATE waits SET looked=1 WHERE id=?`
	sqlInsertUse            = `INSERT INTO event_uses (run, position) VALUES (?,?)`
	sqlSelectUse            = `SELECT 1 FROM event_uses WHERE run=? AND position=?`
	sqlSelectPosition       = `SELECT position FROM cursors WHERE name=?`
	sqlInsertCallback       = `INSERT INTO callbacks (token_hash, env, run, name, number, due_at, ended_at, payload) VALUES (?,?,?,?,?,?,?,?)`
	sqlSelectSameCall       = `SELECT 1 FROM callbacks WHERE token_hash=?1 OR (run=?2 AND name=?3 AND number=?4)`
	sqlSelectCallback       = `SELECT ` + callbackColumns + ` WHERE token_hash=+?`
	sqlSelectCallbackOfStep = `SELECT ` + callbackColumns + ` WHERE callbacks.run=(SELECT seq FROM runs WHERE id=+?) AND name=+? AND number=+?`
	sqlPassCallback         = `UPDATE callbacks SET run=? WHERE token_hash=? AND (SELECT ended_at FROM runs WHERE runs.seq = callbacks.run) > 0`
	sqlExpireCallback       = `UPDATE callbacks SET due_at=? WHERE token_hash=?`
	sqlEndCallback          = `UPDATE callbacks SET ended_at=?, payload=? WHERE token_hash=?`
	sqlWaitsOfRun           = `SELECT ` + waitColumns + ` WHERE waits.run=(SELECT seq FROM runs WHERE id=?1) AND waits.id > +?2 ORDER BY waits.id LIMIT +?3`
	sqlWaitsUnlooked        = `SELECT ` + waitColumns + ` WHERE looked = 0 AND waits.id > +?1 ORDER BY waits.id LIMIT +?2`
	sqlWaitsNaming          = `SELECT wait FROM wait_events WHERE env=+? AND event=+? AND paths=+? AND key=+? AND wait > +? ORDER BY wait LIMIT +?`
	// What an event does not know is whether its wait has looked back: until then the wait looks for it.
	sqlWaitForEvent = `SELECT ` + waitColumns + ` WHERE waits.id=+?1 AND looked = 1 AND after < +?2
		AND NOT EXISTS (SELECT 1 FROM event_uses WHERE event_uses.run = waits.run AND position = +?2)`
	sqlWaitsOfKin = `SELECT ` + waitColumns + ` LEFT JOIN runs AS child ON child.id = waits.child
		WHERE waits.kind = 'invoke' AND (come = 1 OR orphan > 0) AND waits.id > +?1 AND (orphan > 0 OR runs.ended_at > 0 OR child.id IS NULL OR child.ended_at > 0) ORDER BY waits.id LIMIT +?2`
	sqlWaitsFulfilled = `SELECT ` + waitColumns + ` JOIN callbacks ON callbacks.run = waits.run AND callbacks.name = waits.name AND callbacks.number = waits.of_number
		WHERE waits.kind = 'callback' AND come = 1 AND callbacks.ended_at > 0 AND waits.id > +?1 ORDER BY waits.id LIMIT +?2`
	// W5: what has not ended has a time, or waits for something that is open.
	sqlStranded = `SELECT id FROM runs WHERE ended_at = 0 AND timer_at = 0 AND ready_at = 0
		AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.run = runs.seq AND kind <> 'cancel' AND orphan = 0) ORDER BY id LIMIT +?`
	// From each to the next by the index, not through all the waits that have it.
	sqlSelectMatchPaths = `WITH RECURSIVE each(paths) AS (
			SELECT min(paths) FROM wait_events WHERE env=+?1 AND event=+?2 AND paths > ''
			UNION ALL SELECT (SELECT min(next.paths) FROM wait_events AS next WHERE next.env=+?1 AND next.event=+?2 AND next.paths > each.paths) FROM each WHERE each.paths IS NOT NULL)
		SELECT paths FROM each WHERE paths IS NOT NULL`
	sqlEventsForward = `SELECT ` + eventColumns + ` FROM events WHERE position > +?3 AND (+?4=0 OR position <= +?4)
		AND (+?1='' OR env=+?1) AND (+?2='' OR name=+?2)
		AND (+?5='' OR NOT EXISTS (SELECT 1 FROM event_uses WHERE event_uses.run=(SELECT seq FROM runs WHERE runs.id=+?5) AND event_uses.position=events.position))
		ORDER BY position LIMIT +?6`
	sqlEventsOfName = `SELECT ` + eventColumns + ` FROM events WHERE env=+?1 AND name=+?2 AND position > +?3 AND (+?4=0 OR position <= +?4)
		AND (+?5='' OR NOT EXISTS (SELECT 1 FROM event_uses WHERE event_uses.run=(SELECT seq FROM runs WHERE runs.id=+?5) AND event_uses.position=events.position))
		ORDER BY position LIMIT +?6`
)

// What is due later.
const (
	scheduleColumns    = `env, id, app, workflow, expression, timezone, catch_up, payload, declared, paused, version, cursor_at, next_at, created_at`
	sqlPutSchedule     = `INSERT OR REPLACE INTO schedules (` + scheduleColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	sqlCheckedSchedule = `SELECT version, created_at FROM schedules WHERE env=? AND id=?`
	sqlDropSchedule    = `DELETE FROM schedules WHERE env=? AND id=?`
	// What is sorted has no payloads: these are read one after the other, until there are enough.
	sqlSchedules = `SELECT ` + scheduleColumns + ` FROM (SELECT env AS its_env, id AS its_id FROM schedules
		WHERE (+?1='' OR env=+?1) AND (+?2='' OR id=+?2) AND (+?3='' OR app=+?3) AND id > +?4 ORDER BY id, env LIMIT +?5) CROSS JOIN schedules ON env=its_env AND id=its_id`
	sqlSchedulesDue = `SELECT ` + scheduleColumns + ` FROM (SELECT env AS its_env, id AS its_id FROM schedules
		WHERE next_at > 0 AND paused = 0 AND next_at <= +? ORDER BY id, env LIMIT +?) CROSS JOIN schedules ON env=its_env AND id=its_id`
	sqlPutLater    = `INSERT OR IGNORE INTO later_events (env, name, id, payload, due_at) VALUES (?,?,?,?,?)`
	sqlSelectLater = `SELECT 1 FROM later_events WHERE env=? AND name=? AND id=?`
	sqlDropLater   = `DELETE FROM later_events WHERE env=? AND name=? AND id=?`
	sqlLaterDue    = `SELECT env, id, name, payload, due_at FROM (SELECT env AS its_env, name AS its_name, id AS its_id FROM later_events
		WHERE due_at <= +? ORDER BY due_at, id LIMIT +?) CROSS JOIN later_events ON env=its_env AND name=its_name AND id=its_id`
	sqlNextDue = `SELECT coalesce(min(at), 0) FROM (SELECT min(next_at) AS at FROM schedules WHERE next_at > 0 AND paused = 0 UNION ALL SELECT min(due_at) FROM later_events)`
)

// Apps.
const (
	appColumns    = `env, name, url, private, concurrency, manifest, hash, seen_at, gone, version`
	sqlPutApp     = `INSERT OR REPLACE INTO apps (` + appColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?)`
	sqlAppVersion = `SELECT version FROM apps WHERE env=? AND name=?`
	sqlSelectApps = `SELECT ` + appColumns + ` FROM apps ORDER BY env, name`
)

// Deliveries.
const (
	deliveryColumns = `id, env, hook, provider, status, reason, provider_id, redelivery_of, events, received_at, bytes, position`

	sqlInsertDelivery = `INSERT INTO deliveries (id, env, hook, provider, status, reason, provider_id, redelivery_of, events, received_at, bytes)
		VALUES (?,?,?,?,?,?,?,?,?,?,?)`
	sqlInsertDeliveryValues = `INSERT INTO delivery_values (delivery, request, body) VALUES (?,?,?)`
	sqlSelectDeliveryExists = `SELECT 1 FROM deliveries WHERE id=?`
	sqlSelectDelivery       = `SELECT ` + deliveryColumns + `, request, body FROM deliveries JOIN delivery_values ON delivery = position WHERE id=+? AND env=+?`
	sqlSelectDeliveries     = `SELECT ` + deliveryColumns + ` FROM deliveries WHERE env=+?1 AND (+?2='' OR hook=+?2) AND (+?3='' OR status=+?3)
		AND (+?4=0 OR position < +?4) ORDER BY position DESC LIMIT +?5`
	// The newest that is past a bound of number or bytes, and all before it, are too many. It reads nothing but an index.
	sqlDropDeliveries = `DELETE FROM deliveries WHERE position IN (SELECT position FROM deliveries WHERE rejected=+?1 AND (+?2 > 0 AND received_at <= +?2
		OR position <= (SELECT coalesce(max(position), 0) FROM (SELECT position FROM deliveries WHERE +?3 > 0 AND rejected=+?1 ORDER BY position DESC LIMIT 1 OFFSET +?3))
		OR position <= (SELECT coalesce(max(position), 0) FROM (SELECT position, sum(bytes) OVER (ORDER BY position DESC) AS total FROM deliveries WHERE +?4 > 0 AND rejected=+?1) WHERE total > +?4))
		ORDER BY position LIMIT +?5)`
)

// The store's phase (N5), and what a look at the whole file takes.
const (
	sqlSelectPhase = `SELECT phase, move, place FROM phase`
	sqlUpdatePhase = `UPDATE phase SET phase=?, move=?, place=?`
	sqlCountLive   = `SELECT count(*) FROM runs WHERE ended_at = 0`
)

// What another store takes (N5), as its columns are called there: a table for each statement. Runs carry the sizes that the embedded store
// counts, and what belongs to a run its id.
const (
	sqlMoveRuns = `SELECT seq, ` + runColumns + `, timer_at, ready_at, events_after,
		(SELECT count(*) FROM steps WHERE steps.run=runs.seq AND steps.restart=runs.restart) AS entries,
		(SELECT coalesce(sum(coalesce(length(output), 0) + coalesce(length(error), 0)), 0) FROM steps WHERE steps.run=runs.seq AND steps.restart=runs.restart) AS bytes,
		(SELECT count(*) FROM logs WHERE logs.run=runs.seq AND logs.restart=runs.restart) AS lines FROM runs`
	sqlMoveRunValues = `SELECT run, payload, output, error, trees FROM run_values`
	sqlMoveSteps     = `SELECT run, restart, entry, number, attempts, started_at, ended_at, name, kind, status, output, error FROM steps`
	sqlMoveChapters  = `SELECT run, restart, payload, entries, closed_at FROM chapters`
	sqlMoveLogs      = `SELECT id AS position, run, restart, call_id, name, number, entry, attempt, line, at, level, message, fields FROM logs`
	sqlMoveAttempts  = `SELECT run, name, number, attempt, call_id, error, started_at, ended_at, retry_at, again FROM attempts`
	sqlMoveEvents    = `SELECT ` + eventColumns + ` FROM events`
	sqlMoveWaits     = `SELECT waits.id AS id, run, runs.id AS run_id, env, waits.name AS name, number, kind, due_at, child, of_number, waits.event AS event, after, looked, orphan > 0 AS orphan, come
		FROM waits LEFT JOIN runs ON runs.seq = waits.run`
	sqlMoveWaitEvents = `SELECT env, event, paths, key, wait FROM wait_events`
	sqlMoveEventUses  = `SELECT run, position FROM event_uses`
	sqlMoveCallbacks  = `SELECT token_hash, callbacks.env AS env, run, runs.id AS run_id, name, number, due_at, callbacks.ended_at AS ended_at, payload
		FROM callbacks LEFT JOIN runs ON runs.seq = callbacks.run`
	sqlMoveSchedules   = `SELECT ` + scheduleColumns + ` FROM schedules`
	sqlMoveLaterEvents = `SELECT env, name, id, payload, due_at FROM later_events`
	sqlMoveCursors     = `SELECT name, owner, position FROM cursors`
	sqlMoveKeys        = `SELECT ` + keyColumns + ` FROM keys`
	sqlMoveApps        = `SELECT ` + appColumns + ` FROM apps`
	sqlMoveDeliveries  = `SELECT ` + deliveryColumns + `, request, body FROM deliveries LEFT JOIN delivery_values ON delivery = position`
	// The last number of each series. Of events the newest is never dropped; positions of deliveries are never used again.
	sqlMoveNumbers = `SELECT 'runs', coalesce(max(seq), 0) FROM runs UNION ALL SELECT 'waits', coalesce(max(id), 0) FROM waits
		UNION ALL SELECT 'events', coalesce(max(position), 0) FROM events UNION ALL SELECT 'logs', coalesce(max(id), 0) FROM logs
		UNION ALL SELECT 'deliveries', coalesce((SELECT seq FROM sqlite_sequence WHERE name='deliveries'), 0)`
)
