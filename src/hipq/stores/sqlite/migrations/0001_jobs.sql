-- The registry of queues, engines and ids; each queue's pair of tables.
CREATE TABLE hipq_queues (
  number INTEGER PRIMARY KEY CHECK (number BETWEEN 1 AND 65535),
  app TEXT NOT NULL,
  name TEXT NOT NULL,
  "table" TEXT NOT NULL UNIQUE,
  schema INTEGER NOT NULL,              -- what its tables have had: less than the database if an older program added it
  last_id INTEGER NOT NULL DEFAULT 0,   -- the sequence of ids: never goes back, also after a prune
  rules TEXT NOT NULL DEFAULT '{}',     -- limits, pauses: see hipq.limits.rules
  admission TEXT NOT NULL DEFAULT '{}', -- what limits must remember from claim to claim
  crons INTEGER NOT NULL DEFAULT 0,     -- how often its schedules were changed
  UNIQUE (app, name)
);
CREATE TABLE hipq_engines (
  engine_id INTEGER PRIMARY KEY AUTOINCREMENT,
  lease_until INTEGER NOT NULL,         -- on the machine's steady clock, which no clock step moves
  boot TEXT NOT NULL,                   -- a lease of an earlier boot is dead
  label TEXT NOT NULL,
  serves TEXT NOT NULL DEFAULT '{}',    -- the job types it has code for, by queue
  version TEXT NOT NULL DEFAULT '',     -- hipq's, as it runs there
  since INTEGER NOT NULL DEFAULT 0      -- when it took the lease; 0 = that is not known
);
-- Who may ask a queue's throttler, until when; a new number each time, so that a late answer is told from a fresh one.
CREATE TABLE hipq_tickets (
  queue INTEGER PRIMARY KEY,
  number INTEGER NOT NULL,
  engine_id INTEGER NOT NULL,
  until INTEGER NOT NULL,               -- on the machine's steady clock, as leases
  boot TEXT NOT NULL,
  note TEXT NOT NULL DEFAULT ''         -- what went wrong the last time
);
CREATE TABLE hipq_crons (
  queue INTEGER NOT NULL,
  name TEXT NOT NULL,
  job_type TEXT NOT NULL,
  definition TEXT NOT NULL,             -- what the code says, and what an operator does: see hipq.job.schedule
  since INTEGER NOT NULL,               -- when its ticks began to count
  last INTEGER NOT NULL,                -- the tick that was looked at last, or 0
  next INTEGER NOT NULL,                -- the tick after that; 0 = it is paused
  version INTEGER NOT NULL,             -- of its definition: the value of hipq_queues.crons after that changed
  PRIMARY KEY (queue, name)
) WITHOUT ROWID;
-- What was changed since an engine looked.
CREATE INDEX hipq_crons_version ON hipq_crons (queue, version);
-- Payloads too large to be copied each time their job moves; the row's job_data is '' then.
CREATE TABLE hipq_payloads (
  id INTEGER PRIMARY KEY,
  data TEXT NOT NULL
);
-- How far jobs have come, as their handlers say: beside the jobs, so that it costs the others nothing.
CREATE TABLE hipq_progress (
  id INTEGER PRIMARY KEY,
  attempt INTEGER NOT NULL,             -- the attempt that said it: of an earlier one it is not shown
  fraction REAL NOT NULL,
  message TEXT NOT NULL,
  at INTEGER NOT NULL
);
-- Answers that came, whatever became of them. The state says that: see hipq.job.answer.
CREATE TABLE hipq_answers (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order they came; never used again, also after a prune
  queue INTEGER NOT NULL,
  tenant TEXT NOT NULL DEFAULT '',
  job_type TEXT NOT NULL,
  job_key TEXT NOT NULL,
  answer_id TEXT NOT NULL DEFAULT '',              -- what its sender calls it, or ''
  twin INTEGER NOT NULL DEFAULT 0,                -- a number that those with the same key and id share, or 0
  hash TEXT NOT NULL DEFAULT '',                   -- of its body
  data TEXT NOT NULL DEFAULT 'null',
  error INTEGER NOT NULL DEFAULT 0,
  attempt INTEGER NOT NULL DEFAULT 0,             -- the attempt it says it is an answer to, or 0
  state TEXT NOT NULL DEFAULT 'new',
  job INTEGER NOT NULL DEFAULT 0,                 -- the job it belongs to, or 0
  arrived INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
  early_until INTEGER NOT NULL DEFAULT 0,         -- a job that was added later does not take it
  remember_until INTEGER NOT NULL DEFAULT 0,      -- until then its id is known, once it was used
  keep_until INTEGER NOT NULL DEFAULT 9223372036854775807,
  copies INTEGER NOT NULL DEFAULT 1,              -- how often it came
  note TEXT NOT NULL DEFAULT '',
  CHECK (typeof(queue) = 'integer' AND typeof(error) = 'integer' AND typeof(attempt) = 'integer'
    AND typeof(arrived) = 'integer' AND typeof(early_until) = 'integer' AND typeof(remember_until) = 'integer'
    AND typeof(keep_until) = 'integer' AND typeof(tenant) = 'text' AND typeof(job_type) = 'text'
    AND typeof(job_key) = 'text' AND typeof(answer_id) = 'text' AND typeof(data) = 'text')
);
-- The same answer again, by its id;
CREATE INDEX hipq_answers_ids ON hipq_answers (twin) WHERE twin <> 0;
-- what a program in another language has brought (docs/tables.md), and an engine has not looked at yet;
CREATE INDEX hipq_answers_new ON hipq_answers (queue, id) WHERE state = 'new';
-- what a job that begins to wait looks for;
CREATE INDEX hipq_answers_open ON hipq_answers (job_key, job_type, queue, tenant, id) WHERE state = 'buffered';
-- what nobody has used, for people to look at, newest first;
CREATE INDEX hipq_answers_unused ON hipq_answers (queue, state, id)
  WHERE state IN ('new', 'buffered', 'conflict', 'late', 'unreadable', 'duplicate');
-- and by key, of whatever job type (the second condition keeps it from being read whole, for want of a key);
CREATE INDEX hipq_answers_key ON hipq_answers (job_key, id)
  WHERE state IN ('new', 'buffered', 'conflict', 'late', 'unreadable', 'duplicate')
  AND job_key <> '';
-- what belongs to a job;
CREATE INDEX hipq_answers_job ON hipq_answers (job, state, hash) WHERE job <> 0;
-- of that, what came before its job began to wait: hardly ever anything;
CREATE INDEX hipq_answers_early ON hipq_answers (queue, job) WHERE state = 'buffered' AND job <> 0;
-- what need not be kept any longer.
CREATE INDEX hipq_answers_time ON hipq_answers (keep_until);
-- What people did by hand, and what they were refused: see hipq.stores.audit.
CREATE TABLE hipq_audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order it happened
  at INTEGER NOT NULL,
  who TEXT NOT NULL,
  role TEXT NOT NULL,
  via TEXT NOT NULL,  -- command, api or dashboard
  address TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  details TEXT NOT NULL DEFAULT '{}'
);
-- What need not be kept any longer.
CREATE INDEX hipq_audit_time ON hipq_audit (at);
-- What has happened, counted by queue, period and job type, in the transactions that change jobs: see hipq.job.activity.
CREATE TABLE hipq_activity (
  queue INTEGER NOT NULL,
  grain INTEGER NOT NULL DEFAULT 60,    -- the seconds of the period: minutes, which become hours, and those days
  starts INTEGER NOT NULL,              -- when the period begins
  job_type TEXT NOT NULL,               -- '' = of types that are not counted apart
  -- Runs, where they began; jobs that ended, by code; attempts after which a job is to run again. Then how many runs,
  -- and answers, took less than 1 ms (_0), 3 ms, 10 ms, and so on; the last, 100000 seconds or more.
  started INTEGER NOT NULL DEFAULT 0, ok INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  retry INTEGER NOT NULL DEFAULT 0, error INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0,
  retried INTEGER NOT NULL DEFAULT 0, run_0 INTEGER NOT NULL DEFAULT 0, run_1 INTEGER NOT NULL DEFAULT 0,
  run_2 INTEGER NOT NULL DEFAULT 0, run_3 INTEGER NOT NULL DEFAULT 0, run_4 INTEGER NOT NULL DEFAULT 0,
  run_5 INTEGER NOT NULL DEFAULT 0, run_6 INTEGER NOT NULL DEFAULT 0, run_7 INTEGER NOT NULL DEFAULT 0,
  run_8 INTEGER NOT NULL DEFAULT 0, run_9 INTEGER NOT NULL DEFAULT 0, run_10 INTEGER NOT NULL DEFAULT 0,
  run_11 INTEGER NOT NULL DEFAULT 0, run_12 INTEGER NOT NULL DEFAULT 0, run_13 INTEGER NOT NULL DEFAULT 0,
  run_14 INTEGER NOT NULL DEFAULT 0, run_15 INTEGER NOT NULL DEFAULT 0, run_16 INTEGER NOT NULL DEFAULT 0,
  run_17 INTEGER NOT NULL DEFAULT 0, answer_0 INTEGER NOT NULL DEFAULT 0, answer_1 INTEGER NOT NULL DEFAULT 0,
  answer_2 INTEGER NOT NULL DEFAULT 0, answer_3 INTEGER NOT NULL DEFAULT 0, answer_4 INTEGER NOT NULL DEFAULT 0,
  answer_5 INTEGER NOT NULL DEFAULT 0, answer_6 INTEGER NOT NULL DEFAULT 0, answer_7 INTEGER NOT NULL DEFAULT 0,
  answer_8 INTEGER NOT NULL DEFAULT 0, answer_9 INTEGER NOT NULL DEFAULT 0, answer_10 INTEGER NOT NULL DEFAULT 0,
  answer_11 INTEGER NOT NULL DEFAULT 0, answer_12 INTEGER NOT NULL DEFAULT 0, answer_13 INTEGER NOT NULL DEFAULT 0,
  answer_14 INTEGER NOT NULL DEFAULT 0, answer_15 INTEGER NOT NULL DEFAULT 0, answer_16 INTEGER NOT NULL DEFAULT 0,
  answer_17 INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, grain, starts, job_type)
) WITHOUT ROWID;
-- The highest number a dropped queue had: ids contain it and may be written down anywhere, so it is not given again.
CREATE TABLE hipq_dropped (highest INTEGER NOT NULL);
INSERT INTO hipq_dropped VALUES (0);
-- Which file this was when it was made, or when `hipq restored` ran last: in another one it is a copy (see `place`).
CREATE TABLE hipq_place (place TEXT NOT NULL);
INSERT INTO hipq_place VALUES ('{}');

-- :each-queue
-- The defaults are what every new job has: a program in another language names the other columns (docs/tables.md).
CREATE TABLE {live} (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL DEFAULT '',
  lane TEXT NOT NULL DEFAULT '',
  job_type TEXT NOT NULL,
  job_key TEXT NOT NULL,
  job_data TEXT NOT NULL DEFAULT 'null',
  state TEXT NOT NULL DEFAULT 'initial',
  phase TEXT NOT NULL DEFAULT 'scheduled',
  rank TEXT NOT NULL DEFAULT '',        -- where it stands in its queue: see hipq.job.order
  priority INTEGER NOT NULL DEFAULT 100,
  throttle_factor INTEGER NOT NULL DEFAULT 1000,  -- what it takes of limits, in thousandths of a unit: 1000 is one
  held INTEGER NOT NULL DEFAULT 0,
  time_windows TEXT NOT NULL DEFAULT '[]',
  timeout REAL NOT NULL DEFAULT 86400,
  scheduled_run_time INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
  deadline INTEGER NOT NULL DEFAULT 0,
  wait TEXT NOT NULL DEFAULT '',
  wait_key TEXT NOT NULL DEFAULT '',    -- the key of its wait, under which answers find it, too
  attempt INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  crashes INTEGER NOT NULL DEFAULT 0,
  owner INTEGER NOT NULL DEFAULT 0,
  token INTEGER NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT 'NONE',
  code TEXT NOT NULL DEFAULT 'NONE',
  exitcode INTEGER NOT NULL DEFAULT 0,
  result TEXT NOT NULL DEFAULT '',
  meta TEXT NOT NULL DEFAULT '{}',      -- what it was added with for the engine, not for its handler: see hipq.job.meta
  history TEXT NOT NULL DEFAULT '[]',
  create_time INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
  update_time INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
  CONSTRAINT {live}_states CHECK (((state = 'initial' AND phase IN ('scheduled', 'ready', 'parked') AND error = 'NONE') OR (state = 'running' AND phase IN ('executing', 'waiting', 'answered', 'cancelling') AND error = 'NONE') OR (state = 'error' AND phase IN ('deciding') AND error <> 'NONE') OR (state = 'retry' AND phase IN ('scheduled', 'ready', 'parked') AND error <> 'NONE')) AND code IN ('NONE', 'ok', 'failed', 'retry', 'error', 'cancelled') AND attempt >= 0 AND throttle_factor >= 1),
  -- Other programs write these columns, too: what an engine could not read would stop it.
  CONSTRAINT {live}_values CHECK ((scheduled_run_time > 0 OR phase <> 'scheduled') AND timeout > 0 AND timeout <= 3155760000
    AND typeof(priority) = 'integer' AND typeof(throttle_factor) = 'integer' AND typeof(scheduled_run_time) = 'integer'
    AND typeof(create_time) = 'integer' AND typeof(job_type) = 'text' AND typeof(job_key) = 'text'
    AND typeof(job_data) = 'text' AND typeof(tenant) = 'text' AND typeof(lane) = 'text'
    AND typeof(time_windows) = 'text' AND typeof(meta) = 'text' AND json_valid(meta)
    AND priority BETWEEN -2147483648 AND 2147483647 AND scheduled_run_time <= 253402300799000000
    AND create_time BETWEEN 0 AND 253402300799000000 AND throttle_factor <= 1000000000
    AND ((owner = 0 AND held = 0) OR phase NOT IN ('scheduled', 'ready', 'parked')))
);
-- The key comes first: it tells rows apart, where tenant and type rarely do.
CREATE UNIQUE INDEX {live}_key ON {live} (job_key, job_type, tenant);
-- Few jobs have a wait with a key of its own: the others are not in these two indexes, and cost them nothing.
CREATE UNIQUE INDEX {live}_waited ON {live} (wait_key, job_type, tenant) WHERE wait_key <> '';
-- A claim group is what limits, windows and pauses cannot tell apart: a claim merges the heads of claim groups.
CREATE INDEX {live}_ready ON {live} (job_type, lane, time_windows, throttle_factor, rank, id) WHERE phase = 'ready';
CREATE INDEX {live}_parked ON {live} (rank, id) WHERE phase = 'parked';
CREATE INDEX {live}_stage ON {live} (scheduled_run_time) WHERE phase = 'scheduled';
CREATE INDEX {live}_wait ON {live} (deadline) WHERE phase = 'waiting';
CREATE INDEX {live}_owner ON {live} (owner, lane, held) WHERE owner <> 0 OR held <> 0;  -- also what sums of limits read
-- What has gone wrong before, or is to run again: few, as a rule. The state: those are counted without their rows.
CREATE INDEX {live}_retry ON {live} (code, id, state) WHERE error <> 'NONE' OR code <> 'NONE';
-- What waits for other code than a handler; of a job to be judged by a registered retry strategy also that one's name.
CREATE INDEX {live}_todo ON {live} (
  job_type, (coalesce(CASE WHEN phase = 'deciding' THEN json_extract(meta, '$.retry.registered') END, '')), id
) WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0;
-- What the handler of another job has added, by that one: other jobs are not in here, and pay nothing for it.
CREATE INDEX {live}_parent ON {live} (CAST(substr(meta, 11) AS INTEGER), id) WHERE substr(meta, 1, 10) = '{"parent":';
CREATE TABLE {final} (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  lane TEXT NOT NULL,
  job_type TEXT NOT NULL,
  job_key TEXT NOT NULL,
  job_data TEXT NOT NULL,
  state TEXT NOT NULL,
  phase TEXT NOT NULL,
  rank TEXT NOT NULL,                   -- where it stands in its queue: see hipq.job.order
  priority INTEGER NOT NULL,
  throttle_factor INTEGER NOT NULL,
  held INTEGER NOT NULL,
  time_windows TEXT NOT NULL,
  timeout REAL NOT NULL,
  scheduled_run_time INTEGER NOT NULL,
  deadline INTEGER NOT NULL,
  wait TEXT NOT NULL,
  wait_key TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  owner INTEGER NOT NULL,
  token INTEGER NOT NULL,
  error TEXT NOT NULL,
  code TEXT NOT NULL,
  exitcode INTEGER NOT NULL,
  result TEXT NOT NULL,
  meta TEXT NOT NULL DEFAULT '{}',
  history TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL,
  CONSTRAINT {final}_states CHECK (((state = 'final' AND phase IN ('done'))) AND code IN ('NONE', 'ok', 'failed', 'retry', 'error', 'cancelled') AND attempt >= 0 AND throttle_factor >= 1)
);
CREATE INDEX {final}_key ON {final} (job_key, job_type, update_time);  -- the last one that had a key
CREATE INDEX {final}_waited ON {final} (wait_key, job_type, tenant, update_time) WHERE wait_key <> '';
CREATE INDEX {final}_time ON {final} (update_time);
-- What did not succeed is looked for, and is rare: jobs that did cost these nothing.
CREATE INDEX {final}_code ON {final} (code, id) WHERE code <> 'ok';
CREATE INDEX {final}_failed ON {final} (update_time) WHERE error <> 'NONE' AND code <> 'cancelled';
CREATE INDEX {final}_parent ON {final} (CAST(substr(meta, 11) AS INTEGER), id) WHERE substr(meta, 1, 10) = '{"parent":';
