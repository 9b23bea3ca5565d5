-- The registry of queues and engines; each queue's pair of tables and the sequence of its ids.
CREATE TABLE hipq_meta (                -- one row
  version INTEGER NOT NULL,
  accepts INTEGER NOT NULL,             -- the oldest program that works on this schema
  identity TEXT NOT NULL DEFAULT gen_random_uuid()::text, -- tells a user's connection to another database apart
  place TEXT NOT NULL DEFAULT '{}'      -- where this was when it was made, or when `hipq restored` ran last
);
CREATE TABLE hipq_queues (
  number INTEGER PRIMARY KEY CHECK (number BETWEEN 1 AND 65535),
  app TEXT NOT NULL,
  name TEXT NOT NULL,
  "table" TEXT NOT NULL UNIQUE,
  schema INTEGER NOT NULL,              -- what its tables have had: less than the database if an older program added it
  rules TEXT NOT NULL DEFAULT '{}',     -- limits, pauses: see hipq.limits.rules
  version BIGINT NOT NULL DEFAULT 0,    -- grows with every change of the rules: a claim names the one it knows
  admission TEXT NOT NULL DEFAULT '{}', -- what limits must remember from claim to claim
  crons BIGINT NOT NULL DEFAULT 0,      -- how often its schedules were changed
  UNIQUE (app, name)
) WITH (fillfactor = 50);               -- its row, locked, is the queue's admission lock
-- The version as it is after waiting for whoever changes the rules, who waits in turn for the transaction this was called
-- in: so what is claimed without the admission lock is counted by the first who claims with it. Volatile, in plpgsql: it
-- reads what was committed while it waited, which the statement that calls it does not.
CREATE FUNCTION hipq_version(queue INTEGER) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1751740529, queue);  -- 'hipq'
  RETURN (SELECT version FROM hipq_queues WHERE number = queue);
END $$;
CREATE TABLE hipq_engines (
  engine_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  lease_until TIMESTAMPTZ NOT NULL,     -- on clock_timestamp(): now() stands still while a transaction waits
  label TEXT NOT NULL,
  serves TEXT NOT NULL DEFAULT '{}',    -- the job types it has code for, by queue
  version TEXT NOT NULL DEFAULT '',     -- hipq's, as it runs there
  since BIGINT NOT NULL DEFAULT 0       -- when it took the lease; 0 = that is not known
) WITH (fillfactor = 50);
-- Who may ask a queue's throttler, until when; a new number each time, so that a late answer is told from a fresh one.
CREATE TABLE hipq_tickets (
  queue INTEGER PRIMARY KEY,
  number BIGINT NOT NULL,
  engine_id BIGINT NOT NULL,
  until TIMESTAMPTZ NOT NULL,
  note TEXT NOT NULL DEFAULT ''         -- what went wrong the last time
) WITH (fillfactor = 50);
CREATE TABLE hipq_crons (
  queue INTEGER NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  job_type TEXT COLLATE "C" NOT NULL,
  definition TEXT NOT NULL,             -- what the code says, and what an operator does: see hipq.job.schedule
  since BIGINT NOT NULL,                -- when its ticks began to count
  last BIGINT NOT NULL,                 -- the tick that was looked at last, or 0
  next BIGINT NOT NULL,                 -- the tick after that; 0 = it is paused
  version BIGINT NOT NULL,              -- of its definition: the value of hipq_queues.crons after that changed
  PRIMARY KEY (queue, name)
) WITH (fillfactor = 50);
-- What was changed since an engine looked.
CREATE INDEX hipq_crons_version ON hipq_crons (queue, version);
-- Payloads too large to be copied each time their job moves; the row's job_data is '' then.
CREATE TABLE hipq_payloads (
  id BIGINT PRIMARY KEY,
  data TEXT NOT NULL
);
-- How far jobs have come, as their handlers say: beside the jobs, so that it costs the others nothing.
CREATE TABLE hipq_progress (
  id BIGINT PRIMARY KEY,
  attempt BIGINT NOT NULL,              -- the attempt that said it: of an earlier one it is not shown
  fraction DOUBLE PRECISION NOT NULL,
  message TEXT NOT NULL,
  at BIGINT NOT NULL
) WITH (fillfactor = 50);
-- Answers that came, whatever became of them. The state says that: see hipq.job.answer.
CREATE TABLE hipq_answers (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- in the order they came
  queue INTEGER NOT NULL,
  tenant TEXT COLLATE "C" NOT NULL DEFAULT '',
  job_type TEXT COLLATE "C" NOT NULL,
  job_key TEXT COLLATE "C" NOT NULL,
  answer_id TEXT COLLATE "C" NOT NULL DEFAULT '',              -- what its sender calls it, or ''
  twin BIGINT NOT NULL DEFAULT 0,                 -- a number that those with the same key and id share, or 0
  hash TEXT COLLATE "C" NOT NULL DEFAULT '',                   -- of its body
  data TEXT NOT NULL DEFAULT 'null',
  error INTEGER NOT NULL DEFAULT 0,
  attempt BIGINT NOT NULL DEFAULT 0,             -- the attempt it says it is an answer to, or 0
  state TEXT COLLATE "C" NOT NULL DEFAULT 'new',
  job BIGINT NOT NULL DEFAULT 0,                 -- the job it belongs to, or 0
  arrived BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  early_until BIGINT NOT NULL DEFAULT 0,         -- a job that was added later does not take it
  remember_until BIGINT NOT NULL DEFAULT 0,      -- until then its id is known, once it was used
  keep_until BIGINT NOT NULL DEFAULT 9223372036854775807,
  copies BIGINT NOT NULL DEFAULT 1,              -- how often it came
  note TEXT NOT NULL DEFAULT ''
) WITH (
  fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
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
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- in the order it happened
  at BIGINT NOT NULL,
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
  starts BIGINT NOT NULL,               -- when the period begins
  job_type TEXT COLLATE "C" NOT NULL,   -- '' = of types that are not counted apart
  writer INTEGER NOT NULL DEFAULT 0,    -- the server's process that has counted, so that no row is everybody's; or 0
  -- Runs, where they began; jobs that ended, by code; attempts after which a job is to run again. Then how many runs,
  -- and answers, took less than 1 ms (_0), 3 ms, 10 ms, and so on; the last, 100000 seconds or more.
  started BIGINT NOT NULL DEFAULT 0, ok BIGINT NOT NULL DEFAULT 0, failed BIGINT NOT NULL DEFAULT 0,
  retry BIGINT NOT NULL DEFAULT 0, error BIGINT NOT NULL DEFAULT 0, cancelled BIGINT NOT NULL DEFAULT 0,
  retried BIGINT NOT NULL DEFAULT 0, run_0 BIGINT NOT NULL DEFAULT 0, run_1 BIGINT NOT NULL DEFAULT 0,
  run_2 BIGINT NOT NULL DEFAULT 0, run_3 BIGINT NOT NULL DEFAULT 0, run_4 BIGINT NOT NULL DEFAULT 0,
  run_5 BIGINT NOT NULL DEFAULT 0, run_6 BIGINT NOT NULL DEFAULT 0, run_7 BIGINT NOT NULL DEFAULT 0,
  run_8 BIGINT NOT NULL DEFAULT 0, run_9 BIGINT NOT NULL DEFAULT 0, run_10 BIGINT NOT NULL DEFAULT 0,
  run_11 BIGINT NOT NULL DEFAULT 0, run_12 BIGINT NOT NULL DEFAULT 0, run_13 BIGINT NOT NULL DEFAULT 0,
  run_14 BIGINT NOT NULL DEFAULT 0, run_15 BIGINT NOT NULL DEFAULT 0, run_16 BIGINT NOT NULL DEFAULT 0,
  run_17 BIGINT NOT NULL DEFAULT 0, answer_0 BIGINT NOT NULL DEFAULT 0, answer_1 BIGINT NOT NULL DEFAULT 0,
  answer_2 BIGINT NOT NULL DEFAULT 0, answer_3 BIGINT NOT NULL DEFAULT 0, answer_4 BIGINT NOT NULL DEFAULT 0,
  answer_5 BIGINT NOT NULL DEFAULT 0, answer_6 BIGINT NOT NULL DEFAULT 0, answer_7 BIGINT NOT NULL DEFAULT 0,
  answer_8 BIGINT NOT NULL DEFAULT 0, answer_9 BIGINT NOT NULL DEFAULT 0, answer_10 BIGINT NOT NULL DEFAULT 0,
  answer_11 BIGINT NOT NULL DEFAULT 0, answer_12 BIGINT NOT NULL DEFAULT 0, answer_13 BIGINT NOT NULL DEFAULT 0,
  answer_14 BIGINT NOT NULL DEFAULT 0, answer_15 BIGINT NOT NULL DEFAULT 0, answer_16 BIGINT NOT NULL DEFAULT 0,
  answer_17 BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, grain, starts, job_type, writer)
) WITH (
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
-- Add to the counters of minutes, in the transaction that saves what is counted. Each connection has rows of its own, so
-- nobody waits for anybody: who is first would hold the row until its commit. A function, since what is done here is
-- planned once for a connection, and not with each statement of each queue.
CREATE FUNCTION hipq_count(counts JSON) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO hipq_activity AS old (
    queue, starts, job_type, writer,
    started, ok, failed, retry, error, cancelled, retried, run_0, run_1, run_2, run_3, run_4, run_5, run_6, run_7,
    run_8, run_9, run_10, run_11, run_12, run_13, run_14, run_15, run_16, run_17, answer_0, answer_1, answer_2,
    answer_3, answer_4, answer_5, answer_6, answer_7, answer_8, answer_9, answer_10, answer_11, answer_12, answer_13,
    answer_14, answer_15, answer_16, answer_17
  )
  SELECT new.queue, new.starts, new.job_type, pg_backend_pid(),
    coalesce(new.started, 0), coalesce(new.ok, 0), coalesce(new.failed, 0), coalesce(new.retry, 0),
    coalesce(new.error, 0), coalesce(new.cancelled, 0), coalesce(new.retried, 0), coalesce(new.run_0, 0),
    coalesce(new.run_1, 0), coalesce(new.run_2, 0), coalesce(new.run_3, 0), coalesce(new.run_4, 0),
    coalesce(new.run_5, 0), coalesce(new.run_6, 0), coalesce(new.run_7, 0), coalesce(new.run_8, 0),
    coalesce(new.run_9, 0), coalesce(new.run_10, 0), coalesce(new.run_11, 0), coalesce(new.run_12, 0),
    coalesce(new.run_13, 0), coalesce(new.run_14, 0), coalesce(new.run_15, 0), coalesce(new.run_16, 0),
    coalesce(new.run_17, 0), coalesce(new.answer_0, 0), coalesce(new.answer_1, 0), coalesce(new.answer_2, 0),
    coalesce(new.answer_3, 0), coalesce(new.answer_4, 0), coalesce(new.answer_5, 0), coalesce(new.answer_6, 0),
    coalesce(new.answer_7, 0), coalesce(new.answer_8, 0), coalesce(new.answer_9, 0), coalesce(new.answer_10, 0),
    coalesce(new.answer_11, 0), coalesce(new.answer_12, 0), coalesce(new.answer_13, 0), coalesce(new.answer_14, 0),
    coalesce(new.answer_15, 0), coalesce(new.answer_16, 0), coalesce(new.answer_17, 0)
  FROM json_to_recordset(counts) AS new (
    queue INTEGER, starts BIGINT, job_type TEXT,
    started BIGINT, ok BIGINT, failed BIGINT, retry BIGINT, error BIGINT, cancelled BIGINT, retried BIGINT, run_0
    BIGINT, run_1 BIGINT, run_2 BIGINT, run_3 BIGINT, run_4 BIGINT, run_5 BIGINT, run_6 BIGINT, run_7 BIGINT, run_8
    BIGINT, run_9 BIGINT, run_10 BIGINT, run_11 BIGINT, run_12 BIGINT, run_13 BIGINT, run_14 BIGINT, run_15 BIGINT,
    run_16 BIGINT, run_17 BIGINT, answer_0 BIGINT, answer_1 BIGINT, answer_2 BIGINT, answer_3 BIGINT, answer_4 BIGINT,
    answer_5 BIGINT, answer_6 BIGINT, answer_7 BIGINT, answer_8 BIGINT, answer_9 BIGINT, answer_10 BIGINT, answer_11
    BIGINT, answer_12 BIGINT, answer_13 BIGINT, answer_14 BIGINT, answer_15 BIGINT, answer_16 BIGINT, answer_17 BIGINT
  )
  ON CONFLICT (queue, grain, starts, job_type, writer) DO UPDATE SET
    started = old.started + excluded.started, ok = old.ok + excluded.ok, failed = old.failed + excluded.failed, retry
    = old.retry + excluded.retry, error = old.error + excluded.error, cancelled = old.cancelled + excluded.cancelled,
    retried = old.retried + excluded.retried, run_0 = old.run_0 + excluded.run_0, run_1 = old.run_1 + excluded.run_1,
    run_2 = old.run_2 + excluded.run_2, run_3 = old.run_3 + excluded.run_3, run_4 = old.run_4 + excluded.run_4, run_5
    = old.run_5 + excluded.run_5, run_6 = old.run_6 + excluded.run_6, run_7 = old.run_7 + excluded.run_7, run_8 =
    old.run_8 + excluded.run_8, run_9 = old.run_9 + excluded.run_9, run_10 = old.run_10 + excluded.run_10, run_11 =
    old.run_11 + excluded.run_11, run_12 = old.run_12 + excluded.run_12, run_13 = old.run_13 + excluded.run_13, run_14
    = old.run_14 + excluded.run_14, run_15 = old.run_15 + excluded.run_15, run_16 = old.run_16 + excluded.run_16,
    run_17 = old.run_17 + excluded.run_17, answer_0 = old.answer_0 + excluded.answer_0, answer_1 = old.answer_1 +
    excluded.answer_1, answer_2 = old.answer_2 + excluded.answer_2, answer_3 = old.answer_3 + excluded.answer_3,
    answer_4 = old.answer_4 + excluded.answer_4, answer_5 = old.answer_5 + excluded.answer_5, answer_6 = old.answer_6
    + excluded.answer_6, answer_7 = old.answer_7 + excluded.answer_7, answer_8 = old.answer_8 + excluded.answer_8,
    answer_9 = old.answer_9 + excluded.answer_9, answer_10 = old.answer_10 + excluded.answer_10, answer_11 =
    old.answer_11 + excluded.answer_11, answer_12 = old.answer_12 + excluded.answer_12, answer_13 = old.answer_13 +
    excluded.answer_13, answer_14 = old.answer_14 + excluded.answer_14, answer_15 = old.answer_15 +
    excluded.answer_15, answer_16 = old.answer_16 + excluded.answer_16, answer_17 = old.answer_17 + excluded.answer_17;
END $$;
-- The highest number a dropped queue had: ids contain it and may be written down anywhere, so it is not given again.
CREATE TABLE hipq_dropped (highest INTEGER NOT NULL);
INSERT INTO hipq_dropped VALUES (0);

-- :each-queue
CREATE SEQUENCE {live}_ids MAXVALUE 140737488355327;  -- an id is this and 16 bits more
-- Names and keys are compared as bytes (COLLATE "C"): by the rules of a language each index entry costs far more. The
-- defaults are what every new job has: a program in another language names the other columns (docs/tables.md).
CREATE TABLE {live} (
  id BIGINT PRIMARY KEY,
  tenant TEXT COLLATE "C" NOT NULL DEFAULT '',
  lane TEXT COLLATE "C" NOT NULL DEFAULT '',
  job_type TEXT COLLATE "C" NOT NULL,
  job_key TEXT COLLATE "C" NOT NULL,
  job_data TEXT NOT NULL DEFAULT 'null',
  state TEXT NOT NULL DEFAULT 'initial',
  phase TEXT NOT NULL DEFAULT 'scheduled',
  rank TEXT COLLATE "C" NOT NULL DEFAULT '',  -- where it stands in its queue: see hipq.job.order
  priority BIGINT NOT NULL DEFAULT 100,
  throttle_factor BIGINT NOT NULL DEFAULT 1000,  -- what it takes of limits, in thousandths of a unit: 1000 is one
  held BIGINT NOT NULL DEFAULT 0,
  time_windows TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  timeout DOUBLE PRECISION NOT NULL DEFAULT 86400,
  scheduled_run_time BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  deadline BIGINT NOT NULL DEFAULT 0,
  wait TEXT NOT NULL DEFAULT '',        -- what is agreed for its wait: see hipq.job.waiting
  wait_key TEXT COLLATE "C" NOT NULL DEFAULT '',  -- the key of its wait, under which answers find it, too
  attempt BIGINT NOT NULL DEFAULT 0,
  failures BIGINT NOT NULL DEFAULT 0,
  crashes BIGINT NOT NULL DEFAULT 0,
  owner BIGINT NOT NULL DEFAULT 0,
  token BIGINT NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT 'NONE',
  code TEXT NOT NULL DEFAULT 'NONE',
  exitcode BIGINT NOT NULL DEFAULT 0,
  result TEXT NOT NULL DEFAULT '',
  meta TEXT NOT NULL DEFAULT '{}',      -- what it was added with for the engine, not for its handler: see hipq.job.meta
  history TEXT NOT NULL DEFAULT '[]',
  create_time BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  update_time BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  CONSTRAINT {live}_states CHECK (((state = 'initial' AND phase IN ('scheduled', 'ready', 'parked') AND error = 'NONE') OR (state = 'running' AND phase IN ('executing', 'waiting', 'answered', 'cancelling') AND error = 'NONE') OR (state = 'error' AND phase IN ('deciding') AND error <> 'NONE') OR (state = 'retry' AND phase IN ('scheduled', 'ready', 'parked') AND error <> 'NONE')) AND code IN ('NONE', 'ok', 'failed', 'retry', 'error', 'cancelled') AND attempt >= 0 AND throttle_factor >= 1),
  -- Other programs write these columns, too: what an engine could not read would stop it.
  CONSTRAINT {live}_values CHECK ((scheduled_run_time > 0 OR phase <> 'scheduled') AND timeout > 0 AND timeout <= 3155760000
    AND priority BETWEEN -2147483648 AND 2147483647 AND scheduled_run_time <= 253402300799000000
    AND create_time BETWEEN 0 AND 253402300799000000 AND throttle_factor <= 1000000000
    AND ((owner = 0 AND held = 0) OR phase NOT IN ('scheduled', 'ready', 'parked')))
) WITH (
  fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
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
  job_type, (coalesce(CASE WHEN phase = 'deciding' THEN meta::jsonb #>> '{retry,registered}' END, '')), id
) WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0;
-- What the handler of another job has added, by that one: other jobs are not in here, and pay nothing for it.
CREATE INDEX {live}_parent ON {live} ((substring(meta, '[0-9]+')::numeric), id) WHERE substr(meta, 1, 10) = '{"parent":';
CREATE TABLE {final} (
  id BIGINT PRIMARY KEY,
  tenant TEXT COLLATE "C" NOT NULL,
  lane TEXT COLLATE "C" NOT NULL,
  job_type TEXT COLLATE "C" NOT NULL,
  job_key TEXT COLLATE "C" NOT NULL,
  job_data TEXT NOT NULL,
  state TEXT NOT NULL,
  phase TEXT NOT NULL,
  rank TEXT COLLATE "C" NOT NULL,       -- where it stands in its queue: see hipq.job.order
  priority BIGINT NOT NULL,
  throttle_factor BIGINT NOT NULL,
  held BIGINT NOT NULL,
  time_windows TEXT NOT NULL,
  timeout DOUBLE PRECISION NOT NULL,
  scheduled_run_time BIGINT NOT NULL,
  deadline BIGINT NOT NULL,
  wait TEXT NOT NULL,
  wait_key TEXT COLLATE "C" NOT NULL DEFAULT '',
  attempt BIGINT NOT NULL,
  failures BIGINT NOT NULL,
  crashes BIGINT NOT NULL,
  owner BIGINT NOT NULL,
  token BIGINT NOT NULL,
  error TEXT NOT NULL,
  code TEXT NOT NULL,
  exitcode BIGINT NOT NULL,
  result TEXT NOT NULL,
  meta TEXT NOT NULL DEFAULT '{}',
  history TEXT NOT NULL,
  create_time BIGINT NOT NULL,
  update_time BIGINT NOT NULL,
  CONSTRAINT {final}_states CHECK (((state = 'final' AND phase IN ('done'))) AND code IN ('NONE', 'ok', 'failed', 'retry', 'error', 'cancelled') AND attempt >= 0 AND throttle_factor >= 1)
);
CREATE INDEX {final}_key ON {final} (job_key, job_type, update_time);  -- the last one that had a key
CREATE INDEX {final}_waited ON {final} (wait_key, job_type, tenant, update_time) WHERE wait_key <> '';
CREATE INDEX {final}_time ON {final} (update_time);
-- What did not succeed is looked for, and is rare: jobs that did cost these nothing.
CREATE INDEX {final}_code ON {final} (code, id) WHERE code <> 'ok';
CREATE INDEX {final}_failed ON {final} (update_time) WHERE error <> 'NONE' AND code <> 'cancelled';
CREATE INDEX {final}_parent ON {final} ((substring(meta, '[0-9]+')::numeric), id) WHERE substr(meta, 1, 10) = '{"parent":';
