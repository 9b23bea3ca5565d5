-- Add one job: its id is taken, if none was reserved, and its row written in one round trip. A live job with the same key is
-- left alone (index _key): then its id comes back, which is not the one that was taken here. A number that Galera has given
-- before is not used again: a live job that has it is told by its create_time, a final one (primary key) lets no row in.
INSERT INTO {live} (
  id, tenant, lane, job_type, job_key, job_data, phase, rank, priority, throttle_factor, time_windows, timeout,
  scheduled_run_time, create_time, update_time, meta
)
SELECT id, :tenant, :lane, :job_type, coalesce(nullif(:job_key, ''), id), :job_data, :phase, :rank, :priority,
  :throttle_factor, :time_windows, :timeout, :scheduled_run_time, :create_time, :create_time, :meta
FROM (SELECT CASE WHEN :id > 0 THEN :id ELSE NEXTVAL({live}_ids) << 16 | {number} END AS id LIMIT 1) AS new
WHERE NOT EXISTS (SELECT 1 FROM {final} f WHERE f.id = new.id)
ON DUPLICATE KEY UPDATE id = {live}.id
RETURNING id, CASE WHEN :id > 0 THEN :id ELSE LASTVAL({live}_ids) << 16 | {number} END, create_time
