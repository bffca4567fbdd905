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
  root           TEXT NOT NULL,
  event          TEXT NOT NULL,
  event_id       TEXT NOT NULL,
  version        INTEGER NOT NULL CHECK (version > 0),
  status         TEXT NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'skipped')),
  restart        INTEGER NOT NULL,
  epoch          INTEGER NOT NULL,
  call_id        TEXT,
  call_token     TEXT,
  call_nonce     TEXT,
  call_begun_at  INTEGER,
  prior_id       TEXT,
  prior_token    TEXT,
  prior_nonce    TEXT,
  prior_begun_at INTEGER,
  next_at        INTEGER NOT NULL,
  timeout_at     INTEGER NOT NULL,
  reason         TEXT NOT NULL,
  ending_reason  TEXT,
  ending_at      INTEGER,
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
  -- W3: what has ended is over. W5: what has not ended has a next thing.
  CHECK ((status IN ('completed', 'failed', 'cancelled', 'skipped')) = (ended_at > 0)),
  CHECK (ended_at = 0 OR (call_id IS NULL AND timer_at = 0 AND ready_at = 0)),
  CHECK (ended_at > 0 OR timer_at > 0 OR ready_at > 0),
  CHECK (status <> 'running' OR call_id IS NOT NULL)
) STRICT;
CREATE INDEX runs_timer ON runs (timer_at) WHERE timer_at > 0;
CREATE INDEX runs_ready ON runs (env, app, ready_at) WHERE ready_at > 0;
CREATE INDEX runs_in_call ON runs (id) WHERE status = 'running';
CREATE INDEX runs_by_workflow ON runs (env, workflow, id);

-- What a run was given and what came out: each written once.
CREATE TABLE run_values (
  run     INTEGER PRIMARY KEY,
  payload BLOB,
  output  BLOB,
  error   BLOB
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

-- Keys outlive what they stand for (K3, W8).
CREATE TABLE keys (
  env        TEXT NOT NULL,
  kind       TEXT NOT NULL,
  scope      TEXT NOT NULL,
  key        TEXT NOT NULL,
  owner      TEXT NOT NULL,
  hash       TEXT NOT NULL,
  differs    INTEGER NOT NULL,
  answer     BLOB,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (env, kind, scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_expiry ON keys (expires_at) WHERE expires_at > 0;

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
  PRIMARY KEY (env, name)
) STRICT, WITHOUT ROWID;
