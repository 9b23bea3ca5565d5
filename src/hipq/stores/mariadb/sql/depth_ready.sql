-- How many jobs of a type are ready, up to :most, and when the first of those was due (index _ready).
SELECT {READY}, count(*), coalesce(min(due), 0) FROM (
  SELECT scheduled_run_time AS due FROM {live} FORCE INDEX ({live}_ready)
  WHERE phase = {READY} AND job_type = :type ORDER BY lane, windowed, throttle_factor, rank, id LIMIT :most
) AS ready
