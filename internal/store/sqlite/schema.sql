-- The embedded store, version 1. Instants are milliseconds since 1970 in UTC, 0 for none. Users' values are JSON text in blobs,
-- NULL for undefined, and never looked into.

-- A run's own record, and nothing else: it is rewritten when the run changes, so that its values stand beside it.
CREATE TABLE runs (
  seq            INTEGER PRIMARY KEY,      -- short and growing: what the other tables call a run
  id             TEXT NOT NULL UNIQUE,
  env            TEXT NOT NULL,
  app            TEXT NOT NULL,
  workflow       TEXT NOT NULL,
  run_key        TEXT NOT NULL,
  replay_of      TEXT NOT NULL,
  parent         TEXT NOT NULL,
  root           TEXT NOT NULL,
  root_restart   INTEGER NOT NULL,
  event          TEXT NOT NULL,
  event_id       TEXT NOT NULL,
  version        INTEGER NOT NULL CHECK (version > 0),
  status         TEXT NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'skipped')),
  restart        INTEGER NOT NULL,
  epoch          INTEGER NOT NULL,
  call_id        TEXT,
  call_token     TEXT,
  call_nonce     TEXT,
  call_node      TEXT,
  call_begun_at  INTEGER,
  prior_id       TEXT,
  prior_token    TEXT,
  prior_nonce    TEXT,
  prior_node     TEXT,
  prior_begun_at INTEGER,
  next_at        INTEGER NOT NULL,
  timeout_at     INTEGER NOT NULL,
  waits_at       INTEGER NOT NULL,
  woken_at      INTEGER NOT NULL,
  reason         TEXT NOT NULL,
  ending_reason  TEXT,
  ending_at      INTEGER,
  closing        INTEGER NOT NULL,         -- 1: it is called to undo and to tell
  ending_entries INTEGER NOT NULL,
  closers        INTEGER NOT NULL,         -- bits: what has to be done when it ends
  warning        TEXT NOT NULL,
  invokes        INTEGER NOT NULL,
  attempts       INTEGER NOT NULL,
  cuts           INTEGER NOT NULL,
  yields         INTEGER NOT NULL,
  progress       INTEGER NOT NULL,
  created_at     INTEGER NOT NULL,
  started_at     INTEGER NOT NULL,
  ended_at       INTEGER NOT NULL,
  lease_ms       INTEGER NOT NULL,
  timer_at       INTEGER NOT NULL,         -- when the timer must look
  ready_at       INTEGER NOT NULL,         -- when the dispatcher may call
  events_after   INTEGER NOT NULL,         -- the last event that was there when it was stored (E2)
  -- W3: what has ended is over. W5: what has not ended has a next thing.
  CHECK ((status IN ('completed', 'failed', 'cancelled', 'skipped')) = (ended_at > 0)),
  CHECK (ended_at = 0 OR (call_id IS NULL AND timer_at = 0 AND ready_at = 0)),
  CHECK (ended_at > 0 OR timer_at > 0 OR ready_at > 0 OR status = 'waiting'), -- a waiting run may have nothing but an open wait
  CHECK (status <> 'running' OR call_id IS NOT NULL)
) STRICT;
CREATE INDEX runs_timer ON runs (timer_at) WHERE timer_at > 0;
CREATE INDEX runs_ready ON runs (env, app, ready_at) WHERE ready_at > 0;
CREATE INDEX runs_in_call ON runs (call_node, id) WHERE status = 'running';
CREATE INDEX runs_idle ON runs (id) WHERE ended_at = 0 AND timer_at = 0 AND ready_at = 0; -- who waits for news alone (W5)
CREATE INDEX runs_by_workflow ON runs (env, workflow, id);
CREATE INDEX runs_by_key ON runs (env, run_key, id) WHERE run_key <> '';
CREATE INDEX runs_by_status ON runs (env, status, id) WHERE status <> 'completed'; -- lists of what is rare; the newest that completed are soon found
CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended_at > 0; -- what is dropped first

-- What a run was given and what came out: each written once.
CREATE TABLE run_values (
  run     INTEGER PRIMARY KEY,
  payload BLOB,
  output  BLOB,
  error   BLOB,
  trees   BLOB  -- what it waited for when it was last suspended
) STRICT;

-- The histories (W9). Rows stand in the order in which they were saved, whatever run they are of: a commit's new entries share
-- pages at the table's end, and within a run the order of rows is that of entries.
CREATE TABLE steps (
  id         INTEGER PRIMARY KEY,
  run        INTEGER NOT NULL,
  entry      INTEGER NOT NULL CHECK (entry > 0),
  restart    INTEGER NOT NULL,
  name       TEXT NOT NULL,
  number     INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('completed', 'failed')),
  output     BLOB,
  error      BLOB,
  attempts   INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX steps_once ON steps (run, restart, name, number); -- W1; it also finds a run's rows

-- Histories that a restart has closed (Z2); their entries stand in steps.
CREATE TABLE chapters (
  run       INTEGER NOT NULL,
  restart   INTEGER NOT NULL,
  payload   BLOB,
  entries   INTEGER NOT NULL,
  closed_at INTEGER NOT NULL,
  PRIMARY KEY (run, restart)
) STRICT, WITHOUT ROWID;

-- What runs' code has logged.
CREATE TABLE logs (
  id      INTEGER PRIMARY KEY,
  run     INTEGER NOT NULL,
  restart INTEGER NOT NULL,
  call_id TEXT NOT NULL,    -- of a line in a step
  name    TEXT NOT NULL,    -- the step's; '' outside steps
  number  INTEGER NOT NULL,
  entry   INTEGER NOT NULL, -- outside steps: the highest entry that the code had been shown
  attempt INTEGER NOT NULL,
  line    INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  level   TEXT NOT NULL,
  message TEXT NOT NULL,
  fields  BLOB
) STRICT;
CREATE UNIQUE INDEX logs_once ON logs (run, restart, entry, name, number, attempt, line, call_id);

-- Attempts that did not save their step: throws, recorded starts, cuts.
CREATE TABLE attempts (
  run        INTEGER NOT NULL,
  name       TEXT NOT NULL,
  number     INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  call_id    TEXT NOT NULL,
  error      BLOB,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  retry_at   INTEGER NOT NULL,
  again      INTEGER NOT NULL, -- of a start: an attempt had been started before it
  PRIMARY KEY (run, name, number, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  position   INTEGER PRIMARY KEY,
  env        TEXT NOT NULL,
  name       TEXT NOT NULL,
  id         TEXT NOT NULL,
  payload    BLOB,
  created_at INTEGER NOT NULL,
  runs       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_once ON events (env, name, id); -- W7
CREATE INDEX events_in_order ON events (env, name, position); -- what a wait looks back to (E2)

-- Open waits. A row goes when its step has its entry; but an invoke's stays while its child lives.
CREATE TABLE waits (
  id        INTEGER PRIMARY KEY, -- the order in which they were opened
  run       INTEGER NOT NULL,
  name      TEXT NOT NULL,
  number    INTEGER NOT NULL,
  kind      TEXT NOT NULL CHECK (kind IN ('sleep', 'event', 'invoke', 'callback', 'cancel')),
  due_at    INTEGER NOT NULL,    -- 0: never by itself
  child     TEXT NOT NULL,
  of_number INTEGER NOT NULL,
  event     BLOB,                -- what a wait for an event asks of it
  after     INTEGER NOT NULL,    -- the last event that it does not look back to
  looked    INTEGER NOT NULL,
  orphan    INTEGER NOT NULL,    -- of an invoke that nobody waits for any more: its id, so that another may have its name; else 0
  come      INTEGER NOT NULL     -- what it waits for may be there: an invoke's child, or its own run, has ended; a callback was posted to
) STRICT;
CREATE UNIQUE INDEX waits_once ON waits (run, name, number, orphan);
CREATE INDEX waits_unlooked ON waits (id) WHERE looked = 0;
CREATE INDEX waits_kin ON waits (id) WHERE kind = 'invoke' AND (come = 1 OR orphan > 0); -- whom somebody has to tell of an end
CREATE INDEX waits_children ON waits (child) WHERE kind = 'invoke'; -- who has to hear of a run's end
CREATE INDEX waits_posted ON waits (id) WHERE kind = 'callback' AND come = 1; -- whom somebody has to tell of a post

-- How an event finds its waits: a row for each name that a wait names.
CREATE TABLE wait_events (
  env   TEXT NOT NULL,
  event TEXT NOT NULL,
  paths TEXT NOT NULL, -- '': whatever it holds
  key   TEXT NOT NULL,
  wait  INTEGER NOT NULL,
  PRIMARY KEY (env, event, paths, key, wait)
) STRICT, WITHOUT ROWID;
CREATE INDEX wait_events_of ON wait_events (wait);

-- The events that a run's waits have used (W7).
CREATE TABLE event_uses (
  run      INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE callbacks (
  token_hash TEXT PRIMARY KEY,
  env        TEXT NOT NULL,
  run        INTEGER NOT NULL,
  name       TEXT NOT NULL,
  number     INTEGER NOT NULL,
  due_at     INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  payload    BLOB
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX callbacks_once ON callbacks (run, name, number);

CREATE TABLE schedules (
  env        TEXT NOT NULL,
  id         TEXT NOT NULL,
  app        TEXT NOT NULL,
  workflow   TEXT NOT NULL,
  expression TEXT NOT NULL,
  timezone   TEXT NOT NULL,
  catch_up   TEXT NOT NULL,
  payload    BLOB,
  declared   INTEGER NOT NULL, -- by the app's manifest
  paused     INTEGER NOT NULL,
  version    INTEGER NOT NULL CHECK (version > 0),
  cursor_at  INTEGER NOT NULL,
  next_at    INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (env, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at > 0 AND paused = 0;

-- Events that are to be emitted when they are due.
CREATE TABLE later_events (
  env     TEXT NOT NULL,
  name    TEXT NOT NULL,
  id      TEXT NOT NULL,
  payload BLOB,
  due_at  INTEGER NOT NULL,
  PRIMARY KEY (env, name, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX later_events_due ON later_events (due_at);

-- How far the server has come with what it goes through in order.
CREATE TABLE cursors (
  name     TEXT PRIMARY KEY,
  owner    TEXT NOT NULL,   -- who alone goes through it
  position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The servers that share the store.
CREATE TABLE nodes (
  id    TEXT PRIMARY KEY,
  beat  INTEGER NOT NULL,
  state BLOB
) STRICT, WITHOUT ROWID;

-- Keys outlive what they stand for (K3, W8).
CREATE TABLE keys (
  env            TEXT NOT NULL,
  kind           TEXT NOT NULL,
  scope          TEXT NOT NULL,
  key            TEXT NOT NULL,
  owner          TEXT NOT NULL,
  hash           TEXT NOT NULL,
  differs        INTEGER NOT NULL,
  answer         BLOB,
  expires_at     INTEGER NOT NULL,
  owner_status   TEXT NOT NULL,    -- of a claim whose owner has been dropped: how it ended
  owner_ended_at INTEGER NOT NULL, -- and when
  lasts_ms       INTEGER NOT NULL, -- a claim is free so long after its owner's end; 0: it is not
  until_failed   INTEGER NOT NULL, -- it is free where its owner failed
  PRIMARY KEY (env, kind, scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_expiry ON keys (expires_at) WHERE expires_at > 0;
CREATE INDEX claims_owner ON keys (owner) WHERE kind = 'claim';
CREATE INDEX keys_differing ON keys (env, kind, scope, key) WHERE differs = 1; -- a step may have sent ten thousand times

CREATE TABLE apps (
  env         TEXT NOT NULL,
  name        TEXT NOT NULL,
  url         TEXT NOT NULL,
  private     INTEGER NOT NULL,
  concurrency INTEGER NOT NULL,
  manifest    BLOB,
  hash        TEXT NOT NULL,
  seen_at     INTEGER NOT NULL,
  gone        TEXT NOT NULL,
  version     INTEGER NOT NULL,
  PRIMARY KEY (env, name)
) STRICT, WITHOUT ROWID;

-- Requests to configured hooks. Positions are never used again: a cursor of a list stands for one.
CREATE TABLE deliveries (
  position      INTEGER PRIMARY KEY AUTOINCREMENT,
  id            TEXT NOT NULL UNIQUE,
  env           TEXT NOT NULL,
  hook          TEXT NOT NULL,
  provider      TEXT NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('verified', 'duplicate', 'rejected', 'unverified')),
  reason        TEXT NOT NULL,
  provider_id   TEXT NOT NULL,
  redelivery_of TEXT NOT NULL,
  events        TEXT NOT NULL,    -- JSON: what it emitted
  bytes         INTEGER NOT NULL, -- of its values
  received_at   INTEGER NOT NULL,
  rejected      INTEGER NOT NULL GENERATED ALWAYS AS (status = 'rejected') VIRTUAL
) STRICT;
CREATE INDEX deliveries_kept ON deliveries (rejected, position, received_at, bytes);

-- What was sent, exactly. It goes with its delivery.
CREATE TABLE delivery_values (
  delivery INTEGER PRIMARY KEY REFERENCES deliveries ON DELETE CASCADE,
  request  BLOB,
  body     BLOB
) STRICT;

-- What servers may do with this store, in one row (N5).
CREATE TABLE phase (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  phase TEXT NOT NULL CHECK (phase IN ('active', 'moving', 'moved', 'held')),
  move  TEXT NOT NULL, -- the id of the move that it is or was in
  place TEXT NOT NULL  -- where it goes or went, for people
) STRICT;
INSERT INTO phase (one, phase, move, place) VALUES (1, 'active', '', '');
