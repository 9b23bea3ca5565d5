-- What there is to do in one queue; one such SELECT a queue, in one statement. Each part is one index probe.
-- A ready job that is not due by this clock was added by a process whose clock is ahead, or before this one was set back.
-- The indexes are named: once analyzed while most jobs were ready, SQLite would look for one through the whole table.
SELECT {number},
  EXISTS (
    SELECT 1 FROM {live} INDEXED BY {live}_ready
    WHERE phase = 'ready' AND job_type IN (SELECT value FROM json_each(?)) AND scheduled_run_time <= ?
  ) OR EXISTS (
    SELECT 1 FROM {live} INDEXED BY {live}_todo
    WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0
      AND job_type IN (SELECT value FROM json_each(?))
      AND coalesce(CASE WHEN phase = 'deciding' THEN json_extract(meta, '$.retry.registered') END, '')
        IN (SELECT value FROM json_each(?))
  ) OR (? AND (
    EXISTS (SELECT 1 FROM {live} INDEXED BY {live}_ready WHERE phase = 'ready' AND scheduled_run_time <= ?) OR EXISTS (
      SELECT 1 FROM {live} INDEXED BY {live}_todo
      WHERE phase IN ('deciding', 'answered', 'cancelling') AND owner = 0
    )
  )),
  coalesce((SELECT min(scheduled_run_time) FROM {live} INDEXED BY {live}_stage WHERE phase = 'scheduled'), 0),
  coalesce((SELECT min(deadline) FROM {live} INDEXED BY {live}_wait WHERE phase = 'waiting'), 0),
  EXISTS (SELECT 1 FROM {live} INDEXED BY {live}_owner WHERE owner <> 0 AND owner > 0),
  EXISTS (SELECT 1 FROM {live} INDEXED BY {live}_parked WHERE phase = 'parked')
