-- The first ready jobs of one type's plain claim group (index _ready); one such SELECT a type, merged in rank order.
(
  SELECT rank, id FROM {live} FORCE INDEX ({live}_ready)
  WHERE phase = {READY} AND job_type = :type AND lane = '' AND windowed = '[]' AND throttle_factor = 1000
    AND scheduled_run_time <= :now
  ORDER BY rank, id LIMIT :limit
)
