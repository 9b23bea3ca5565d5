-- Add one job: its id is taken, if none was reserved, and its row written in one round trip. Safe without a transaction around it, being one
-- statement; who listens is told when it commits, if asked for. A live job with the same key is left alone (index _key): then no row comes back, and one id is wasted.
WITH new AS (SELECT CASE WHEN %(id)s::int8 > 0 THEN %(id)s::int8 ELSE nextval('{live}_ids') << 16 | {number} END AS id)
INSERT INTO {live} (
  id, tenant, lane, job_type, job_key, job_data, phase, rank, priority, throttle_factor, time_windows, timeout,
  scheduled_run_time, create_time, update_time, meta
)
SELECT id, %(tenant)s, %(lane)s, %(job_type)s, coalesce(nullif(%(job_key)s, ''), id::text), %(job_data)s, %(phase)s,
  %(rank)s, %(priority)s, %(throttle_factor)s, %(time_windows)s, %(timeout)s, %(scheduled_run_time)s, %(create_time)s,
  %(create_time)s, %(meta)s
FROM new
ON CONFLICT (tenant, job_type, job_key) DO NOTHING
RETURNING id, CASE WHEN %(notify)s THEN pg_notify('hipq', concat_ws(':', {number}, rank, id)) END
