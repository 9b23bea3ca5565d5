-- How many jobs are ready, whatever their type; how many are to run again; how many did not succeed, and how many ended at
-- all, since a moment: up to :most each. Heads of indexes (_ready, _retry, _failed, _time).
SELECT {READY} AS phase, count(*) FROM (
  SELECT id FROM {live} FORCE INDEX ({live}_ready) WHERE phase = {READY} LIMIT :most
) AS ready
UNION ALL SELECT {RETRY}, count(*) FROM (
  SELECT id FROM {live} FORCE INDEX ({live}_retry) WHERE wrong IS NOT NULL AND state = {RETRY} LIMIT :most
) AS retrying
UNION ALL SELECT 'failed', count(*) FROM (
  SELECT id FROM {final} FORCE INDEX ({final}_failed) WHERE failed >= :failed_since LIMIT :most
) AS failed
UNION ALL SELECT {DONE}, count(*) FROM (
  SELECT id FROM {final} FORCE INDEX ({final}_time) WHERE update_time >= :ended_since LIMIT :most
) AS ended
