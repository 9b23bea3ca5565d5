-- The first ready jobs of one claim group (index _ready), locked as they are read; none if the rules are not the known ones,
-- or (unless it is known that no other may start) there are other claim groups than the plain one: behind it or, of lighter
-- jobs, before it. The time is compared once
-- more: a clock that was set back since a job was staged must not start it early.
SELECT id FROM {live}
  WHERE phase = {READY} AND job_type = :type AND lane = :lane AND time_windows = :windows
    AND throttle_factor = :factor AND (rank, id) >= (:rank, :id) AND scheduled_run_time <= :now
    AND (SELECT hipq_version({number})) = :version
    AND (:known OR NOT EXISTS (
      SELECT FROM {live} WHERE phase = {READY} AND job_type = :type
        AND (lane, time_windows, throttle_factor) > ('', '[]', 1000)
    ) AND NOT EXISTS (
      SELECT FROM {live} WHERE phase = {READY} AND job_type = :type
        AND lane = '' AND time_windows = '[]' AND throttle_factor < 1000
    ))
  ORDER BY rank, id LIMIT :limit - (SELECT count(*) FROM todo) FOR UPDATE SKIP LOCKED
