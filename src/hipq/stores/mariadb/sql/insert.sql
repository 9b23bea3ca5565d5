-- Add jobs under ids taken before. A live job with the same key is left alone, and its own id comes back in the place of the
-- new one. The rows come in the order of their keys, so two batches that share keys wait for each other. A number that Galera
-- has given before is not used again: a live job that has it is told by its create_time, a final one lets no row in.
INSERT INTO {live} (
  id, tenant, lane, job_type, job_key, job_data, phase, rank, priority, throttle_factor, time_windows, timeout,
  scheduled_run_time, create_time, update_time, meta
)
SELECT * FROM {new_rows} AS new WHERE NOT EXISTS (SELECT 1 FROM {final} f WHERE f.id = new.id)
ON DUPLICATE KEY UPDATE id = {live}.id{returning id, create_time}
