-- The store of many nodes, version 1. Instants are milliseconds since 1970 in UTC, 0 for none. Users' values are JSON text in
-- bytes, NULL for undefined, and never looked into.
--
-- Every text that can come from outside is BYTEA, names and ids too: a text of Postgres holds neither a NUL nor a half surrogate,
-- and its order is that of a language. Bytes compare as the other stores compare. Closed lists (a status, a kind) are TEXT.
-- For people: SELECT convert_from(id, 'UTF8'), status FROM runs.
--
-- Nothing here refers to another table by a foreign key: a save would lock the row that it refers to once more.
--
-- No table is partitioned. What grows without end is steps, and its rows go with their run's: partitions by time would cut runs in two,
-- and partitions by run don't help to drop what is old. Both are a later step; nothing here is in its way.

-- A run's own record, and nothing else: it is rewritten when the run changes, so that its values stand beside it.
--
-- A save rewrites entries, bytes, lines, version and call_nonce, none of which an index names, in its columns or its condition: the
-- new row takes its place on the same page and no index is touched (HOT), as long as the page has room. That is what fillfactor keeps.
-- Beginning and ending a call change timer_at and ready_at, and touch every index: so there are few, and seq has none.
CREATE TABLE runs (
  id             BYTEA PRIMARY KEY,
  seq            BIGINT NOT NULL,          -- short: what the other tables call a run
  env            BYTEA NOT NULL,
  app            BYTEA NOT NULL,
  workflow       BYTEA NOT NULL,
  run_key        BYTEA NOT NULL,
  replay_of      BYTEA NOT NULL,
  parent         BYTEA NOT NULL,
  root           BYTEA NOT NULL,
  root_restart   BIGINT NOT NULL,
  event          BYTEA NOT NULL,
  event_id       BYTEA NOT NULL,
  version        BIGINT NOT NULL CHECK (version > 0),
  status         TEXT NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'skipped')),
  restart        BIGINT NOT NULL,
  epoch          BIGINT NOT NULL,
  call_id        BYTEA,
  call_token     BYTEA,
  call_nonce     BYTEA,
  call_node      BYTEA,
  call_begun_at  BIGINT,
  prior_id       BYTEA,
  prior_token    BYTEA,
  prior_nonce    BYTEA,
  prior_node     BYTEA,
  prior_begun_at BIGINT,
  next_at        BIGINT NOT NULL,
  timeout_at     BIGINT NOT NULL,
  waits_at       BIGINT NOT NULL,
  woken_at       BIGINT NOT NULL,
  reason         BYTEA NOT NULL,
  ending_reason  BYTEA,
  ending_at      BIGINT,
  closing        BOOLEAN NOT NULL,         -- it is called to undo and to tell
  ending_entries BIGINT NOT NULL,
  closers        BIGINT NOT NULL,          -- bits: what has to be done when it ends
  warning        BYTEA NOT NULL,
  invokes        BOOLEAN NOT NULL,
  attempts       BIGINT NOT NULL,
  cuts           BIGINT NOT NULL,
  yields         BIGINT NOT NULL,
  progress       BIGINT NOT NULL,
  created_at     BIGINT NOT NULL,
  started_at     BIGINT NOT NULL,
  ended_at       BIGINT NOT NULL,
  lease_ms       BIGINT NOT NULL,
  timer_at       BIGINT NOT NULL,          -- when the timer must look
  ready_at       BIGINT NOT NULL,          -- when the dispatcher may call
  events_after   BIGINT NOT NULL,          -- the last event that was there when it was stored (E2)
  entries        BIGINT NOT NULL,          -- of the current chapter: the last number that a save has drawn (W9, N2)
  bytes          BIGINT NOT NULL,          -- of those entries' results
  lines          BIGINT NOT NULL,          -- of the current chapter's log
  -- W3: what has ended is over. W5: what has not ended has a next thing.
  CHECK ((status IN ('completed', 'failed', 'cancelled', 'skipped')) = (ended_at > 0)),
  CHECK (ended_at = 0 OR (call_id IS NULL AND timer_at = 0 AND ready_at = 0)),
  CHECK (ended_at > 0 OR timer_at > 0 OR ready_at > 0 OR status = 'waiting'), -- a waiting run may have nothing but an open wait
  CHECK (status <> 'running' OR call_id IS NOT NULL)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
-- Each of these but the last four holds live runs alone: it stays as small as what is going on, however many runs have ended.
CREATE INDEX runs_timer ON runs (timer_at, id) WHERE timer_at > 0;
CREATE INDEX runs_ready ON runs (env, app, ready_at, id) WHERE ready_at > 0;
CREATE INDEX runs_in_call ON runs (call_node, id) WHERE status = 'running';
CREATE INDEX runs_idle ON runs (id) WHERE ended_at = 0 AND timer_at = 0 AND ready_at = 0; -- who waits for news alone (W5)
CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended_at > 0; -- what is dropped first; a run enters it once, at its end
CREATE INDEX runs_by_workflow ON runs (env, workflow, id);
CREATE INDEX runs_by_key ON runs (env, run_key, id) WHERE run_key <> '';
CREATE INDEX runs_by_status ON runs (env, status, id) WHERE status <> 'completed'; -- lists of what is rare; the newest that completed are soon found
CREATE SEQUENCE run_seqs;

-- What a run was given and what came out: each written once.
CREATE TABLE run_values (
  run     BIGINT PRIMARY KEY,
  payload BYTEA,
  output  BYTEA,
  error   BYTEA,
  trees   BYTEA  -- what it waited for when it was last suspended
) WITH (fillfactor = 80);

-- The histories (W9). A save adds its row at the table's end and an entry to this one index: the index that W1 needs also chooses the
-- rows of a page, since it includes their numbers.
CREATE TABLE steps (
  run        BIGINT NOT NULL,
  restart    BIGINT NOT NULL,
  entry      BIGINT NOT NULL CHECK (entry > 0),
  number     INTEGER NOT NULL,
  attempts   INTEGER NOT NULL,
  started_at BIGINT NOT NULL,
  ended_at   BIGINT NOT NULL,
  name       BYTEA NOT NULL,
  kind       BYTEA NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('completed', 'failed')),
  output     BYTEA,
  error      BYTEA
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX steps_once ON steps (run, restart, name, number) INCLUDE (entry);

-- Histories that a restart has closed (Z2); their entries stand in steps.
CREATE TABLE chapters (
  run       BIGINT NOT NULL,
  restart   BIGINT NOT NULL,
  payload   BYTEA,
  entries   BIGINT NOT NULL,
  closed_at BIGINT NOT NULL,
  PRIMARY KEY (run, restart)
);

-- What runs' code has logged. A run's lines are drawn their positions while its row is locked, so that none comes late.
CREATE TABLE logs (
  position BIGINT GENERATED BY DEFAULT AS IDENTITY,
  run      BIGINT NOT NULL,
  restart  BIGINT NOT NULL,
  call_id  BYTEA NOT NULL,  -- of a line in a step
  name     BYTEA NOT NULL,  -- the step's; empty outside steps
  number   BIGINT NOT NULL,
  entry    BIGINT NOT NULL, -- outside steps: the highest entry that the code had been shown
  attempt  BIGINT NOT NULL,
  line     BIGINT NOT NULL,
  at       BIGINT NOT NULL,
  level    BYTEA NOT NULL,
  message  BYTEA NOT NULL,
  fields   BYTEA,
  PRIMARY KEY (run, position)
);
CREATE UNIQUE INDEX logs_once ON logs (run, restart, entry, name, number, attempt, line, call_id);

-- Attempts that did not save their step: throws, recorded starts, cuts.
CREATE TABLE attempts (
  run        BIGINT NOT NULL,
  name       BYTEA NOT NULL,
  number     BIGINT NOT NULL,
  attempt    BIGINT NOT NULL,
  call_id    BYTEA NOT NULL,
  error      BYTEA,
  started_at BIGINT NOT NULL,
  ended_at   BIGINT NOT NULL,
  retry_at   BIGINT NOT NULL,
  again      BOOLEAN NOT NULL, -- of a start: an attempt had been started before it
  PRIMARY KEY (run, name, number, attempt)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- What a change of its run may still touch: a run of ten thousand steps that threw once has few of these.
CREATE INDEX attempts_open ON attempts (run) WHERE ended_at = 0 OR retry_at > 0;

-- Numbers that are drawn under a lock: whoever sees one sees all before it. The event of a higher position never shows before that of a
-- lower one, which a sequence can't promise.
CREATE TABLE counters (
  name  TEXT PRIMARY KEY,
  value BIGINT NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO counters (name, value) VALUES ('events', 0);

CREATE TABLE events (
  position   BIGINT PRIMARY KEY,
  env        BYTEA NOT NULL,
  name       BYTEA NOT NULL,
  id         BYTEA NOT NULL,
  payload    BYTEA,
  created_at BIGINT NOT NULL,
  runs       BIGINT NOT NULL
);
CREATE UNIQUE INDEX events_once ON events (env, name, id); -- W7
-- What a wait looks back to (E2). Its condition always holds; it is there so that who looks for one event by its id, and does not name it,
-- never reads all of that name by this index in place of the one above.
CREATE INDEX events_in_order ON events (env, name, position) WHERE position > 0;

-- Open waits. A row goes when its step has its entry; but an invoke's stays while its child lives. Most rows live once and die: the
-- table is vacuumed early, so that its indexes stay as small as what is open.
CREATE TABLE waits (
  id        BIGINT PRIMARY KEY, -- the order in which they were opened
  run       BIGINT NOT NULL,
  run_id    BYTEA NOT NULL,
  env       BYTEA NOT NULL,
  name      BYTEA NOT NULL,
  number    BIGINT NOT NULL,
  kind      TEXT NOT NULL CHECK (kind IN ('sleep', 'event', 'invoke', 'callback', 'cancel')),
  due_at    BIGINT NOT NULL,    -- 0: never by itself
  child     BYTEA NOT NULL,
  of_number BIGINT NOT NULL,
  event     BYTEA,              -- what a wait for an event asks of it
  after     BIGINT NOT NULL,    -- the last event that it does not look back to
  looked    BOOLEAN NOT NULL,
  orphan    BOOLEAN NOT NULL,   -- an invoke that nobody waits for any more: another may have its name
  come      BOOLEAN NOT NULL    -- what it waits for may be there: an invoke's child, or its own run, has ended; a callback was posted to
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX waits_once ON waits (run, name, number) WHERE NOT orphan;
CREATE INDEX waits_of_run ON waits (run, name, number);
CREATE INDEX waits_unlooked ON waits (id) WHERE NOT looked;
CREATE INDEX waits_kin ON waits (id) WHERE kind = 'invoke' AND (come OR orphan); -- whom somebody has to tell of an end
CREATE INDEX waits_children ON waits (child) WHERE kind = 'invoke'; -- who has to hear of a run's end
CREATE INDEX waits_posted ON waits (id) WHERE kind = 'callback' AND come; -- whom somebody has to tell of a post
CREATE SEQUENCE wait_ids;

-- How an event finds its waits: a row for each name that a wait names.
CREATE TABLE wait_events (
  env   BYTEA NOT NULL,
  event BYTEA NOT NULL,
  paths BYTEA NOT NULL, -- empty: whatever it holds
  key   BYTEA NOT NULL,
  wait  BIGINT NOT NULL,
  PRIMARY KEY (env, event, paths, key, wait)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX wait_events_of ON wait_events (wait);

-- The events that a run's waits have used (W7).
CREATE TABLE event_uses (
  run      BIGINT NOT NULL,
  position BIGINT NOT NULL,
  PRIMARY KEY (run, position)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE callbacks (
  token_hash BYTEA PRIMARY KEY,
  env        BYTEA NOT NULL,
  run        BIGINT NOT NULL,
  run_id     BYTEA NOT NULL,
  name       BYTEA NOT NULL,
  number     BIGINT NOT NULL,
  due_at     BIGINT NOT NULL,
  ended_at   BIGINT NOT NULL,
  payload    BYTEA
);
CREATE UNIQUE INDEX callbacks_once ON callbacks (run, name, number);

CREATE TABLE schedules (
  env        BYTEA NOT NULL,
  id         BYTEA NOT NULL,
  app        BYTEA NOT NULL,
  workflow   BYTEA NOT NULL,
  expression BYTEA NOT NULL,
  timezone   BYTEA NOT NULL,
  catch_up   BYTEA NOT NULL,
  payload    BYTEA,
  declared   BOOLEAN NOT NULL, -- by the app's manifest
  paused     BOOLEAN NOT NULL,
  version    BIGINT NOT NULL CHECK (version > 0),
  cursor_at  BIGINT NOT NULL,
  next_at    BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (env, id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at > 0 AND NOT paused;

-- Events that are to be emitted when they are due.
CREATE TABLE later_events (
  env     BYTEA NOT NULL,
  name    BYTEA NOT NULL,
  id      BYTEA NOT NULL,
  payload BYTEA,
  due_at  BIGINT NOT NULL,
  PRIMARY KEY (env, name, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX later_events_due ON later_events (due_at);

-- How far the server has come with what it goes through in order.
CREATE TABLE cursors (
  name     BYTEA PRIMARY KEY,
  owner    BYTEA NOT NULL,  -- who alone goes through it
  position BIGINT NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The servers that share the database, each of which writes its row every second.
CREATE TABLE nodes (
  id    BYTEA PRIMARY KEY,
  beat  BIGINT NOT NULL,
  state BYTEA
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Keys outlive what they stand for (K3, W8). Those of sends live as long as their run: rows come and go.
CREATE TABLE keys (
  env            BYTEA NOT NULL,
  kind           TEXT COLLATE "C" NOT NULL,
  scope          BYTEA NOT NULL,
  key            BYTEA NOT NULL,
  owner          BYTEA NOT NULL,
  hash           BYTEA NOT NULL,
  differs        BOOLEAN NOT NULL,
  answer         BYTEA,
  expires_at     BIGINT NOT NULL,
  owner_status   TEXT NOT NULL,   -- of a claim whose owner has been dropped: how it ended
  owner_ended_at BIGINT NOT NULL, -- and when
  lasts_ms       BIGINT NOT NULL, -- a claim is free so long after its owner's end; 0: it is not
  until_failed   BOOLEAN NOT NULL, -- it is free where its owner failed
  PRIMARY KEY (env, kind, scope, key)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX keys_expiry ON keys (expires_at) WHERE expires_at > 0;
CREATE INDEX claims_owner ON keys (owner) WHERE kind = 'claim';
CREATE INDEX keys_differing ON keys (env, kind, scope, key) WHERE differs; -- a step may have sent ten thousand times

CREATE TABLE apps (
  env         BYTEA NOT NULL,
  name        BYTEA NOT NULL,
  url         BYTEA NOT NULL,
  private     BOOLEAN NOT NULL,
  concurrency BIGINT NOT NULL,
  manifest    BYTEA,
  hash        BYTEA NOT NULL,
  seen_at     BIGINT NOT NULL,
  gone        BYTEA NOT NULL,
  version     BIGINT NOT NULL,
  PRIMARY KEY (env, name)
) WITH (fillfactor = 50);

-- Requests to configured hooks. Positions are never used again: a cursor of a list stands for one. What was sent is kept out of line
-- where it is not small, so that lists don't read it.
CREATE TABLE deliveries (
  position      BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  id            BYTEA NOT NULL UNIQUE,
  env           BYTEA NOT NULL,
  hook          BYTEA NOT NULL,
  provider      BYTEA NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('verified', 'duplicate', 'rejected', 'unverified')),
  reason        BYTEA NOT NULL,
  provider_id   BYTEA NOT NULL,
  redelivery_of BYTEA NOT NULL,
  events        BYTEA NOT NULL,  -- JSON: what it emitted
  bytes         BIGINT NOT NULL, -- of its values
  received_at   BIGINT NOT NULL,
  rejected      BOOLEAN NOT NULL GENERATED ALWAYS AS (status = 'rejected') STORED,
  request       BYTEA,
  body          BYTEA
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX deliveries_kept ON deliveries (rejected, position) INCLUDE (received_at, bytes);

-- What servers may do with this store, in one row, or none: then it is theirs. A store that is moved here is incoming until all of it is,
-- and remembers by which move it came; one that was restored is held (N5).
CREATE TABLE phase (
  one   BOOLEAN PRIMARY KEY CHECK (one),
  phase TEXT NOT NULL CHECK (phase IN ('incoming', 'active', 'held')),
  move  BYTEA NOT NULL
);

-- Where these tables were when a server was last started on them, in one row: see sqlGoHome.
CREATE TABLE home (
  one     BOOLEAN PRIMARY KEY CHECK (one),
  place   TEXT NOT NULL,
  written TEXT NOT NULL,
  system  TEXT NOT NULL
);
