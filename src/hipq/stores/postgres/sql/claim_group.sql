-- The next places of some claim groups, each after a given one (index _ready), with the number of their claim group.
SELECT line.number, next.rank, next.id
FROM json_to_recordset(:lines) AS line (
  number INTEGER, job_type TEXT, lane TEXT, time_windows TEXT, factor BIGINT, rank TEXT, id BIGINT
) CROSS JOIN LATERAL (
  SELECT rank, id FROM {live} l
  WHERE phase = {READY} AND l.job_type = line.job_type AND l.lane = line.lane AND l.time_windows = line.time_windows
    AND throttle_factor = line.factor AND (l.rank, l.id) > (line.rank, line.id) AND scheduled_run_time <= :now
  ORDER BY l.rank, l.id LIMIT :count
) AS next
