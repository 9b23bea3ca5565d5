-- Add jobs under ids taken before. A live job with the same key is left alone (index _key): its id does not come back.
-- The rows come in the order of their keys, so two batches that share keys wait for each other and never deadlock.
INSERT INTO {live} (
  id, tenant, lane, job_type, job_key, job_data, phase, rank, priority, throttle_factor, time_windows, timeout,
  scheduled_run_time, create_time, update_time, meta
)
SELECT * FROM json_to_recordset(:rows) AS new (
  id BIGINT, tenant TEXT, lane TEXT, job_type TEXT, job_key TEXT, job_data TEXT, phase TEXT, rank TEXT,
  priority BIGINT, throttle_factor BIGINT, time_windows TEXT, timeout DOUBLE PRECISION, scheduled_run_time BIGINT,
  create_time BIGINT, update_time BIGINT, meta TEXT
)
ON CONFLICT (tenant, job_type, job_key) DO NOTHING
RETURNING id
