-- What there is to do in one queue; one such SELECT a queue, in one statement. Each part is one index probe.
-- A ready job that is not due by this clock was added by a process whose clock is ahead, or before this one was set back.
-- The indexes are named: once analyzed while most jobs were ready, SQLite would look for one through the whole table.
SELECT {number},
  EXISTS (
    SELECT 1 FROM {live} INDEXED BY {live}_ready
    WHERE phase = {READY} AND job_type IN (SELECT value FROM json_each(?)) AND scheduled_run_time <= ?
  ) OR EXISTS (
    SELECT 1 FROM {live} INDEXED BY {live}_todo
    WHERE {TODO}
      AND job_type IN (SELECT value FROM json_each(?))
      AND {strategy}
        IN (SELECT value FROM json_each(?))
  ) OR (? AND (
    EXISTS (SELECT 1 FROM {live} INDEXED BY {live}_ready WHERE phase = {READY} AND scheduled_run_time <= ?) OR EXISTS (
      SELECT 1 FROM {live} INDEXED BY {live}_todo
      WHERE {TODO}
    )
  )),
  coalesce((SELECT min(scheduled_run_time) FROM {live} INDEXED BY {live}_stage WHERE phase = {SCHEDULED}), 0),
  coalesce((SELECT min(deadline) FROM {live} INDEXED BY {live}_wait WHERE phase = {WAITING}), 0),
  EXISTS (SELECT 1 FROM {live} INDEXED BY {live}_owner WHERE owner <> 0 AND owner > 0),
  EXISTS (SELECT 1 FROM {live} INDEXED BY {live}_parked WHERE phase = {PARKED}),
  EXISTS (SELECT 1 FROM hipq_answers INDEXED BY hipq_answers_new WHERE queue = {number} AND state = {NEW}),
  (SELECT crons FROM hipq_queues WHERE number = {number})
