package sqlite

// The statements, each of which a test prepares against a freshly migrated database. Only the list of runs adds to its own: the
// filters that were asked for.
//
// +? where a parameter limits rows or is compared beside a partial index: SQLite plans a statement anew whenever another value is
// bound to a bare parameter that its planner looked at (sqlite3ExprIsInteger, exprCompareVariable), at several times the cost of
// carrying it out. It does not look behind a plus, which changes nothing else.

// What rows are read as, in the order in which the scan functions know them.
const (
	runColumns = `id, env, app, workflow, run_key, replay_of, root, event, event_id, version, status, restart, epoch,
		call_id, call_token, call_nonce, call_begun_at, prior_id, prior_token, prior_nonce, prior_begun_at,
		next_at, timeout_at, reason, ending_reason, ending_at, attempts, cuts, yields, progress,
		created_at, started_at, ended_at, lease_ms`
	recordColumns = runColumns + `, payload, output, error FROM runs JOIN run_values ON run_values.run = runs.seq`
	eventColumns  = `position, env, name, id, payload, created_at, runs`
	keyColumns    = `env, kind, scope, key, owner, hash, differs, answer, expires_at`
)

// Runs.
const (
	sqlInsertRun = `INSERT INTO runs (` + runColumns + `, timer_at, ready_at)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	// What changes in a run's life; its identity does not.
	sqlUpdateRun = `UPDATE runs SET version=?, status=?, restart=?, epoch=?,
		call_id=?, call_token=?, call_nonce=?, call_begun_at=?, prior_id=?, prior_token=?, prior_nonce=?, prior_begun_at=?,
		next_at=?, timeout_at=?, reason=?, ending_reason=?, ending_at=?, attempts=?, cuts=?, yields=?, progress=?,
		created_at=?, started_at=?, ended_at=?, lease_ms=?, timer_at=?, ready_at=? WHERE seq=?`
	sqlSelectRecord    = `SELECT ` + recordColumns + ` WHERE id=+? AND env=+?`
	sqlSelectRecords   = `SELECT ` + recordColumns + ` WHERE env=+?`
	sqlSelectTimers    = `SELECT ` + runColumns + ` FROM runs WHERE timer_at > 0 AND timer_at <= +? ORDER BY timer_at, id LIMIT +?`
	sqlSelectInCall    = `SELECT ` + runColumns + ` FROM runs WHERE status = 'running' AND id > +? ORDER BY id LIMIT +?`
	sqlSelectRun       = `SELECT seq, ` + runColumns + ` FROM runs WHERE id=?`
	sqlSelectRunExists = `SELECT 1 FROM runs WHERE id=?`
	sqlSelectHead      = `SELECT seq, version, coalesce(call_id, ''), coalesce(call_nonce, ''), restart,
		EXISTS (SELECT 1 FROM attempts WHERE run = seq) FROM runs WHERE id=?`
	sqlSelectSeq       = `SELECT seq FROM runs WHERE id=?`
	sqlSelectNextTimer = `SELECT coalesce(min(timer_at), 0) FROM runs WHERE timer_at > 0`
	sqlSelectReady     = `SELECT id, ready_at FROM runs WHERE env=+? AND app=+? AND ready_at > 0 AND ready_at <= +? ORDER BY ready_at, id LIMIT +?`
	sqlBindNonce       = `UPDATE runs SET call_nonce=?, version=? WHERE seq=?`
	sqlInsertValues    = `INSERT INTO run_values (run, payload) VALUES (?, ?)`
	sqlUpdateValues    = `UPDATE run_values SET output=?, error=? WHERE run=?`
)

// Histories.
const (
	sqlInsertStep = `INSERT INTO steps (run, entry, restart, name, number, kind, status, output, error, attempts, started_at, ended_at)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`
	sqlSelectStanding = `SELECT entry, status, output, error FROM steps WHERE run=? AND restart=? AND name=? AND number=?`
	sqlSelectHistory  = `SELECT count(*), coalesce(sum(coalesce(length(output), 0) + coalesce(length(error), 0)), 0) FROM steps WHERE run=?`
	// Rows are chosen in the index alone: entries have no gaps (W9), so that a page starts at a known place.
	sqlSelectEntries = `SELECT entry, name, number, kind, status, output, error, attempts, started_at, ended_at FROM steps
		WHERE id IN (SELECT id FROM steps WHERE run=+? ORDER BY id LIMIT +? OFFSET +?) ORDER BY id`
)

// Attempts that did not save their step.
const (
	sqlPutAttempt     = `INSERT OR REPLACE INTO attempts (run, name, number, attempt, call_id, error, started_at, ended_at, retry_at) VALUES (?,?,?,?,?,?,?,?,?)`
	sqlSelectAttempts = `SELECT name, number, attempt, call_id, error, started_at, ended_at, retry_at FROM attempts WHERE run=+? ORDER BY name, number, attempt`
	sqlSelectThrow    = `SELECT retry_at FROM attempts WHERE run=? AND name=? AND number=? AND attempt=? AND call_id='' AND started_at=? AND ended_at=? AND ended_at>0`
	sqlSettleRetries  = `UPDATE attempts SET retry_at=0 WHERE run=? AND name=? AND number=? AND retry_at>0`
	sqlDeleteStarts   = `DELETE FROM attempts WHERE run=? AND name=? AND number=? AND ended_at=0`
	sqlCutAttempts    = `UPDATE attempts SET ended_at=?, error=? WHERE run=? AND call_id=? AND ended_at=0`
)

// Events and keys.
const (
	sqlInsertEvent       = `INSERT INTO events (env, name, id, payload, created_at, runs) VALUES (?,?,?,?,?,?)`
	sqlSelectEvent       = `SELECT ` + eventColumns + ` FROM events WHERE env=? AND name=? AND id=?`
	sqlSelectEventExists = `SELECT 1 FROM events WHERE env=? AND name=? AND id=?`
	sqlSelectEvents      = `SELECT ` + eventColumns + ` FROM events WHERE env=+?1 AND (+?2='' OR name=+?2) AND (+?3=0 OR position<+?3) ORDER BY position DESC LIMIT +?4`
	sqlPutKey            = `INSERT OR REPLACE INTO keys (env, kind, scope, key, owner, hash, differs, answer, expires_at) VALUES (?,?,?,?,?,?,?,?,?)`
	sqlSelectKey         = `SELECT ` + keyColumns + ` FROM keys WHERE env=+? AND kind=+? AND scope=+? AND key=+? AND (expires_at=0 OR expires_at>+?)`
	sqlSelectKeys        = `SELECT ` + keyColumns + ` FROM keys WHERE env=+? AND kind=+? AND scope=+? AND (expires_at=0 OR expires_at>+?) ORDER BY key`
	sqlMarkKeyDiffers    = `UPDATE keys SET differs=1 WHERE env=? AND kind=? AND scope=? AND key=?`
	sqlDeleteKeysOfScope = `DELETE FROM keys WHERE env=? AND kind=? AND scope=?`
	sqlDeleteExpiredKeys = `DELETE FROM keys WHERE (env, kind, scope, key) IN
		(SELECT env, kind, scope, key FROM keys WHERE expires_at > 0 AND expires_at <= +? LIMIT +?)`
)

// Apps.
const (
	sqlPutApp     = `INSERT OR REPLACE INTO apps (env, name, url, private, concurrency, manifest, hash, seen_at, gone) VALUES (?,?,?,?,?,?,?,?,?)`
	sqlSelectApps = `SELECT env, name, url, private, concurrency, manifest, hash, seen_at, gone FROM apps ORDER BY env, name`
)
