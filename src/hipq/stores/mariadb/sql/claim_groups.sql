-- The heads of one type's claim groups (index _ready): the claim groups by skipping from one to the next, however many jobs
-- each has, and the first job of each that is due by a probe. Such SELECTs are joined into one statement.
{skipping}
(
  SELECT (
    SELECT l.id FROM {live} l FORCE INDEX ({live}_ready)
    WHERE l.phase = {READY} AND l.job_type = found.job_type AND l.lane = found.lane AND l.windowed = found.windowed
      AND l.throttle_factor = found.throttle_factor AND l.scheduled_run_time <= :now
    ORDER BY l.rank, l.id LIMIT 1
  ) AS id FROM (
    SELECT phase, job_type, lane, windowed, throttle_factor FROM {live} FORCE INDEX ({live}_ready)
    WHERE phase = {READY} AND job_type = :type AND {behind}
    GROUP BY phase, job_type, lane, windowed, throttle_factor LIMIT :depth
  ) AS found
)
