-- How many jobs are ready, whatever their type; how many are to run again; how many did not succeed, and how many ended at
-- all, since a moment: up to :most each. Heads of indexes (_ready, _retry, _failed, _time): by a range, or a plan that
-- was made while the table was small sorts what the index _key has.
SELECT {READY} AS phase, count(*) FROM (
  SELECT id FROM {live} WHERE phase = {READY}
    AND (job_type, lane, time_windows, throttle_factor) > ('', '', '', 0)
  ORDER BY job_type, lane, time_windows, throttle_factor, rank, id LIMIT :most
) AS ready
UNION ALL SELECT {RETRY}, count(*) FROM (
  SELECT id FROM {live}
  WHERE (error <> {NONE} OR code <> {NONE}) AND state = {RETRY} ORDER BY code, id LIMIT :most
) AS retrying
UNION ALL SELECT 'failed', count(*) FROM (
  SELECT id FROM {final}
  WHERE update_time >= :failed_since AND error <> {NONE} AND code <> 'cancelled' ORDER BY update_time LIMIT :most
) AS failed
UNION ALL SELECT {DONE}, count(*) FROM (
  SELECT id FROM {final}
  WHERE update_time >= :ended_since AND update_time < 9223372036854775807 AND id > 0 ORDER BY update_time LIMIT :most
) AS ended
