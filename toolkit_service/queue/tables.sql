-- The queue's tables; the first start makes them.

-- Messages that still have to be delivered. A row is deleted in the transaction that records its outcome.
-- `joins_at` and `seq` are the place of a message in its named queue.
CREATE TABLE IF NOT EXISTS messages (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  due_at INTEGER NOT NULL,
  retried INTEGER NOT NULL DEFAULT 0,
  run_id TEXT,
  flow_key TEXT,
  about TEXT,
  event_id TEXT,
  spec BLOB NOT NULL,
  queue TEXT,
  joins_at INTEGER
);
CREATE INDEX IF NOT EXISTS messages_due ON messages (queue, due_at, seq);
CREATE INDEX IF NOT EXISTS messages_queue ON messages (queue, joins_at, seq) WHERE queue IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_run ON messages (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_about ON messages (about) WHERE about IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_event ON messages (event_id) WHERE event_id IS NOT NULL;

-- Further pending messages of a run that failed, until it is resumed.
CREATE TABLE IF NOT EXISTS parked (
  run_id TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  spec BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS parked_run ON parked (run_id);

-- Until when deliveries count against the rate of their key.
CREATE TABLE IF NOT EXISTS rates (flow_key TEXT NOT NULL, until INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS rates_until ON rates (until);

-- Events that arrived for a run before it waited for them.
CREATE TABLE IF NOT EXISTS notifications (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL,
  event_id TEXT NOT NULL,
  body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS notifications_run ON notifications (run_id, event_id);

CREATE TABLE IF NOT EXISTS deduplication (
  name TEXT PRIMARY KEY,
  message_id TEXT NOT NULL,
  expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deduplication_expiry ON deduplication (expires_at);

-- Events of messages, in order.
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  run_id TEXT,
  state TEXT NOT NULL,
  url TEXT NOT NULL,
  entry TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_message ON events (message_id);
CREATE INDEX IF NOT EXISTS events_time ON events (time);

-- The DLQ. `entry` is the JSON of listings, without the state; `message` is null when filled in.
CREATE TABLE IF NOT EXISTS dlq (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  workflow INTEGER NOT NULL,
  entered_at INTEGER NOT NULL,
  created_at INTEGER,
  workflow_url TEXT,
  run_id TEXT,
  workflow_created_at INTEGER,
  state TEXT,
  caller_ip TEXT,
  flow_key TEXT,
  entry TEXT NOT NULL,
  message BLOB
);
CREATE INDEX IF NOT EXISTS dlq_order ON dlq (workflow, entered_at, seq, created_at);
CREATE INDEX IF NOT EXISTS dlq_run ON dlq (run_id) WHERE run_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS dlq_labels (
  dlq_seq INTEGER NOT NULL REFERENCES dlq (seq) ON DELETE CASCADE,
  label TEXT NOT NULL,
  PRIMARY KEY (dlq_seq, label)
) WITHOUT ROWID;

-- Workflow runs. `first` is the message that started it; null for those filled in, shown as `entry` is.
-- `invoker` is the step that is added to the run that invoked it when it ends.
CREATE TABLE IF NOT EXISTS runs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  url TEXT,
  state TEXT,
  created_at INTEGER NOT NULL,
  completed_at INTEGER,
  dlq_id TEXT,
  labels TEXT NOT NULL DEFAULT '[]',
  caller_ip TEXT,
  flow_key TEXT,
  first BLOB,
  invoker BLOB,
  entry TEXT
);
CREATE INDEX IF NOT EXISTS runs_order ON runs (created_at, seq);
CREATE TABLE IF NOT EXISTS steps (
  run_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  name TEXT,
  body BLOB NOT NULL,
  PRIMARY KEY (run_id, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS steps_name ON steps (run_id, name) WHERE name IS NOT NULL;
CREATE INDEX IF NOT EXISTS steps_message ON steps (message_id);

CREATE TABLE IF NOT EXISTS queues (
  name TEXT PRIMARY KEY,
  parallelism INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Keys of flow control that are paused, or whose limits are pinned.
CREATE TABLE IF NOT EXISTS flow_keys (
  flow_key TEXT PRIMARY KEY,
  paused INTEGER NOT NULL,
  parallelism INTEGER,
  rate INTEGER,
  period_ms INTEGER
) WITHOUT ROWID;

-- Schedules: `spec` is published again at `next_at`; `last_messages` are the ids of what it made last, as JSON.
CREATE TABLE IF NOT EXISTS schedules (
  id TEXT PRIMARY KEY,
  cron TEXT NOT NULL,
  destination TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  next_at INTEGER,
  last_at INTEGER,
  last_messages TEXT,
  error TEXT,
  caller_ip TEXT NOT NULL,
  spec BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS schedules_due ON schedules (next_at) WHERE NOT paused;

-- URL groups (topics) and their endpoints, in order. A name is that of one endpoint; without one, the URL is its name.
CREATE TABLE IF NOT EXISTS url_groups (
  name TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS endpoints (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  topic TEXT NOT NULL REFERENCES url_groups (name) ON DELETE CASCADE,
  url TEXT NOT NULL,
  name TEXT,
  UNIQUE (topic, name)
);
CREATE UNIQUE INDEX IF NOT EXISTS endpoints_without_name ON endpoints (topic, url) WHERE name IS NULL;

-- Small values that must survive a restart: signing keys, the key of cursors, the version of these tables.
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
