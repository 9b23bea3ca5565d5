-- The first ready jobs of one type in its plain claim group (index _ready); one such SELECT a type, merged in rank order. The
-- time is compared once more: a clock that was set back since a job was staged must not start it early.
SELECT id, rank FROM (
  SELECT id, rank FROM {live}
  WHERE phase = {READY} AND job_type = ? AND lane = '' AND time_windows = '[]' AND throttle_factor = 1000
    AND scheduled_run_time <= ?
  ORDER BY rank, id LIMIT ?
)
