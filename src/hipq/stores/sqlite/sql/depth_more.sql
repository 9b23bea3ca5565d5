-- How many jobs are ready, whatever their type; how many are to run again; how many did not succeed, and how many ended at
-- all, since a moment: up to :most each. Heads of indexes (_ready, _retry, _failed, _time), whose rows are not read.
SELECT {READY} AS phase, count(*) FROM (
  SELECT id FROM {live} INDEXED BY {live}_ready WHERE phase = {READY}
  ORDER BY job_type, lane, time_windows, throttle_factor, rank, id LIMIT :most
) AS ready
UNION ALL SELECT {RETRY}, count(*) FROM (
  SELECT id FROM {live} INDEXED BY {live}_retry
  WHERE (error <> {NONE} OR code <> {NONE}) AND state = {RETRY} ORDER BY code, id LIMIT :most
) AS retrying
UNION ALL SELECT 'failed', count(*) FROM (
  SELECT id FROM {final} INDEXED BY {final}_failed
  WHERE update_time >= :failed_since AND error <> {NONE} AND code <> 'cancelled' ORDER BY update_time LIMIT :most
) AS failed
UNION ALL SELECT {DONE}, count(*) FROM (
  SELECT id FROM {final} INDEXED BY {final}_time WHERE update_time >= :ended_since ORDER BY update_time LIMIT :most
) AS ended
