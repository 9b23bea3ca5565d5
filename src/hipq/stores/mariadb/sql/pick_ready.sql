-- The first ready jobs of one claim group (index _ready), locked as they are read; those that others have locked are passed
-- over. The time is compared once more: a clock that was set back since a job was staged must not start it early.
SELECT id FROM {live} FORCE INDEX ({live}_ready)
WHERE phase = {READY} AND job_type = :job_type AND lane = :lane AND windowed = {windowed} AND throttle_factor = :factor
  AND scheduled_run_time <= :now
ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED
