-- Add one job: its id is taken, if none was reserved, and its row written in one round trip. Safe without a transaction around it, being one
-- statement; who listens is told when it commits, if asked for. A live job with the same key is left alone (index _key): then no row comes back, and one id is wasted.
WITH new AS (SELECT CASE WHEN :id::int8 > 0 THEN :id::int8 ELSE nextval('{live}_ids') << 16 | {number} END AS id)
INSERT INTO {live} (
  id, tenant, lane, job_type, job_key, job_data, phase, rank, priority, throttle_factor, time_windows, timeout,
  scheduled_run_time, create_time, update_time, meta
)
SELECT id, :tenant, :lane, :job_type, coalesce(nullif(:job_key, ''), id::text), :job_data, :phase,
  :rank, :priority, :throttle_factor, :time_windows, :timeout, :scheduled_run_time, :create_time,
  :create_time, :meta
FROM new
ON CONFLICT (tenant, job_type, job_key) DO NOTHING
RETURNING id, CASE WHEN :notify THEN pg_notify('hipq', concat_ws(':', {number}, rank, id)) END
