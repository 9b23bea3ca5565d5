-- Add jobs under ids taken in the same transaction. A live job with the same key is left alone: the row is not added.
INSERT INTO {live} (
  id, tenant, lane, job_type, job_key, job_data, phase, rank, priority, throttle_factor, time_windows, timeout,
  scheduled_run_time, create_time, update_time, meta,
  state, held, deadline, wait, attempt, failures, crashes, owner, token, error, code, exitcode, result, history
)
SELECT *, {INITIAL}, 0, 0, '', 0, 0, 0, 0, 0, {NONE}, {NONE}, 0, '', '[]' FROM ({rows}) WHERE true
ON CONFLICT (tenant, job_type, job_key) DO NOTHING
