-- Add one job: its id is taken, if none was reserved, and its row written in one round trip. A live job with the same key is
-- left alone (index _key): then its id comes back, which is not the one that was taken here.
INSERT INTO {live} (
  id, tenant, lane, job_type, job_key, job_data, phase, rank, priority, throttle_factor, time_windows, timeout,
  scheduled_run_time, create_time, update_time, meta
)
SELECT id, :tenant, :lane, :job_type, coalesce(nullif(:job_key, ''), id), :job_data, :phase, :rank, :priority,
  :throttle_factor, :time_windows, :timeout, :scheduled_run_time, :create_time, :create_time, :meta
FROM (SELECT CASE WHEN :id > 0 THEN :id ELSE NEXTVAL({live}_ids) << 16 | {number} END AS id LIMIT 1) AS new
ON DUPLICATE KEY UPDATE id = {live}.id
RETURNING id, CASE WHEN :id > 0 THEN :id ELSE LASTVAL({live}_ids) << 16 | {number} END
