-- Copy rows that became final to the final table. They are locked since their tokens were compared; the token is named again
-- all the same. The live rows are deleted by the next statement of the transaction.
INSERT INTO {final} (
  id, tenant, lane, job_type, job_key, job_data, state, phase, rank, priority, throttle_factor, held, time_windows,
  timeout, scheduled_run_time, deadline, wait, wait_key, attempt, failures, crashes, owner, token, error, code, exitcode,
  result, meta, history, create_time, update_time
)
SELECT STRAIGHT_JOIN l.id, l.tenant, l.lane, l.job_type, l.job_key, coalesce(done.job_data, l.job_data), {FINAL}, {DONE}, l.rank,
  done.priority, l.throttle_factor, 0, l.time_windows, l.timeout, done.scheduled_run_time, l.deadline, '', l.wait_key,
  done.attempt, done.failures, done.crashes, 0, l.token + 1, done.error, done.code, done.exitcode, done.result, l.meta,
  done.history, l.create_time, done.update_time
FROM {finished_rows} AS done JOIN {live} l FORCE INDEX (PRIMARY) ON l.id = done.id AND l.token = done.token
