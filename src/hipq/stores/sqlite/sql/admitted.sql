-- Jobs a throttler admitted, in order, those of them that can still start (primary key).
SELECT json_group_array(json_array(json_array(job_type, lane, time_windows, throttle_factor), json_array(rank, id)))
FROM (
  SELECT * FROM {live}
  WHERE id IN (SELECT value FROM json_each(:ids)) AND phase IN ('ready', 'parked') AND scheduled_run_time <= :now
  ORDER BY rank, id
)
