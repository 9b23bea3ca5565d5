-- The registry of queues and engines; each queue's pair of tables. Texts are compared as bytes, with their trailing spaces.
-- A table made here may be there already: what CREATE TABLE does is committed at once, and a migration may have been cut.
CREATE TABLE hipq_meta (                -- one row
  version INT NOT NULL,
  accepts INT NOT NULL,                 -- the oldest program that works on this schema
  identity VARCHAR(200) NOT NULL DEFAULT (UUID()), -- tells a user's connection to another database apart
  place LONGTEXT NOT NULL DEFAULT ('{}')  -- where this was when it was made, or when `hipq restored` ran last
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
CREATE TABLE hipq_queues (              -- a row, locked, is the queue's admission lock; who claims without limits shares it
  number INT NOT NULL PRIMARY KEY CHECK (number BETWEEN 1 AND 65535),
  app VARCHAR(100) NOT NULL,
  name VARCHAR(100) NOT NULL,
  "table" VARCHAR(64) NOT NULL,
  "schema" INT NOT NULL,                -- what its tables have had; 0 = they are not made yet, -1 = it is being dropped
  rules LONGTEXT NOT NULL DEFAULT ('{}'),     -- limits, pauses: see hipq.limits.rules
  admission LONGTEXT NOT NULL DEFAULT ('{}'), -- what limits must remember from claim to claim
  crons BIGINT NOT NULL DEFAULT 0,      -- how often its schedules were changed
  claims BIGINT NOT NULL DEFAULT 0,     -- how often jobs were claimed under limits: who writes this row collides with whoever else does
  UNIQUE KEY hipq_queues_table ("table"),
  UNIQUE KEY hipq_queues_name (app, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
CREATE TABLE hipq_engines (
  engine_id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  lease_until BIGINT NOT NULL,          -- on SYSDATE(6): NOW() stands still while a statement waits
  label LONGTEXT NOT NULL,
  serves LONGTEXT NOT NULL DEFAULT ('{}'),    -- the job types it has code for, by queue
  version VARCHAR(200) NOT NULL DEFAULT '',     -- hipq's, as it runs there
  since BIGINT NOT NULL DEFAULT 0       -- when it took the lease; 0 = that is not known
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- Who may ask a queue's throttler, until when; a new number each time, so that a late answer is told from a fresh one.
CREATE TABLE hipq_tickets (
  queue INT NOT NULL PRIMARY KEY,
  number BIGINT NOT NULL,
  engine_id BIGINT NOT NULL,
  until BIGINT NOT NULL,
  note LONGTEXT NOT NULL DEFAULT ('')   -- what went wrong the last time
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
CREATE TABLE hipq_crons (
  queue INT NOT NULL,
  name VARCHAR(500) NOT NULL,
  job_type VARCHAR(200) NOT NULL,
  definition LONGTEXT NOT NULL,         -- what the code says, and what an operator does: see hipq.job.schedule
  since BIGINT NOT NULL,                -- when its ticks began to count
  last BIGINT NOT NULL,                 -- the tick that was looked at last, or 0
  next BIGINT NOT NULL,                 -- the tick after that; 0 = it is paused
  version BIGINT NOT NULL,              -- of its definition: the value of hipq_queues.crons after that changed
  PRIMARY KEY (queue, name),
  KEY hipq_crons_version (queue, version) -- what was changed since an engine looked
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- Payloads too large to be copied each time their job moves; the row's job_data is '' then.
CREATE TABLE hipq_payloads (
  id BIGINT NOT NULL PRIMARY KEY,
  data LONGTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- How far jobs have come, as their handlers say: beside the jobs, so that it costs the others nothing.
CREATE TABLE hipq_progress (
  id BIGINT NOT NULL PRIMARY KEY,
  attempt BIGINT NOT NULL,              -- the attempt that said it: of an earlier one it is not shown
  fraction DOUBLE NOT NULL,
  message LONGTEXT NOT NULL,
  at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- The locks of keys, and that of who folds counters: a row that is written is locked until its transaction ends, on every
-- node of a cluster.
CREATE TABLE hipq_locks (
  number INT NOT NULL PRIMARY KEY,
  taken BIGINT NOT NULL DEFAULT 1
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
INSERT IGNORE INTO hipq_locks (number) VALUES (0);
-- What engines elsewhere are told: committed with what it tells of. Only the last few thousand are kept.
CREATE TABLE hipq_news (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  writer BIGINT NOT NULL,               -- who knows it already
  queue INT NOT NULL,
  rank VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  job BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- Answers that came, whatever became of them. The state says that: see hipq.job.answer.
CREATE TABLE hipq_answers (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,  -- in the order they came
  queue INT NOT NULL,
  tenant VARCHAR(64) NOT NULL DEFAULT '',
  job_type VARCHAR(200) NOT NULL,
  job_key VARCHAR(500) NOT NULL,
  answer_id LONGTEXT NOT NULL DEFAULT (''),       -- what its sender calls it, or ''
  twin BIGINT NOT NULL DEFAULT 0,                 -- a number that those with the same key and id share, or 0
  hash VARCHAR(200) NOT NULL DEFAULT '',          -- of its body
  data LONGTEXT NOT NULL DEFAULT ('null'),
  error INT NOT NULL DEFAULT 0,
  attempt BIGINT NOT NULL DEFAULT 0,              -- the attempt it says it is an answer to, or 0
  state VARCHAR(20) NOT NULL DEFAULT 'new',
  job BIGINT NOT NULL DEFAULT 0,                  -- the job it belongs to, or 0
  arrived BIGINT NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)),
  early_until BIGINT NOT NULL DEFAULT 0,          -- a job that was added later does not take it
  remember_until BIGINT NOT NULL DEFAULT 0,       -- until then its id is known, once it was used
  keep_until BIGINT NOT NULL DEFAULT 9223372036854775807,
  copies BIGINT NOT NULL DEFAULT 1,               -- how often it came
  note LONGTEXT NOT NULL DEFAULT (''),
  -- There are no partial indexes: what few rows have is in columns that others leave NULL.
  open_key VARCHAR(500) AS (CASE WHEN state = 'buffered' THEN job_key END) STORED,
  early_job BIGINT AS (CASE WHEN state = 'buffered' AND job <> 0 THEN job END) STORED,
  KEY hipq_answers_ids (twin),                    -- the same answer again, by its id;
  KEY hipq_answers_open (open_key, job_type, queue, id), -- what a job that begins to wait looks for;
  KEY hipq_answers_unused (queue, state, id),     -- what nobody has used, or looked at, for people, newest first;
  KEY hipq_answers_key (job_key, id),             -- the same by key, of whatever job type;
  KEY hipq_answers_job (job, state, hash),        -- what belongs to a job;
  KEY hipq_answers_early (early_job, queue),      -- of that, what came before its job began to wait: hardly ever anything;
  KEY hipq_answers_time (keep_until),             -- what need not be kept any longer.
  KEY hipq_answers_tenant (tenant, id)            -- What a tenant has is counted.
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- What people did by hand, and what they were refused: see hipq.stores.audit.
CREATE TABLE hipq_audit (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,  -- in the order it happened
  at BIGINT NOT NULL,
  who LONGTEXT NOT NULL,
  role LONGTEXT NOT NULL,
  via LONGTEXT NOT NULL,                          -- command, api or dashboard
  address LONGTEXT NOT NULL,
  action LONGTEXT NOT NULL,
  target LONGTEXT NOT NULL,
  details LONGTEXT NOT NULL DEFAULT ('{}'),
  KEY hipq_audit_time (at)                        -- what need not be kept any longer
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- What has happened, counted by queue, period and job type, in the transactions that change jobs: see hipq.job.activity.
CREATE TABLE hipq_activity (
  queue INT NOT NULL,
  grain INT NOT NULL DEFAULT 60,        -- the seconds of the period: minutes, which become hours, and those days
  starts BIGINT NOT NULL,               -- when the period begins
  job_type VARCHAR(200) NOT NULL,       -- '' = of types that are not counted apart
  writer BIGINT NOT NULL DEFAULT 0,     -- the connection that has counted, so that no row is everybody's; or 0
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
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- The highest number a dropped queue had: ids contain it and may be written down anywhere, so it is not given again.
CREATE TABLE hipq_dropped (one INT NOT NULL PRIMARY KEY, highest INT NOT NULL) ENGINE = InnoDB;
INSERT IGNORE INTO hipq_dropped VALUES (1, 0);

-- :each-queue
{ids {live}};  -- what the ids of its jobs are counted by: see hipq.stores.mariadb.flavour
-- The defaults are what every new job has: a program in another language names the other columns (docs/tables.md).
CREATE TABLE {live} (
  id BIGINT NOT NULL PRIMARY KEY,
  tenant VARCHAR(64) NOT NULL DEFAULT '',
  lane VARCHAR(300) NOT NULL DEFAULT '',
  job_type VARCHAR(200) NOT NULL,
  job_key VARCHAR(500) NOT NULL,
  job_data LONGTEXT NOT NULL DEFAULT ('null'),
  state VARCHAR(20) NOT NULL DEFAULT 'initial',
  phase VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'scheduled',
  rank VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',  -- where it stands in its queue: see hipq.job.order
  priority BIGINT NOT NULL DEFAULT 100,
  throttle_factor BIGINT NOT NULL DEFAULT 1000,  -- what it takes of limits, in thousandths of a unit: 1000 is one
  held BIGINT NOT NULL DEFAULT 0,
  time_windows LONGTEXT NOT NULL DEFAULT ('[]'),
  timeout DOUBLE NOT NULL DEFAULT 86400,
  scheduled_run_time BIGINT NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)),
  deadline BIGINT NOT NULL DEFAULT 0,
  wait LONGTEXT NOT NULL DEFAULT (''),  -- what is agreed for its wait: see hipq.job.waiting
  wait_key VARCHAR(500) NOT NULL DEFAULT '',  -- the key of its wait, under which answers find it, too
  attempt BIGINT NOT NULL DEFAULT 0,
  failures BIGINT NOT NULL DEFAULT 0,
  crashes BIGINT NOT NULL DEFAULT 0,
  owner BIGINT NOT NULL DEFAULT 0,
  token BIGINT NOT NULL DEFAULT 0,
  error LONGTEXT NOT NULL DEFAULT ('NONE'),
  code VARCHAR(20) NOT NULL DEFAULT 'NONE',
  exitcode BIGINT NOT NULL DEFAULT 0,
  result LONGTEXT NOT NULL DEFAULT (''),
  meta LONGTEXT NOT NULL DEFAULT ('{}'),  -- what it was added with for the engine, not for its handler: see hipq.job.meta
  history LONGTEXT NOT NULL DEFAULT ('[]'),
  create_time BIGINT NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)),
  update_time BIGINT NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)),
  -- There are no partial indexes: what few rows have is in columns that others leave NULL.
  windowed VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin AS (IF(char_length(time_windows) > 64, sha2(time_windows, 256), time_windows)) STORED,
  waited VARCHAR(500) AS (nullif(wait_key, '')) STORED,
  due BIGINT AS (CASE phase WHEN 'scheduled' THEN scheduled_run_time WHEN 'waiting' THEN deadline END) STORED,
  parked VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin AS (CASE WHEN phase = 'parked' THEN rank END) STORED,
  wrong VARCHAR(20) AS (CASE WHEN error <> 'NONE' OR code <> 'NONE' THEN code END) STORED,
  turn VARCHAR(64) AS (CASE WHEN phase = 'ready' AND tenant <> '' THEN tenant END) STORED,
  todo VARCHAR(200) AS (
    CASE WHEN phase IN ('deciding', 'answered', 'cancelling') AND owner = 0 THEN coalesce(
      CASE WHEN phase = 'deciding' AND instr(meta, '"registered"') > 0
        THEN json_unquote(json_extract(meta, '$.retry.registered')) COLLATE {bin} END, ''
    ) END
  ) STORED,
  -- The job whose handler has added it; an id has 19 digits at most, and what another program writes may have more.
  child_of DECIMAL(38) AS (
    CASE WHEN substr(meta, 1, 10) = '{"parent":' THEN CAST(substr(regexp_substr(meta, '[0-9]+'), 1, 38) AS DECIMAL(38)) END
  ) STORED,
  CONSTRAINT {live}_states CHECK (((state = 'initial' AND phase IN ('scheduled', 'ready', 'parked') AND error = 'NONE') OR (state = 'running' AND phase IN ('executing', 'waiting', 'answered', 'cancelling') AND error = 'NONE') OR (state = 'error' AND phase IN ('deciding') AND error <> 'NONE') OR (state = 'retry' AND phase IN ('scheduled', 'ready', 'parked') AND error <> 'NONE')) AND code IN ('NONE', 'ok', 'failed', 'retry', 'error', 'cancelled') AND attempt >= 0 AND throttle_factor >= 1),
  -- Other programs write these columns, too: what an engine could not read would stop it.
  CONSTRAINT {live}_values CHECK ((scheduled_run_time > 0 OR phase <> 'scheduled') AND timeout > 0 AND timeout <= 3155760000 AND priority BETWEEN -2147483648 AND 2147483647 AND scheduled_run_time <= 253402300799000000 AND create_time BETWEEN 0 AND 253402300799000000 AND throttle_factor <= 1000000000 AND ((owner = 0 AND held = 0) OR phase NOT IN ('scheduled', 'ready', 'parked'))),
  -- The key comes first: it tells rows apart, where tenant and type rarely do.
  UNIQUE KEY {live}_key (job_key, job_type, tenant),
  UNIQUE KEY {live}_waited (waited, job_type, tenant),
  -- A claim group is what limits, windows and pauses cannot tell apart: a claim merges the heads of claim groups. Indexes
  -- that are skipped through do not name the id, which every index ends with: MariaDB would read each entry of one that
  -- names it and a generated column.
  KEY {live}_ready (phase, job_type, lane, windowed, throttle_factor, rank),
  KEY {live}_due (phase, due),
  KEY {live}_parked (parked, id),
  KEY {live}_owner (owner, held, lane),  -- also what sums of limits read
  KEY {live}_retry (wrong, id),          -- what has gone wrong before, or is to run again
  KEY {live}_todo (todo, job_type),      -- what waits for other code than a handler, by its registered retry strategy
  KEY {live}_parent (child_of, id),
  KEY {live}_tenant (tenant, id),
  KEY {live}_turns (turn, lane, rank)    -- what can be claimed of tenants, by lane
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
-- What MariaDB knows of a table is as old as its opening: of one that was empty it would believe that each entry is another
-- claim group, and read a million of them instead of skipping. Statements that skip go by what is noted here, of one row.
INSERT IGNORE INTO {live} (id, job_type, job_key, phase) VALUES (0, '', '', 'ready');
ANALYZE TABLE {live} /*M! PERSISTENT FOR COLUMNS () INDEXES ({live}_ready, {live}_todo, {live}_turns) */;
DELETE FROM {live} WHERE id = 0;
CREATE TABLE {final} (
  id BIGINT NOT NULL PRIMARY KEY,
  tenant VARCHAR(64) NOT NULL,
  lane VARCHAR(300) NOT NULL,
  job_type VARCHAR(200) NOT NULL,
  job_key VARCHAR(500) NOT NULL,
  job_data LONGTEXT NOT NULL,
  state VARCHAR(20) NOT NULL,
  phase VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  rank VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,        -- where it stood in its queue: see hipq.job.order
  priority BIGINT NOT NULL,
  throttle_factor BIGINT NOT NULL,
  held BIGINT NOT NULL,
  time_windows LONGTEXT NOT NULL,
  timeout DOUBLE NOT NULL,
  scheduled_run_time BIGINT NOT NULL,
  deadline BIGINT NOT NULL,
  wait LONGTEXT NOT NULL,
  wait_key VARCHAR(500) NOT NULL DEFAULT '',
  attempt BIGINT NOT NULL,
  failures BIGINT NOT NULL,
  crashes BIGINT NOT NULL,
  owner BIGINT NOT NULL,
  token BIGINT NOT NULL,
  error LONGTEXT NOT NULL,
  code VARCHAR(20) NOT NULL,
  exitcode BIGINT NOT NULL,
  result LONGTEXT NOT NULL,
  meta LONGTEXT NOT NULL DEFAULT ('{}'),
  history LONGTEXT NOT NULL,
  create_time BIGINT NOT NULL,
  update_time BIGINT NOT NULL,
  -- What did not succeed is looked for, and is rare: jobs that did leave these columns NULL.
  waited VARCHAR(500) AS (nullif(wait_key, '')) STORED,
  wrong VARCHAR(20) AS (nullif(code, 'ok')) STORED,
  failed BIGINT AS (CASE WHEN error <> 'NONE' AND code <> 'cancelled' THEN update_time END) STORED,
  -- The job whose handler has added it; an id has 19 digits at most, and what another program writes may have more.
  child_of DECIMAL(38) AS (
    CASE WHEN substr(meta, 1, 10) = '{"parent":' THEN CAST(substr(regexp_substr(meta, '[0-9]+'), 1, 38) AS DECIMAL(38)) END
  ) STORED,
  CONSTRAINT {final}_states CHECK (((state = 'final' AND phase IN ('done'))) AND code IN ('NONE', 'ok', 'failed', 'retry', 'error', 'cancelled') AND attempt >= 0 AND throttle_factor >= 1),
  KEY {final}_key (job_key, job_type, update_time),  -- the last one that had a key
  KEY {final}_waited (waited, job_type, update_time),
  KEY {final}_time (update_time),
  KEY {final}_code (wrong, id),
  KEY {final}_failed (failed),
  KEY {final}_parent (child_of, id),
  KEY {final}_tenant (tenant, id),
  KEY {final}_named (tenant, job_key, id) -- others may have ended a million under the same key
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
