-- Jobs a throttler admitted, in order, those of them that can still start (primary key).
SELECT json_group_array(json_array(job_type, lane, time_windows, throttle_factor, rank, id)) AS gathered
FROM (
  SELECT * FROM {live}
  WHERE id IN (SELECT value FROM json_each(:ids)) AND phase IN ({READY}, {PARKED}) AND scheduled_run_time <= :now
  ORDER BY rank, id
)
